//! Expiry: removes items that have expired or were flushed.

use std::sync::atomic::Ordering::Relaxed;

use crate::handle::Guard;
use crate::index::buckets::{Bucket, SlotRef};
use crate::index::hash::Hash;
use crate::log::item::DEAD;
use crate::log::offset::Offset;
use crate::log::segment::{SEALED, SegmentId};

/// The position of the background search for expired items.
#[derive(Clone, Copy, Default)]
pub(crate) struct Crawl {
    id: SegmentId,
    generation: u32,
    /// `None`: at its first item.
    offset: Option<Offset>,
}

impl Guard<'_> {
    /// Removes an item that has expired or was flushed, if it is still where it was found.
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

    /// Searches segments that also hold other items for expired ones, so that compaction can free their memory, and
    /// finds expired large items behind live ones. Returns how many segments it has finished.
    pub(super) fn crawl(&self, items_max: usize) -> usize {
        let engine = self.engine();
        let mut crawl = self.handle.reclaimer.borrow().crawl;
        let mut left = items_max;
        let mut walked = 0;
        // Once around at most.
        for _ in engine.arena.segments.ids() {
            let segment = engine.arena.segments.get(crawl.id);
            let is_run = engine.arena.segments.is_run(crawl.id);
            // A run that is not sealed may be in limbo, and be freed at any moment.
            let is_walkable = if is_run {
                segment.state() == SEALED
            } else {
                // Items without an expiry may have been touched. With eviction, expired ones among them are left to
                // their queue.
                segment.is_walkable() && (segment.group.load(Relaxed) != 0 || !engine.evict)
            };
            if is_walkable {
                // Read after the state, which was seen under this guard: the items do not move in this generation.
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
                    // A run has one item.
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
            // An empty segment costs as much as an item.
            left = left.saturating_sub(1);
            if left == 0 {
                break;
            }
        }
        self.handle.reclaimer.borrow_mut().crawl = crawl;
        walked
    }
}
