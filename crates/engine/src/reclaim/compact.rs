//! Compaction: copies the items of a victim that are kept to open segments, and drops the others.

use std::sync::atomic::Ordering::Relaxed;

use crate::handle::Guard;
use crate::index::buckets::{Bucket, SlotRef};
use crate::index::hash::Hash;
use crate::log::fresh::FreshItem;
use crate::log::item::{DEAD, ItemRef};
use crate::log::segment::{MAIN, SMALL};
use crate::log::walk::Located;
use crate::policy::priority;
use crate::policy::queues::ReclaimMode;
use crate::reclaim::supply::Purpose;
use crate::reclaim::victim::{AHEAD_ITEMS, BATCH, Victim};

/// Larger items are copied before their bucket is locked.
const LOCKED_COPY_BYTES_MAX: usize = 2 << 10;

/// Where an item that is kept is copied to.
struct Destination {
    queue: usize,
    weight: u32,
    uses: u8,
}

/// There is no space for a copy: the item stays where it is for now.
pub(super) struct NoSpace;

impl Guard<'_> {
    /// Processes the next few items of a victim. Stops before an item that must be kept and gets no space.
    pub(super) fn reclaim_batch(&self, victim: &mut Victim) -> Result<(), NoSpace> {
        let engine = self.engine();
        let mut walk = victim.walk.walk(self.pinned(), &engine.arena.region);
        let mut batch = [None; BATCH];
        let mut count = 0;
        while count < BATCH
            && let Some(located) = walk.next()
        {
            let raw = located.raw();
            engine.arena.region.prefetch(located.offset().bytes() + AHEAD_ITEMS * raw.size());
            if raw.marks() & DEAD == 0 {
                batch[count] = Some((located, self.prepare(raw.key())));
                count += 1;
            }
        }
        let is_copying = victim.mode == ReclaimMode::Compact;
        for (number, (located, hash)) in batch.iter().flatten().enumerate() {
            victim.walk.seek(located);
            if let Some(Some((next, _))) = batch.get(number + 1).filter(|_| is_copying) {
                engine.arena.region.prefetch_range(next.offset().bytes(), next.raw().size());
            }
            let (offset, hash) = (located.offset(), *hash);
            let mut copy = self.copy_ahead(hash, located, victim);
            let bucket = engine.index.lock(self.pinned(), hash);
            let reclaimed = match bucket.find(hash, |found| found.entry.offset() == offset) {
                Some(found) => self.reclaim_item(&bucket, hash, found, victim, &mut copy),
                None => Ok(()),
            };
            drop(bucket);
            if let Some(unused) = copy {
                self.handle.allocator.borrow_mut().take_back(&engine.arena, unused);
            }
            reclaimed?;
        }
        victim.walk.seek_after(&walk);
        Ok(())
    }

    /// Drops an item, or moves it to an open segment.
    fn reclaim_item<'t>(
        &'t self,
        bucket: &Bucket<'t>,
        hash: Hash,
        found: SlotRef<'t>,
        victim: &Victim,
        copy: &mut Option<FreshItem<'t>>,
    ) -> Result<(), NoSpace> {
        let engine = self.engine();
        let (offset, raw) = (found.entry.offset(), self.item_ref(&found));
        if engine.liveness(offset, raw, self.now()).is_err() {
            self.drop_dead(bucket, found);
            return Ok(());
        }
        let from = engine.arena.segments.get(victim.walk.id()).queue();
        let Some(to) = self.destination(victim, found.entry.uses()) else {
            self.evict(bucket, hash, found, from);
            return Ok(());
        };
        match self.relocate(bucket, hash, found, to, copy) {
            Ok(()) => {
                let moved = match (victim.mode, from) {
                    (ReclaimMode::Evict, SMALL) => &self.counters().moves_to_main,
                    (ReclaimMode::Evict, _) => &self.counters().moves_within_main,
                    _ => &self.counters().compacted,
                };
                moved.add(1);
            }
            Err(NoSpace) if engine.evict && !engine.is_coming(engine.arena.segments.segment_bytes) => {
                self.evict(bucket, hash, found, from);
            }
            Err(NoSpace) => return Err(NoSpace),
        }
        Ok(())
    }

    /// Where an item of a victim is copied to. `None`: it is dropped.
    fn destination(&self, victim: &Victim, uses: u8) -> Option<Destination> {
        let engine = self.engine();
        let from = engine.arena.segments.get(victim.walk.id()).queue();
        match victim.mode {
            ReclaimMode::Evict if uses == 0 => None,
            // Its uses pay for that.
            ReclaimMode::Evict => Some(Destination { queue: MAIN, weight: priority::of_uses(uses), uses: 0 }),
            // `Clear` meets a live item if it was touched a moment ago.
            ReclaimMode::Compact | ReclaimMode::Refill | ReclaimMode::Clear => {
                Some(Destination { queue: from, weight: engine.policy.insert_priority.at_first(from), uses })
            }
        }
    }

    /// Copies a long item that will probably be kept before its bucket is locked: other threads spin on that lock.
    #[inline]
    fn copy_ahead<'t>(&'t self, hash: Hash, located: &Located<'t>, victim: &Victim) -> Option<FreshItem<'t>> {
        let (offset, raw) = (located.offset(), located.raw());
        if raw.size() <= LOCKED_COPY_BYTES_MAX || victim.mode == ReclaimMode::Clear {
            return None;
        }
        let found = self.engine().index.find(self.pinned(), hash, |found| found.entry.offset() == offset)?;
        let to = self.destination(victim, found.entry.uses())?;
        self.copy_item(raw, &to)
    }

    /// Copies an item to an open segment, where nobody sees it yet. `None`: there is no space.
    fn copy_item<'g>(&'g self, raw: ItemRef<'g>, to: &Destination) -> Option<FreshItem<'g>> {
        let request = self.alloc_request(to.queue, to.weight, raw.expiry(), raw.size());
        let allocation = self.allocate(request, Purpose::Compaction)?;
        Some(allocation.write_copy(&self.engine().arena.region, raw))
    }

    /// Points the index to a copy of an item, which may exist already.
    fn relocate<'t>(
        &'t self,
        bucket: &Bucket<'t>,
        hash: Hash,
        found: SlotRef<'t>,
        to: Destination,
        copy: &mut Option<FreshItem<'t>>,
    ) -> Result<(), NoSpace> {
        let engine = self.engine();
        let segments = &engine.arena.segments;
        let (offset, raw) = (found.entry.offset(), self.item_ref(&found));
        let copy = match copy.take() {
            Some(copy) => {
                copy.raw().follow(raw);
                segments
                    .get(segments.id_at(copy.allocation().at()))
                    .note_expiry(engine.counted(raw.expiry()));
                copy
            }
            None => self.copy_item(raw, &to).ok_or(NoSpace)?,
        };
        let at = copy.allocation().at();
        let mark_of = |offset| segments.get(segments.id_at(offset)).flush_mark.load(Relaxed);
        if mark_of(at) != mark_of(offset) {
            // A flush came in between: the item must not escape it.
            self.handle.allocator.borrow_mut().take_back(&engine.arena, copy);
            self.drop_dead(bucket, found);
            return Ok(());
        }
        engine.arena.prefetch_ahead(copy.allocation(), copy.raw().size());
        let (_, unlinked) = copy.replace(|place| bucket.replace(found, hash, place, to.uses));
        self.count_moved(unlinked, at);
        Ok(())
    }
}
