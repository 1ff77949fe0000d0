//! Handles and guards: how a thread accesses the engine.
//!
//! Unsafe code lives here because what a guard has found is read. The invariant: an engine has one handle for each slot
//! of its epochs, a handle one guard at a time, and both are used with their own engine's index and log. A handle that
//! threads share belongs to the one that changed its slot from idle.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell, UnsafeCell};
use std::sync::Arc;

use crate::engine::Engine;
use crate::epoch::epochs::{EpochPin, Pinned};
use crate::index::buckets::{Items, SlotRef, Unlinked};
use crate::index::hash::Hash;
use crate::inspect::eviction_log::EvictionLog;
use crate::inspect::stats::Counters;
use crate::log::allocator::Allocator;
use crate::log::item::ItemRef;
use crate::log::offset::Offset;
use crate::log::segment::DeadItem;
use crate::ops::backing::{Issued, Position};
use crate::policy::priority::Adaptation;
use crate::reclaim::Reclaimer;
use crate::request::Now;

/// A thread's access to the engine: its open segments, its epoch slot, its counters. One thread uses it at a time; it
/// may move between threads.
pub struct Handle {
    pub(crate) engine: Arc<Engine>,
    pub(crate) id: usize,
    /// The handle's open segments.
    pub(crate) allocator: RefCell<Allocator>,
    /// The handle's current victim.
    pub(crate) reclaimer: RefCell<Reclaimer>,
    /// What the handle has learned from its evictions.
    pub(crate) adaptation: RefCell<Adaptation>,
    /// Items linked, less items unlinked, that were not reported to the index yet.
    pub(crate) unreported_items: Cell<i64>,
    /// The items that the handle evicted, if they are recorded.
    pub(crate) eviction_log: RefCell<EvictionLog>,
}

impl Handle {
    pub(crate) fn new(engine: Arc<Engine>, id: usize) -> Self {
        // Without eviction, expired items among items without an expiry are found only by scanning all of them.
        let allocator = Allocator::new(!engine.evict);
        Self {
            engine,
            id,
            allocator: RefCell::new(allocator),
            reclaimer: RefCell::default(),
            adaptation: RefCell::default(),
            unreported_items: Cell::new(0),
            eviction_log: RefCell::default(),
        }
    }

    /// Pins the current epoch: everything found under the guard stays readable until it ends. Cheap. Use one guard for
    /// many requests, but keep it short: memory that other threads free meanwhile is not reused before it ends.
    pub fn pin(&mut self, now: Now) -> Guard<'_> {
        let (handle, pin) = self.pin_slot();
        Guard::new(handle, pin, now)
    }

    #[inline]
    fn pin_slot(&mut self) -> (&Self, EpochPin<'_>) {
        let handle: &Self = self;
        // SAFETY: the slot is this handle's, which is borrowed for as long as the pin exists.
        (handle, unsafe { handle.engine.arena.epochs.pin(handle.id) })
    }

    /// The cache this handle belongs to.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// True if the handle keeps segments that others may need, because there are few for so many handles. Then call
    /// [`Handle::release`] before a time without guards.
    pub fn is_holding(&self) -> bool {
        self.engine.is_crowded()
            && (self.reclaimer.borrow().has_begun() || self.allocator.borrow().open_count() > 0)
    }

    /// Passes the segments that it fills or empties on to all handles.
    pub fn release(&mut self) {
        // Pinned, since a segment that another handle retires meanwhile must not be opened again while we look at it.
        let (handle, _pin) = self.pin_slot();
        let mut allocator = handle.allocator.borrow_mut();
        if handle.engine.is_crowded() && allocator.open_count() > 0 {
            handle.engine.parked.put(allocator.take_open());
        }
        drop(allocator);
        handle.close();
    }

    /// Seals the segments that it fills, and puts back those that it empties. Call while it is pinned.
    fn close(&self) {
        let mut allocator = self.allocator.borrow_mut();
        allocator.close_all(&self.engine.arena).for_each(|open| self.engine.seal(open));
        self.reclaimer.borrow_mut().release(&self.engine);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let (handle, pin) = self.pin_slot();
        handle.close();
        drop(pin);
        // SAFETY: it is pinned no more.
        unsafe { handle.engine.take_back_handle(handle.id) };
    }
}

/// A handle that threads share, and that one of them has at a time. Its epoch slot is the lock, so that it is taken and
/// pinned by one exchange.
pub(crate) struct SharedHandle {
    engine: Arc<Engine>,
    id: usize,
    handle: UnsafeCell<Handle>,
}

// SAFETY: a thread accesses the handle, which is `Send`, only between an exchange that found its slot idle and the
// store that makes it idle again. The two acquire and release what is in the handle.
unsafe impl Sync for SharedHandle {}

impl SharedHandle {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { engine: Arc::clone(&handle.engine), id: handle.id, handle: UnsafeCell::new(handle) }
    }

    /// Takes the handle and pins it. `None`: a thread has it.
    #[inline]
    pub(crate) fn try_pin(&self) -> Option<PinnedHandle<'_>> {
        let pin = self.engine.arena.epochs.try_pin(self.id)?;
        // SAFETY: the slot was idle, so nobody had the handle, and nobody gets it before the pin ends.
        Some(PinnedHandle { handle: unsafe { &*self.handle.get() }, pin })
    }

    /// Takes the handle for some work under no guard, or under several. `None`: a thread has it.
    pub(crate) fn try_with<R>(&self, work: impl FnOnce(&mut Handle) -> R) -> Option<R> {
        let _taken = self.engine.arena.epochs.try_take(self.id)?;
        // SAFETY: the slot was idle, so nobody had the handle, and nobody gets it before `_taken` is dropped.
        Some(work(unsafe { &mut *self.handle.get() }))
    }
}

/// The parts of a guard. Guards are large, and made where they will stay.
pub(crate) struct PinnedHandle<'h> {
    handle: &'h Handle,
    pin: EpochPin<'h>,
}

impl<'h> PinnedHandle<'h> {
    #[inline]
    pub(crate) fn guard(self, now: Now) -> Guard<'h> {
        Guard::new(self.handle, self.pin, now)
    }
}

/// While it lives, every item found under it stays readable, whatever other threads do.
pub struct Guard<'h> {
    pub(crate) handle: &'h Handle,
    pin: EpochPin<'h>,
    counters: &'h Counters,
    now: Now,
    copied_bytes: Cell<usize>,
    /// What follows is for engines with a store: see `ops/backing.rs`.
    pub(crate) position: Cell<Position>,
    pub(crate) absent: Cell<Option<(Hash, Position)>>,
    pub(crate) unproven: Cell<bool>,
    /// The version that was given to the change that is under way.
    pub(crate) issued: Cell<Option<Issued>>,
}

impl<'h> Guard<'h> {
    #[inline]
    fn new(handle: &'h Handle, pin: EpochPin<'h>, now: Now) -> Self {
        handle.engine.flush_if_due(now);
        Guard {
            handle,
            pin,
            counters: &handle.engine.counters[handle.id],
            now,
            copied_bytes: Cell::new(0),
            position: Cell::new(0),
            absent: Cell::new(None),
            unproven: Cell::new(false),
            issued: Cell::new(None),
        }
    }
}

impl Guard<'_> {
    /// The time that the guard was pinned with.
    #[inline]
    pub fn now(&self) -> Now {
        self.now
    }

    /// Bytes of values written under this guard, which tell a caller when to let other connections run.
    pub fn copied_bytes(&self) -> usize {
        self.copied_bytes.get()
    }

    #[inline]
    pub(crate) fn note_copied(&self, bytes: usize) {
        self.copied_bytes.set(self.copied_bytes.get() + bytes);
    }

    /// Hashes a key and prefetches its index line. With the hash of another key or engine a look-up finds nothing, and
    /// a store panics.
    #[inline]
    pub fn prepare(&self, key: &[u8]) -> Hash {
        self.engine().prepare(key)
    }

    #[inline]
    pub(crate) fn engine(&self) -> &Engine {
        &self.handle.engine
    }

    #[inline]
    pub(crate) fn counters(&self) -> &Counters {
        self.counters
    }

    /// Proof that the guard exists.
    #[inline]
    pub(crate) fn pinned(&self) -> Pinned<'_> {
        self.pin.proof()
    }

    /// The item of an entry that was found under this guard.
    #[inline]
    pub(crate) fn item_ref<'t>(&'t self, found: &SlotRef<'t>) -> ItemRef<'t> {
        // SAFETY: an entry points to an item that was whole before the entry was published, with release ordering, and
        // was read with acquire ordering under a guard that exists as long as the result. So neither the segment nor a
        // hole in it is reused meanwhile.
        unsafe { ItemRef::at(&self.engine().arena.region, found.entry.offset().bytes()) }
    }

    /// Marks an item dead that the index has just lost, and counts its bytes.
    #[inline(always)]
    pub(crate) fn mark_dead<'t>(&'t self, unlinked: Unlinked<'t>) -> DeadItem<'t> {
        let (offset, raw) = (unlinked.slot().entry.offset(), self.item_ref(unlinked.slot()));
        // SAFETY: the index alone makes an `Unlinked`, as it loses the entry, and it cannot be copied.
        unsafe { self.engine().arena.segments.mark_dead(offset, raw) }
    }
}

/// When the index splits a bucket it hashes the keys of the items that it moves.
impl Items for Guard<'_> {
    fn hash_of(&self, found: &SlotRef<'_>) -> Hash {
        self.engine().hash_key.hash(self.item_ref(found).key())
    }

    fn prefetch(&self, offset: Offset) {
        self.engine().arena.prefetch(offset);
    }
}
