//! Runs: the memory of large items.
//!
//! A run is contiguous address space of its own, in units ([`crate::log::segment::run_unit_bytes`]) behind the segments
//! of the log proper, with memory from its start. Runs never move. Freed memory of runs stays *committed*: it keeps its
//! pages, and their charge on the budget, and is joined and cut for the next large items as it is, because fresh pages
//! cost several times what writing to them costs. Where it is in pieces too short for an item, another one is evicted,
//! until [`Arena::slack_bytes`] lie idle; then the shortest pieces are given back to the system for fresh pages.
//!
//! Unsafe code lives here because memory is taken from its items. The invariant: a [`Run`] cannot be copied, so its
//! holder alone has its memory; it is made of free address space, or of what nobody can see any more.
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::log::allocator::WriteStream;
use crate::log::arena::Arena;
use crate::log::extents::Extents;
use crate::log::fresh::FreshItem;
use crate::log::item::ItemRef;
use crate::log::leases::{Leases, NO_UPLOAD_SECS};
use crate::log::segment::{FREE, OpenSegment, SegmentId};
use crate::mem::region::PAGE_BYTES;
use crate::request::Now;

/// An item that asks for less retains no more than this of the committed memory that its run has, so that a client that
/// announces a large value and sends nothing holds no more.
const RETAINED_BYTES_MAX: u64 = 1 << 20;
/// See [`Arena::slack_bytes`]: this part of the limit, or two items, ...
const SLACK_PART: u64 = 32;
/// ... but no more than this.
const SLACK_PART_MIN: u64 = 8;
/// Runs of an item's size that are evicted ahead.
const RUNS_AHEAD: u64 = 2;

/// A run with a single owner, which is not found.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Run {
    id: SegmentId,
    /// Address space.
    units: u32,
    /// From its start, when it was taken; a multiple of the unit.
    memory_bytes: u64,
    /// Size of its item.
    item_bytes: usize,
}

impl Run {
    pub(crate) fn id(&self) -> SegmentId {
        self.id
    }

    /// Address space, in units.
    pub(crate) fn units(&self) -> u32 {
        self.units
    }
}

/// The resource that is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllocError {
    Memory,
    /// Contiguous address space for runs.
    AddressSpace,
}

/// Free runs, and leases. Locked once per large item, and per step of its upload.
pub(crate) struct Runs {
    free: Mutex<Free>,
    /// A thread that holds this takes no other lock.
    leases: Mutex<Leases>,
    /// [`Leases::oldest_arrival_secs`], for a look without the lock.
    oldest_arrival_secs: AtomicU32,
    /// Memory of free runs, in units.
    committed_units: AtomicU64,
    /// The longest piece of it.
    longest_units: AtomicU32,
}

struct Free {
    /// Runs that have no memory.
    reserved: Extents,
    /// With memory.
    committed: Extents,
    /// The starts of the runs that are not free.
    used: BTreeSet<SegmentId>,
}

impl Runs {
    pub(crate) fn new(first: SegmentId, units: u32) -> Self {
        let mut reserved = Extents::default();
        reserved.put(first, units);
        Self {
            free: Mutex::new(Free { reserved, committed: Extents::default(), used: BTreeSet::new() }),
            leases: Mutex::default(),
            oldest_arrival_secs: AtomicU32::new(NO_UPLOAD_SECS),
            committed_units: AtomicU64::new(0),
            longest_units: AtomicU32::new(0),
        }
    }

    /// The first run in use from this number on.
    pub(crate) fn next_used(&self, from: SegmentId) -> Option<SegmentId> {
        self.free().used.range(from..).next().copied()
    }

    /// One of `units`, all of which have memory.
    fn take_committed(&self, units: u32) -> Option<SegmentId> {
        let mut free = self.free();
        let id = free.committed.take(units)?;
        self.note_committed(&free);
        free.used.insert(id);
        Some(id)
    }

    /// One without memory.
    fn take_reserved(&self, units: u32) -> Option<SegmentId> {
        let mut free = self.free();
        let id = free.reserved.take(units)?;
        free.used.insert(id);
        Some(id)
    }

    /// Frees a run, of which the first `committed_units` have memory.
    fn put(&self, id: SegmentId, units: u32, committed_units: u32) {
        let mut free = self.free();
        free.used.remove(&id);
        free.committed.put(id, committed_units);
        free.reserved.put(id + committed_units, units - committed_units);
        self.note_committed(&free);
    }

    /// Takes memory of free runs, to be given back with [`Runs::put_reserved`].
    fn take_memory(
        &self,
        which: impl FnOnce(&mut Extents) -> Option<(SegmentId, u32)>,
    ) -> Option<(SegmentId, u32)> {
        let mut free = self.free();
        let taken = which(&mut free.committed);
        self.note_committed(&free);
        taken
    }

    fn put_reserved(&self, start: SegmentId, units: u32) {
        self.free().reserved.put(start, units);
    }

    fn note_committed(&self, free: &Free) {
        self.committed_units.store(free.committed.units(), Relaxed);
        self.longest_units.store(free.committed.longest(), Relaxed);
    }

    pub(crate) fn leases(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See [`Leases::oldest_arrival_secs`]. It may be a moment old.
    #[inline]
    pub(super) fn oldest_arrival_secs(&self) -> u32 {
        self.oldest_arrival_secs.load(Relaxed)
    }

    /// Call under the lock of the leases after each change.
    pub(super) fn note_oldest_arrival(&self, leases: &Leases) {
        let oldest_arrival_secs = leases.oldest_arrival_secs();
        if oldest_arrival_secs != self.oldest_arrival_secs.load(Relaxed) {
            self.oldest_arrival_secs.store(oldest_arrival_secs, Relaxed);
        }
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        // No code panics under this lock.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Arena {
    /// Memory of free runs.
    pub(crate) fn committed_bytes(&self) -> u64 {
        self.runs.committed_units.load(Relaxed) * self.segments.unit_bytes() as u64
    }

    /// Free memory that may lie idle in pieces, none of which is long enough for an item of `item_bytes`, before it is
    /// given back to the system for fresh pages. Until then other large items are evicted: mostly their memory lies
    /// beside that of the last one.
    pub(crate) fn slack_bytes(&self, item_bytes: usize) -> u64 {
        let limit_bytes = self.budget.limit_bytes();
        (limit_bytes / SLACK_PART).max(2 * item_bytes as u64).min(limit_bytes / SLACK_PART_MIN)
    }

    /// A run for an item of `item_bytes`, with memory for its first `bytes` or more. Leaves free memory of
    /// `slack_bytes` as it is, unless it is in one piece.
    pub(crate) fn take_run(
        &self,
        item_bytes: usize,
        bytes: usize,
        slack_bytes: u64,
    ) -> Result<Run, AllocError> {
        let units = self.segments.units_of(item_bytes);
        let whole_bytes = self.segments.bytes_of(units);
        let bytes = (self.segments.whole_units(bytes) as u64).min(whole_bytes);
        let memory_bytes = whole_bytes.min(RETAINED_BYTES_MAX.max(bytes));
        self.drain_limbo();
        if let Some(id) = self.runs.take_committed(units) {
            if whole_bytes > memory_bytes {
                let end = self.segments.start(id) + memory_bytes as usize;
                // SAFETY: the run is ours alone.
                unsafe { self.region.decommit(end, (whole_bytes - memory_bytes) as usize) };
                self.give_run_bytes(whole_bytes - memory_bytes);
            }
            return Ok(Run { id, units, memory_bytes, item_bytes });
        }
        // Not only the first step: memory that runs out as the value arrives would be that of another free run.
        if self.unused_bytes() < memory_bytes
            && slack_bytes > 0
            && self.idle_bytes() < slack_bytes + memory_bytes
        {
            return Err(AllocError::Memory);
        }
        self.take_reserved_run(item_bytes, bytes)
    }

    /// Memory that a run gets without evicting anything.
    fn idle_bytes(&self) -> u64 {
        let ready_segments = u64::from(self.segments.ready_count.load(Relaxed));
        let ready_bytes = ready_segments * self.segments.segment_bytes as u64;
        self.unused_bytes() + self.committed_bytes() + ready_bytes
    }

    /// True if the next runs of this size would have to wait for memory until guards have ended: one should be evicted
    /// ahead. Not for the longest: they may only be announced.
    pub(crate) fn are_runs_scarce(&self, item_bytes: usize, slack_bytes: u64) -> bool {
        let units = self.segments.units_of(item_bytes);
        let bytes = self.segments.bytes_of(units);
        let limbo_bytes = self.limbo_bytes();
        bytes <= RETAINED_BYTES_MAX
            && self.unused_bytes() < RUNS_AHEAD * bytes
            && limbo_bytes < RUNS_AHEAD * bytes
            && self.runs.longest_units.load(Relaxed) < RUNS_AHEAD as u32 * units
            && self.committed_bytes() + limbo_bytes < slack_bytes + bytes
    }

    /// True if a run will find memory without eviction once the present guards have ended.
    pub(crate) fn is_run_coming(&self, bytes: usize, slack_bytes: u64) -> bool {
        let limbo_bytes = self.limbo_bytes();
        limbo_bytes > 0 && self.idle_bytes() + limbo_bytes >= slack_bytes + bytes as u64
    }

    fn take_reserved_run(&self, item_bytes: usize, memory_bytes: u64) -> Result<Run, AllocError> {
        let units = self.segments.units_of(item_bytes);
        if !self.take_run_bytes(memory_bytes) {
            return Err(AllocError::Memory);
        }
        loop {
            if let Some(id) = self.runs.take_reserved(units) {
                // Any unit may be the first of another run later.
                let last = id + units - 1;
                let start = self.segments.start(id);
                if !self.commit(last, start, memory_bytes as usize) {
                    self.runs.put(id, units, 0);
                    self.give_run_bytes(memory_bytes);
                    return Err(AllocError::Memory);
                }
                let run = Run { id, units, memory_bytes, item_bytes };
                self.populate(&run, 0, memory_bytes);
                return Ok(run);
            }
            // Committed memory may fragment the address space.
            if !self.decommit_free(|committed| committed.take_some(u32::MAX)) {
                self.give_run_bytes(memory_bytes);
                return Err(AllocError::AddressSpace);
            }
        }
    }

    /// Charges memory for a run: first that of free runs, the shortest pieces of it.
    fn take_run_bytes(&self, bytes: u64) -> bool {
        let bytes = self.segments.charge_of_run(bytes);
        while !self.budget.try_take(bytes) {
            let missing_bytes = (self.budget.used_bytes() + bytes).saturating_sub(self.budget.limit_bytes());
            let missing_units = self.segments.units_of(missing_bytes as usize);
            if !self.decommit_free(|committed| committed.take_shortest(missing_units)) {
                return self.take_bytes(bytes);
            }
        }
        true
    }

    /// Charges and commits more memory for a run. False: there is none.
    pub(crate) fn extend_run(&self, run: &Run, memory_bytes: u64, more_bytes: u64) -> bool {
        if !self.take_run_bytes(more_bytes) {
            return false;
        }
        let end = self.segments.start(run.id) + memory_bytes as usize;
        let is_committed = self.commit(run.id, end, more_bytes as usize);
        if is_committed {
            self.populate(run, memory_bytes, more_bytes);
        } else {
            self.give_run_bytes(more_bytes);
        }
        is_committed
    }

    /// Touches fresh memory as far as the item will fill it.
    fn populate(&self, run: &Run, from: u64, bytes: u64) {
        let item_end = run.item_bytes.next_multiple_of(PAGE_BYTES);
        let (from, end) = (from as usize, ((from + bytes) as usize).min(item_end));
        let start = self.segments.start(run.id);
        self.region.populate(start + from..start + end.max(from));
    }

    /// Begins an item in a run. Returns the count of its revocations.
    pub(crate) fn begin_run(&self, run: &Run) -> u32 {
        let segment = self.segments.get(run.id);
        segment.run_units.store(run.units, Relaxed);
        segment.usage.set_filled(run.memory_bytes);
        segment.pins.store(0, Relaxed);
        segment.revocations.load(Relaxed)
    }

    /// Frees a run that was not published.
    pub(crate) fn free_run(&self, run: Run) {
        // SAFETY: it is ours alone.
        unsafe { self.free_run_at(run.id) };
    }

    /// Makes a run that is filled one of the log's: from here on any thread may claim it. Returns it, to be sealed,
    /// and its item.
    ///
    /// # Safety
    /// The item is this run's, and written whole.
    pub(crate) unsafe fn open_run<'g>(
        &self,
        run: Run,
        raw: ItemRef<'g>,
        stream: WriteStream,
        flush_mark: u32,
        now: Now,
    ) -> (OpenSegment, FreshItem<'g>) {
        let WriteStream { queue, group, .. } = stream;
        let (first, _) = self.segments.items(run.id);
        // SAFETY: it was ours alone, and no longer is.
        let open = unsafe { self.segments.open_run(run.id, raw.size(), queue, group, flush_mark, now) };
        // SAFETY: a run's item is its first; by the caller's promise.
        (open, unsafe { FreshItem::new(raw, first) })
    }

    /// Frees a run.
    ///
    /// # Safety
    /// It is the caller's alone: it was never published, or the index does not point to it and no guard and no pin can
    /// see it.
    pub(super) unsafe fn free_run_at(&self, id: SegmentId) {
        let segment = self.segments.get(id);
        // Otherwise its upload was never published.
        if segment.state() != FREE {
            self.segments.set_free(id);
        }
        let (units, memory_bytes) = (segment.run_units.load(Relaxed), segment.usage.filled_bytes());
        let start = self.segments.start(id);
        // SAFETY: by the caller's promise.
        unsafe { self.region.poison(start..start + memory_bytes as usize) };
        self.runs.put(id, units, self.segments.units_of(memory_bytes as usize));
        if self.budget.is_exceeded() {
            self.decommit_run(memory_bytes);
        }
    }

    /// The runs in use are those that were taken over, in ascending order with their lengths; what lies between them is
    /// free.
    pub(super) fn rebuild_free_runs(&self, used: &[(SegmentId, u32)]) {
        let (mut next, end) = (self.segments.log_segments, self.segments.all.len() as SegmentId);
        let mut free = self.runs.free();
        free.reserved = Extents::default();
        free.used = used.iter().map(|&(id, _)| id).collect();
        for &(start, units) in used.iter().chain([&(end, 0)]) {
            free.reserved.put(next, start - next);
            next = start + units;
        }
    }

    /// Gives back what was charged for memory of runs.
    pub(super) fn give_run_bytes(&self, bytes: u64) {
        self.budget.give(self.segments.charge_of_run(bytes));
    }

    /// Gives up to `bytes` of free runs back to the system, in one piece. False: there is none.
    pub(crate) fn decommit_run(&self, bytes: u64) -> bool {
        self.decommit_free(|committed| committed.take_some(self.segments.units_of(bytes as usize)))
    }

    fn decommit_free(&self, which: impl FnOnce(&mut Extents) -> Option<(SegmentId, u32)>) -> bool {
        let Some((start, units)) = self.runs.take_memory(which) else { return false };
        let bytes = self.segments.bytes_of(units);
        // SAFETY: what was taken out of the free runs is ours alone.
        unsafe { self.region.decommit(self.segments.start(start), bytes as usize) };
        self.give_run_bytes(bytes);
        self.runs.put_reserved(start, units);
        true
    }
}
