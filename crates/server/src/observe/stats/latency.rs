//! `stats latency`, larder's own: service times, for tools that cannot reach the metrics (docs/statistics.md).

use super::Lines;
use crate::observe::measure::{Class, Transport};
use crate::shared::Shared;

/// Lines for each class and transport in use; none if latencies are not measured.
pub(super) fn report(shared: &Shared, lines: &mut Lines) {
    if !shared.measures.measured().latency {
        return;
    }
    for transport in Transport::ALL {
        for class in Class::ALL {
            if shared.measures.is_unmeasured(transport, class) {
                continue;
            }
            let service = shared.measures.service(transport, class);
            let name = |figure: &str| format!("{}:{}:{figure}", class.name(), transport.name());
            lines.add(name("count"), service.count());
            lines.add(name("sum_nanos"), service.sum_nanos());
            for (figure, share) in [("p50_nanos", 0.5), ("p99_nanos", 0.99), ("p999_nanos", 0.999)] {
                lines.add(name(figure), service.quantile_nanos(share).unwrap_or_default());
            }
            let buckets: Vec<_> =
                service.buckets().map(|(bound, count)| format!("{bound}={count}")).collect();
            lines.add(name("buckets"), buckets.join(","));
        }
    }
}
