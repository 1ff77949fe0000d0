//! Comparisons, sweeps and searches made by arithmetic.

use larder_bench::compare::{Comparison, Figures, Metric, Ratio, Standing, Verdict};
use larder_bench::contestant::{Contestant, Place};
use larder_bench::scenario::Arrival;
use larder_bench::search::{Goal, Probe, Search, Step};
use larder_bench::sweep::{self, Axis, Sweep};

fn standing(name: &str, operations: f64, ratios: Vec<Ratio>) -> Standing {
    let rounds = (0..5).map(|round| {
        let operations = operations * (1.0 + 0.01 * f64::from(round));
        Figures::from([
            (Metric::OperationsPerSec, operations),
            (Metric::LatencyP50Micros, 5e6 / operations),
            (Metric::LatencyP99Micros, 2e7 / operations),
            (Metric::LatencyP999Micros, 8e7 / operations),
            (Metric::ServerCpuSecsPerMillion, 8e5 / operations),
            (Metric::ServerResidentBytes, 7e7),
        ])
    });
    Standing {
        contestant: Contestant { name: name.into(), place: Place::Contacted(vec!["127.0.0.1:11211".into()]) },
        software: "memcached 1.6.18".into(),
        rounds: rounds.collect(),
        ratios,
        failures: 0,
        warnings: Vec::new(),
        total: super::outcome(name, 5, (operations / 1000.0) as u64, Arrival::Closed).total,
    }
}

/// Two servers; the second is half again as fast, and takes about the same memory.
pub(crate) fn comparison(operations: f64) -> Comparison {
    let ratio = |metric, ratio: f64, spread: f64, verdict| Ratio {
        metric,
        ratio,
        low: ratio - spread,
        high: ratio + spread,
        verdict,
    };
    let ratios = vec![
        ratio(Metric::OperationsPerSec, 1.5, 0.06, Verdict::Better),
        ratio(Metric::LatencyP50Micros, 0.67, 0.03, Verdict::Better),
        ratio(Metric::LatencyP99Micros, 1.2, 0.15, Verdict::Worse),
        ratio(Metric::ServerCpuSecsPerMillion, 0.66, 0.02, Verdict::Better),
        ratio(Metric::ServerResidentBytes, 1.01, 0.04, Verdict::NoDifferenceShown),
    ];
    Comparison {
        scenario: super::outcome("etc", 1, 900, Arrival::Closed).scenario,
        started_unix_secs: 1_790_000_000,
        confidence: 0.95,
        restart: true,
        standings: vec![
            standing("memcached", operations, Vec::new()),
            standing("larder <b>", operations * 1.5, ratios),
        ],
    }
}

/// Both servers with 1 to 64 connections.
pub(crate) fn sweep() -> Sweep {
    let step =
        |value: u64| sweep::Step { value, comparison: comparison(20_000.0 * (1.0 + (value as f64).ln())) };
    Sweep { axis: Axis::Connections, steps: [1, 4, 16, 64].into_iter().map(step).collect() }
}

/// A server that bears 80,000 requests a second.
pub(crate) fn search() -> Search {
    let step = |rate_per_sec: f64| {
        let holds = rate_per_sec <= 80_000.0;
        let latency_micros = if holds { 200.0 + rate_per_sec / 200.0 } else { 30_000.0 };
        let probe = Probe {
            requests: 100_000,
            answered_per_sec: rate_per_sec.min(82_000.0),
            latency_micros,
            sent_late: 0.0,
            failures: 0,
            holds,
        };
        Step { rate_per_sec, probes: vec![probe], holds }
    };
    Search {
        software: "memcached 1.6.18".into(),
        scenario: super::outcome("etc", 1, 900, super::open(10_000.0)).scenario,
        contestant: Contestant {
            name: "memcached".into(),
            place: Place::Contacted(vec!["127.0.0.1:11211".into()]),
        },
        started_unix_secs: 1_790_000_000,
        goal: Goal { percentile: 99.0, latency_micros: 1000.0 },
        tolerance: 0.05,
        warnings: Vec::new(),
        rate_per_sec: Some(80_000.0),
        failed_rate_per_sec: Some(84_000.0),
        steps: [10_000.0, 20_000.0, 40_000.0, 80_000.0, 160_000.0, 120_000.0, 84_000.0].map(step).to_vec(),
    }
}
