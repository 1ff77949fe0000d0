//! A run with somebody who looks on.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use larder_bench::calibrate;
use larder_bench::contestant::launch::Launch;
use larder_bench::outcome::{Outcome, Period, Phase, Tally, Watcher};
use larder_bench::report::{self, units};
use larder_bench::{Scenario, run};

use super::output::OutputArgs;
use crate::Failure;

/// Runs, shows and writes. Fails if anything that was checked did.
pub(super) fn measure(scenario: &Scenario, output: &OutputArgs) -> Result<(), Failure> {
    let stop = stop_on_signals()?;
    let mut outcome =
        run(scenario, watcher(output).as_mut(), &stop).map_err(|error| Failure::Failed(error.to_string()))?;
    // A run that is shorter than that says little anyway.
    if !output.no_calibration && outcome.elapsed_secs >= CALIBRATED_FROM_SECS {
        calibrate(&mut outcome, output, &stop);
    }
    show(&outcome, output)
}

/// Finds out what this client could have asked.
fn calibrate(outcome: &mut Outcome, output: &OutputArgs, stop: &AtomicBool) {
    match calibrate::floor_requests_per_sec(&outcome.scenario, &Launch::default(), &[], stop) {
        Ok(floor_requests_per_sec) => calibrate::note(outcome, floor_requests_per_sec),
        Err(error) if !output.quiet => eprintln!("not calibrated: {error}"),
        Err(_) => {}
    }
}

/// Prints and writes what came. Fails if anything that was checked did.
pub(super) fn show(outcome: &Outcome, output: &OutputArgs) -> Result<(), Failure> {
    if !output.quiet {
        report::print(outcome, &mut io::stdout().lock()).map_err(cannot_print)?;
    }
    output.write_files(outcome)?;
    judge(outcome)
}

/// Whether all was well.
pub(super) fn judge(outcome: &Outcome) -> Result<(), Failure> {
    match outcome.total.has_failed() {
        true => {
            Err(Failure::Failed(format!("not all was well: {}", report::words::failures(&outcome.total))))
        }
        false => Ok(()),
    }
}

/// Set by SIGINT and SIGTERM: what was measured until then is shown. The second one ends the program at once.
pub(super) fn stop_on_signals() -> Result<Arc<AtomicBool>, Failure> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::flag;

    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| Failure::Failed(format!("signals: {error}")))?;
    }
    Ok(stop)
}

/// Who looks on.
pub(super) fn watcher(output: &OutputArgs) -> Box<dyn Watcher> {
    match output.quiet {
        true => Box::new(()),
        false => Box::new(Lines { is_headed: false }),
    }
}

pub(super) fn cannot_print(error: io::Error) -> Failure {
    match error.kind() {
        // Whoever read has seen enough.
        io::ErrorKind::BrokenPipe => Failure::Told,
        _ => Failure::Failed(format!("standard output: {error}")),
    }
}

/// A line a period, on standard error.
struct Lines {
    is_headed: bool,
}

impl Watcher for Lines {
    fn turn(&mut self, server: &str, round: usize, rounds: usize) {
        eprintln!("{server}, round {round} of {rounds}");
        self.is_headed = false;
    }

    fn phase(&mut self, phase: Phase) {
        let words = match phase {
            Phase::Connecting => "connecting".to_owned(),
            Phase::Filling { done: 0, of } => format!("storing {} keys", units::count(of)),
            Phase::WarmingUp => "warming up".to_owned(),
            Phase::Checking => "checking".to_owned(),
            Phase::Filling { .. } | Phase::Running => return,
        };
        // Nobody is left to tell if this fails.
        let _ = writeln!(io::stderr(), "{words}");
    }

    fn period(&mut self, period: &Period, so_far: &Tally) {
        let mut out = io::stderr().lock();
        if !self.is_headed {
            let _ = writeln!(
                out,
                "{:>8} {:>12} {:>10} {:>10} {:>10} {:>10} {:>9}",
                "at", "requests/s", "p50", "p99", "max", "misses", "failures"
            );
            self.is_headed = true;
        }
        let all = period.tally.all();
        let latency = |quantile| units::latency(all.latency_nanos.value_at_quantile(quantile) as f64);
        let failures: u64 = so_far.failures.values().sum();
        let _ = writeln!(
            out,
            "{:>8} {:>12} {:>10} {:>10} {:>10} {:>10} {:>9}",
            units::duration(period.begins_secs + period.secs),
            units::count((all.requests as f64 / period.secs.max(1e-9)) as u64),
            latency(0.5),
            latency(0.99),
            units::latency(all.latency_nanos.max() as f64),
            units::count(all.misses),
            units::count(failures)
        );
    }
}

/// The length of a calibration.
const CALIBRATED_FROM_SECS: f64 = 1.0;
