//! Limbo: memory that was unlinked, and may still be read by guards that began before.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::epoch::epochs::Epochs;
use crate::sync::Mutex;

pub(crate) struct Limbo<T> {
    /// Oldest first, with the epoch that ended when it was retired and its size.
    waiting: Mutex<VecDeque<(u64, u64, T)>>,
    /// A hint that needs no lock.
    count: AtomicUsize,
    /// What all of it takes together.
    bytes: AtomicU64,
}

impl<T> Default for Limbo<T> {
    fn default() -> Self {
        Self { waiting: Mutex::default(), count: AtomicUsize::new(0), bytes: AtomicU64::new(0) }
    }
}

impl<T> Limbo<T> {
    /// Takes in what was unlinked before. Returns how much waits now.
    pub(crate) fn push(&self, what: T, bytes: u64, epochs: &Epochs) -> usize {
        self.bytes.fetch_add(bytes, Relaxed);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Tagged under the lock, so that tags are in order.
        waiting.push_back((epochs.retire(), bytes, what));
        let count = waiting.len();
        self.count.store(count, Relaxed);
        count
    }

    /// Hands what was tagged below `horizon` to `reuse`, up to `count_max`: the oldest first.
    pub(crate) fn drain(&self, horizon: u64, count_max: usize, reuse: impl Fn(T)) {
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
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    /// Memory that is to come back.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}
