//! Accounting: counters of items that are linked and unlinked, and what follows when the last item of a segment dies.

use crate::engine::Engine;
use crate::handle::Guard;
use crate::index::buckets::{Bucket, SlotRef, Unlinked};
use crate::log::item::{FETCHED, ItemRef};
use crate::log::offset::Offset;
use crate::log::segment::{DeadItem, OpenSegment, SEALED, SegmentId, SegmentRef};
use crate::policy::queues::{GARBAGE_LEVELS, garbage_threshold_bytes};

impl Guard<'_> {
    /// Removes an entry from the index, and accounts for its item.
    pub(crate) fn unlink<'t>(&'t self, bucket: &Bucket<'t>, found: SlotRef<'t>) {
        if let Some(backing) = &self.engine().backing {
            backing.retire_version(self.item_ref(&found).cas());
        }
        self.account_dead(bucket.remove(found, |overflow| self.engine().retire_overflow(overflow)));
        self.count_item(-1);
    }

    /// Accounts for an item that the index no longer points to.
    #[inline]
    pub(crate) fn account_dead<'t>(&'t self, unlinked: Unlinked<'t>) {
        let engine = self.engine();
        let DeadItem { raw, bytes, segment_ref, dead_bytes } = self.mark_dead(unlinked);
        let accounted_bytes = raw.accounted_bytes();
        let counters = self.counters();
        let queue = &counters.queues[segment_ref.queue()];
        queue.items.add(-1);
        queue.live_bytes.add(-(bytes as i64));
        counters.bytes.add(-i64::from(accounted_bytes));
        let SegmentRef { segment, id, is_run } = segment_ref;
        if is_run {
            // Unless another thread has claimed it, which will find the item unlinked.
            engine.retire_unclaimed(id);
        } else if segment.state() == SEALED {
            let left = segment.usage.filled_bytes() - dead_bytes;
            // Between the count and the check of its state the segment may have been reopened and sealed. From here on
            // this guard prevents that.
            if left == 0 && segment.usage.live_bytes() == 0 {
                engine.retire_unclaimed(id);
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
    pub(crate) fn count_moved<'t>(&'t self, unlinked: Unlinked<'t>, to: Offset) {
        let DeadItem { bytes, segment_ref, .. } = self.mark_dead(unlinked);
        let bytes = bytes as i64;
        let (from, to) = (segment_ref.queue(), self.engine().arena.queue_at(to));
        self.counters().queues[from].items.add(-1);
        self.counters().queues[from].live_bytes.add(-bytes);
        self.counters().queues[to].items.add(1);
        self.counters().queues[to].live_bytes.add(bytes);
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
    pub(crate) fn report_items(&self, step: i64) {
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
        engine.index.report(self.pinned(), items, &engine.arena.budget, self, retire);
    }
}

impl Engine {
    /// Seals a full segment: it goes to the end of its queue, unless all of it has died meanwhile.
    pub(crate) fn seal(&self, open: OpenSegment) {
        let id = open.id();
        self.policy.seal(&self.arena.segments, open);
        if self.arena.segments.get(id).usage.live_bytes() == 0 {
            self.retire_unclaimed(id);
        }
    }

    /// Seals the open segments that handles have parked, so that they can be reclaimed. False: there are none.
    pub(super) fn seal_parked(&self) -> bool {
        let mut is_any = false;
        while let Some(open) = self.parked.take() {
            is_any = true;
            open.close_all(&self.arena).for_each(|open| self.seal(open));
        }
        is_any
    }

    /// Retires a sealed segment or run without live bytes, as seen under this guard, unless another thread has claimed
    /// it.
    pub(crate) fn retire_unclaimed(&self, id: SegmentId) {
        if let Some(claim) = self.policy.withdraw(&self.arena.segments, id) {
            self.retire(claim);
        }
    }
}
