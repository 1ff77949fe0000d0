//! Epochs: when unlinked memory may be reused.
//!
//! A guard pins the epoch in which it begins. Unlinked memory is tagged with the current epoch, which then ends. Memory
//! tagged `t` is free once every guard is pinned in an epoch after `t`: no guard that could have found a pointer to it
//! is left. An idle handle delays nothing. (Fraser, "Practical lock-freedom", 2004.)

use std::sync::atomic::Ordering::*;

use crate::mem::cache_padded::CachePadded;
use crate::sync::{AtomicU64, fence};

/// The value of a handle's slot outside a guard.
const IDLE: u64 = u64::MAX;

pub(crate) struct Epochs {
    current: CachePadded<AtomicU64>,
    /// Indexed by handle; each handle writes its own slot.
    slots: Box<[CachePadded<AtomicU64>]>,
}

impl Epochs {
    pub(crate) fn new(handles_max: usize) -> Self {
        Self {
            current: CachePadded::new(AtomicU64::new(1)),
            slots: (0..handles_max).map(|_| CachePadded::new(AtomicU64::new(IDLE))).collect(),
        }
    }

    pub(crate) fn pin(&self, handle: usize) {
        // Release: a thread that sees this guard knows that the reads of the guard before it are complete.
        self.slots[handle].store(self.current.load(Relaxed), Release);
        // Either the reclaimer sees this slot, or we see what it unlinked before it looked.
        fence(SeqCst);
    }

    pub(crate) fn unpin(&self, handle: usize) {
        self.slots[handle].store(IDLE, Release);
    }

    /// Ends the current epoch. Returns the tag for what was just unlinked.
    pub(crate) fn retire(&self) -> u64 {
        self.current.fetch_add(1, SeqCst)
    }

    /// Memory tagged below this is free.
    pub(crate) fn horizon(&self) -> u64 {
        // At most the current epoch: memory that is retired while we look may be read by guards whose slot we have
        // passed.
        let current = self.current.load(Acquire);
        fence(SeqCst);
        self.slots.iter().map(|slot| slot.load(Acquire)).fold(current, u64::min)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Epochs;

    #[test]
    fn only_guards_pinned_before_hold_memory_back() {
        let epochs = Epochs::new(2);
        epochs.pin(0);
        let tag = epochs.retire();
        assert!(epochs.horizon() <= tag, "handle 0 may still read it");
        epochs.pin(1);
        assert!(epochs.horizon() <= tag);
        epochs.unpin(0);
        assert!(epochs.horizon() > tag, "handle 1 came too late to find it");
        epochs.unpin(1);
        assert!(epochs.horizon() > tag);
    }
}
