//! Several servers under the same load, interleaved, and the significance of their differences.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::contestant::Contestant;
use crate::contestant::launch::Launch;
use crate::outcome::{Outcome, Tally};
use crate::report::units;
use crate::scenario::{Kind, Scenario};
use crate::statistics::paired_ratio;

mod rounds;

pub use rounds::compare;

/// The servers to compare, and the number of rounds.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The first is the baseline of the others.
    pub contestants: Vec<Contestant>,
    /// The load; `target.servers` is set for each server.
    pub scenario: Scenario,
    /// Sent to every server after its start, in this order, and not counted. For preparation beyond [`Scenario::fill`].
    pub prepare: Vec<Scenario>,
    /// After its start and fill, wait until a server does nothing by itself (nearly no CPU time for three seconds), for
    /// so many seconds at most. Otherwise tables that still grow, or memory that is still moved, count as the cost of
    /// requests. 0: do not wait, for instance where the CPU time of a server is not visible.
    pub settle_secs_max: f64,
    /// Rounds. With a single round there are figures and no ratios.
    pub rounds: usize,
    /// Start every server anew for each round, so that properties of one process (such as the layout of its memory) are
    /// not taken for those of the program.
    pub restart: bool,
    /// Confidence level of the intervals, 0 to 1. At 0.95 one in twenty verdicts on equal servers is chance.
    pub confidence: f64,
    /// How servers are started, and on which cores.
    pub launch: Launch,
    /// Cores for the load. Empty: the system chooses.
    pub load_cores: Vec<usize>,
}

/// The result.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Comparison {
    /// The load.
    pub scenario: Scenario,
    /// Wall clock at the start, seconds since 1970.
    pub started_unix_secs: u64,
    /// See [`Plan::confidence`].
    pub confidence: f64,
    /// See [`Plan::restart`].
    pub restart: bool,
    /// In the order of the plan.
    pub standings: Vec<Standing>,
}

/// One server's figures.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Standing {
    /// The server.
    pub contestant: Contestant,
    /// The program and its version: see [`crate::outcome::ServerCost::software`].
    #[serde(default)]
    pub software: String,
    /// Round by round; the same round of every server was measured within the same few seconds.
    pub rounds: Vec<Figures>,
    /// Ratios to the first server, for every metric that both have. Empty for the first.
    pub ratios: Vec<Ratio>,
    /// Wrong replies, in all rounds.
    pub failures: u64,
    /// Warnings, if the client was the limit.
    pub warnings: Vec<String>,
    /// All rounds added up, for charts of the latencies.
    #[serde(default)]
    pub total: Tally,
}

/// The measurements of one round. A metric that cannot be measured (CPU of another machine) is absent.
pub type Figures = BTreeMap<Metric, f64>;

/// Metrics that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Operations a second; a get of n keys is n.
    OperationsPerSec,
    /// Median latency of all commands together, in microseconds, as are the other latencies.
    LatencyP50Micros,
    /// 99th percentile.
    LatencyP99Micros,
    /// 99.9th percentile.
    LatencyP999Micros,
    /// 99.9th percentile of the gets, where there are other commands as well.
    LatencyP999GetsMicros,
    /// CPU seconds of the server, user and system, for a million operations.
    ServerCpuSecsPerMillion,
    /// Share of the server's CPU time that the kernel took, 0 to 1.
    ServerSystemShare,
    /// Page faults of the server a second, minor and major ones.
    ServerFaultsPerSec,
    /// Resident memory of the server at the end of the round.
    ServerResidentBytes,
    /// Share of the requested keys that were found, 0 to 1.
    HitRatio,
}

/// The ratio of a metric to that of the first server.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Ratio {
    /// The metric.
    pub metric: Metric,
    /// Geometric mean of the rounds' ratios: above 1, this server's figure is higher than the first one's.
    pub ratio: f64,
    /// Lower end of the confidence interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The conclusion.
    pub verdict: Verdict,
}

/// The conclusion from an interval. Which side is better depends on the metric: see [`Metric::verdict_word`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The whole interval lies on the better side of 1.
    Better,
    /// The whole interval lies on the worse side of 1.
    Worse,
    /// The interval contains 1: there may be a difference, but these rounds do not show it.
    NoDifferenceShown,
}

impl Ratio {
    /// Its interval in words, with so many decimals: `0.98 to 1.02`. One that says nothing is not shown in figures.
    pub fn interval(&self, decimals: usize) -> String {
        if self.verdict == Verdict::NoDifferenceShown && self.high > self.low * WIDTH_MAX {
            return "interval too wide: more rounds are needed".to_owned();
        }
        format!("{:.decimals$} to {:.decimals$}", self.low, self.high)
    }
}

impl Metric {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 10] = [
        Self::OperationsPerSec,
        Self::LatencyP50Micros,
        Self::LatencyP99Micros,
        Self::LatencyP999Micros,
        Self::LatencyP999GetsMicros,
        Self::ServerCpuSecsPerMillion,
        Self::ServerSystemShare,
        Self::ServerFaultsPerSec,
        Self::ServerResidentBytes,
        Self::HitRatio,
    ];

    /// The heading in tables.
    pub fn heading(self) -> &'static str {
        match self {
            Self::OperationsPerSec => "operations",
            Self::LatencyP50Micros => "p50",
            Self::LatencyP99Micros => "p99",
            Self::LatencyP999Micros => "p99.9",
            Self::LatencyP999GetsMicros => "p99.9 of gets",
            Self::ServerCpuSecsPerMillion => "CPU/operation",
            Self::ServerSystemShare => "in the kernel",
            Self::ServerFaultsPerSec => "page faults",
            Self::ServerResidentBytes => "resident memory",
            Self::HitRatio => "hit ratio",
        }
    }

    /// A value with three digits and its unit: `456 k/s`, `12.3 µs`, `64.0 MiB`.
    pub fn figure(self, value: f64) -> String {
        match self {
            Self::OperationsPerSec | Self::ServerFaultsPerSec => format!("{}/s", units::short(value)),
            Self::LatencyP50Micros
            | Self::LatencyP99Micros
            | Self::LatencyP999Micros
            | Self::LatencyP999GetsMicros => units::latency(value * 1e3),
            // Seconds for a million operations are microseconds for one.
            Self::ServerCpuSecsPerMillion => units::latency(value * 1e3),
            Self::ServerResidentBytes => units::memory(value),
            Self::HitRatio | Self::ServerSystemShare => units::percent(value),
        }
    }

    /// True if more of it is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Self::OperationsPerSec | Self::HitRatio)
    }

    /// A verdict in a word or two: a server is faster, memory is smaller.
    pub fn verdict_word(self, verdict: Verdict) -> &'static str {
        let (better, worse) = match self {
            Self::ServerCpuSecsPerMillion => ("cheaper", "dearer"),
            Self::ServerResidentBytes => ("smaller", "larger"),
            Self::ServerSystemShare => ("lower", "higher"),
            Self::ServerFaultsPerSec => ("fewer", "more"),
            Self::HitRatio => ("higher", "lower"),
            _ => ("faster", "slower"),
        };
        match verdict {
            Verdict::Better => better,
            Verdict::Worse => worse,
            Verdict::NoDifferenceShown => "no difference shown",
        }
    }
}

/// The metrics of one round.
pub fn figures(outcome: &Outcome) -> Figures {
    let mut figures = Figures::new();
    let operations = outcome.total.operations();
    if operations == 0 || outcome.elapsed_secs <= 0.0 {
        return figures;
    }
    figures.insert(Metric::OperationsPerSec, operations as f64 / outcome.elapsed_secs);

    let all = outcome.total.all();
    let micros = |quantile| all.latency_nanos.value_at_quantile(quantile) as f64 / 1e3;
    figures.insert(Metric::LatencyP50Micros, micros(0.5));
    figures.insert(Metric::LatencyP99Micros, micros(0.99));
    figures.insert(Metric::LatencyP999Micros, micros(0.999));
    if let Some(gets) = outcome.total.commands.get(&Kind::Get).filter(|gets| gets.requests < all.requests) {
        let nanos = gets.latency_nanos.value_at_quantile(0.999);
        figures.insert(Metric::LatencyP999GetsMicros, nanos as f64 / 1e3);
    }
    if all.hits + all.misses > 0 {
        figures.insert(Metric::HitRatio, all.hits as f64 / (all.hits + all.misses) as f64);
    }

    // For a cluster only if all servers report: a partial sum would be misleading.
    let servers = &outcome.servers;
    let user_secs: Option<f64> = servers.iter().map(|server| server.cpu_user_secs).sum();
    let system_secs: Option<f64> = servers.iter().map(|server| server.cpu_system_secs).sum();
    let page_faults: Option<u64> = servers.iter().map(|server| server.page_faults).sum();
    let resident_bytes: Option<u64> = servers.iter().map(|server| server.resident_bytes).sum();
    if let (Some(user_secs), Some(system_secs)) = (user_secs, system_secs)
        && user_secs + system_secs > 0.0
    {
        let cpu_secs = user_secs + system_secs;
        figures.insert(Metric::ServerCpuSecsPerMillion, cpu_secs / operations as f64 * 1e6);
        figures.insert(Metric::ServerSystemShare, system_secs / cpu_secs);
    }
    if let Some(faults) = page_faults.filter(|_| !servers.is_empty()) {
        figures.insert(Metric::ServerFaultsPerSec, faults as f64 / outcome.elapsed_secs);
    }
    if let Some(bytes) = resident_bytes.filter(|&bytes| bytes > 0) {
        figures.insert(Metric::ServerResidentBytes, bytes as f64);
    }
    figures
}

/// The ratios of one server's rounds to those of the first server, for every metric that all these rounds have.
fn ratios(base: &[Figures], rounds: &[Figures], confidence: f64) -> Vec<Ratio> {
    let of = |metric: Metric| {
        let values = |rounds: &[Figures]| {
            rounds.iter().map(|figures| figures.get(&metric).copied()).collect::<Option<Vec<f64>>>()
        };
        let interval = paired_ratio(&values(base)?, &values(rounds)?, confidence)?;
        let higher = if metric.more_is_better() { Verdict::Better } else { Verdict::Worse };
        let lower = if metric.more_is_better() { Verdict::Worse } else { Verdict::Better };
        let verdict = if interval.low > 1.0 + RESOLUTION {
            higher
        } else if interval.high < 1.0 - RESOLUTION {
            lower
        } else {
            Verdict::NoDifferenceShown
        };
        Some(Ratio { metric, ratio: interval.ratio, low: interval.low, high: interval.high, verdict })
    };
    Metric::ALL.into_iter().filter_map(of).collect()
}

/// Histograms keep three digits. A smaller difference can be a rounding error, which is the same in each round and so
/// does not show in an interval.
const RESOLUTION: f64 = 0.001;

/// An interval from half to twice as much: beyond that it tells nothing of a difference.
const WIDTH_MAX: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::ServerCost;

    /// Rounds of one metric.
    fn rounds(metric: Metric, values: &[f64]) -> Vec<Figures> {
        values.iter().map(|&value| Figures::from([(metric, value)])).collect()
    }

    fn verdict(metric: Metric, base: &[f64], values: &[f64]) -> Verdict {
        let ratios = ratios(&rounds(metric, base), &rounds(metric, values), 0.95);
        assert_eq!(ratios.len(), 1);
        ratios[0].verdict
    }

    #[test]
    fn a_verdict_needs_an_interval_that_leaves_out_one() {
        let rate = Metric::OperationsPerSec;
        // Each round 10 % apart, whatever the machine did: shown.
        assert_eq!(verdict(rate, &[100.0, 50.0, 80.0], &[110.0, 55.0, 88.0]), Verdict::Better);
        assert_eq!(verdict(rate, &[110.0, 55.0, 88.0], &[100.0, 50.0, 80.0]), Verdict::Worse);
        // Logarithms 0.1, 0.3, 0.2: mean 0.2, deviation 0.1, and t = 4.303 (two degrees) puts 0.248 on either side.
        let figures = [0.1_f64, 0.3, 0.2].map(f64::exp);
        assert_eq!(verdict(rate, &[1.0; 3], &figures), Verdict::NoDifferenceShown);
        // Logarithms 0.15, 0.25, 0.2: half the deviation, half the margin.
        let figures = [0.15_f64, 0.25, 0.2].map(f64::exp);
        assert_eq!(verdict(rate, &[1.0; 3], &figures), Verdict::Better);
    }

    #[test]
    fn which_way_is_better_depends_on_the_metric() {
        for metric in Metric::ALL {
            let more = verdict(metric, &[1.0, 1.0], &[1.5, 1.5]);
            let fits = matches!(metric, Metric::OperationsPerSec | Metric::HitRatio);
            assert_eq!(more, if fits { Verdict::Better } else { Verdict::Worse }, "{metric:?}");
        }
    }

    #[test]
    fn an_interval_that_says_nothing_is_not_shown_in_figures() {
        let told = |low, high, verdict| {
            Ratio { metric: Metric::HitRatio, ratio: 1.377, low, high, verdict }.interval(2)
        };
        assert!(told(0.000_001, 1_263_037.8, Verdict::NoDifferenceShown).ends_with("more rounds are needed"));
        assert_eq!(told(0.5, 2.0, Verdict::NoDifferenceShown), "0.50 to 2.00");
        // A verdict stands on its interval, however wide.
        assert_eq!(told(1.5, 20.0, Verdict::Better), "1.50 to 20.00");
    }

    #[test]
    fn figures_have_units() {
        let told = [
            (Metric::OperationsPerSec, 456_123.0, "456 k/s"),
            (Metric::LatencyP50Micros, 12.34, "12.3 µs"),
            (Metric::LatencyP999Micros, 4_560.0, "4.56 ms"),
            (Metric::ServerCpuSecsPerMillion, 1.234, "1.23 µs"),
            (Metric::ServerCpuSecsPerMillion, 0.5, "500 ns"),
            (Metric::ServerResidentBytes, 67_108_864.0, "64.0 MiB"),
            (Metric::HitRatio, 0.25, "25.0 %"),
            (Metric::ServerSystemShare, 0.5, "50.0 %"),
            (Metric::ServerFaultsPerSec, 1_234.0, "1.23 k/s"),
        ];
        for (metric, value, text) in told {
            assert_eq!(metric.figure(value), text);
        }
    }

    #[test]
    fn what_is_rounded_is_no_difference() {
        assert_eq!(
            verdict(Metric::LatencyP50Micros, &[1000.0, 1000.0], &[1000.5, 1000.5]),
            Verdict::NoDifferenceShown
        );
    }

    #[test]
    fn what_one_server_does_not_have_is_not_compared() {
        let base = rounds(Metric::ServerCpuSecsPerMillion, &[1.0, 1.0]);
        let other = rounds(Metric::OperationsPerSec, &[1.0, 1.0]);
        assert!(ratios(&base, &other, 0.95).is_empty());
    }

    #[test]
    fn a_round_is_told_in_figures() {
        let mut outcome = Outcome { elapsed_secs: 2.0, ..Outcome::default() };
        let gets = outcome.total.commands.entry(Kind::Get).or_default();
        (gets.requests, gets.keys, gets.hits, gets.misses) = (100, 1000, 900, 100);
        for micros in 1..=100 {
            gets.latency_nanos.record(micros * 1000).expect("within bounds");
        }
        let cost = |user, system| ServerCost {
            cpu_user_secs: user,
            cpu_system_secs: system,
            resident_bytes: Some(1 << 20),
            page_faults: Some(50),
            ..ServerCost::default()
        };
        outcome.servers = vec![cost(Some(0.001), Some(0.002)), cost(Some(0.0), Some(0.001))];

        let told = figures(&outcome);
        let about = |metric: Metric, expected: f64| (told[&metric] / expected - 1.0).abs() < 0.002;
        assert!(about(Metric::OperationsPerSec, 500.0), "{told:?}");
        assert!(about(Metric::LatencyP50Micros, 50.0), "{told:?}");
        assert!(about(Metric::LatencyP99Micros, 99.0), "{told:?}");
        assert!(about(Metric::LatencyP999Micros, 100.0), "{told:?}");
        assert!(about(Metric::ServerCpuSecsPerMillion, 4.0), "{told:?}");
        assert!(about(Metric::ServerResidentBytes, f64::from(2 << 20)), "{told:?}");
        assert!(about(Metric::HitRatio, 0.9), "{told:?}");
        assert!(about(Metric::ServerSystemShare, 0.75), "{told:?}");
        assert!(about(Metric::ServerFaultsPerSec, 50.0), "{told:?}");
        assert!(!told.contains_key(&Metric::LatencyP999GetsMicros), "all are gets: {told:?}");

        let sets = outcome.total.commands.entry(Kind::Set).or_default();
        sets.requests = 100;
        sets.latency_nanos.record_n(5_000_000, 100).expect("within bounds");
        let told = figures(&outcome);
        assert!((told[&Metric::LatencyP999Micros] / 5000.0 - 1.0).abs() < 0.002, "{told:?}");
        assert!((told[&Metric::LatencyP999GetsMicros] / 100.0 - 1.0).abs() < 0.002, "{told:?}");

        outcome.servers.push(cost(None, None));
        assert!(!figures(&outcome).contains_key(&Metric::ServerCpuSecsPerMillion));
    }

    #[test]
    fn a_comparison_is_read_as_it_was_written() {
        let mut standing = Standing {
            contestant: "new=larderd -t 1".parse().expect("a contestant"),
            software: "memcached 1.6".into(),
            rounds: rounds(Metric::HitRatio, &[0.5, 0.25]),
            ratios: Vec::new(),
            failures: 3,
            warnings: vec!["loud".into()],
            total: Tally { verified: 7, ..Tally::default() },
        };
        standing.ratios = ratios(&standing.rounds, &standing.rounds, 0.95);
        let comparison = Comparison {
            scenario: Scenario { name: "one".into(), ..Scenario::default() },
            started_unix_secs: 1,
            confidence: 0.95,
            restart: true,
            standings: vec![standing],
        };
        let written = serde_json::to_string(&comparison).expect("JSON");
        let read: Comparison = serde_json::from_str(&written).expect("the same");
        assert_eq!(serde_json::to_string(&read).expect("JSON"), written);
        assert!(written.contains(r#""rounds":[{"hit_ratio":0.5}"#), "{written}");
    }
}
