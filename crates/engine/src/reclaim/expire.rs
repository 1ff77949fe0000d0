//! Expiry: items whose time is up, or that a flush covers.

use std::sync::atomic::Ordering::Relaxed;

use crate::handle::Guard;
use crate::index::buckets::{Bucket, SlotRef};
use crate::index::hash::Hash;
use crate::log::item::DEAD;
use crate::log::offset::Offset;
use crate::log::segment::{SEALED, SegmentId};

/// Where the background step is looking for expired items.
#[derive(Clone, Copy, Default)]
pub(crate) struct Crawl {
    id: SegmentId,
    generation: u32,
    /// None: at its first item.
    offset: Option<Offset>,
}

impl Guard<'_> {
    /// Removes an item that has expired or was flushed, if it is still where it was seen.
    #[cold]
    pub(crate) fn reap(&self, hash: Hash, offset: Offset) {
        let bucket = self.engine().index.lock(hash);
        let Some(found) = bucket.find(hash, |entry| entry.offset() == offset) else { return };
        let raw = self.item_ref(found.entry);
        if self.engine().liveness(offset, raw, self.now()).is_err() {
            self.drop_dead(&bucket, &found);
        }
    }

    /// Drops an item that has expired or was flushed.
    pub(super) fn drop_dead(&self, bucket: &Bucket<'_>, found: &SlotRef<'_>) {
        self.count_reclaimed(found.entry.offset(), self.item_ref(found.entry));
        self.unlink(bucket, found);
    }

    /// Looks for expired items in segments that hold others as well, so that compaction can win their memory back, and
    /// for expired large items behind one that lives. Returns how many segments it is done with.
    pub(super) fn crawl(&self, items_max: usize) -> usize {
        let engine = self.engine();
        let mut crawl = self.handle.reclaimer.borrow().crawl;
        let mut left = items_max;
        let mut walked = 0;
        // At most once around.
        for _ in engine.arena.segments.ids() {
            let segment = engine.arena.segments.get(crawl.id);
            let is_run = engine.arena.segments.is_run(crawl.id);
            // A run that is not sealed may be in limbo, and be freed at any moment.
            let is_walkable = if is_run {
                segment.state() == SEALED
            } else {
                // Items stored for ever may have been touched; with eviction they go when it is their turn.
                segment.is_walkable() && (segment.group.load(Relaxed) != 0 || !engine.evict)
            };
            if is_walkable {
                // Read after the state: that was seen under this guard, so items lie as they do in this generation.
                let generation = segment.generation.load(Relaxed);
                let reached = crawl.offset.filter(|_| generation == crawl.generation);
                let mut at = reached.unwrap_or_else(|| engine.arena.segments.first(crawl.id));
                crawl.generation = generation;
                let end = engine.arena.segments.end(crawl.id);
                while at < end && left > 0 {
                    let raw = self.item_ref_at(at);
                    if raw.marks() & DEAD == 0 && raw.expiry().is_past(self.now()) {
                        self.reap(self.prepare(raw.key()), at);
                        self.counters().crawler_reclaimed.add(1);
                    }
                    self.counters().crawler_checked.add(1);
                    // A run has one.
                    at = if is_run { end } else { at.after(raw) };
                    left -= 1;
                }
                if at < end {
                    crawl.offset = Some(at);
                    break;
                }
            }
            crawl = Crawl { id: engine.arena.segments.next_id(crawl.id), generation: 0, offset: None };
            walked += 1;
            // As much work as an item.
            left = left.saturating_sub(1);
            if left == 0 {
                break;
            }
        }
        self.handle.reclaimer.borrow_mut().crawl = crawl;
        walked
    }
}
