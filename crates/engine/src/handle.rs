//! Handles and guards: a thread's way into the engine.

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

/// A thread's access to the engine: its open segments, its epoch, its counters. Not shared between threads, but may
/// move.
pub struct Handle {
    pub(crate) engine: Arc<Engine>,
    pub(crate) id: usize,
    /// Its open segments.
    pub(crate) allocator: RefCell<Allocator>,
    /// What it reclaims.
    pub(crate) reclaimer: RefCell<Reclaimer>,
    /// What its evictions taught it.
    pub(crate) adaptation: RefCell<Adaptation>,
    /// Items linked (less unlinked) that the index has not been told of.
    pub(crate) unreported_items: Cell<i64>,
    /// What it evicted, if anybody wants to know.
    pub(crate) eviction_log: RefCell<EvictionLog>,
}

impl Handle {
    pub(crate) fn new(engine: Arc<Engine>, id: usize) -> Self {
        // What has expired among items that live for ever is found only by looking at all of them.
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

    /// Pins the present epoch: until the guard ends, everything found under it stays readable. Cheap; do many requests
    /// under one, but keep it short: memory that others free meanwhile waits for its end.
    pub fn pin(&mut self, now: Now) -> Guard<'_> {
        self.engine.arena.epochs.pin(self.id);
        self.engine.flush_if_due(now);
        Guard { handle: self, counters: &self.engine.counters[self.id], now, copied_bytes: Cell::new(0) }
    }

    /// The cache this handle belongs to.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Does it keep segments that others may need, because there are few for so many handles? Then call
    /// [`Handle::release`] before a time without guards.
    pub fn is_holding(&self) -> bool {
        self.engine.is_crowded
            && (self.reclaimer.borrow().has_begun() || self.allocator.borrow().open_count() > 0)
    }

    /// Leaves the segments that it fills or empties to all handles.
    pub fn release(&mut self) {
        // As under a guard: a segment that another retires meanwhile must not be opened again while we look at it.
        self.engine.arena.epochs.pin(self.id);
        let allocator = self.allocator.get_mut();
        if self.engine.is_crowded && allocator.open_count() > 0 {
            self.engine.parked.put(allocator.take_open());
        }
        self.close();
        self.engine.arena.epochs.unpin(self.id);
    }

    /// Seals what it fills, and puts back what it empties.
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

/// A span of work during which every item found stays readable, whatever others do.
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
    /// The moment of this guard.
    pub fn now(&self) -> Now {
        self.now
    }

    /// Bytes of values that were written under this guard: by it a caller knows when changes of large values have had
    /// their share.
    pub fn copied_bytes(&self) -> usize {
        self.copied_bytes.get()
    }

    #[inline]
    pub(crate) fn note_copied(&self, bytes: usize) {
        self.copied_bytes.set(self.copied_bytes.get() + bytes);
    }

    /// Hashes a key and starts fetching its index line. With another key or in another engine the hash finds nothing,
    /// and a store panics.
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

    /// The item behind an entry, which must have been read under this guard.
    #[inline]
    pub(crate) fn item_ref(&self, entry: Entry) -> ItemRef<'_> {
        self.item_ref_at(entry.offset())
    }

    /// The item at an offset of the log, which must have come from an entry read under this guard, or from the walk of
    /// a segment that was sealed or claimed under it.
    #[inline]
    #[allow(unsafe_code)]
    pub(crate) fn item_ref_at(&self, offset: Offset) -> ItemRef<'_> {
        // SAFETY: the entry or the state of the segment was read with acquire ordering after the item was written. This
        // guard is pinned since before, so neither the segment nor a hole in it is used again before it ends, and the
        // result with it.
        unsafe { ItemRef::at(&self.engine().arena.region, offset.bytes()) }
    }
}

/// Splits of the index hash the keys of what they move.
impl Items for Guard<'_> {
    fn hash_at(&self, offset: Offset) -> Hash {
        self.engine().hash_key.hash(self.item_ref_at(offset).key())
    }

    fn prefetch(&self, offset: Offset) {
        self.engine().arena.prefetch(offset);
    }
}
