//! The clocks of a simulation: a monotonic one, and the wall clock, which may be set.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use larder_server::clock::Clock;
use larder_store::commit;

/// Time, which passes when it is told to.
#[derive(Clone, Debug)]
pub(crate) struct SimClock {
    nanos: Arc<AtomicU64>,
    /// How far the wall clock is ahead of where it began.
    shift_micros: Arc<AtomicI64>,
}

impl SimClock {
    pub(crate) fn new() -> Self {
        Self { nanos: Arc::new(AtomicU64::new(NANOS_PER_SEC)), shift_micros: Arc::default() }
    }

    pub(crate) fn advance(&self, micros: u64) {
        self.nanos.fetch_add(micros * 1000, Relaxed);
    }

    /// Sets the wall clock forward, or back.
    pub(crate) fn shift(&self, secs: i64) {
        self.shift_micros.fetch_add(secs * 1_000_000, Relaxed);
    }

    /// Of the monotonic clock.
    pub(crate) fn micros(&self) -> u64 {
        self.nanos.load(Relaxed) / 1000
    }

    fn wall_micros(&self) -> u64 {
        (START_UNIX_MICROS + self.micros()).saturating_add_signed(self.shift_micros.load(Relaxed))
    }

    /// The clock of a server that starts now.
    pub(crate) fn server_clock(&self) -> Clock {
        Clock::simulated(Duration::from_micros(self.wall_micros()), Arc::clone(&self.nanos))
    }
}

impl commit::Clock for SimClock {
    fn unix_micros(&self) -> u64 {
        self.wall_micros()
    }
}

const NANOS_PER_SEC: u64 = 1_000_000_000;
/// In 2027.
const START_UNIX_MICROS: u64 = 1_800_000_000_000_000;
