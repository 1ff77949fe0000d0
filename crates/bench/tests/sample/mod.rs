//! Outcomes made by arithmetic, for tests and for looking at reports.

#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod contests;

use larder_bench::environment::Environment;
use larder_bench::outcome::{ClientCost, CommandTally, Failure, Outcome, Period, ServerCost, Tally};
use larder_bench::scenario::{Arrival, Command, Group, Kind, Scenario, Spacing};

/// Latencies 1, 2, .. n times `step_nanos`, one request each; every tenth get misses.
pub(crate) fn ladder(kind: Kind, requests: u64, step_nanos: u64) -> CommandTally {
    let mut figures = CommandTally::new();
    for rung in 1..=requests {
        figures.latency_nanos.record(rung * step_nanos).expect("within an hour");
        figures.service_nanos.record(rung * step_nanos / 2).expect("within an hour");
    }
    figures.requests = requests;
    figures.keys = requests;
    if kind == Kind::Get {
        figures.misses = requests / 10;
        figures.hits = requests - figures.misses;
    }
    figures.value_bytes = 100 * requests;
    figures
}

/// `secs` periods of a second; in each `gets` gets and a ninth as many sets. The latency rises and falls; in the middle
/// the server stalls once.
pub(crate) fn outcome(name: &str, secs: u64, gets: u64, arrival: Arrival) -> Outcome {
    let periods: Vec<Period> = (0..secs)
        .map(|second| {
            let mut tally = Tally::default();
            let wave = 1.0 + 0.3 * (second as f64 / 5.0).sin();
            let mut get = ladder(Kind::Get, gets, (100_000.0 * wave) as u64 / gets.max(1) + 1);
            if second == secs / 2 {
                get.latency_nanos.record_n(40_000_000, gets / 50).expect("within an hour");
            }
            tally.commands.insert(Kind::Get, get);
            tally.commands.insert(
                Kind::Set,
                ladder(Kind::Set, gets / 9, (150_000.0 * wave) as u64 / gets.max(1) * 9 + 1),
            );
            tally.sent_bytes = gets * 45;
            tally.received_bytes = gets * 130;
            let server_cpu_secs = Some(0.8 * wave.min(1.0));
            Period { begins_secs: second as f64, secs: 1.0, tally, server_cpu_secs }
        })
        .collect();
    let mut total = Tally::default();
    periods.iter().for_each(|period| total.add(&period.tally));
    let commands = [(Kind::Get, 9.0), (Kind::Set, 1.0)];
    let commands = commands.map(|(kind, weight)| Command { kind, weight, ..Command::default() }).to_vec();
    Outcome {
        scenario: Scenario {
            name: name.into(),
            description: "Nine gets to a set, of keys that are all alike.".into(),
            period_secs: 1.0,
            groups: vec![Group { arrival, commands, ..Group::default() }],
            ..Scenario::default()
        },
        started_unix_secs: 1_790_000_000,
        elapsed_secs: secs as f64,
        total,
        periods,
        servers: vec![ServerCost {
            address: "127.0.0.1:11211".into(),
            version: "1.6.18".into(),
            software: "memcached 1.6.18".into(),
            cpu_user_secs: Some(0.25 * secs as f64),
            cpu_system_secs: Some(0.5 * secs as f64),
            resident_bytes: Some(64 << 20),
            page_faults: Some(900),
            unwatched: None,
            stats_deltas: [("cmd_get".into(), (gets * secs) as f64), ("evictions".into(), 12.0)].into(),
        }],
        client: ClientCost {
            threads: 1,
            cpu_secs: 0.6 * secs as f64,
            busiest_thread_share: 0.6,
            host_cpu_share: Some(0.7),
            floor_requests_per_sec: Some(250_000.0),
            warnings: Vec::new(),
        },
        environment: Environment {
            host: "testbench".into(),
            kernel: "Linux 6.1.0".into(),
            cpu: "Some Processor <at> 3 GHz & more".into(),
            cpus: 2,
            memory_bytes: 16 << 30,
            larder: "0.1.0".into(),
        },
    }
}

/// The rate of an open loop.
pub(crate) fn open(rate_per_sec: f64) -> Arrival {
    Arrival::Open { rate_per_sec, rate_end_per_sec: None, spacing: Spacing::Poisson }
}

/// As `outcome`, but answers were wrong, and the client was the limit.
pub(crate) fn failed() -> Outcome {
    let mut outcome = outcome("a run that failed", 10, 900, Arrival::Closed);
    let third = &mut outcome.periods[3].tally;
    third.failures.insert(Failure::WrongValue, 2);
    third.failures.insert(Failure::Timeout, 1);
    third.examples.push("get key:17 <script>: checksum is wrong".into());
    let failures = third.failures.clone();
    outcome.total.failures = failures;
    outcome.total.examples = outcome.periods[3].tally.examples.clone();
    outcome.client.busiest_thread_share = 0.99;
    outcome.client.warnings.push("the busiest thread was busy 99 % of the time".into());
    outcome
}
