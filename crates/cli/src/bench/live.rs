//! A run with a live display.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use larder_bench::calibrate;
use larder_bench::contestant::launch::Launch;
use larder_bench::outcome::{Outcome, Watcher};
use larder_bench::{Scenario, report, run, screen};

use super::output::OutputArgs;
use crate::Failure;

/// Runs, displays and writes. Fails before the run if a file cannot be written, and after it if a check failed.
pub(super) fn measure(
    scenario: &Scenario,
    output: &OutputArgs,
    stop: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    output.check()?;
    let mut outcome = run(scenario, watcher(scenario, output, stop).as_mut(), stop)
        .map_err(|error| Failure::of_run(&error))?;
    // A shorter run is inaccurate anyway.
    if !output.no_calibration && outcome.elapsed_secs >= CALIBRATED_FROM_SECS {
        calibrate(&mut outcome, output, stop);
    }
    show(&outcome, output)
}

/// Measures the most that this client could send.
fn calibrate(outcome: &mut Outcome, output: &OutputArgs, stop: &AtomicBool) {
    match calibrate::floor_requests_per_sec(&outcome.scenario, &Launch::default(), &[], stop) {
        Ok(floor_requests_per_sec) => calibrate::note(outcome, floor_requests_per_sec),
        Err(error) if !output.quiet => eprintln!("not calibrated: {error}"),
        Err(_) => {}
    }
}

/// Prints and writes the results. Fails if a check failed.
pub(super) fn show(outcome: &Outcome, output: &OutputArgs) -> Result<(), Failure> {
    output.print(|out| report::print(outcome, out))?;
    output.write_files(outcome)?;
    judge(outcome)
}

/// True if no check failed.
pub(super) fn judge(outcome: &Outcome) -> Result<(), Failure> {
    match outcome.total.has_failed() {
        true => {
            Err(Failure::Failed(format!("not all was well: {}", report::words::failures(&outcome.total))))
        }
        false => Ok(()),
    }
}

/// The live display.
pub(super) fn watcher(scenario: &Scenario, output: &OutputArgs, stop: &Arc<AtomicBool>) -> Box<dyn Watcher> {
    match (output.quiet, output.no_screen || output.has_stdout()) {
        (true, _) => Box::new(()),
        (_, true) => Box::new(screen::Lines::new(io::stderr())),
        _ => screen::watcher(scenario, stop),
    }
}

/// The length of a calibration.
const CALIBRATED_FROM_SECS: f64 = 1.0;
