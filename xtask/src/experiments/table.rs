//! The table of an experiment.

use larder_bench::compare::{Metric, Standing};
use larder_bench::outcome::{CommandTally, Tally};
use larder_bench::scenario::Kind;
use larder_bench::statistics::median;

pub(super) const HEADING: &str = "\
| run | server | requests/s | keys/s | get, us | set, us | p99, us | MiB/s | hits | failures | server CPU s / M keys | of memcached |
|---|---|---|---|---|---|---|---|---|---|---|---|";

/// A server's line. Latencies are means, but for the 99th percentile of all commands together.
pub(super) fn row(label: &str, standing: &Standing) -> String {
    let total = &standing.total;
    let middle = |metric| median(standing.rounds.iter().filter_map(|figures| figures.get(&metric).copied()));
    let keys_per_sec = middle(Metric::OperationsPerSec);
    let of_keys = |count: u64| count as f64 / total.operations() as f64;
    let requests = total.commands.values().map(|figures| figures.requests).sum();
    let bytes = total.sent_bytes + total.received_bytes;
    let all = total.all();
    let hits = match all.hits + all.misses {
        0 => String::new(),
        looked_for => format!("{:.1} %", 100.0 * all.hits as f64 / looked_for as f64),
    };
    let ratio = standing.ratios.iter().find(|ratio| ratio.metric == Metric::ServerCpuSecsPerMillion);
    let ratio = ratio
        .map(|ratio| format!("{:.2} ({:.2} - {:.2})", ratio.ratio, ratio.low, ratio.high))
        .unwrap_or_default();
    let p99_micros = match middle(Metric::LatencyP99Micros) {
        // Nothing was answered.
        0.0 => String::new(),
        micros => format!("{micros:.0}"),
    };
    format!(
        "| {label} | {} | {:.0} | {keys_per_sec:.0} | {} | {} | {p99_micros} | {:.1} | {hits} | {} | {:.2} | {ratio} |",
        standing.contestant.name,
        keys_per_sec * of_keys(requests),
        mean_micros(total, &[Kind::Get, Kind::Gets]),
        mean_micros(total, &[Kind::Set]),
        keys_per_sec * of_keys(bytes) / f64::from(1 << 20),
        standing.failures + total.datagrams_lost,
        middle(Metric::ServerCpuSecsPerMillion),
    )
}

/// Nothing, where nothing of the kind was asked and answered.
fn mean_micros(total: &Tally, kinds: &[Kind]) -> String {
    let mut all = CommandTally::new();
    for (_, figures) in total.commands.iter().filter(|(kind, _)| kinds.contains(kind)) {
        all.add(figures);
    }
    if all.latency_nanos.is_empty() {
        String::new()
    } else {
        format!("{:.0}", all.latency_nanos.mean() / 1e3)
    }
}
