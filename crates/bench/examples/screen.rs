//! Shows the screen of an invented run, to be looked at: `cargo run --example screen [failed]`.

#[path = "../tests/sample/mod.rs"]
mod sample;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use larder_bench::outcome::{Phase, Tally};
use larder_bench::scenario::{Arrival, Until};
use larder_bench::{report, screen};

fn main() -> std::io::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    screen::stop_on_signals(&stop)?;
    let mut outcome = match std::env::args().nth(1).as_deref() {
        Some("failed") => sample::failed(),
        _ => sample::outcome("etc", 30, 90_000, Arrival::Closed),
    };
    outcome.scenario.until = Until { secs: Some(outcome.elapsed_secs), ..Until::default() };
    let mut watcher = screen::watcher(&outcome.scenario, &stop);
    for done in 0..=10 {
        watcher.phase(Phase::Filling { done: done * 100_000, of: 1_000_000 });
        sleep(Duration::from_millis(100));
    }
    watcher.phase(Phase::Running);
    let mut so_far = Tally::default();
    for period in outcome.periods.iter().take_while(|_| !stop.load(Ordering::Relaxed)) {
        sleep(Duration::from_secs(1));
        so_far.add(&period.tally);
        watcher.period(period, &so_far);
        assert!(std::env::var_os("PANIC").is_none(), "a panic to look at");
    }
    drop(watcher);
    report::print(&outcome, &mut std::io::stdout())
}
