//! The number of open connections, and whether more are accepted.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Counts open connections, and knows whether the server accepts.
#[derive(Default)]
pub struct ConnectionLimiter {
    open: AtomicUsize,
    /// Since when no connection is accepted (`-o no_maxconns_fast`, or no descriptors left).
    closed_since: Mutex<Option<Instant>>,
    closed_times: AtomicU64,
    closed_micros: AtomicU64,
}

impl ConnectionLimiter {
    /// Open connections.
    pub fn open_connections(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// Counts one more connection, unless there are `limit`.
    pub fn admit(&self, limit: usize) -> bool {
        self.open.fetch_update(Relaxed, Relaxed, |open| (open < limit).then_some(open + 1)).is_ok()
    }

    /// Counts one connection less.
    pub fn leave(&self) {
        self.open.fetch_sub(1, Relaxed);
    }

    /// True while the server accepts.
    pub fn is_accepting(&self) -> bool {
        self.closed_since().is_none()
    }

    /// Stops accepting.
    pub fn shut(&self) {
        let mut since = self.closed_since();
        if since.is_none() {
            *since = Some(Instant::now());
            self.closed_times.fetch_add(1, Relaxed);
        }
    }

    /// Accepts again. True if the server did not accept before.
    pub fn reopen(&self) -> bool {
        let Some(since) = self.closed_since().take() else { return false };
        let micros = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.closed_micros.fetch_add(micros, Relaxed);
        true
    }

    /// How often and for how many microseconds the server did not accept.
    pub fn closed(&self) -> (u64, u64) {
        (self.closed_times.load(Relaxed), self.closed_micros.load(Relaxed))
    }

    /// Resets the counts of closings.
    pub(crate) fn reset(&self) {
        self.closed_times.store(0, Relaxed);
        self.closed_micros.store(0, Relaxed);
    }

    fn closed_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.closed_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
