//! Supply: where stores get memory.
//!
//! The allocator only appends to open segments. New ones come from here: a segment whose holes can be filled, a free
//! one from the pool, or one that victims are reclaimed for.

use std::iter;
use std::sync::atomic::Ordering::Relaxed;

use crate::engine::Engine;
use crate::handle::Guard;
use crate::log::allocator::{AllocRequest, Allocator, NeedSegment, OpenTerms};
use crate::log::fresh::Allocation;
use crate::log::item::ItemRef;
use crate::log::runs::{AllocError, Run};
use crate::log::segment::FreeSegment;
use crate::policy::queues::ReclaimMode;
use crate::policy::streams::closes_secs;
use crate::reclaim::pressure::Pressure;
use crate::reclaim::victim::{RECLAIM_STEP_BYTES, ReclaimScope};
use crate::request::{Expiry, WriteError};

/// Bytes of a victim that are examined for each byte stored, while memory is low.
pub(crate) const WORK_FACTOR: usize = 4;
/// The same without eviction, where little of a victim is garbage.
const COMPACTION_FACTOR: usize = 16;

/// Large items that one request examines at most for their address space: each may first lose the priority of its
/// reads.
const RUNS_STEP: usize = 16;

/// Why a segment is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Store,
    /// May take the reserve: compaction gives back more than it takes.
    Compaction,
}

impl Guard<'_> {
    /// Allocates space for a new item that replaces an old one. Reclaims if need be.
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
            // A value that stopped arriving goes before any item.
            if !self.engine().arena.revoke_stopped_upload(self.now()) {
                self.reclaim_some((bytes * WORK_FACTOR).min(RECLAIM_STEP_BYTES), ReclaimScope::Any);
            }
        } else if self.handle.reclaimer.borrow().victim.is_some() {
            self.reclaim_some((bytes * WORK_FACTOR).min(RECLAIM_STEP_BYTES), ReclaimScope::InProgress);
        }
        self.append_or_make_room(|| self.append_now(request))
    }

    /// The same where nothing may be evicted and most of the memory is live.
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
            // The room in open segments is left to the current victim, if its items have no other place.
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
        append().or_else(|_| self.make_room(self.engine().arena.segments.segment_bytes, append))
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
        let expiry = self.engine().counted(expiry);
        let stream = self.engine().policy.streams.of_item(queue, bytes, weight, expiry, self.now());
        AllocRequest { stream, weight, expiry, bytes }
    }

    /// Allocates space in an open segment, or opens one if there is a free one. Evicts nothing. Takes no lock but the
    /// pool's and the queues', so it may be called while a bucket is locked.
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

    /// Allocates where the stream's own segment has no room: in a new segment of that stream, or in another stream's.
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
        if engine.is_crowded()
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
        // Without eviction and with low memory, room in another stream's open segment must not be wasted: streams share
        // segments.
        let is_sharing = !engine.evict && engine.is_under(Pressure::Low);
        if allocator.open_count() < engine.open_max() && !is_sharing
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
                    // The live items get the weight that they would have as copies.
                    let weight =
                        refill.hole_map.live_items * engine.policy.insert_priority.at_first(stream.queue);
                    let id = refill.held.id();
                    allocator.open_holes(arena, refill.held, refill.hole_map, weight, &terms);
                    Some(id)
                }
                None => engine.take_segment(purpose).map(|free| {
                    let id = free.id();
                    allocator.open(arena, free, &terms);
                    id
                }),
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

    /// Takes a run for an item of `item_bytes`, with memory for at least its first `bytes`. `missing_bytes` of the item
    /// are still to come.
    pub(crate) fn take_run(
        &self,
        item_bytes: usize,
        bytes: usize,
        missing_bytes: usize,
    ) -> Result<Run, WriteError> {
        self.report_items(64);
        let arena = &self.engine().arena;
        let bytes = arena.segments.whole_units(bytes);
        let take = |slack_bytes| arena.take_run(item_bytes, bytes, slack_bytes);
        if self.engine().evict {
            let slack_bytes = arena.slack_bytes(item_bytes);
            if arena.are_runs_scarce(item_bytes, slack_bytes) && !arena.revoke_stopped_upload(self.now()) {
                self.evict_ahead();
            }
            match take(slack_bytes) {
                Ok(run) => return Ok(run),
                Err(AllocError::AddressSpace) => {}
                Err(AllocError::Memory) if arena.is_run_coming(item_bytes, slack_bytes) => {
                    return Err(WriteError::TryAgain);
                }
                Err(AllocError::Memory) if arena.revoke_stopped_upload(self.now()) => {
                    return Err(WriteError::TryAgain);
                }
                Err(AllocError::Memory) => {
                    if self.reclaim_some(RECLAIM_STEP_BYTES, ReclaimScope::Any) > 0 {
                        return take(slack_bytes).or(Err(WriteError::TryAgain));
                    }
                }
            }
        }
        // There is nothing to evict: the rest of the free memory is given back for fresh pages.
        take(0).or_else(|error| match error {
            AllocError::Memory => self.make_room(bytes, || take(0)),
            AllocError::AddressSpace => self.make_space(missing_bytes, || take(0)),
        })
    }

    /// Evicts a large item, if one is due next, so that the next one need not wait until guards have ended.
    fn evict_ahead(&self) {
        let engine = self.engine();
        for _ in 0..RUNS_STEP {
            let Some(run) = engine.policy.claim_due_run(&engine.arena.segments) else { return };
            if self.reclaim_run(engine.victim(run, ReclaimMode::Evict)) >= engine.large_item_bytes() {
                return;
            }
        }
    }

    /// With memory but no address space for a run: revokes an upload with a weaker claim, else evicts large items that
    /// nobody reads. Evicting small items would not help.
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
            // Items are not evicted for a value that may never arrive.
            Some(false) => {}
            None if engine.evict => {
                let runs = iter::from_fn(|| engine.policy.next_run(&engine.arena.segments)).take(RUNS_STEP);
                let looked_at =
                    runs.fold(0, |sum, run| sum + self.reclaim_run(engine.victim(run, ReclaimMode::Evict)));
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

    /// Charges more memory for a run that has some.
    pub(crate) fn charge(&self, run: &Run, memory_bytes: usize, bytes: usize) -> Result<(), WriteError> {
        let extend = || self.engine().arena.extend_run(run, memory_bytes as u64, bytes as u64);
        let take = || if extend() { Ok(()) } else { Err(AllocError::Memory) };
        take().or_else(|_| self.make_room(bytes, take))
    }

    /// Without memory: revokes an upload that stopped arriving, else reclaims a little, and lets other connections run
    /// before the caller tries again. What is reclaimed now is freed no sooner than what is in limbo already, so while
    /// there is enough of that, evicting more would not help.
    #[cold]
    fn make_room<R>(
        &self,
        bytes: usize,
        attempt: impl FnOnce() -> Result<R, AllocError>,
    ) -> Result<R, WriteError> {
        if self.engine().is_coming(bytes) {
            return Err(WriteError::TryAgain);
        }
        if self.engine().arena.revoke_stopped_upload(self.now()) {
            return Err(WriteError::TryAgain);
        }
        if self.reclaim_some(RECLAIM_STEP_BYTES, ReclaimScope::Any) > 0 {
            return attempt().or(Err(WriteError::TryAgain));
        }
        let has_begun = self.engine().evict && self.handle.reclaimer.borrow().has_begun();
        if has_begun || self.engine().arena.has_limbo() || self.engine().seal_parked() {
            return Err(WriteError::TryAgain);
        }
        // Other handles hold all segments, and will park them, unless the index alone takes more than the limit.
        if self.engine().evict
            && self.engine().is_crowded()
            && self.engine().arena.segments.capacity_bytes.load(Relaxed) > 0
            && bytes <= self.engine().arena.segments.segment_bytes
        {
            return Err(WriteError::TryAgain);
        }
        self.counters().out_of_memory.add(1);
        Err(WriteError::OutOfMemory)
    }
}

impl Engine {
    /// Takes a free segment from the pool, or gives memory to a new one.
    fn take_segment(&self, purpose: Purpose) -> Option<FreeSegment> {
        if !self.evict && !self.is_under(Pressure::Low) {
            self.over_provisioning.forget();
        }
        self.arena.take_segment(purpose == Purpose::Compaction)
    }
}
