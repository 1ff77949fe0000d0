//! The end of a wait.

use std::time::{Duration, Instant};

use super::duration;

/// When a wait has to end.
pub(super) struct Deadline {
    /// The time of the wait in milliseconds; negative: it has no end.
    timeout: i32,
    end: Option<Instant>,
    /// Progress begins the time anew.
    renews: bool,
    received_bytes: usize,
    has_begun: bool,
}

impl Deadline {
    /// So many milliseconds from now; negative: never.
    pub(super) fn after(timeout: i32) -> Self {
        let end = duration(timeout).and_then(|timeout| Instant::now().checked_add(timeout));
        Self { timeout, end, renews: false, received_bytes: 0, has_begun: false }
    }

    /// So many milliseconds after the last progress: for values, which may be large.
    pub(super) fn after_progress(timeout: i32) -> Self {
        Self { renews: true, ..Self::after(timeout) }
    }

    pub(super) fn renews(&self) -> bool {
        self.renews
    }

    /// Begins the time anew.
    pub(super) fn renew(&mut self) {
        *self = Self { renews: self.renews, ..Self::after(self.timeout) };
    }

    /// So much was received. A server that has said less than `PROGRESS_BYTES` has said nothing.
    pub(super) fn received(&mut self, bytes: usize) {
        self.received_bytes = self.received_bytes.saturating_add(bytes);
        if self.renews && self.received_bytes >= PROGRESS_BYTES {
            self.renew();
        }
    }

    /// Begins a step of the wait. True: it is the first one, and all of the time is left.
    pub(super) fn begin(&mut self) -> bool {
        !std::mem::replace(&mut self.has_begun, true)
    }

    /// The time that is left. `None`: for ever.
    pub(super) fn left(&self) -> Option<Duration> {
        self.end.map(|end| end.saturating_duration_since(Instant::now()))
    }

    pub(super) fn has_passed(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }
}

const PROGRESS_BYTES: usize = 64 << 10;
