//! Limbo: unlinked memory that earlier guards may still read.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::epoch::epochs::Epochs;
use crate::sync::Mutex;

pub(crate) struct Limbo<T> {
    /// Oldest first: the epoch that ended when it was retired, its size, and what it is.
    waiting: Mutex<VecDeque<(u64, u64, T)>>,
    /// A hint that needs no lock.
    count: AtomicUsize,
    /// The size of everything in limbo.
    bytes: AtomicU64,
}

impl<T> Default for Limbo<T> {
    fn default() -> Self {
        Self { waiting: Mutex::default(), count: AtomicUsize::new(0), bytes: AtomicU64::new(0) }
    }
}

impl<T> Limbo<T> {
    /// Adds what was unlinked before. Returns how many entries wait now.
    pub(crate) fn push(&self, what: T, bytes: u64, epochs: &Epochs) -> usize {
        self.bytes.fetch_add(bytes, Relaxed);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Tagged under the lock, so that tags are in order.
        waiting.push_back((epochs.retire(), bytes, what));
        let count = waiting.len();
        self.count.store(count, Relaxed);
        count
    }

    /// Passes up to `count_max` entries that no guard can see any more to `reuse`, the oldest first. `epochs` are those
    /// of [`Limbo::push`].
    pub(crate) fn drain(&self, epochs: &Epochs, count_max: usize, reuse: impl Fn(T)) {
        let horizon = epochs.horizon();
        for _ in 0..count_max {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.front().is_none_or(|&(tag, ..)| tag >= horizon) {
                return;
            }
            let Some((_, bytes, what)) = waiting.pop_front() else { return };
            self.count.store(waiting.len(), Relaxed);
            drop(waiting);
            reuse(what);
            // Only now: in between nobody shall think that it is lost.
            self.bytes.fetch_sub(bytes, Relaxed);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    /// Memory that is about to become free.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}
