//! The Prometheus text format (Prometheus documentation, "Exposition formats").

use std::fmt::{Display, Write as _};
use std::time::Duration;

use larder_measure::Snapshot;

/// The type of a metric.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only grows, until the server restarts or counters are reset.
    Counter,
    Gauge,
    Histogram,
}

/// A metric: all its samples follow its help and type.
#[derive(Clone, Copy)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
}

impl Metric {
    pub(super) const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Counter, help }
    }

    pub(super) const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Gauge, help }
    }

    pub(super) const fn histogram(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Histogram, help }
    }
}

/// Names and values.
pub(super) type Labels<'l> = &'l [(&'l str, &'l str)];

/// The text that is being written.
#[derive(Default)]
pub(super) struct Text(String);

impl Text {
    /// Begins a metric. It should have samples.
    pub(super) fn metric(&mut self, metric: &Metric) -> Samples<'_> {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let Metric { name, help, .. } = metric;
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Samples { text: &mut self.0, name: metric.name }
    }

    /// A metric with one sample and no labels.
    pub(super) fn single(&mut self, metric: &Metric, value: impl Display) {
        self.metric(metric).add(&[], value);
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// Takes the samples of a metric.
pub(super) struct Samples<'t> {
    text: &'t mut String,
    name: &'static str,
}

impl Samples<'_> {
    pub(super) fn add(&mut self, labels: Labels<'_>, value: impl Display) {
        self.line("", labels, None, value);
    }

    /// The buckets, sum and count of a histogram of durations, in seconds.
    pub(super) fn add_durations(&mut self, labels: Labels<'_>, durations: &Snapshot) {
        for bound in BOUNDS {
            let nanos = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
            let bound = bound.as_secs_f64().to_string();
            self.line("_bucket", labels, Some(&bound), durations.count_up_to(nanos));
        }
        let count = durations.count();
        self.line("_bucket", labels, Some("+Inf"), count);
        self.line("_sum", labels, None, durations.sum_nanos() as f64 / 1e9);
        self.line("_count", labels, None, count);
    }

    /// The buckets, sum and count of a histogram of numbers: how many were in each bucket, by its upper bound. The last
    /// bucket has all that is above.
    pub(super) fn add_counts(&mut self, bounds: &[u64], counts: &[u64], sum: u64) {
        let mut reached = 0;
        for (bound, count) in bounds.iter().zip(counts) {
            reached += count;
            self.line("_bucket", &[], Some(&bound.to_string()), reached);
        }
        self.line("_bucket", &[], Some("+Inf"), reached);
        self.line("_sum", &[], None, sum);
        self.line("_count", &[], None, reached);
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, bound: Option<&str>, value: impl Display) {
        let _ = write!(self.text, "{}{suffix}", self.name);
        let mut before = '{';
        for (name, value) in labels.iter().copied().chain(bound.map(|bound| ("le", bound))) {
            let _ = write!(self.text, "{before}{name}=\"{}\"", escaped(value));
            before = ',';
        }
        if before == ',' {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Upper bounds of the buckets. Most requests take microseconds; the slow ones are of interest.
const BOUNDS: [Duration; 17] = [
    Duration::from_nanos(1_000),
    Duration::from_nanos(2_500),
    Duration::from_micros(5),
    Duration::from_micros(10),
    Duration::from_micros(25),
    Duration::from_micros(50),
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_millis(2_500),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_become_cumulative() {
        let mut text = Text::default();
        text.metric(&Metric::histogram("a", "Help.")).add_counts(&[1, 2, 4], &[3, 0, 2], 11);
        let lines: Vec<_> = text.0.lines().skip(2).collect();
        let buckets = ["a_bucket{le=\"1\"} 3", "a_bucket{le=\"2\"} 3", "a_bucket{le=\"4\"} 5"];
        assert_eq!(lines[..3], buckets);
        assert_eq!(lines[3..], ["a_bucket{le=\"+Inf\"} 5", "a_sum 11", "a_count 5"]);
    }

    #[test]
    fn labels_are_escaped() {
        let mut text = Text::default();
        text.metric(&Metric::gauge("a", "Help.")).add(&[("b", "x\"\\\ny"), ("c", "")], 1.5);
        assert_eq!(text.finish(), "# HELP a Help.\n# TYPE a gauge\na{b=\"x\\\"\\\\\\ny\",c=\"\"} 1.5\n");
    }
}
