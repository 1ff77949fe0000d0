//! Accounting: counters of items that are linked and unlinked, and what follows when the last item of a segment dies.

use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::engine::Engine;
use crate::handle::Guard;
use crate::index::buckets::{Bucket, SlotRef};
use crate::log::arena::Retired;
use crate::log::item::{FETCHED, ItemRef};
use crate::log::offset::Offset;
use crate::log::segment::{SEALED, SegmentId, SegmentRef};
use crate::policy::queues::{GARBAGE_LEVELS, garbage_threshold_bytes};

impl Guard<'_> {
    /// Removes an entry from the index, and accounts for its item.
    pub(crate) fn unlink(&self, bucket: &Bucket<'_>, found: &SlotRef<'_>) {
        bucket.remove(found, |overflow| self.engine().retire_overflow(overflow));
        self.account_dead(
            self.engine().arena.segments.segment_ref_at(found.entry.offset()),
            self.item_ref(found.entry),
        );
        self.count_item(-1);
    }

    /// Accounts for an item that the index no longer points to.
    #[inline]
    pub(crate) fn account_dead(&self, segment_ref: SegmentRef<'_>, raw: ItemRef<'_>) {
        let engine = self.engine();
        let (bytes, accounted_bytes) = (raw.size() as u64, raw.accounted_bytes());
        raw.mark_dead();
        let counters = self.counters();
        let queue = &counters.queues[segment_ref.queue()];
        queue.items.add(-1);
        queue.live_bytes.add(-(bytes as i64));
        counters.bytes.add(-i64::from(accounted_bytes));
        let SegmentRef { segment, id, is_run } = segment_ref;
        // The thread that counts the last byte knows that all other items are unlinked as well.
        let dead = segment.usage.dead_bytes.fetch_add(bytes, AcqRel) + bytes;
        if is_run {
            // Unless another thread has claimed it, which will find the item unlinked.
            if engine.policy.withdraw(&engine.arena.segments, id) {
                engine.arena.retire(Retired::Run(id));
            }
        } else if segment.state() == SEALED {
            let left = segment.usage.filled_bytes.load(Relaxed) - dead;
            // Between the count and the check of its state the segment may have been reopened and sealed. From here on
            // this guard prevents that.
            if left == 0 && segment.usage.live_bytes() == 0 {
                engine.retire_dead(id);
                return;
            }
            for level in GARBAGE_LEVELS {
                let garbage_threshold_bytes = garbage_threshold_bytes(&engine.arena.segments, segment, level);
                if left < garbage_threshold_bytes && left + bytes >= garbage_threshold_bytes {
                    engine.policy.note_garbage(&engine.arena.segments, id, level);
                }
            }
        }
    }

    /// Accounts for an item that the index now points to.
    #[inline]
    pub(crate) fn count_linked(&self, queue: usize, raw: ItemRef<'_>) {
        let (bytes, accounted_bytes) = (raw.size() as i64, raw.accounted_bytes());
        let counters = self.counters();
        let queue = &counters.queues[queue];
        queue.items.add(1);
        queue.live_bytes.add(bytes);
        counters.bytes.add(i64::from(accounted_bytes));
        counters.items_total.add(1);
    }

    /// Accounts for an item that was copied to another place.
    pub(crate) fn count_moved(&self, from: Offset, old: ItemRef<'_>, to: Offset, new: ItemRef<'_>) {
        let engine = self.engine();
        old.mark_dead();
        let bytes = new.size() as u64;
        engine
            .arena
            .segments
            .get(engine.arena.segments.id_at(from))
            .usage
            .dead_bytes
            .fetch_add(bytes, Relaxed);
        let (from, to) = (engine.arena.queue_at(from), engine.arena.queue_at(to));
        self.counters().queues[from].items.add(-1);
        self.counters().queues[from].live_bytes.add(-(bytes as i64));
        self.counters().queues[to].items.add(1);
        self.counters().queues[to].live_bytes.add(bytes as i64);
    }

    pub(crate) fn count_reclaimed(&self, offset: Offset, raw: ItemRef<'_>) {
        let unfetched = i64::from(raw.marks() & FETCHED == 0);
        let queue = &self.counters().queues[self.engine().arena.queue_at(offset)];
        self.counters().reclaimed.add(1);
        queue.reclaimed.add(1);
        self.counters().expired_unfetched.add(unfetched);
        queue.expired_unfetched.add(unfetched);
    }

    /// Counts items for `report_items`.
    pub(crate) fn count_item(&self, change: i64) {
        let items = &self.handle.unreported_items;
        items.set(items.get() + change);
    }

    /// Reports to the index how many items were linked and unlinked, once `step` were; the index may then grow a
    /// little.
    #[inline]
    pub(super) fn report_items(&self, step: i64) {
        let items = self.handle.unreported_items.get();
        if items.abs() >= step || step > 1 && self.engine().index.is_growing() {
            self.report_now();
        }
    }

    #[cold]
    fn report_now(&self) {
        let items = self.handle.unreported_items.take();
        let engine = self.engine();
        let retire = |overflow| engine.retire_overflow(overflow);
        engine.index.report(items, &engine.arena.budget, self, retire);
    }
}

impl Engine {
    /// Seals a full segment: it goes to the end of its queue, unless all of it has died meanwhile.
    pub(crate) fn seal(&self, id: SegmentId) {
        self.policy.seal(&self.arena.segments, id);
        if self.arena.segments.get(id).usage.live_bytes() == 0 {
            self.retire_dead(id);
        }
    }

    /// Seals the open segments that handles have parked, so that they can be reclaimed. False: there are none.
    pub(super) fn seal_parked(&self) -> bool {
        let mut is_any = false;
        while let Some(open) = self.parked.take() {
            is_any = true;
            open.close_all(&self.arena).for_each(|id| self.seal(id));
        }
        is_any
    }

    /// Retires a sealed segment without live bytes, as seen under this guard, unless another thread has claimed it.
    fn retire_dead(&self, id: SegmentId) {
        if self.policy.withdraw(&self.arena.segments, id) {
            self.arena.retire_segment(id);
        }
    }
}
