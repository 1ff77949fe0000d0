//! Handles and guards: how a thread accesses the engine.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::engine::Engine;
use crate::index::buckets::{Entry, Items};
use crate::index::hash::Hash;
use crate::inspect::eviction_log::EvictionLog;
use crate::inspect::stats::Counters;
use crate::log::allocator::Allocator;
use crate::log::item::ItemRef;
use crate::log::offset::Offset;
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
        self.engine.arena.epochs.pin(self.id);
        self.engine.flush_if_due(now);
        Guard { handle: self, counters: &self.engine.counters[self.id], now, copied_bytes: Cell::new(0) }
    }

    /// The cache this handle belongs to.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// True if the handle keeps segments that others may need, because there are few for so many handles. Then call
    /// [`Handle::release`] before a time without guards.
    pub fn is_holding(&self) -> bool {
        self.engine.is_crowded
            && (self.reclaimer.borrow().has_begun() || self.allocator.borrow().open_count() > 0)
    }

    /// Passes the segments that it fills or empties on to all handles.
    pub fn release(&mut self) {
        // Pinned, since a segment that another handle retires meanwhile must not be opened again while we look at it.
        self.engine.arena.epochs.pin(self.id);
        let allocator = self.allocator.get_mut();
        if self.engine.is_crowded && allocator.open_count() > 0 {
            self.engine.parked.put(allocator.take_open());
        }
        self.close();
        self.engine.arena.epochs.unpin(self.id);
    }

    /// Seals the segments that it fills, and puts back those that it empties.
    fn close(&mut self) {
        self.allocator.get_mut().close_all(&self.engine.arena).for_each(|id| self.engine.seal(id));
        self.reclaimer.get_mut().release(&self.engine);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.engine.arena.epochs.pin(self.id);
        self.close();
        self.engine.arena.epochs.unpin(self.id);
        self.engine.take_back_handle(self.id);
    }
}

/// While it lives, every item found under it stays readable, whatever other threads do.
pub struct Guard<'h> {
    pub(crate) handle: &'h Handle,
    counters: &'h Counters,
    now: Now,
    copied_bytes: Cell<usize>,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.handle.engine.arena.epochs.unpin(self.handle.id);
    }
}

impl Guard<'_> {
    /// The time that the guard was pinned with.
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
    pub fn prepare(&self, key: &[u8]) -> Hash {
        let hash = self.engine().hash_key.hash(key);
        self.engine().index.prefetch(hash);
        hash
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.handle.engine
    }

    pub(crate) fn counters(&self) -> &Counters {
        self.counters
    }

    /// The item of an entry, which must have been read under this guard.
    #[inline]
    pub(crate) fn item_ref(&self, entry: Entry) -> ItemRef<'_> {
        self.item_ref_at(entry.offset())
    }

    /// The item at an offset of the log. The offset must come from an entry read under this guard, or from a walk of a
    /// segment that was sealed or claimed under it.
    #[inline]
    #[allow(unsafe_code)]
    pub(crate) fn item_ref_at(&self, offset: Offset) -> ItemRef<'_> {
        // SAFETY: the entry or the state of the segment was read with acquire ordering after the item was written. This
        // guard was pinned before that, so neither the segment nor a hole in it is reused before the guard ends, and
        // the result with it.
        unsafe { ItemRef::at(&self.engine().arena.region, offset.bytes()) }
    }
}

/// When the index splits a bucket it hashes the keys of the items that it moves.
impl Items for Guard<'_> {
    fn hash_at(&self, offset: Offset) -> Hash {
        self.engine().hash_key.hash(self.item_ref_at(offset).key())
    }

    fn prefetch(&self, offset: Offset) {
        self.engine().arena.prefetch(offset);
    }
}
