//! Supply: where those who write items get memory.
//!
//! The allocator appends to open segments and knows no more. What it lacks comes from here: a segment whose holes can
//! be filled, one from the pool, one that becomes free as others are emptied.

use std::iter;
use std::sync::atomic::Ordering::Relaxed;

use crate::engine::Engine;
use crate::handle::Guard;
use crate::log::allocator::{AllocRequest, Allocation, Allocator, NeedSegment, OpenTerms};
use crate::log::item::ItemRef;
use crate::log::runs::{AllocError, Run};
use crate::log::segment::SegmentId;
use crate::mem::region::PAGE_BYTES;
use crate::policy::queues::ReclaimMode;
use crate::policy::streams::closes_secs;
use crate::reclaim::pressure::Pressure;
use crate::reclaim::victim::{RECLAIM_STEP_BYTES, ReclaimScope};
use crate::request::{Expiry, WriteError};

/// How many bytes of a victim are looked at for each byte stored, while memory is low.
pub(crate) const WORK_FACTOR: usize = 4;
/// The same without eviction: little of a victim is garbage then.
const COMPACTION_FACTOR: usize = 16;

/// Large items that one request empties at most for their address space; each may first lose the priority of its reads.
const RUNS_STEP: usize = 16;

/// Who wants a segment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Store,
    /// May take the reserve: it gives back more than it takes.
    Compaction,
}

impl Guard<'_> {
    /// Allocation for a new item in an open segment, in place of an old one; reclaims if need be.
    #[inline]
    pub(crate) fn append(
        &self,
        queue: usize,
        expiry: Expiry,
        bytes: usize,
        old: Option<ItemRef<'_>>,
    ) -> Result<Allocation, WriteError> {
        self.report_items(64);
        let weight = self.engine().policy.insert_priority.at_first(queue);
        let request = self.alloc_request(queue, weight, expiry, bytes);
        if self.engine().is_under(Pressure::Low) {
            if !self.engine().evict {
                return self.append_over_provisioned(request, old);
            }
            self.reclaim_some((bytes * WORK_FACTOR).min(RECLAIM_STEP_BYTES), ReclaimScope::Any);
        } else if self.handle.reclaimer.borrow().victim.is_some() {
            self.reclaim_some((bytes * WORK_FACTOR).min(RECLAIM_STEP_BYTES), ReclaimScope::InProgress);
        }
        self.append_or_make_room(|| self.append_now(request))
    }

    /// The same where nothing may be evicted and most of the memory lives.
    #[cold]
    fn append_over_provisioned(
        &self,
        request: AllocRequest,
        old: Option<ItemRef<'_>>,
    ) -> Result<Allocation, WriteError> {
        self.admit(request.bytes as i64 - old.map_or(0, |old| old.size() as i64))?;
        if self.engine().is_under(Pressure::Short) {
            self.reclaim_some((request.bytes * COMPACTION_FACTOR).min(RECLAIM_STEP_BYTES), ReclaimScope::Any);
        }
        self.append_or_make_room(|| {
            // What is open is left to the victim in hand, if its items could find no other place.
            let is_moving = self.handle.reclaimer.borrow().victim.is_some();
            if is_moving && !self.engine().arena.has_reserve() {
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
        append().or_else(|error| self.make_room(error, self.engine().arena.segments.segment_bytes, append))
    }

    #[inline(always)]
    fn append_now(&self, request: AllocRequest) -> Result<Allocation, AllocError> {
        self.allocate(request, Purpose::Store).ok_or(AllocError::Memory)
    }

    #[inline(always)]
    pub(super) fn alloc_request(
        &self,
        queue: usize,
        weight: u32,
        expiry: Expiry,
        bytes: usize,
    ) -> AllocRequest {
        let stream = self.engine().policy.streams.of_item(queue, bytes, weight, expiry, self.now());
        AllocRequest { stream, weight, expiry, bytes }
    }

    /// Allocation in an open segment; opens one if one is at hand. Evicts nothing, and takes no lock but the pool's and
    /// the queues', so it may be called while a bucket is locked.
    #[inline(always)]
    pub(super) fn allocate(&self, request: AllocRequest, purpose: Purpose) -> Option<Allocation> {
        let engine = self.engine();
        let flush_mark = engine.flush_mark.load(Relaxed);
        let mut allocator = self.handle.allocator.borrow_mut();
        match allocator.append(&engine.arena, &request, flush_mark, self.now()) {
            Ok(allocation) => Some(allocation),
            Err(NeedSegment) => self.supply(&mut allocator, request, flush_mark, purpose),
        }
    }

    /// Allocation where the stream's own segment has no room: in a new one of that stream, or beside others.
    #[cold]
    fn supply(
        &self,
        allocator: &mut Allocator,
        request: AllocRequest,
        flush_mark: u32,
        purpose: Purpose,
    ) -> Option<Allocation> {
        let engine = self.engine();
        let (arena, stream) = (&engine.arena, request.stream);
        if engine.is_crowded
            && allocator.open_count() == 0
            && let Some(open) = engine.parked.take()
        {
            allocator.adopt(open);
            return match allocator.append(arena, &request, flush_mark, self.now()) {
                Ok(allocation) => Some(allocation),
                Err(NeedSegment) => self.supply(allocator, request, flush_mark, purpose),
            };
        }
        if let Some(full) = allocator.close(arena, stream) {
            engine.seal(full);
        }
        // Without eviction and while memory is low, room in one open segment is none for others: there the streams
        // share.
        let is_sharing = !engine.evict && engine.is_under(Pressure::Low);
        if allocator.open_count() < engine.open_max && !is_sharing
            || !allocator.has_room_beside(&request, flush_mark)
        {
            let terms = OpenTerms {
                stream,
                flush_mark,
                now: self.now(),
                closes_secs: closes_secs(stream.group, self.now()),
            };
            let mut reclaimer = self.handle.reclaimer.borrow_mut();
            let refill = reclaimer.take_refill(engine, stream, flush_mark, request.bytes);
            let is_refill = refill.is_some();
            let opened = match refill {
                Some(refill) => {
                    // What lives there is worth what it would be if it were copied.
                    let weight =
                        refill.hole_map.live_items * engine.policy.insert_priority.at_first(stream.queue);
                    let id = refill.id;
                    allocator.open_holes(arena, id, refill.hole_map, weight, &terms);
                    Some(id)
                }
                None => engine.take_segment(purpose).inspect(|&id| allocator.open(arena, id, &terms)),
            };
            if let Some(id) = opened {
                engine.policy.note_opened(arena.segments.get(id));
            }
            if purpose == Purpose::Store {
                reclaimer.note_supplied(engine, stream, is_refill);
            }
        }
        allocator.append_nearest(arena, &request, flush_mark)
    }

    /// A run for an item of `item_bytes`, with memory for its first `bytes` at least; `missing_bytes` of it are still
    /// to come.
    pub(crate) fn take_run(
        &self,
        item_bytes: usize,
        bytes: usize,
        missing_bytes: usize,
    ) -> Result<Run, WriteError> {
        self.report_items(64);
        // Runs have whole pages: room for less is none.
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let take = || self.engine().arena.take_run(item_bytes, bytes);
        take().or_else(|error| match error {
            AllocError::Memory => self.make_room(error, bytes, take),
            AllocError::AddressSpace => self.make_space(missing_bytes, take),
        })
    }

    /// Where there is memory but no address space for a run: takes it from an upload that makes way, else from large
    /// items that nobody reads. What lies elsewhere would not help.
    #[cold]
    fn make_space(
        &self,
        missing_bytes: usize,
        attempt: impl Fn() -> Result<Run, AllocError>,
    ) -> Result<Run, WriteError> {
        let engine = self.engine();
        if engine.arena.has_runs_in_limbo() {
            engine.arena.drain_limbo();
            return attempt().or(Err(WriteError::TryAgain));
        }
        match engine.arena.revoke_upload(missing_bytes as u64, self.now()) {
            Some(true) => return Err(WriteError::TryAgain),
            // Items do not go for what may never come.
            Some(false) => {}
            None if engine.evict => {
                let runs = iter::from_fn(|| engine.policy.next_run(&engine.arena.segments)).take(RUNS_STEP);
                let looked_at =
                    runs.fold(0, |sum, id| sum + self.reclaim_run(engine.victim(id, ReclaimMode::Evict)));
                if looked_at > 0 || engine.arena.has_runs_in_limbo() {
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
        let extend = || self.engine().arena.extend_run(id, memory_bytes as u64, bytes as u64);
        let take = || if extend() { Ok(()) } else { Err(AllocError::Memory) };
        take().or_else(|error| self.make_room(error, bytes, take))
    }

    /// Where there is no memory, empties a little and lets others run before whoever asks tries again. What is emptied
    /// now comes back no sooner than what is in limbo already, so while enough is there evicting more would help
    /// nobody.
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
        let has_begun = self.engine().evict && self.handle.reclaimer.borrow().has_begun();
        if has_begun || self.engine().arena.has_limbo() || self.engine().seal_parked() {
            return Err(WriteError::TryAgain);
        }
        // Others are at work with all segments that there are, and will park them.
        if self.engine().evict
            && self.engine().is_crowded
            && bytes <= self.engine().arena.segments.segment_bytes
        {
            return Err(WriteError::TryAgain);
        }
        self.counters().out_of_memory.add(1);
        Err(WriteError::OutOfMemory)
    }
}

impl Engine {
    /// A free segment from the pool, or a new one.
    fn take_segment(&self, purpose: Purpose) -> Option<SegmentId> {
        if !self.evict && !self.is_under(Pressure::Low) {
            self.over_provisioning.forget();
        }
        self.arena.take_segment(purpose == Purpose::Compaction)
    }
}
