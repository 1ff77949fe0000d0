//! Epochs: when may memory that was unlinked be used again?
//!
//! A handle notes the epoch it entered a turn in; whatever is unlinked is tagged with the epoch of that moment, which
//! then ends. Memory tagged `t` is free once every handle in a turn entered it after `t`: nobody who could have found a
//! way to it is still reading. An idle handle holds nothing back. (Fraser, "Practical lock-freedom", 2004.)

use std::sync::atomic::Ordering::*;

use crate::mem::cache_padded::Apart;
use crate::sync::{AtomicU64, fence};

/// What a handle's slot says outside a turn.
const IDLE: u64 = u64::MAX;

pub(crate) struct Epochs {
    current: Apart<AtomicU64>,
    /// By handle: each writes its own.
    slots: Box<[Apart<AtomicU64>]>,
}

impl Epochs {
    pub(crate) fn new(handles_max: usize) -> Self {
        Self {
            current: Apart::new(AtomicU64::new(1)),
            slots: (0..handles_max).map(|_| Apart::new(AtomicU64::new(IDLE))).collect(),
        }
    }

    pub(crate) fn enter(&self, handle: usize) {
        // Release: whoever sees this turn knows that what the one before it read is read.
        self.slots[handle].store(self.current.load(Relaxed), Release);
        // Either the reclaimer sees this slot, or we see what it unlinked before it looked.
        fence(SeqCst);
    }

    pub(crate) fn leave(&self, handle: usize) {
        self.slots[handle].store(IDLE, Release);
    }

    /// Ends the current epoch: the tag for what has just been unlinked.
    pub(crate) fn retire(&self) -> u64 {
        self.current.fetch_add(1, SeqCst)
    }

    /// Everything tagged below this is free.
    pub(crate) fn horizon(&self) -> u64 {
        // No later than now: what is retired while we look may be read by turns that we looked for too early.
        let current = self.current.load(Acquire);
        fence(SeqCst);
        self.slots.iter().map(|slot| slot.load(Acquire)).fold(current, u64::min)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Epochs;

    #[test]
    fn only_turns_entered_before_hold_memory_back() {
        let epochs = Epochs::new(2);
        epochs.enter(0);
        let tag = epochs.retire();
        assert!(epochs.horizon() <= tag, "handle 0 may still read it");
        epochs.enter(1);
        assert!(epochs.horizon() <= tag);
        epochs.leave(0);
        assert!(epochs.horizon() > tag, "handle 1 came too late to find it");
        epochs.leave(1);
        assert!(epochs.horizon() > tag);
    }
}
