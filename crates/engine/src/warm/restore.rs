//! Restoring: the index, the queues and the counters of a log that another process left in a file.
//!
//! The items are walked by several threads, a segment at a time. With so many of them, what takes the time is waiting
//! for the memory of items and index; both are prefetched.
//!
//! Unsafe code lives here because a log is adopted. The invariant: the engine is not in use, and each segment is
//! examined once.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::engine::Engine;
use crate::handle::Guard;
use crate::index::hash::Hash;
use crate::log::adoption::Orphan;
use crate::log::item::{FETCHED, ItemRef};
use crate::log::segment::{LARGE, SegmentId};
use crate::log::superblock::Left;
use crate::request::Now;
use crate::warm::{ColdReason, Owns, Restored};

/// Threads at most: memory is then the limit.
const THREADS_MAX: usize = 16;
/// With fewer segments for each, another thread is not worth starting.
const SEGMENTS_PER_THREAD: usize = 8;
/// Items whose index lines are prefetched together.
const BATCH: usize = 16;

/// What the threads restore.
#[derive(Clone, Copy)]
struct Source<'a> {
    ids: &'a [SegmentId],
    /// The first of them that no thread has.
    next: &'a AtomicUsize,
    is_clean: bool,
    owns: &'a Owns<'a>,
}

/// What a thread has restored.
#[derive(Default)]
struct Tally {
    restored: Restored,
    /// Items that were superseded, and are what is left of their keys.
    superseded: Vec<(Hash, usize)>,
    /// Live items of segments whose weight was not known when the process ended.
    unweighted: Vec<(SegmentId, u32)>,
}

impl Engine {
    pub(super) fn restore(
        self: &Arc<Self>,
        left: &Left,
        now: Now,
        owns: &Owns<'_>,
    ) -> Result<Restored, ColdReason> {
        let flush_mark = self.arena.highest_flush_mark(left).ok_or(ColdReason::Memory)?;
        self.resume_flushes(flush_mark, left.flush_at);
        // A flush that was due meanwhile.
        self.flush_if_due(now);
        let flush_mark = self.flush_mark.load(Relaxed);
        // SAFETY: the engine is not in use yet.
        let adoption = unsafe { self.arena.adopt(left, flush_mark, now) }.ok_or(ColdReason::Memory)?;
        let ids = adoption.ids();
        let (next, tally) = (AtomicUsize::new(0), Mutex::new(Tally::default()));
        let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let threads = threads.min(self.counters.len()).min(ids.len() / SEGMENTS_PER_THREAD).max(1);
        let source = Source { ids: &ids, next: &next, is_clean: left.is_clean, owns };
        let work = || self.restore_some(source, now, &tally);
        thread::scope(|scope| {
            // If the system refuses a thread, the others do its work.
            let helpers: Vec<_> =
                (1..threads).filter_map(|_| thread::Builder::new().spawn_scoped(scope, work).ok()).collect();
            work();
            drop(helpers);
        });
        if next.into_inner() < ids.len() {
            return Err(ColdReason::Memory);
        }
        let tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: each segment was examined, since the counter has passed all of them.
        let open = unsafe { self.arena.settle(adoption) };
        for (id, items) in tally.unweighted {
            let segment = self.arena.segments.get(id);
            let weight = self.policy.insert_priority.at_first(segment.queue());
            segment.weight.store(items.saturating_mul(weight), Relaxed);
        }
        self.policy.seal_left(&self.arena.segments, open);
        let mut handle = self.handle().ok_or(ColdReason::Memory)?;
        let guard = handle.pin(now);
        for (hash, place) in tally.superseded {
            guard.clear_superseded(hash, place);
        }
        drop(guard);
        self.tick(now);
        Ok(Restored { is_clean: left.is_clean, ..tally.restored })
    }

    /// Restores segments until there are no more.
    fn restore_some(self: &Arc<Self>, source: Source<'_>, now: Now, total: &Mutex<Tally>) {
        let mut tally = Tally::default();
        let Some(mut handle) = self.handle() else { return };
        let guard = handle.pin(now);
        while let Some(&id) = source.ids.get(source.next.fetch_add(1, Relaxed)) {
            guard.restore_segment(id, source, &mut tally);
        }
        guard.report_items(0);
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
        total.restored.items += tally.restored.items;
        total.restored.torn += tally.restored.torn;
        total.restored.expired += tally.restored.expired;
        total.restored.foreign += tally.restored.foreign;
        total.superseded.append(&mut tally.superseded);
        total.unweighted.append(&mut tally.unweighted);
    }
}

impl Guard<'_> {
    fn restore_segment(&self, id: SegmentId, source: Source<'_>, tally: &mut Tally) {
        let engine = self.engine();
        let mut batch = Vec::with_capacity(BATCH);
        let items_before = tally.restored.items;
        // SAFETY: each number is handed out once, and the adoption is settled afterwards.
        let examined = unsafe {
            engine.arena.examine(id, !source.is_clean, |orphan| {
                if !(source.owns)(orphan.item.raw().key()) {
                    tally.restored.foreign += 1;
                    engine.arena.segments.discard_fresh(orphan.item);
                    return;
                }
                let hash = self.prepare(orphan.item.raw().key());
                batch.push((orphan, hash));
                if batch.len() == BATCH {
                    batch.drain(..).for_each(|(orphan, hash)| self.link(orphan, hash, tally));
                }
            })
        };
        batch.into_iter().for_each(|(orphan, hash)| self.link(orphan, hash, tally));
        tally.restored.torn += examined.torn;
        let segment = engine.arena.segments.get(id);
        if segment.weight.load(Relaxed) == 0 && !engine.arena.segments.is_run(id) {
            let items = tally.restored.items.saturating_sub(items_before);
            tally.unweighted.push((id, u32::try_from(items).unwrap_or(u32::MAX)));
        }
        self.report_items(64);
    }

    /// Lets an item be found, unless it has expired, or a newer one of its key was found.
    fn link<'t>(&'t self, orphan: Orphan<'t>, hash: Hash, tally: &mut Tally) {
        let engine = self.engine();
        let Orphan { item, is_superseded } = orphan;
        let segment_ref = engine.arena.segments.segment_ref_at(item.allocation().at());
        if engine.liveness_in(segment_ref, item.raw(), self.now()).is_err() {
            tally.restored.expired += 1;
            engine.arena.segments.discard_fresh(item);
            return;
        }
        let (place, is_fetched) = (item.allocation().at(), item.raw().marks() & FETCHED != 0);
        let key = item.raw().key();
        let bucket = engine.index.lock(self.pinned(), hash);
        let raw = match self.find_locked(&bucket, key, hash) {
            None => match item.insert(|place| bucket.insert(hash, place, &engine.arena.budget)) {
                Ok(raw) => {
                    self.count_item(1);
                    tally.restored.items += 1;
                    raw
                }
                Err(item) => return engine.arena.segments.discard_fresh(item),
            },
            Some(found) if self.is_newer(item.raw(), is_superseded, self.item_ref(&found)) => {
                let (raw, unlinked) = item.replace(|place| bucket.replace(found, hash, place, 0));
                self.account_dead(unlinked);
                raw
            }
            Some(_) => return engine.arena.segments.discard_fresh(item),
        };
        segment_ref.segment.note_expiry(raw.expiry());
        self.count_linked(if segment_ref.is_run { LARGE } else { segment_ref.queue() }, raw);
        if is_superseded {
            tally.superseded.push((hash, place.bytes()));
        }
        if is_fetched {
            // How often it was read is not known any more.
            bucket.find(hash, |found| found.entry.offset() == place).inspect(|found| found.note_use());
        }
    }
}

impl Guard<'_> {
    /// Which of two items of one key is the newer. Both are found only if the process ended while the one replaced the
    /// other, or was moved.
    fn is_newer(&self, item: ItemRef<'_>, is_superseded: bool, other: ItemRef<'_>) -> bool {
        let is_other_superseded = self.engine().arena.is_superseded(other);
        if is_superseded == is_other_superseded { item.cas() > other.cas() } else { is_other_superseded }
    }

    /// What was to replace this item was never completed.
    fn clear_superseded(&self, hash: Hash, place: usize) {
        let bucket = self.engine().index.lock(self.pinned(), hash);
        if let Some(found) = bucket.find(hash, |found| found.entry.offset().bytes() == place) {
            let item = self.item_ref(&found);
            if self.engine().arena.is_superseded(item) {
                item.supersede();
            }
        }
    }
}
