//! Runs, from end to end: against memcached and larderd, and against servers that are slow, stall, lie or hang.

#![allow(clippy::unwrap_used)]

mod faulty;
mod replicas;
mod servers;
mod timing;

use std::sync::atomic::AtomicBool;

use larder_bench::outcome::{Failure, Outcome, Period, Phase, Tally, Watcher};
use larder_bench::{RunError, Scenario, run};

/// Runs a scenario in the form of a file, with `{address}` as its server.
fn try_run(address: &str, toml: &str) -> Result<Outcome, RunError> {
    let text = format!("target.servers = [\"{address}\"]\n{toml}");
    let scenario: Scenario = toml::from_str(&text).expect("the scenario is well-formed");
    run(&scenario, &mut Nobody, &AtomicBool::new(false))
}

#[track_caller]
fn run_toml(address: &str, toml: &str) -> Outcome {
    try_run(address, toml).expect("it runs")
}

fn failures(outcome: &Outcome, failure: Failure) -> u64 {
    outcome.total.failures.get(&failure).copied().unwrap_or(0)
}

/// Checks all cases at the same time: most of a run is waiting.
fn check_each<T: Send>(cases: impl IntoIterator<Item = T>, check: impl Fn(T) + Sync) {
    let check = &check;
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(move || check(case));
        }
    });
}

/// Looks away.
struct Nobody;

impl Watcher for Nobody {
    fn phase(&mut self, _: Phase) {}

    fn period(&mut self, _: &Period, _: &Tally) {}
}
