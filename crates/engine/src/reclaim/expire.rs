//! Expiry: removes items that have expired or were flushed.

use std::sync::atomic::Ordering::Relaxed;

use crate::handle::Guard;
use crate::index::buckets::{Bucket, SlotRef};
use crate::index::hash::Hash;
use crate::log::item::DEAD;
use crate::log::offset::Offset;
use crate::log::segment::SegmentId;
use crate::log::walk::Bookmark;

/// The position of the background search for expired items.
#[derive(Clone, Copy, Default)]
pub(crate) struct Crawl {
    id: SegmentId,
    /// `None`: at its first item.
    reached: Option<Bookmark>,
}

impl Guard<'_> {
    /// Removes an item that has expired or was flushed, if it is still where it was found.
    #[cold]
    pub(crate) fn reap(&self, hash: Hash, offset: Offset) {
        let bucket = self.engine().index.lock(self.pinned(), hash);
        let Some(found) = bucket.find(hash, |found| found.entry.offset() == offset) else { return };
        let raw = self.item_ref(&found);
        if self.engine().liveness(offset, raw, self.now()).is_err() {
            self.drop_dead(&bucket, found);
        }
    }

    /// Drops an item that has expired or was flushed.
    pub(super) fn drop_dead<'t>(&'t self, bucket: &Bucket<'t>, found: SlotRef<'t>) {
        self.count_reclaimed(found.entry.offset(), self.item_ref(&found));
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
        for _ in 0..engine.arena.segments.used_count() + 1 {
            let segment = engine.arena.segments.get(crawl.id);
            let is_run = engine.arena.segments.is_run(crawl.id);
            // Items without an expiry may have been touched. With eviction, expired ones among them are left to their
            // queue.
            let is_searched = is_run || segment.group.load(Relaxed) != 0 || !engine.evict;
            let walk = || engine.arena.walk(self.pinned(), crawl.id, crawl.reached);
            if let Some(mut walk) = is_searched.then(walk).flatten() {
                while left > 0
                    && let Some(located) = walk.next()
                {
                    let raw = located.raw();
                    if raw.marks() & DEAD == 0 && engine.is_past(raw.expiry(), self.now()) {
                        self.reap(self.prepare(raw.key()), located.offset());
                        self.counters().crawler_reclaimed.add(1);
                    }
                    self.counters().crawler_checked.add(1);
                    left -= 1;
                }
                if !walk.is_at_end() {
                    crawl.reached = Some(walk.bookmark());
                    break;
                }
            }
            crawl = Crawl { id: engine.arena.next_id(crawl.id), reached: None };
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
