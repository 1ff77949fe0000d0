//! The main thread of a run: leads the load threads from phase to phase, and merges what they count.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use super::RunError;
use super::control::{Control, Order, Report};
use super::plan::Plan;
use super::replicas;
use super::tally::ThreadTally;
use crate::Outcome;
use crate::calibrate::{busy_warning, host_warning};
use crate::environment::{Environment, HostCpu};
use crate::outcome::{ClientCost, Period, Phase, Tally, Watcher};
use crate::watch::Watch;

/// What the main thread has of a run.
pub(crate) struct Collector<'a> {
    plan: &'a Plan,
    control: &'a Control,
    reports: Receiver<Report>,
    hands: Vec<Hand>,
    stop: &'a AtomicBool,

    total: Tally,
    periods: Vec<Period>,
    /// Tallies of periods that are not over in all threads, from `periods.len()` on.
    open: Vec<Tally>,
    /// Periods that are over, in each thread.
    progress: Vec<usize>,
    cpu_secs: Vec<f64>,
    last_nanos: u64,
}

/// How the main thread reaches a load thread.
#[derive(Debug)]
pub(crate) struct Hand {
    pub(crate) orders: Sender<Order>,
    /// Gives tallies back that have been read.
    pub(crate) tallies: Sender<Box<ThreadTally>>,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        control: &'a Control,
        reports: Receiver<Report>,
        hands: Vec<Hand>,
        stop: &'a AtomicBool,
    ) -> Self {
        let threads = hands.len();
        Self {
            plan,
            control,
            reports,
            hands,
            stop,
            total: Tally::default(),
            periods: Vec::new(),
            open: Vec::new(),
            progress: vec![0; threads],
            cpu_secs: Vec::new(),
            last_nanos: 0,
        }
    }

    /// Leads the run to its end.
    pub(crate) fn collect(
        mut self,
        watcher: &mut dyn Watcher,
        started_unix_secs: u64,
    ) -> Result<Outcome, RunError> {
        let scenario = &self.plan.scenario;
        watcher.phase(Phase::Connecting);
        self.wait_for_all(|_| {})?;
        if scenario.flush {
            self.plan.roads.flush_all()?;
        }
        if scenario.fill {
            self.fill(watcher)?;
        }
        let mut watch = self.load(watcher)?;
        let host_cpu = HostCpu::now();
        watcher.phase(Phase::Running);
        self.merge(watcher, &mut watch)?;
        let host_cpu_share = host_cpu.and_then(|before| HostCpu::now()?.share_since(before));
        let servers = watch.end(&scenario.target);
        if scenario.truth.compare_replicas {
            watcher.phase(Phase::Checking);
            replicas::compare(self.plan, self.stop, &mut self.total);
        }

        let elapsed_secs = self.last_nanos.saturating_sub(self.control.begin_nanos()) as f64 / 1e9;
        Ok(Outcome {
            scenario: scenario.clone(),
            started_unix_secs,
            environment: Environment::here(),
            elapsed_secs,
            servers,
            client: self.client_cost(host_cpu_share, elapsed_secs),
            total: self.total,
            periods: self.periods,
        })
    }

    fn fill(&mut self, watcher: &mut dyn Watcher) -> Result<(), RunError> {
        let of = self.plan.keys_to_fill();
        let mut done = 0;
        watcher.phase(Phase::Filling { done, of });
        self.order(|| Order::Fill);
        self.wait_for_all(|filled| {
            done += filled;
            watcher.phase(Phase::Filling { done, of });
        })
    }

    /// Starts the load, and the clock when the warm-up is over.
    fn load(&mut self, watcher: &mut dyn Watcher) -> Result<Watch, RunError> {
        let scenario = &self.plan.scenario;
        let warm_up_nanos = (scenario.warm_up_secs * 1e9) as u64;
        if warm_up_nanos > 0 {
            watcher.phase(Phase::WarmingUp);
            self.order(|| Order::Load);
            let end = self.control.now_nanos() + warm_up_nanos;
            while self.control.now_nanos() < end && !self.stop.load(Ordering::Relaxed) {
                let left = Duration::from_nanos(end.saturating_sub(self.control.now_nanos()));
                std::thread::sleep(left.min(STOP_CHECKED_EVERY));
            }
        }
        // Agents wait in `ready` for each other, with the load going on: that is not part of the run.
        watcher.ready();
        let watch = Watch::begin(&scenario.target);
        let begin = self.control.now_nanos() + START_NANOS;
        let end = scenario.until.secs.map_or(u64::MAX, |secs| begin.saturating_add((secs * 1e9) as u64));
        self.control.begin(begin, end);
        self.last_nanos = begin;
        if warm_up_nanos == 0 {
            self.order(|| Order::Load);
        }
        Ok(watch)
    }

    /// Takes tallies until every thread has finished.
    fn merge(&mut self, watcher: &mut dyn Watcher, watch: &mut Watch) -> Result<(), RunError> {
        let mut running = self.hands.len();
        while running > 0 {
            match self.next()? {
                Report::Period { thread, index, periods, mut tally } => {
                    while self.periods.len() + self.open.len() <= index {
                        self.open.push(Tally::default());
                    }
                    tally.drain_into(&mut self.open[index - self.periods.len()]);
                    // A thread that has ended needs none.
                    let _ = self.hands[thread].tallies.send(tally);
                    self.progress[thread] = periods;
                }
                Report::Finished { thread, last_nanos, cpu_secs } => {
                    self.progress[thread] = usize::MAX;
                    self.last_nanos = self.last_nanos.max(last_nanos);
                    self.cpu_secs.push(cpu_secs);
                    running -= 1;
                }
                _ => {}
            }
            let over = self.progress.iter().copied().min().unwrap_or(0);
            while self.periods.len() < over && !self.open.is_empty() {
                self.close_period(watcher, watch);
            }
        }
        self.trim_last_period();
        Ok(())
    }

    fn close_period(&mut self, watcher: &mut dyn Watcher, watch: &mut Watch) {
        let tally = self.open.remove(0);
        let step = self.plan.scenario.period_secs;
        let begins_secs = self.periods.len() as f64 * step;
        // The last period is shorter. A run that ends by the clock says beforehand by how much; of others it is known
        // once all threads have told when they ended, see `trim_last_period`.
        let left = self.plan.scenario.until.secs.map_or(step, |until| until - begins_secs);
        let secs = if left > 0.0 { left.min(step) } else { step };
        self.total.add(&tally);
        let period =
            Period { begins_secs, secs: secs.max(f64::EPSILON), tally, server_cpu_secs: watch.period() };
        watcher.period(&period, &self.total);
        self.periods.push(period);
    }

    /// Gives the last period the length that it had.
    fn trim_last_period(&mut self) {
        let elapsed_secs = self.last_nanos.saturating_sub(self.control.begin_nanos()) as f64 / 1e9;
        if let Some(last) = self.periods.last_mut() {
            last.secs = last.secs.min((elapsed_secs - last.begins_secs).max(f64::EPSILON));
        }
    }

    fn client_cost(&self, host_cpu_share: Option<f64>, elapsed_secs: f64) -> ClientCost {
        let busiest = self.cpu_secs.iter().copied().fold(0.0, f64::max);
        let busiest_thread_share = if elapsed_secs > 0.0 { busiest / elapsed_secs } else { 0.0 };
        ClientCost {
            threads: self.hands.len(),
            cpu_secs: self.cpu_secs.iter().sum(),
            busiest_thread_share,
            host_cpu_share,
            warnings: busy_warning(busiest_thread_share)
                .into_iter()
                .chain(host_warning(host_cpu_share, elapsed_secs))
                .collect(),
            ..ClientCost::default()
        }
    }

    fn order(&self, order: impl Fn() -> Order) {
        for hand in &self.hands {
            // A thread that has failed says so in its report.
            let _ = hand.orders.send(order());
        }
    }

    /// Until every thread has done what it was told. `filled` is told of keys that were stored.
    fn wait_for_all(&mut self, mut filled: impl FnMut(u64)) -> Result<(), RunError> {
        let mut waiting = self.hands.len();
        while waiting > 0 {
            match self.next()? {
                Report::Connected | Report::FillDone => waiting -= 1,
                Report::Filled(keys) => filled(keys),
                Report::Period { .. } | Report::Finished { .. } | Report::Failed(_) => {}
            }
        }
        Ok(())
    }

    /// The next report. Passes a stop on.
    fn next(&mut self) -> Result<Report, RunError> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                self.control.stop();
            }
            match self.reports.recv_timeout(STOP_CHECKED_EVERY) {
                Ok(Report::Failed(error)) => return Err(error),
                Ok(report) => return Ok(report),
                Err(RecvTimeoutError::Timeout) => {}
                // Only after a panic, which joining the thread will pass on.
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(RunError::System(std::io::Error::other("the load threads are gone")));
                }
            }
        }
    }
}

const STOP_CHECKED_EVERY: Duration = Duration::from_millis(50);
/// From the decision to begin to the beginning: time for every thread to hear of it.
const START_NANOS: u64 = 10_000_000;
