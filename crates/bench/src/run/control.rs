//! What the main thread and the load threads tell each other.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::Instant;

use super::RunError;
use super::tally::ThreadTally;
use crate::scenario::Scenario;

/// Read by all threads all the time, and hardly ever written.
#[derive(Debug)]
pub(crate) struct Control {
    /// Zero of the run's clock.
    base: Instant,
    /// Time at which the last connection was opened before the run.
    connected_nanos: AtomicU64,
    /// When counting begins, and when asking ends. `u64::MAX`: that is not known yet.
    begin_nanos: AtomicU64,
    end_nanos: AtomicU64,
    /// Ask nothing more.
    stop: AtomicBool,
    /// Requests that may still be asked and counted: by all, and by each group.
    left: AtomicU64,
    left_of_groups: Vec<AtomicU64>,
    /// Connections whose part of a trace has not come to its end.
    traces_left: AtomicUsize,
}

impl Control {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let left_of_groups = scenario.groups.iter().map(|group| group.requests.unwrap_or(u64::MAX));
        let traces = scenario.groups.iter().filter(|group| group.trace.is_some());
        Self {
            base: Instant::now(),
            connected_nanos: AtomicU64::new(0),
            begin_nanos: AtomicU64::new(u64::MAX),
            end_nanos: AtomicU64::new(u64::MAX),
            stop: AtomicBool::new(false),
            left: AtomicU64::new(scenario.until.requests.unwrap_or(u64::MAX)),
            left_of_groups: left_of_groups.map(AtomicU64::new).collect(),
            traces_left: AtomicUsize::new(traces.map(|group| group.connections).sum()),
        }
    }

    /// The run's clock.
    #[inline]
    pub(crate) fn now_nanos(&self) -> u64 {
        self.base.elapsed().as_nanos() as u64
    }

    /// Notes that a connection was opened.
    pub(crate) fn note_connected(&self) {
        self.connected_nanos.fetch_max(self.now_nanos(), Ordering::Relaxed);
    }

    /// Nanoseconds since any thread last opened a connection.
    pub(crate) fn unconnected_nanos(&self) -> u64 {
        self.now_nanos().saturating_sub(self.connected_nanos.load(Ordering::Relaxed))
    }

    pub(crate) fn begin_nanos(&self) -> u64 {
        self.begin_nanos.load(Ordering::Acquire)
    }

    pub(crate) fn end_nanos(&self) -> u64 {
        self.end_nanos.load(Ordering::Acquire)
    }

    /// Counting begins at `begin_nanos`.
    pub(crate) fn begin(&self, begin_nanos: u64, end_nanos: u64) {
        self.end_nanos.store(end_nanos, Ordering::Release);
        self.begin_nanos.store(begin_nanos, Ordering::Release);
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// A connection has played its part of a trace.
    pub(crate) fn end_trace(&self) {
        self.traces_left.fetch_sub(1, Ordering::Relaxed);
    }

    /// Every trace has been played to its end.
    pub(crate) fn traces_ended(&self) -> bool {
        self.traces_left.load(Ordering::Relaxed) == 0
    }

    /// Takes up to `wanted` of the requests that a group may still ask. 0: none are left.
    pub(crate) fn claim(&self, group: usize, wanted: u64) -> u64 {
        let claimed = take(&self.left_of_groups[group], wanted);
        let granted = take(&self.left, claimed);
        if granted < claimed && self.left_of_groups[group].load(Ordering::Relaxed) != u64::MAX {
            self.left_of_groups[group].fetch_add(claimed - granted, Ordering::Relaxed);
        }
        granted
    }

    /// A claim that keeps threads from meeting, and still leaves each of them its share near the end.
    pub(crate) fn claim_size(&self, group: usize, threads: usize) -> u64 {
        let left = self.left.load(Ordering::Relaxed).min(self.left_of_groups[group].load(Ordering::Relaxed));
        (left / (8 * threads as u64)).clamp(1, CLAIM_MAX)
    }
}

fn take(left: &AtomicU64, wanted: u64) -> u64 {
    let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| match left {
        u64::MAX => None,
        _ => Some(left.saturating_sub(wanted)),
    });
    taken.map_or(wanted, |before| before.min(wanted))
}

const CLAIM_MAX: u64 = 4096;

/// What a load thread waits for.
#[derive(Debug)]
pub(crate) enum Order {
    /// Store every key once.
    Fill,
    /// Ask until it is over.
    Load,
}

/// What a load thread tells.
#[derive(Debug)]
pub(crate) enum Report {
    /// All its connections are open.
    Connected,
    /// So many more keys are stored.
    Filled(u64),
    /// It has stored its share.
    FillDone,
    /// A period is over.
    Period {
        thread: usize,
        /// Which one the tally belongs to, from 0.
        index: usize,
        /// How many are over.
        periods: usize,
        tally: Box<ThreadTally>,
    },
    /// The thread is through: nothing more follows.
    Finished {
        thread: usize,
        /// When the last answer came, on the clock of the run.
        last_nanos: u64,
        /// What it used since counting began.
        cpu_secs: f64,
    },
    /// The run cannot go on.
    Failed(RunError),
}

/// Where a thread reports to.
pub(crate) type Reports = Sender<Report>;
