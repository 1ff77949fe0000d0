//! Emptying segments: eviction, expiry, compaction, and the background step.
//!
//! Work is done a few items at a time. While free segments are few, every store pays for the memory it takes by emptying
//! about four times as much of the segment that its handle has in hand: nobody waits for a whole segment, and no thread of the
//! engine's own is needed.

use std::iter;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::engine::Engine;
use crate::epoch::limbo::Retired;
use crate::handle::{Guard, Handle};
use crate::index::buckets::{Bucket, Entry, Items, SlotRef};
use crate::index::hash::Hash;
use crate::inspect::stats::QueueCounters;
use crate::log::holes::HoleMap;
use crate::log::item::{DEAD, FETCHED, ItemRef};
use crate::log::runs::{AllocError, Run};
use crate::log::segment::{MAIN, SEALED, SMALL, SegmentId};
use crate::log::writer::{AllocRequest, Allocation, Writer};
use crate::mem::region::PAGE_BYTES;
use crate::policy::priority;
use crate::policy::queues::ReclaimMode;
use crate::request::{Expiry, Now, WriteError};

/// How many bytes of a victim are looked at for each byte stored, while free segments are few.
const WORK_FACTOR: usize = 4;
/// The same without eviction: little of a victim is dead then.
const COMPACTION_FACTOR: usize = 16;
/// What one request empties at most, in bytes of victims, before it lets others run: a hundred microseconds with small items.
pub(crate) const RECLAIM_STEP_BYTES: usize = 32 << 10;
/// Large items that one request empties at most for their address space; each may first lose the credit of its reads.
const RUNS_STEP: usize = 16;
/// Giving a segment back to the system takes the background step as long as so many items.
const SHRINK_ITEMS: usize = 256;
/// Items whose index lines are fetched ahead of the work on them.
const BATCH: usize = 8;
/// Longer items are copied before their bucket is locked.
const LOCKED_COPY_BYTES_MAX: usize = 2 << 10;
/// How many items ahead the header of one is fetched.
const AHEAD_ITEMS: usize = 20;
/// An item used so recently counts as active when it is evicted (as memcached's `evicted_active`).
const ACTIVE_SECS: u32 = 60;

/// A segment or run being emptied.
#[derive(Clone, Copy)]
pub(crate) struct Victim {
    pub(crate) id: SegmentId,
    mode: ReclaimMode,
    next: usize,
    end: usize,
}

/// Where the background step is looking for expired items.
#[derive(Clone, Copy, Default)]
pub(crate) struct Crawl {
    id: SegmentId,
    generation: u32,
    offset: usize,
}

/// What may be emptied.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReclaimScope {
    /// What the handle is emptying already.
    InProgress,
    /// That, then what has expired or was flushed.
    DeadOnly,
    /// That, then what is thin, then (with eviction) whatever is due.
    Any,
}

/// How an item goes on that is kept.
struct Destination {
    queue: usize,
    weight: u32,
    uses: u8,
}

/// An item that was copied, and where.
struct Copy {
    room: Allocation,
    raw: ItemRef,
}

/// Why an item has to stay where it is for now.
struct NoSpace;

impl Handle {
    /// A background step, for a thread that has the time: removes what has expired or was flushed, keeps free segments at
    /// hand, compacts. Looks at about `items_max` items. Returns whether there is more to do at once.
    pub fn maintain(&mut self, now: Now, items_max: usize) -> bool {
        self.engine.tick(now);
        self.engine.drain_limbo_up_to(items_max);
        self.engine.drain_limbo_buckets(items_max);
        let is_shrinking = self.engine.shrink(items_max / SHRINK_ITEMS);
        let is_moving = self.engine.move_to_large_page(now);
        let guard = self.pin(now);
        let bytes_max = items_max * 64;
        let mut done = 0;
        if guard.engine().is_flush_settled(now) {
            done = guard.reclaim_some(bytes_max, ReclaimScope::DeadOnly);
        }
        while guard.engine().is_short() && done < bytes_max {
            let step = guard.reclaim_some(bytes_max - done, ReclaimScope::Any);
            if step == 0 {
                break;
            }
            done += step;
        }
        let walked = guard.crawl(items_max);
        let is_searching = guard.engine().over_provisioning.note_searched(walked);
        guard.report_items(0);
        drop(guard);
        self.engine.drain_limbo_up_to(items_max);
        done >= bytes_max || is_shrinking || is_moving || is_searching
    }
}

impl Guard<'_> {
    /// Allocation for a new item in an open segment, in place of an old one; makes some if need be.
    #[inline]
    pub(crate) fn append(
        &self,
        queue: usize,
        expiry: Expiry,
        bytes: usize,
        old: Option<ItemRef>,
    ) -> Result<Allocation, WriteError> {
        self.report_items(64);
        let request = AllocRequest {
            queue,
            weight: self.engine().segments.insert_priority.at_first(queue),
            expiry,
            bytes,
        };
        if self.engine().is_low() {
            if !self.engine().evict {
                return self.append_over_provisioned(request, old);
            }
            self.reclaim_some((bytes * WORK_FACTOR).min(RECLAIM_STEP_BYTES), ReclaimScope::Any);
        } else if self.handle.writer.borrow().victim.is_some() {
            self.reclaim_some((bytes * WORK_FACTOR).min(RECLAIM_STEP_BYTES), ReclaimScope::InProgress);
        }
        self.append_or_make_room(|| self.append_now(request))
    }

    /// The same where nothing may be evicted and most of the memory lives.
    #[cold]
    fn append_over_provisioned(
        &self,
        request: AllocRequest,
        old: Option<ItemRef>,
    ) -> Result<Allocation, WriteError> {
        self.admit(request.bytes as i64 - old.map_or(0, |old| old.size() as i64))?;
        if self.engine().is_short() {
            self.reclaim_some((request.bytes * COMPACTION_FACTOR).min(RECLAIM_STEP_BYTES), ReclaimScope::Any);
        }
        self.append_or_make_room(|| {
            // What is open is left to the victim in hand, if its items could find no other place.
            let is_moving = self.handle.writer.borrow().victim.is_some();
            if is_moving && !self.engine().has_reserve() {
                Err(AllocError::Memory)
            } else {
                self.append_now(request)
            }
        })
    }

    #[inline(always)]
    fn append_or_make_room(
        &self,
        append: impl Fn() -> Result<Allocation, AllocError>,
    ) -> Result<Allocation, WriteError> {
        append().or_else(|error| self.make_room(error, self.engine().segments.segment_bytes, append))
    }

    #[inline(always)]
    fn append_now(&self, request: AllocRequest) -> Result<Allocation, AllocError> {
        let mut writer = self.handle.writer.borrow_mut();
        writer.append(self.engine(), request, self.now(), false).ok_or(AllocError::Memory)
    }

    /// A run for an item of `item_bytes`, with memory for its first `bytes` at least; `missing_bytes` of it are still to come.
    pub(crate) fn take_run(
        &self,
        item_bytes: usize,
        bytes: usize,
        missing_bytes: usize,
    ) -> Result<Run, WriteError> {
        self.report_items(64);
        // Runs have whole pages: room for less is none.
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let take = || self.engine().take_run(item_bytes, bytes);
        take().or_else(|error| match error {
            AllocError::Memory => self.make_room(error, bytes, take),
            AllocError::AddressSpace => self.make_space(missing_bytes, take),
        })
    }

    /// Where there is memory but no address space for a run: takes it from a value that makes way, else from large items that nobody reads.
    /// What lies elsewhere would not help.
    #[cold]
    fn make_space(
        &self,
        missing_bytes: usize,
        attempt: impl Fn() -> Result<Run, AllocError>,
    ) -> Result<Run, WriteError> {
        let engine = self.engine();
        if engine.is_reclaiming_runs() {
            engine.drain_limbo();
            return attempt().or(Err(WriteError::TryAgain));
        }
        match engine.revoke_upload(missing_bytes as u64, self.now()) {
            Some(Ok(())) => return Err(WriteError::TryAgain),
            // Items do not go for what may never come.
            Some(Err(_)) => {}
            None if engine.evict => {
                let runs = iter::from_fn(|| engine.segments.next_run()).take(RUNS_STEP);
                let looked_at =
                    runs.fold(0, |sum, id| sum + self.reclaim_run(engine.victim(id, ReclaimMode::Evict)));
                if looked_at > 0 || engine.is_reclaiming_runs() {
                    return Err(WriteError::TryAgain);
                }
            }
            None => {}
        }
        attempt().map_err(|_| {
            self.counters().out_of_memory.add(1);
            WriteError::OutOfMemory
        })
    }

    /// More memory for a run that has some.
    pub(crate) fn charge(&self, id: SegmentId, memory_bytes: usize, bytes: usize) -> Result<(), WriteError> {
        let extend = || self.engine().extend_run(id, memory_bytes as u64, bytes as u64);
        let take = || if extend() { Ok(()) } else { Err(AllocError::Memory) };
        take().or_else(|error| self.make_room(error, bytes, take))
    }

    /// Where there is no memory, empties a little and lets others run before whoever asks tries again. What is emptied now
    /// comes back no sooner than what is in limbo already, so while enough is there evicting more would help nobody.
    #[cold]
    fn make_room<R>(
        &self,
        error: AllocError,
        bytes: usize,
        attempt: impl FnOnce() -> Result<R, AllocError>,
    ) -> Result<R, WriteError> {
        if matches!(error, AllocError::Memory) && self.engine().is_coming(bytes) {
            return Err(WriteError::TryAgain);
        }
        if self.reclaim_some(RECLAIM_STEP_BYTES, ReclaimScope::Any) > 0 {
            return attempt().or(Err(WriteError::TryAgain));
        }
        let has_begun = self.engine().evict && self.handle.writer.borrow().has_begun();
        if has_begun || self.engine().has_limbo() || self.engine().seal_parked() {
            return Err(WriteError::TryAgain);
        }
        // Others are at work with all segments that there are, and will park them.
        if self.engine().evict && self.engine().is_crowded && bytes <= self.engine().segments.segment_bytes {
            return Err(WriteError::TryAgain);
        }
        self.counters().out_of_memory.add(1);
        Err(WriteError::OutOfMemory)
    }

    /// Looks at up to `bytes_max` bytes of victims (but at least at one item). Returns how many it looked at; 0: nothing to empty.
    pub(crate) fn reclaim_some(&self, bytes_max: usize, scope: ReclaimScope) -> usize {
        let mut done = 0;
        while done < bytes_max.max(1) {
            let in_hand = self.handle.writer.borrow_mut().victim.take();
            let Some(mut victim) = in_hand.or_else(|| self.choose_victim(scope)) else { break };
            let before = victim.next;
            if self.engine().segments.is_run(victim.id) {
                done += self.reclaim_run(victim);
                continue;
            }
            if victim.mode == ReclaimMode::Refill {
                self.find_holes(&mut victim);
                done += victim.next - before;
                let mut writer = self.handle.writer.borrow_mut();
                if victim.next < victim.end {
                    writer.victim = Some(victim);
                } else {
                    writer.await_turns(self.engine(), victim.id);
                    self.counters().refilled.add(1);
                }
                continue;
            }
            if self.reclaim_batch(&mut victim).is_err() {
                if self.engine().evict {
                    // A place is to come.
                    self.handle.writer.borrow_mut().victim = Some(victim);
                } else {
                    self.engine().segments.put_back(victim.id);
                }
                break;
            }
            done += victim.next - before;
            if victim.next < victim.end {
                self.handle.writer.borrow_mut().victim = Some(victim);
            } else {
                self.engine().retire_segment(victim.id);
                // An empty tail still took the work of choosing.
                done += 64;
            }
        }
        done
    }

    fn choose_victim(&self, scope: ReclaimScope) -> Option<Victim> {
        if scope == ReclaimScope::InProgress {
            return None;
        }
        let engine = self.engine();
        let mark = engine.flush_mark.load(Relaxed);
        let only_dead = scope == ReclaimScope::DeadOnly;
        let next = || engine.segments.next_victim(self.now(), mark, only_dead, engine.evict);
        let most_dead = || Some((engine.segments.most_dead()?, ReclaimMode::Compact));
        let mut writer = self.handle.writer.borrow_mut();
        let (id, mode) = match next() {
            Some((id, mode)) => (id, writer.mode(engine, id, mode)),
            None if only_dead => return None,
            None if !engine.evict => most_dead()?,
            // Nothing else is left: it has to be emptied after all.
            None if writer.put_pending_refill_back(engine) => next()?,
            None => return None,
        };
        Some(engine.victim(id, mode))
    }

    /// Looks for gaps in the next few items of a victim.
    fn find_holes(&self, victim: &mut Victim) {
        let engine = self.engine();
        let mut writer = self.handle.writer.borrow_mut();
        if victim.next == engine.segments.start(victim.id) {
            writer.hole_map = HoleMap::of(victim.next);
        }
        for _ in 0..BATCH {
            let raw = engine.item_at(victim.next);
            engine.log.prefetch(victim.next + AHEAD_ITEMS * raw.size());
            writer.hole_map.note(victim.next, raw.size(), raw.marks() & DEAD != 0);
            victim.next += raw.size();
            if victim.next >= victim.end {
                break;
            }
        }
    }

    /// Works on the next few items of a victim. Stops before an item that must be kept and finds no place.
    fn reclaim_batch(&self, victim: &mut Victim) -> Result<(), NoSpace> {
        let engine = self.engine();
        let mut batch = [(0, Hash(0)); BATCH];
        let (mut count, mut at) = (0, victim.next);
        while count < BATCH && at < victim.end {
            let raw = engine.item_at(at);
            // Items that share a segment are of about the same size.
            engine.log.prefetch(at + AHEAD_ITEMS * raw.size());
            if raw.marks() & DEAD == 0 {
                batch[count] = (at, self.prepare(raw.key()));
                count += 1;
            }
            at += raw.size();
        }
        let is_copying = victim.mode == ReclaimMode::Compact;
        for (number, &(offset, hash)) in batch[..count].iter().enumerate() {
            victim.next = offset;
            if let Some(&(next, _)) = batch[..count].get(number + 1).filter(|_| is_copying) {
                engine.log.prefetch_range(next, engine.item_at(next).size());
            }
            let mut copy = self.copy_ahead(hash, offset, victim);
            let bucket = engine.index.lock(hash);
            let emptied = match bucket.find(hash, |entry| entry.offset() == offset) {
                Some(found) => self.reclaim_item(&bucket, hash, &found, victim, &mut copy),
                None => Ok(()),
            };
            drop(bucket);
            if let Some(unused) = copy {
                self.handle.writer.borrow_mut().take_back(engine, unused.room.at);
            }
            emptied?;
        }
        victim.next = at;
        Ok(())
    }

    /// Drops an item or moves it to an open segment.
    fn reclaim_item(
        &self,
        bucket: &Bucket<'_>,
        hash: Hash,
        found: &SlotRef<'_>,
        victim: &Victim,
        copy: &mut Option<Copy>,
    ) -> Result<(), NoSpace> {
        let engine = self.engine();
        let (offset, raw) = (found.entry.offset(), engine.item(found.entry));
        if engine.liveness(offset, raw, self.now()).is_err() {
            self.drop_dead(bucket, found);
            return Ok(());
        }
        let from = engine.segments.get(victim.id).queue();
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
            Err(NoSpace) if engine.evict && !engine.is_coming(engine.segments.segment_bytes) => {
                self.evict(bucket, hash, found, from);
            }
            Err(NoSpace) => return Err(NoSpace),
        }
        Ok(())
    }

    /// Where an item of a victim goes on; `None`: nowhere.
    fn destination(&self, victim: &Victim, uses: u8) -> Option<Destination> {
        let segments = &self.engine().segments;
        let from = segments.get(victim.id).queue();
        match victim.mode {
            ReclaimMode::Evict if uses == 0 => None,
            // Its uses were its fare.
            ReclaimMode::Evict => Some(Destination { queue: MAIN, weight: priority::of_uses(uses), uses: 0 }),
            // A `Clear` meets a living item when it was touched a moment ago.
            ReclaimMode::Compact | ReclaimMode::Refill | ReclaimMode::Clear => {
                Some(Destination { queue: from, weight: segments.insert_priority.at_first(from), uses })
            }
        }
    }

    /// Copies a long item that will probably go on before its bucket is locked: whoever waits for that lock spins.
    #[inline]
    fn copy_ahead(&self, hash: Hash, offset: usize, victim: &Victim) -> Option<Copy> {
        let engine = self.engine();
        let raw = engine.item_at(offset);
        if raw.size() <= LOCKED_COPY_BYTES_MAX || victim.mode == ReclaimMode::Clear {
            return None;
        }
        let found = engine.index.find(hash, |entry| entry.offset() == offset)?;
        let to = self.destination(victim, found.entry.uses())?;
        self.copy_item(raw, &to)
    }

    /// A copy in an open segment that nobody sees yet. `None`: there is no place.
    #[allow(unsafe_code)]
    fn copy_item(&self, raw: ItemRef, to: &Destination) -> Option<Copy> {
        let engine = self.engine();
        let request =
            AllocRequest { queue: to.queue, weight: to.weight, expiry: raw.expiry(), bytes: raw.size() };
        let room = self.handle.writer.borrow_mut().append(engine, request, self.now(), true)?;
        // SAFETY: `append` gave us these bytes alone.
        let raw = unsafe { raw.copy_to(&engine.log, room.at) };
        Some(Copy { room, raw })
    }

    /// The queue of a new key: small, unless the ghost knows it.
    pub(crate) fn queue_of_new(&self, hash: Hash) -> usize {
        match self.engine().ghost.recall(hash) {
            Some(from) => {
                self.handle.writer.borrow_mut().adaptation.note_return(from);
                MAIN
            }
            None => SMALL,
        }
    }

    /// Points the index to a copy of an item, which may have been made already.
    fn relocate(
        &self,
        bucket: &Bucket<'_>,
        hash: Hash,
        found: &SlotRef<'_>,
        to: Destination,
        copy: &mut Option<Copy>,
    ) -> Result<(), NoSpace> {
        let engine = self.engine();
        let (offset, raw) = (found.entry.offset(), engine.item(found.entry));
        let Copy { room, raw: moved } = match copy.take() {
            Some(copy) => {
                copy.raw.follow(raw);
                engine.segments.get(engine.segments.id_at(copy.room.at)).note_expiry(raw.expiry());
                copy
            }
            None => self.copy_item(raw, &to).ok_or(NoSpace)?,
        };
        let mark_of = |offset| engine.segments.get(engine.segments.id_at(offset)).flush_mark.load(Relaxed);
        if mark_of(room.at) != mark_of(offset) {
            // A flush came in between: the item must not escape it.
            self.handle.writer.borrow_mut().take_back(engine, room.at);
            self.drop_dead(bucket, found);
            return Ok(());
        }
        self.prefetch_ahead(room, moved.size());
        bucket.replace(found, Entry::new(hash, room.at, to.uses));
        self.count_moved(offset, raw, room.at, moved);
        Ok(())
    }

    fn drop_dead(&self, bucket: &Bucket<'_>, found: &SlotRef<'_>) {
        self.count_reclaimed(found.entry.offset(), self.engine().item(found.entry));
        self.unlink(bucket, found);
    }

    fn evict(&self, bucket: &Bucket<'_>, hash: Hash, found: &SlotRef<'_>, from: usize) {
        let (offset, raw) = (found.entry.offset(), self.engine().item(found.entry));
        self.engine().ghost.remember(hash, from);
        let items = self.engine().index.items();
        self.engine().ghost.fit(items);
        let insert_priority = &self.engine().segments.insert_priority;
        self.handle.writer.borrow_mut().adaptation.note_eviction(from, items, insert_priority);
        let idle_secs = self.now().secs.saturating_sub(raw.used_secs());
        let fetched = raw.marks() & FETCHED != 0;
        let counters = self.counters();
        let queue: &QueueCounters = &counters.queues[self.engine().queue_at(offset)];
        counters.evictions.add(1);
        queue.evictions.add(1);
        queue.evicted_with_expiry.add(i64::from(raw.expiry() != Expiry::NEVER));
        queue.evicted_idle_secs.set(u64::from(idle_secs));
        counters.evicted_unfetched.add(i64::from(!fetched));
        queue.evicted_unfetched.add(i64::from(!fetched));
        counters.evicted_active.add(i64::from(fetched && idle_secs < ACTIVE_SECS));
        self.record_eviction(offset, idle_secs);
        self.unlink(bucket, found);
    }

    /// A run holds one item: it goes, or waits again in the main queue. Returns the memory looked at.
    fn reclaim_run(&self, victim: Victim) -> usize {
        let engine = self.engine();
        let raw = engine.item_at(victim.next);
        let hash = self.prepare(raw.key());
        let bucket = engine.index.lock(hash);
        if let Some(found) = bucket.find(hash, |entry| entry.offset() == victim.next) {
            let segment = engine.segments.get(victim.id);
            let from = segment.queue();
            if engine.liveness(victim.next, raw, self.now()).is_err() {
                self.drop_dead(&bucket, &found);
            } else if victim.mode != ReclaimMode::Evict || found.entry.uses() > 0 {
                let is_evicted = victim.mode == ReclaimMode::Evict;
                let uses = if is_evicted { 0 } else { found.entry.uses() };
                bucket.replace(&found, Entry::new(hash, victim.next, uses));
                if is_evicted {
                    segment.weight.store(priority::of_uses(found.entry.uses()), Relaxed);
                    segment.queue.store(MAIN as u8, Relaxed);
                    let moves = if from == SMALL {
                        &self.counters().moves_to_main
                    } else {
                        &self.counters().moves_within_main
                    };
                    moves.add(1);
                }
                engine.segments.seal(victim.id);
                return 64;
            } else {
                self.evict(&bucket, hash, &found, from);
            }
        }
        drop(bucket);
        engine.retire(Retired::Run(victim.id));
        victim.end - victim.next
    }

    /// Looks for expired items in segments that hold others as well, so that their memory can be won back by compaction, and
    /// for expired large items that wait behind one that lives. Returns how many segments it is done with.
    fn crawl(&self, items_max: usize) -> usize {
        let engine = self.engine();
        let mut crawl = self.handle.writer.borrow().crawl;
        let mut left = items_max;
        let mut walked = 0;
        // At most once around.
        for _ in engine.segments.ids() {
            let segment = engine.segments.get(crawl.id);
            let start = engine.segments.start(crawl.id);
            let is_run = engine.segments.is_run(crawl.id);
            // A run that is not waiting may be in limbo, and be freed at any moment.
            let is_walkable = if is_run {
                segment.state.load(Acquire) == SEALED
            } else {
                // Items stored for ever may have been touched; with eviction they go when it is their turn.
                segment.is_sealed() && (segment.group.load(Relaxed) != 0 || !engine.evict)
            };
            if is_walkable {
                // Read after its state: since that was seen under this guard, items lie as they did when this life began.
                let generation = segment.generation.load(Relaxed);
                let mut at =
                    if generation == crawl.generation && crawl.offset != 0 { crawl.offset } else { start };
                crawl.generation = generation;
                let end = start + if is_run { 1 } else { segment.usage.filled_bytes.load(Relaxed) as usize };
                while at < end && left > 0 {
                    let raw = engine.item_at(at);
                    if raw.marks() & DEAD == 0 && raw.expiry().is_past(self.now()) {
                        self.reap(self.prepare(raw.key()), at);
                        self.counters().crawler_reclaimed.add(1);
                    }
                    self.counters().crawler_checked.add(1);
                    at += raw.size();
                    left -= 1;
                }
                if at < end {
                    crawl.offset = at;
                    break;
                }
            }
            crawl = Crawl { id: engine.segments.next_id(crawl.id), generation: 0, offset: 0 };
            walked += 1;
            // As much work as an item.
            left = left.saturating_sub(1);
            if left == 0 {
                break;
            }
        }
        self.handle.writer.borrow_mut().crawl = crawl;
        walked
    }

    /// Tells the index how many items came and went, once `step` have; it may grow a little.
    #[inline]
    fn report_items(&self, step: i64) {
        let items = self.handle.writer.borrow().unreported_items;
        if items.abs() >= step || step > 1 && self.engine().index.is_growing() {
            self.report_now();
        }
    }

    #[cold]
    fn report_now(&self) {
        let items = std::mem::take(&mut self.handle.writer.borrow_mut().unreported_items);
        let engine = self.engine();
        let retire = |overflow| engine.retire(Retired::Overflow(overflow));
        engine.index.report(items, &engine.budget, engine, retire);
    }
}

impl Items for Engine {
    fn hash_at(&self, offset: usize) -> Hash {
        self.hash_key.hash(self.item_at(offset).key())
    }

    fn prefetch(&self, offset: usize) {
        self.log.prefetch(offset);
    }
}

impl Engine {
    /// What to empty, or to look for gaps in, although there is memory enough, so that it need not be used.
    pub(crate) fn victim_ahead(&self, writer: &Writer, is_refilled: bool) -> Option<Victim> {
        let id = if is_refilled && self.is_nearly_low() {
            self.segments.claim_garbage_if(|id| writer.may_refill(self, id))
        } else if self.would_grow() {
            self.segments.claim_mostly_garbage()
        } else {
            None
        };
        let id = id?;
        Some(self.victim(id, writer.mode(self, id, ReclaimMode::Compact)))
    }

    /// A segment that was claimed to be emptied.
    pub(crate) fn victim(&self, id: SegmentId, mode: ReclaimMode) -> Victim {
        let start = self.segments.start(id);
        let filled = self.segments.get(id).usage.filled_bytes.load(Relaxed) as usize;
        Victim { id, mode, next: start, end: start + filled }
    }

    /// Retires a waiting segment whose live bytes were found to be 0 under this guard, unless somebody else is at it.
    pub(crate) fn retire_dead(&self, id: SegmentId) {
        if self.segments.withdraw(id) {
            self.retire_segment(id);
        }
    }

    /// A segment that the index no longer points into.
    fn retire_segment(&self, id: SegmentId) {
        let segment = self.segments.get(id);
        let filled_bytes = segment.usage.filled_bytes.load(Relaxed);
        self.segments.capacity_bytes.fetch_add(self.segments.segment_bytes as u64 - filled_bytes, Relaxed);
        self.segments.free(id);
        self.retire(Retired::Segment(id));
    }
}
