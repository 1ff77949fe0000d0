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
use std::sync::atomic::{Ordering::*, compiler_fence};

use crate::mem::cache_padded::CachePadded;
use crate::sync::{AtomicU64, fence};

/// The value of a handle's slot outside a guard.
const IDLE: u64 = u64::MAX;
/// The same while a thread has taken a shared handle, so that no other thread pins it.
const TAKEN: u64 = u64::MAX - 1;

pub(crate) struct Epochs {
    current: CachePadded<AtomicU64>,
    /// Indexed by handle; each handle writes its own slot.
    slots: Box<[CachePadded<AtomicU64>]>,
}

/// A pinned slot, unpinned when dropped.
pub(crate) struct EpochPin<'e> {
    slot: &'e AtomicU64,
    /// The value of the slot before.
    before: u64,
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
        self.slot.store(self.before, Release);
    }
}

/// A slot that one thread has taken, and that is not pinned. Given back when dropped.
pub(crate) struct TakenSlot<'e>(&'e AtomicU64);

impl Drop for TakenSlot<'_> {
    fn drop(&mut self) {
        self.0.store(IDLE, Release);
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
        let before = slot.swap(self.current.load(Relaxed), SeqCst);
        fence_after_exchange();
        EpochPin { slot, before }
    }

    /// Pins the current epoch in a slot that threads share. `None`: it is pinned or taken.
    #[inline]
    pub(crate) fn try_pin(&self, handle: usize) -> Option<EpochPin<'_>> {
        let slot = &self.slots[handle];
        slot.compare_exchange(IDLE, self.current.load(Relaxed), SeqCst, Relaxed).ok()?;
        fence_after_exchange();
        Some(EpochPin { slot, before: IDLE })
    }

    /// Takes a slot that threads share, for the one thread that may now call [`Epochs::pin`] with it. `None`: it is
    /// pinned or taken.
    pub(crate) fn try_take(&self, handle: usize) -> Option<TakenSlot<'_>> {
        let slot = &self.slots[handle];
        slot.compare_exchange(IDLE, TAKEN, Acquire, Relaxed).ok()?;
        Some(TakenSlot(slot))
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

/// Orders the exchange that pins a slot before what is read then: either the reclaimer sees the slot, or we see what it
/// unlinked before it looked.
#[inline]
fn fence_after_exchange() {
    // On x86-64 the exchange itself is such a fence, and a second one would double the price. The language does not
    // promise that, so Miri and the model checker have the fence.
    if cfg!(all(target_arch = "x86_64", not(miri), not(loom))) {
        compiler_fence(SeqCst);
    } else {
        fence(SeqCst);
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

    #[test]
    fn one_thread_at_a_time_has_a_shared_slot() {
        let epochs = Epochs::new(1);
        let pin = epochs.try_pin(0).expect("it is idle");
        let tag = epochs.retire();
        assert!(epochs.horizon() <= tag);
        assert!(epochs.try_pin(0).is_none() && epochs.try_take(0).is_none());
        drop(pin);
        let taken = epochs.try_take(0).expect("it is idle again");
        assert!(epochs.horizon() > tag, "a slot that is only taken holds nothing back");
        // SAFETY: it was taken.
        drop(unsafe { epochs.pin(0) });
        assert!(epochs.try_pin(0).is_none() && epochs.try_take(0).is_none(), "it stays taken after a pin");
        drop(taken);
        assert!(epochs.try_pin(0).is_some());
    }
}
