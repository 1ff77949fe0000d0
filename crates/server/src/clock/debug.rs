//! `debugtime`, in debug builds: lets tests see what takes long without waiting for it.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use larder_protocol::admin;

/// How the clock differs from the real one.
#[derive(Debug, Default)]
pub(super) struct Adjustment {
    ahead_secs: AtomicI64,
    paused: Mutex<Option<Instant>>,
}

impl Adjustment {
    pub(super) fn change(&self, change: admin::Clock) {
        match change {
            admin::Clock::Shift(secs) => {
                self.ahead_secs.fetch_add(secs.into(), Relaxed);
            }
            admin::Clock::Pause => {
                *self.paused.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now())
            }
            admin::Clock::Resume => *self.paused.lock().unwrap_or_else(PoisonError::into_inner) = None,
        }
    }

    /// What a moment of the real clock is on this one.
    pub(super) fn apply(&self, instant: Instant) -> Instant {
        let instant = self.paused.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or(instant);
        let ahead_secs = self.ahead_secs.load(Relaxed);
        let shift = Duration::from_secs(ahead_secs.unsigned_abs());
        let shifted = if ahead_secs < 0 { instant.checked_sub(shift) } else { instant.checked_add(shift) };
        shifted.unwrap_or(instant)
    }
}
