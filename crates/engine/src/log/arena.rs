//! The arena: all memory of items, and its owners.
//!
//! It owns the address space, the segments, the runs of large items, the budget (which also pays for the index), the
//! epochs that readers pin, and the limbo of memory that they may still read. It knows neither keys (`index`) nor what
//! is kept (`policy`, `reclaim`), and needs no handle.
//!
//! Unsafe code lives here because memory is taken from its items. The invariant: that is done with memory alone that is
//! in the pool or comes out of limbo, and only what the index does not point into goes to limbo.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::{io, iter};

use crate::epoch::epochs::Epochs;
use crate::epoch::limbo::Limbo;
use crate::log::fresh::Allocation;
use crate::log::offset::Offset;
use crate::log::runs::Runs;
use crate::log::segment::{Claim, FreeSegment, Segment, SegmentId, Segments};
use crate::log::superblock::{Geometry, Superblock};
use crate::mem::budget::Budget;
use crate::mem::cache_padded::CachePadded;
use crate::mem::region::Region;

/// Segments and runs that leave limbo in one step: a request waits for it.
const DRAIN_STEP: usize = 2;
/// The index may exceed the limit by this many segments before what retires next pays for it.
const OVERDRAFT_SEGMENTS: u64 = 4;

/// How an arena is to be built.
pub(crate) struct ArenaConfig {
    pub(crate) memory_bytes: u64,
    pub(crate) geometry: Geometry,
    pub(crate) handles_max: usize,
    /// Of the file that the log is kept in; `None`: the log is this process's alone.
    pub(crate) superblock: Option<Arc<Superblock>>,
}

pub(crate) struct Arena {
    /// The log: segments first, then runs.
    pub(crate) region: Region,
    pub(crate) segments: Segments,
    pub(crate) runs: CachePadded<Runs>,
    pub(crate) budget: CachePadded<Budget>,
    pub(crate) epochs: Epochs,
    limbo: CachePadded<Limbo<Retired>>,
    /// Free segments that only compaction may take. Without eviction, garbage comes back by moving live items, which
    /// needs free memory first: one segment for each handle, as each has its own open segments, but at most an eighth
    /// of the log. None with eviction.
    reserve: AtomicUsize,
    /// Below this number of free segments a retired one stays free, even if the budget is overdrawn.
    ready_min: AtomicUsize,
    /// The last commit failed: the system has less memory than the limit says.
    is_refused: AtomicBool,
    /// Runs in limbo.
    runs_retired: AtomicUsize,
    /// Where the log is kept in a file.
    pub(crate) superblock: Option<Arc<Superblock>>,
    /// Constant: what an item's checksum begins with, where it has one.
    checksum_seed: Option<u32>,
}

/// Unlinked memory that may still be read.
#[derive(Debug)]
pub(super) enum Retired {
    Segment(Claim),
    Run(Claim),
    /// A run whose upload or readers were revoked (`leases.rs`).
    Revoked(SegmentId),
}

impl Arena {
    /// Reserves address space. Errors: the system refuses it.
    pub(crate) fn new(config: &ArenaConfig) -> io::Result<Self> {
        let Geometry { segment_bytes, segments, .. } = config.geometry;
        let run_units = config.geometry.run_units();
        let superblock = config.superblock.clone();
        let region = match &superblock {
            Some(superblock) => Region::map_part(&superblock.log_part(), config.geometry.log_bytes())?,
            None => Region::reserve(config.geometry.log_bytes())?,
        };
        let budget = Budget::new(config.memory_bytes);
        let in_use = config.memory_bytes / segment_bytes as u64;
        budget.force(in_use * size_of::<Segment>() as u64);
        let arena = Self {
            region,
            segments: Segments::new(segments, run_units, segment_bytes, superblock.clone())?,
            runs: CachePadded::new(Runs::new(segments, run_units)),
            budget: CachePadded::new(budget),
            epochs: Epochs::new(config.handles_max),
            limbo: CachePadded::default(),
            reserve: AtomicUsize::new(0),
            ready_min: AtomicUsize::new(0),
            is_refused: AtomicBool::new(false),
            runs_retired: AtomicUsize::new(0),
            checksum_seed: superblock.as_ref().map(|superblock| superblock.constants().checksum_seed),
            superblock,
        };
        arena.region.set_dumped(0..arena.region.len_bytes(), false);
        arena.set_limit_bytes(config.memory_bytes);
        Ok(arena)
    }

    /// True if each item has a checksum, and the log can be walked whenever the process ends: it is kept in a file.
    #[inline]
    pub(crate) fn has_checksums(&self) -> bool {
        self.checksum_seed.is_some()
    }

    /// What the checksums begin with.
    pub(crate) fn checksum_seed(&self) -> Option<u32> {
        self.checksum_seed
    }

    /// Sets the limit of the budget. What no limit has allowed yet is left out of core dumps.
    pub(crate) fn set_limit_bytes(&self, limit_bytes: u64) {
        self.budget.set_limit_bytes(limit_bytes);
        let runs = self.segments.start(self.segments.log_segments);
        // Runs lie close together. Fragmentation may put one beyond.
        for (start, end, part_bytes) in
            [(0, runs, limit_bytes), (runs, self.region.len_bytes(), 2 * limit_bytes)]
        {
            let part_bytes = (part_bytes as usize).next_multiple_of(self.segments.segment_bytes);
            self.region.set_dumped(start..end.min(start + part_bytes), true);
        }
    }

    /// Sets how many free segments only compaction may take, and below how many a retired one stays free.
    pub(crate) fn set_reserve(&self, reserve: usize, ready_min: usize) {
        self.reserve.store(reserve, Relaxed);
        self.ready_min.store(ready_min, Relaxed);
    }

    /// The free segments that only compaction may take.
    pub(crate) fn reserve(&self) -> usize {
        self.reserve.load(Relaxed)
    }

    /// The queue, of [`crate::Stats::queues`], that counts an item at this offset.
    pub(crate) fn queue_at(&self, offset: Offset) -> usize {
        self.segments.segment_ref_at(offset).queue()
    }

    /// Prefetches an item.
    #[inline]
    pub(crate) fn prefetch(&self, offset: Offset) {
        self.region.prefetch(offset.bytes());
    }

    /// Prefetches where a later item will be written, mostly of the size of the one that was just written.
    #[inline]
    pub(crate) fn prefetch_ahead(&self, allocation: &Allocation, item_bytes: usize) {
        if let Some(ahead) = allocation.ahead {
            self.region.prefetch_range(ahead, item_bytes);
        }
    }

    /// Takes a free segment that has memory and no readers. Leaves the reserve to compaction.
    pub(crate) fn take_segment(&self, for_compaction: bool) -> Option<FreeSegment> {
        let kept = if for_compaction { 0 } else { self.reserve() };
        let ready = || self.segments.with_pool(|pool| pool.take_ready(kept));
        if let Some(free) = ready() {
            return Some(free);
        }
        self.drain_limbo();
        if let Some(free) = ready() {
            return Some(free);
        }
        while self.is_reserve_low() {
            let free = self.add_segment()?;
            if for_compaction {
                return Some(free);
            }
            self.segments.with_pool(|pool| pool.put_ready(free));
        }
        self.add_segment()
    }

    /// Without eviction: true if compaction has its reserve. If not, compaction also gets the room in open segments: if
    /// stores filled that, it would find none until some segment is entirely dead.
    pub(crate) fn has_reserve(&self) -> bool {
        if self.reserve() == 0 || !self.is_reserve_low() {
            return true;
        }
        self.drain_limbo();
        while self.is_reserve_low() {
            let Some(free) = self.add_segment() else { return false };
            self.segments.with_pool(|pool| pool.put_ready(free));
        }
        true
    }

    fn is_reserve_low(&self) -> bool {
        (self.segments.ready_count.load(Relaxed) as usize) < self.reserve()
    }

    /// Gives memory to one more segment, if the budget allows.
    fn add_segment(&self) -> Option<FreeSegment> {
        let bytes = self.segments.segment_bytes as u64;
        if !self.take_budget(bytes) {
            return None;
        }
        let Some(free) = self.segments.with_pool(|pool| pool.take_reserved()) else {
            self.budget.give(bytes);
            return None;
        };
        let id = free.id();
        if !self.commit(id, self.segments.start(id), self.segments.segment_bytes) {
            self.segments.with_pool(|pool| pool.put_reserved(free));
            self.budget.give(bytes);
            return None;
        }
        self.segments.capacity_bytes.fetch_add(bytes, Relaxed);
        Some(free)
    }

    /// Commits memory of a segment or run, and the metadata of all up to `id`. False: the system has none.
    pub(super) fn commit(&self, id: SegmentId, start: usize, bytes: usize) -> bool {
        let is_committed = self.segments.commit(id) && self.region.commit(start, bytes);
        self.is_refused.store(!is_committed, Relaxed);
        is_committed
    }

    /// What the budget allows beyond the memory in use, unless the system refused more.
    pub(crate) fn unused_bytes(&self) -> u64 {
        match self.is_refused.load(Relaxed) {
            true => 0,
            false => self.budget.limit_bytes().saturating_sub(self.budget.used_bytes()),
        }
    }

    /// Charges memory for a run, and gives up free segments for it if need be.
    pub(crate) fn take_bytes(&self, bytes: u64) -> bool {
        let mut given_bytes = 0;
        loop {
            if self.take_budget(bytes) {
                return true;
            }
            self.drain_limbo();
            match self.segments.with_pool(|pool| pool.take_ready(self.reserve())) {
                Some(free) => self.decommit_segment(free),
                None => return self.take_budget(bytes),
            }
            given_bytes += self.segments.segment_bytes as u64;
            // The limit was lowered: until the excess is gone, memory is only reused.
            if given_bytes >= bytes && self.budget.is_exceeded() {
                self.budget.force(bytes);
                return true;
            }
        }
    }

    /// Charges memory, and gives up that of free runs if need be.
    fn take_budget(&self, bytes: u64) -> bool {
        loop {
            if self.budget.try_take(bytes) {
                return true;
            }
            if !self.decommit_run(bytes) {
                return false;
            }
        }
    }

    /// Memory in use that is free, or will be when the present guards have ended.
    pub(crate) fn spare_bytes(&self) -> u64 {
        let ready_segments = u64::from(self.segments.ready_count.load(Relaxed));
        ready_segments * self.segments.segment_bytes as u64 + self.committed_bytes() + self.limbo.bytes()
    }

    /// Memory that will be free when the present guards have ended.
    pub(super) fn limbo_bytes(&self) -> u64 {
        self.limbo.bytes()
    }

    /// All segments that were ever in use, and all runs that are.
    pub(crate) fn ids(&self) -> impl Iterator<Item = SegmentId> {
        let next_run = |id: &SegmentId| self.runs.next_used(id + 1);
        self.segments.log_ids().chain(iter::successors(self.runs.next_used(0), next_run))
    }

    /// The segment or run after this one, cyclically.
    pub(crate) fn next_id(&self, id: SegmentId) -> SegmentId {
        let next = id + 1;
        if self.segments.log_ids().contains(&next) { next } else { self.runs.next_used(next).unwrap_or(0) }
    }

    /// Retires a claimed segment or run. It is reused once no guard can see it.
    ///
    /// # Safety
    /// The index does not point into it, and will not.
    pub(crate) unsafe fn retire(&self, claim: Claim) {
        let id = claim.id();
        if self.segments.is_run(id) {
            self.retire_run(id, Retired::Run(claim));
        } else {
            let filled_bytes = self.segments.get(id).usage.filled_bytes();
            self.segments
                .capacity_bytes
                .fetch_add(self.segments.segment_bytes as u64 - filled_bytes, Relaxed);
            self.segments.set_free(id);
            self.limbo.push(Retired::Segment(claim), self.segments.memory_bytes(id), &self.epochs);
        }
    }

    /// Retires a run that was revoked.
    ///
    /// # Safety
    /// Nobody who held it may use it from here on, but for the present guards.
    pub(super) unsafe fn retire_revoked(&self, id: SegmentId) {
        self.retire_run(id, Retired::Revoked(id));
    }

    fn retire_run(&self, id: SegmentId, what: Retired) {
        self.runs_retired.fetch_add(1, Relaxed);
        self.limbo.push(what, self.segments.memory_bytes(id), &self.epochs);
    }

    /// True if memory is on its way back.
    pub(crate) fn has_limbo(&self) -> bool {
        !self.limbo.is_empty()
    }

    /// True if address space for large items is on its way back.
    pub(crate) fn has_runs_in_limbo(&self) -> bool {
        self.runs_retired.load(Relaxed) > 0
    }

    /// Takes memory out of limbo that no guard can see any more; a little at a time, since a request waits for it.
    pub(crate) fn drain_limbo(&self) {
        self.drain_limbo_up_to(DRAIN_STEP);
    }

    /// The same, up to `count_max` entries.
    pub(crate) fn drain_limbo_up_to(&self, count_max: usize) {
        if !self.limbo.is_empty() {
            self.limbo.drain(&self.epochs, count_max, |what| self.reuse(what));
        }
    }

    /// Frees what comes out of limbo.
    fn reuse(&self, what: Retired) {
        match what {
            Retired::Segment(claim) => {
                let start = self.segments.start(claim.id());
                // SAFETY: it was unlinked when it went to limbo, and every guard has ended that could have seen it.
                let free = unsafe {
                    self.region.poison(start..start + self.segments.segment_bytes);
                    self.segments.free_claimed(claim)
                };
                // The index has taken more than there was. If it is much more, the limit was lowered, and the
                // background step gives memory back.
                if self.is_overdrawn() && self.has_ready() {
                    self.decommit_segment(free);
                } else {
                    self.segments.with_pool(|pool| pool.put_ready(free));
                }
                return;
            }
            // SAFETY: as above.
            Retired::Run(claim) => unsafe { self.free_run_on_unpin(claim) },
            // SAFETY: as above; and who held it has found it revoked.
            Retired::Revoked(id) => unsafe { self.free_run_at(id) },
        }
        self.runs_retired.fetch_sub(1, Relaxed);
    }

    /// True if the budget is exceeded by little.
    fn is_overdrawn(&self) -> bool {
        let excess_bytes = self.budget.used_bytes().saturating_sub(self.budget.limit_bytes());
        (1..=OVERDRAFT_SEGMENTS * self.segments.segment_bytes as u64).contains(&excess_bytes)
    }

    /// True if there are free segments for the next stores.
    fn has_ready(&self) -> bool {
        self.segments.ready_count.load(Relaxed) as usize >= self.ready_min.load(Relaxed)
    }

    /// Gives free memory beyond the limit back to the system, up to so many segments and runs. True: there is more.
    pub(crate) fn shrink(&self, count_max: usize) -> bool {
        for _ in 0..count_max {
            let exceeding_bytes = self.budget.exceeding_bytes();
            if exceeding_bytes == 0 {
                return false;
            }
            match self.segments.with_pool(|pool| pool.take_ready(self.reserve())) {
                Some(free) => self.decommit_segment(free),
                None if self.decommit_run(exceeding_bytes) => {}
                None => return false,
            }
        }
        true
    }

    /// Gives a free segment's memory back to the system.
    fn decommit_segment(&self, free: FreeSegment) {
        let (id, bytes) = (free.id(), self.segments.segment_bytes);
        self.segments.get(id).on_large_page.store(false, Relaxed);
        // SAFETY: a free segment that is not in the pool is ours alone.
        unsafe { self.region.decommit(self.segments.start(id), bytes) };
        self.segments.capacity_bytes.fetch_sub(bytes as u64, Relaxed);
        self.budget.give(bytes as u64);
        self.segments.with_pool(|pool| pool.put_reserved(free));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::log::allocator::{AllocRequest, Allocator, OpenTerms, WriteStream};
    use crate::log::segment::SMALL;
    use crate::request::{Expiry, Now};

    const SEGMENT_BYTES: usize = 16 << 10;

    fn arena() -> Arena {
        Arena::new(&ArenaConfig {
            memory_bytes: 4 * SEGMENT_BYTES as u64,
            geometry: Geometry { segment_bytes: SEGMENT_BYTES, segments: 8, run_segments: 4 },
            handles_max: 1,
            superblock: None,
        })
        .expect("address space")
    }

    /// Takes a segment through all states, without an engine, an index or a handle.
    #[test]
    fn a_segment_lives_without_a_handle() {
        let (arena, now) = (arena(), Now { secs: 1, micros: 1 });
        let mut allocator = Allocator::new(false);
        let stream = WriteStream { queue: SMALL, group: 0, class: 0 };
        let request = AllocRequest { stream, weight: 1, expiry: Expiry::NEVER, bytes: SEGMENT_BYTES / 2 };
        assert!(allocator.append(&arena, &request, 0, now).is_err(), "no segment is open");
        let free = arena.take_segment(false).expect("memory");
        let id = free.id();
        allocator.open(&arena, free, &OpenTerms { stream, flush_mark: 0, now, closes_secs: 10 });
        let at = |allocator: &mut Allocator, secs| {
            let allocation = allocator.append(&arena, &request, 0, Now { secs, ..now }).ok()?;
            Some(allocation.at().bytes() - arena.segments.start(id))
        };
        assert_eq!(at(&mut allocator, 1), Some(0));
        assert_eq!(at(&mut allocator, 11), None, "its items would be of different ages");
        assert_eq!(at(&mut allocator, 10), Some(SEGMENT_BYTES / 2));
        assert_eq!(at(&mut allocator, 10), None, "it is full");
        let open = allocator.close(&arena, stream).expect("it is not empty");
        assert_eq!(open.id(), id);
        arena.segments.seal(open);
        let claim = arena.segments.claim(id).expect("it is sealed");
        assert_eq!(arena.segments.claim(id), None, "it is one's alone");
        // SAFETY: the slot's only pin.
        let pin = unsafe { arena.epochs.pin(0) };
        // SAFETY: there is no index.
        unsafe { arena.retire(claim) };
        arena.drain_limbo();
        assert!(arena.has_limbo(), "somebody may read it");
        drop(pin);
        arena.drain_limbo();
        assert!(!arena.has_limbo());
        assert_eq!(arena.spare_bytes(), SEGMENT_BYTES as u64, "free, with memory");
        assert_eq!(arena.take_segment(false).map(|free| free.id()), Some(id));
    }

    #[test]
    fn an_empty_segment_goes_back_to_the_pool() {
        let (arena, now) = (arena(), Now { secs: 1, micros: 1 });
        let mut allocator = Allocator::new(false);
        let stream = WriteStream { queue: SMALL, group: 0, class: 0 };
        let free = arena.take_segment(false).expect("memory");
        allocator.open(&arena, free, &OpenTerms { stream, flush_mark: 0, now, closes_secs: 10 });
        assert_eq!(allocator.close_all(&arena).count(), 0, "nothing is to be sealed");
        assert_eq!(arena.spare_bytes(), SEGMENT_BYTES as u64);
    }
}
