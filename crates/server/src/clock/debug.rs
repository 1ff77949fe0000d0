//! `debugtime`, in debug builds: lets tests see what takes long without waiting for it.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use larder_protocol::admin;

use super::{Moment, NANOS_PER_SEC};

/// How the clock differs from the real one.
#[derive(Debug, Default)]
pub(super) struct Adjustment {
    ahead_secs: AtomicI64,
    paused: Mutex<Option<Moment>>,
}

impl Adjustment {
    pub(super) fn change(&self, change: admin::Clock) {
        match change {
            admin::Clock::Shift(secs) => {
                self.ahead_secs.fetch_add(secs.into(), Relaxed);
            }
            admin::Clock::Pause => {
                *self.paused.lock().unwrap_or_else(PoisonError::into_inner) = Some(Moment::now())
            }
            admin::Clock::Resume => *self.paused.lock().unwrap_or_else(PoisonError::into_inner) = None,
        }
    }

    /// What a moment of the real clock is on this one.
    pub(super) fn apply(&self, moment: Moment) -> Moment {
        let moment = self.paused.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or(moment);
        let ahead_secs = self.ahead_secs.load(Relaxed);
        let shift_nanos = ahead_secs.unsigned_abs().saturating_mul(NANOS_PER_SEC);
        let nanos = if ahead_secs < 0 {
            moment.nanos.saturating_sub(shift_nanos)
        } else {
            moment.nanos.saturating_add(shift_nanos)
        };
        Moment { nanos }
    }
}
