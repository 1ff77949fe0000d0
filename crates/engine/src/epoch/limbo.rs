//! Limbo: memory that was unlinked, and may still be read by guards that began before.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::epoch::epochs::Epochs;
use crate::log::segment::SegmentId;
use crate::sync::Mutex;

/// Memory out of use, but perhaps not out of sight.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Retired {
    Segment(SegmentId),
    Run(SegmentId),
    /// A run whose pins were revoked.
    Revoked(SegmentId),
    /// An overflow bucket of the index.
    Overflow(u32),
}

impl Retired {
    fn is_run(self) -> bool {
        matches!(self, Self::Run(_) | Self::Revoked(_))
    }
}

#[derive(Default)]
pub(crate) struct Limbo {
    /// Oldest first, with the epoch that ended when it was retired and its size.
    waiting: Mutex<VecDeque<(u64, u64, Retired)>>,
    /// A hint that needs no lock.
    count: AtomicUsize,
    /// Segments and runs alone: what a store could use.
    bytes: AtomicU64,
    /// How many runs wait.
    runs: AtomicUsize,
}

impl Limbo {
    /// Takes in what was unlinked before. Returns how much waits now.
    pub(crate) fn push(&self, what: Retired, bytes: u64, epochs: &Epochs) -> usize {
        self.bytes.fetch_add(bytes, Relaxed);
        self.runs.fetch_add(usize::from(what.is_run()), Relaxed);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Tagged under the lock, so that tags are in order.
        waiting.push_back((epochs.retire(), bytes, what));
        let count = waiting.len();
        self.count.store(count, Relaxed);
        count
    }

    /// Hands what was tagged below `horizon` to `reuse`, up to `count_max`: the oldest first.
    pub(crate) fn drain(&self, horizon: u64, count_max: usize, reuse: impl Fn(Retired)) {
        for _ in 0..count_max {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.front().is_none_or(|&(tag, ..)| tag >= horizon) {
                return;
            }
            let Some((_, bytes, what)) = waiting.pop_front() else { return };
            self.count.store(waiting.len(), Relaxed);
            drop(waiting);
            reuse(what);
            // Only now: meanwhile nobody shall think that it is lost.
            self.bytes.fetch_sub(bytes, Relaxed);
            self.runs.fetch_sub(usize::from(what.is_run()), Relaxed);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    /// Is address space to come back?
    pub(crate) fn has_runs(&self) -> bool {
        self.runs.load(Relaxed) > 0
    }

    /// Memory that is to come back.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}
