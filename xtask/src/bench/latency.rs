//! The slowest requests at a rate that memcached can bear: an open loop, so that a stall counts for all that it kept
//! waiting.

use larder_bench::compare::Metric;
use larder_bench::scenario::{Arrival, Spacing};
use larder_conformance::Result;
use serde_json::json;

use super::Measured;
use super::rows::{Row, gets, scenario};
use super::speed::{Bench, interval, line, middle};

/// Finds memcached's peak rate in a closed loop, and asks all three at 70 % of it.
pub(super) fn measure(bench: &Bench, row: &Row) -> Result<Measured> {
    let closed = bench.compare(&scenario(row.name, gets(1, 1)))?;
    let peak_per_sec = middle(&closed.standings[0], Metric::OperationsPerSec);
    let rate_per_sec = (SHARE * peak_per_sec).round();
    println!("  memcached's peak {peak_per_sec:.0} / s; asked {rate_per_sec:.0} / s");

    let mut group = gets(1, 1);
    group.arrival = Arrival::Open { rate_per_sec, rate_end_per_sec: None, spacing: Spacing::Poisson };
    let standings = bench.compare(&scenario(row.name, group))?.standings;
    println!("  {:<10} {:>10} {:>10} {:>10} {:>10} {:>10}", "", "/ s", "p50 us", "p99", "p99.9", "sent late");
    for standing in &standings {
        println!(
            "  {:<10} {:>10.0} {:>10.1} {:>10.1} {:>10.1} {:>10}",
            standing.contestant.name,
            middle(standing, Metric::OperationsPerSec),
            middle(standing, Metric::LatencyP50Micros),
            middle(standing, Metric::LatencyP99Micros),
            middle(standing, Metric::LatencyP999Micros),
            standing.total.sent_late + standing.total.unsent,
        );
    }
    let mut p999 = line(row, &standings, Metric::LatencyP999Micros, "us");
    p999.floor = None;
    p999.interval = interval(&standings[0], &standings[1], Metric::LatencyP999Micros);
    let figures = json!({
        "peak_per_sec": peak_per_sec,
        "rate_per_sec": rate_per_sec,
        "servers": standings.iter().map(|standing| json!({
            "server": standing.contestant.name,
            "rounds": standing.rounds,
        })).collect::<Vec<_>>(),
    });
    Ok(Measured { figures, lines: vec![p999] })
}

/// Of the peak rate.
const SHARE: f64 = 0.7;
