//! Epochs: when unlinked memory may be reused.
//!
//! A guard pins the epoch in which it begins. Unlinked memory is tagged with the current epoch, which then ends. Memory
//! tagged `t` is free once every guard is pinned in an epoch after `t`: no guard that could have found a pointer to it
//! is left. An idle handle delays nothing. (Fraser, "Practical lock-freedom", 2004.)
//!
//! Unsafe code lives here because what is read under a pin is reused when its slot is unpinned. The invariant: while an
//! [`EpochPin`] exists its slot holds the epoch in which it began, so a [`Pinned`], which borrows it, proves that
//! nothing is reused that this thread has found since.
#![allow(unsafe_code)]

use std::marker::PhantomData;
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

/// A pinned slot, unpinned when dropped.
pub(crate) struct EpochPin<'e> {
    slot: &'e AtomicU64,
}

impl EpochPin<'_> {
    /// What proves that the slot is pinned. It cannot outlive the pin.
    #[inline]
    pub(crate) fn proof(&self) -> Pinned<'_> {
        Pinned(PhantomData)
    }
}

impl Drop for EpochPin<'_> {
    #[inline]
    fn drop(&mut self) {
        self.slot.store(IDLE, Release);
    }
}

/// Proof that this thread is pinned during `'g`. What the index and the log give out for it is readable during `'g`,
/// and in safe code no longer.
#[derive(Clone, Copy)]
pub(crate) struct Pinned<'g>(PhantomData<&'g ()>);

#[cfg(test)]
impl Pinned<'_> {
    /// For tests of the index, whose items are numbers.
    pub(crate) const OF_NOTHING: Self = Self(PhantomData);
}

impl Epochs {
    pub(crate) fn new(handles_max: usize) -> Self {
        Self {
            current: CachePadded::new(AtomicU64::new(1)),
            slots: (0..handles_max).map(|_| CachePadded::new(AtomicU64::new(IDLE))).collect(),
        }
    }

    /// Pins the current epoch.
    ///
    /// # Safety
    /// The slot is the caller's, and no other pin of it exists until the result is dropped: the one that is dropped
    /// first would end both.
    #[inline]
    pub(crate) unsafe fn pin(&self, handle: usize) -> EpochPin<'_> {
        let slot = &self.slots[handle];
        // Release: a thread that sees this guard knows that the reads of the guard before it are complete.
        slot.store(self.current.load(Relaxed), Release);
        // Either the reclaimer sees this slot, or we see what it unlinked before it looked.
        fence(SeqCst);
        EpochPin { slot }
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
        // SAFETY: each slot is pinned once.
        let pin = |slot| unsafe { epochs.pin(slot) };
        let first = pin(0);
        let tag = epochs.retire();
        assert!(epochs.horizon() <= tag, "handle 0 may still read it");
        let second = pin(1);
        assert!(epochs.horizon() <= tag);
        drop(first);
        assert!(epochs.horizon() > tag, "handle 1 came too late to find it");
        drop(second);
        assert!(epochs.horizon() > tag);
    }
}
