//! Segments: the units of the log, and their owners.
//!
//! A segment holds items of one write stream, which are appended until it is full. A large item has a run of its own
//! (`runs.rs`), with the same states. The states, their owners and transitions:
//!
//! | state | owner | next | by |
//! |---|---|---|---|
//! | [`FREE`], reserved | the pool's; has no memory | open | `Arena::add_segment`, `Arena::take_run` |
//! | [`FREE`], ready (a run: committed) | the pool's; has memory | open | `Arena::take_segment`, `Arena::take_run` |
//! | | | reserved, when the memory is wanted elsewhere | `decommit_segment`, `decommit_run` |
//! | [`OPEN`] | a handle appends to it | sealed | `Allocator::close`, then `Policy::seal` |
//! | (a run: still [`FREE`]) | an upload fills it | sealed | `Upload::link` |
//! | | | limbo, when others need its memory | `Arena::take_upload` |
//! | [`SEALED`] | its queue's | reclaiming | [`Segments::claim`], by `Policy::next_victim`, `withdraw` and others |
//! | [`RECLAIMING`] | a handle empties it, or maps its holes | sealed | `Policy::put_back`, `requeue` |
//! | | | limbo | `Engine::retire`, then `Arena::retire` |
//! | | | open | [`Segments::hold_for_refill`]: its holes are filled later |
//! | limbo: [`FREE`] (a run: [`RECLAIMING`]) | nobody's; may be read | ready, committed | `drain_limbo`, last unpin, revoking (`leases.rs`) |
//!
//! A sealed segment whose last item dies is claimed and retired at once.
//!
//! Each owner has a token: [`FreeSegment`], [`OpenSegment`], [`Claim`], [`HeldSegment`]. Tokens cannot be copied, and a
//! transition takes one and gives the next, so a segment has one owner. Unsafe code lives here because the memory is
//! its owner's to overwrite; the functions that make a token from less are unsafe.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, Ordering::*};
use std::sync::{Arc, PoisonError};

use crate::crash_points::crash_point;
use crate::epoch::epochs::Epochs;
use crate::log::fresh::FreshItem;
use crate::log::item::{ALIGN_BYTES, ItemRef};
use crate::log::offset::Offset;
use crate::log::segment_sums::SegmentSums;
use crate::log::superblock::Superblock;
use crate::mem::cache_padded::CachePadded;
use crate::mem::region::{PAGE_BYTES, prefetch};
use crate::mem::table::{Table, Zeroed};
use crate::request::{Expiry, Now};
use crate::sync::{self, Mutex, fence};

/// The TTL groups of write streams (`policy/streams.rs`). Group 0 never expires.
pub(crate) const GROUPS: usize = 6;
/// The priority classes of write streams.
pub(crate) const CLASSES: usize = 7;

/// The queue of new keys.
pub(crate) const SMALL: usize = 0;
/// The queue of keys that were read again, or that return soon after their eviction.
pub(crate) const MAIN: usize = 1;
/// In statistics only: large items, whichever queue they are in.
pub(crate) const LARGE: usize = 2;

/// The number of a segment, or of a run's first unit ([`run_unit_bytes`]).
pub(crate) type SegmentId = u32;

/// The metadata of a segment. Written by its owner, except the counters. All zeros: a segment that was never used.
/// Where the cache is kept in a file, so is this: its layout is part of that format, and any bytes are a value of it.
#[cfg_attr(all(loom, test), derive(Default))]
#[repr(C)]
pub(crate) struct Segment {
    /// The policy's clock when it was opened.
    pub(crate) opened_clock: AtomicU64,
    /// Changes whenever the segment is opened or claimed, so that stale queue entries are recognised.
    pub(super) generation: sync::AtomicU32,
    /// The flush mark when it was opened. Its items are flushed if the engine's mark is higher.
    pub(crate) flush_mark: AtomicU32,
    /// The second from which all items are expired; u32::MAX: one never expires; 0: no item yet.
    pub(crate) expiry_max: AtomicU32,
    pub(crate) opened_secs: AtomicU32,
    /// Runs: the number of pins of readers beyond guards, and [`FREE_ON_UNPIN`].
    pub(super) pins: AtomicU32,
    /// Runs: how often its leases were revoked (`leases.rs`).
    pub(super) revocations: AtomicU32,
    /// Runs: address space in units.
    pub(super) run_units: AtomicU32,
    /// Sum of the weights of the items appended (`priority.rs`); for a run, the weight of its item.
    pub(crate) weight: AtomicU32,
    /// SMALL or MAIN.
    pub(crate) queue: AtomicU8,
    pub(crate) group: AtomicU8,
    /// [`FREE`], [`OPEN`], [`SEALED`] or [`RECLAIMING`]. Changed by the functions of this file alone.
    state: sync::AtomicU8,
    /// The garbage levels under which it is listed, as bits. Written under the queues' lock.
    pub(crate) listed: AtomicU8,
    /// Most of its holes stayed empty the last time: it is better compacted than refilled.
    pub(crate) has_unfilled_holes: Flag,
    /// Its memory was moved to a large page.
    pub(crate) on_large_page: Flag,
    pub(crate) usage: Usage,
}

/// Yes or no; any byte is one of them.
#[derive(Default)]
pub(crate) struct Flag(AtomicU8);

impl Flag {
    pub(crate) fn load(&self, ordering: Ordering) -> bool {
        self.0.load(ordering) != 0
    }

    pub(crate) fn store(&self, flag: bool, ordering: Ordering) {
        self.0.store(flag.into(), ordering);
    }
}

/// The segment or run of an item.
#[derive(Clone, Copy)]
pub(crate) struct SegmentRef<'s> {
    pub(crate) segment: &'s Segment,
    pub(crate) id: SegmentId,
    pub(crate) is_run: bool,
}

impl SegmentRef<'_> {
    /// The queue, of [`crate::Stats::queues`], that counts its items.
    #[inline]
    pub(crate) fn queue(self) -> usize {
        if self.is_run { LARGE } else { self.segment.queue() }
    }
}

/// An item that was marked dead.
pub(crate) struct DeadItem<'t> {
    pub(crate) raw: ItemRef<'t>,
    /// Its size in memory.
    pub(crate) bytes: u64,
    pub(crate) segment_ref: SegmentRef<'t>,
    /// What is dead in its segment. The thread that counts the last byte knows that all other items are unlinked as
    /// well.
    pub(crate) dead_bytes: u64,
}

/// The counters that every store and overwrite changes. Every look-up reads the fields beside them. Only one line:
/// there are many segments.
#[cfg_attr(all(loom, test), derive(Default))]
#[repr(C, align(64))]
pub(crate) struct Usage {
    /// Bytes appended, written by its owner; for a run its memory.
    filled_bytes: sync::AtomicU64,
    /// ... of which of items that the index no longer points to; for a run also what its item leaves empty.
    dead_bytes: sync::AtomicU64,
}

impl Usage {
    /// Bytes appended; for a run its memory.
    #[inline]
    pub(crate) fn filled_bytes(&self) -> u64 {
        self.filled_bytes.load(Relaxed)
    }

    /// Release: whoever finds it in a file finds what was written before.
    #[inline]
    pub(super) fn set_filled(&self, bytes: u64) {
        self.filled_bytes.store(bytes, Release);
        crash_point();
    }

    pub(super) fn add_filled(&self, bytes: u64) {
        self.filled_bytes.fetch_add(bytes, Relaxed);
    }

    /// Counts bytes that no entry of the index points to. Returns how many there are.
    #[inline]
    pub(super) fn add_dead(&self, bytes: u64) -> u64 {
        self.dead_bytes.fetch_add(bytes, AcqRel) + bytes
    }

    /// Bytes of items that the index points to, or will in a moment. Never below the truth once the segment is sealed.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.filled_bytes.load(Relaxed).saturating_sub(self.dead_bytes.load(Acquire))
    }
}

// SAFETY: only atomic numbers.
unsafe impl Zeroed for Segment {}

/// No owner, or in limbo.
pub(crate) const FREE: u8 = 0;
/// A handle appends to it.
pub(crate) const OPEN: u8 = 1;
/// Sealed, in its queue.
pub(crate) const SEALED: u8 = 2;
/// Claimed: a handle is emptying it.
pub(crate) const RECLAIMING: u8 = 3;

/// In [`Segment::pins`]: the run is to be freed with the last pin.
pub(crate) const FREE_ON_UNPIN: u32 = 1 << 31;

/// The unit of runs, in address space and in memory: a sixteenth of a segment, within bounds. With larger units items
/// leave more memory empty, with smaller ones their metadata takes more.
pub(crate) fn run_unit_bytes(segment_bytes: usize) -> usize {
    (segment_bytes / 16).clamp(PAGE_BYTES, 2 * PAGE_BYTES)
}

/// The metadata of so many segments is committed at once.
const COMMITTED_STEP: u32 = 512;

impl Segment {
    /// Begins a new generation.
    fn open(&self, queue: usize, group: usize, flush_mark: u32, now: Now) {
        self.queue.store(queue as u8, Relaxed);
        self.group.store(group as u8, Relaxed);
        self.generation.fetch_add(1, Relaxed);
        self.flush_mark.store(flush_mark, Relaxed);
        crash_point();
        self.usage.filled_bytes.store(0, Relaxed);
        crash_point();
        self.usage.dead_bytes.store(0, Relaxed);
        self.expiry_max.store(0, Relaxed);
        self.opened_secs.store(now.secs, Relaxed);
        self.pins.store(0, Relaxed);
        self.weight.store(0, Relaxed);
        self.has_unfilled_holes.store(false, Relaxed);
        // Release: whoever finds it open in a file finds nothing in it yet.
        self.state.store(OPEN, Release);
        crash_point();
    }

    /// Begins a generation in which live items stay and holes of so many bytes count as filled.
    fn reopen(&self, hole_bytes: usize, now: Now) {
        self.generation.fetch_add(1, Relaxed);
        self.usage.dead_bytes.fetch_sub(hole_bytes as u64, Relaxed);
        self.opened_secs.store(now.secs, Relaxed);
    }

    /// From here on its items do not move, and any thread may claim it.
    fn seal(&self) {
        self.state.store(SEALED, Release);
        crash_point();
    }

    /// Claims a sealed segment. False: another thread has claimed it. Its queue entries become stale.
    fn claim(&self) -> bool {
        let won = self.state.compare_exchange(SEALED, RECLAIMING, AcqRel, Relaxed).is_ok();
        if won {
            self.generation.fetch_add(1, Relaxed);
        }
        won
    }

    /// It has no owner, and nobody can find it.
    fn set_free(&self) {
        self.state.store(FREE, Relaxed);
        crash_point();
    }

    /// SMALL or MAIN.
    #[inline]
    pub(crate) fn queue(&self) -> usize {
        usize::from(self.queue.load(Relaxed)) & 1
    }

    /// Notes the expiry of an item in this segment.
    pub(crate) fn note_expiry(&self, expiry: Expiry) {
        let dies = expiry.secs().unwrap_or(u32::MAX);
        if self.expiry_max.load(Relaxed) < dies {
            self.expiry_max.fetch_max(dies, Relaxed);
        }
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Relaxed)
    }

    /// Acquire: everything that preceded the state change is visible.
    pub(crate) fn state(&self) -> u8 {
        self.state.load(Acquire)
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.state() == SEALED
    }

    /// True if its items do not move, so that it may be walked under a guard.
    pub(crate) fn is_walkable(&self) -> bool {
        self.state() >= SEALED
    }

    /// True if every item in it has expired.
    pub(crate) fn is_expired(&self, now: Now) -> bool {
        self.expiry_max.load(Relaxed) <= now.secs
    }
}

/// A free segment: nothing in it can be found, and nobody reads it.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct FreeSegment(SegmentId);

/// A segment that its holder alone fills, or a run that was filled.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct OpenSegment(SegmentId);

/// A claimed segment or run: nobody else reclaims it.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Claim(SegmentId);

/// A claimed segment whose holes are filled once every guard has ended that may read there.
#[must_use]
pub(crate) struct HeldSegment {
    claim: Claim,
    /// The guards that may read there were pinned in this epoch or an earlier one.
    epoch: u64,
}

impl FreeSegment {
    pub(crate) fn id(&self) -> SegmentId {
        self.0
    }
}

impl OpenSegment {
    pub(crate) fn id(&self) -> SegmentId {
        self.0
    }
}

impl Claim {
    pub(crate) fn id(&self) -> SegmentId {
        self.0
    }
}

impl HeldSegment {
    pub(crate) fn id(&self) -> SegmentId {
        self.claim.id()
    }

    /// True if every guard has ended that may read there. `epochs` are those of [`Segments::hold_for_refill`].
    pub(crate) fn is_unread(&self, epochs: &Epochs) -> bool {
        epochs.horizon() > self.epoch
    }

    /// Its holes are not filled after all.
    pub(crate) fn into_claim(self) -> Claim {
        self.claim
    }
}

/// Free segments. Locked once per segment.
pub(crate) struct Pool {
    /// Those that have memory.
    ready: Vec<FreeSegment>,
    /// Those without memory that were in use.
    reserved: Vec<FreeSegment>,
    /// Those that were never in use: many, where the limit may be raised far.
    unused: Range<SegmentId>,
}

impl Pool {
    fn new(segments: u32) -> Self {
        Self { ready: Vec::new(), reserved: Vec::new(), unused: 0..segments }
    }

    /// Takes one, if there are more than `kept`.
    pub(crate) fn take_ready(&mut self, kept: usize) -> Option<FreeSegment> {
        if self.ready.len() > kept { self.ready.pop() } else { None }
    }

    pub(crate) fn take_reserved(&mut self) -> Option<FreeSegment> {
        self.reserved.pop().or_else(|| self.unused.next().map(FreeSegment))
    }

    pub(crate) fn put_ready(&mut self, free: FreeSegment) {
        self.ready.push(free);
    }

    pub(crate) fn put_reserved(&mut self, free: FreeSegment) {
        self.reserved.push(free);
    }

    pub(crate) fn ready_count(&self) -> usize {
        self.ready.len()
    }
}

/// All segments.
pub(crate) struct Segments {
    /// Includes those for which there may never be memory: there are many.
    pub(crate) all: Table<Segment>,
    /// Segments below this number belong to the log proper; runs follow.
    pub(crate) log_segments: u32,
    /// A power of two.
    pub(crate) segment_bytes: usize,
    /// Its logarithm: every look-up computes an item's segment.
    segment_power: u32,
    /// The same of [`run_unit_bytes`].
    unit_power: u32,
    /// The offset at which the runs begin.
    runs_start: usize,
    pool: CachePadded<Mutex<Pool>>,
    pub(crate) sums: CachePadded<SegmentSums>,
    /// Segments that are ready to be opened: a hint that needs no lock.
    pub(crate) ready_count: CachePadded<AtomicU32>,
    /// Below these numbers segments, and runs, have metadata.
    committed_ends: [AtomicU32; 2],
    /// What all segments with memory can hold: less than their size if the ends of sealed ones stayed empty.
    pub(crate) capacity_bytes: AtomicU64,
    /// Where the metadata is kept in a file.
    superblock: Option<Arc<Superblock>>,
}

impl Segments {
    /// With metadata in memory, or in the file of a superblock.
    pub(crate) fn new(
        log_segments: u32,
        run_units: u32,
        segment_bytes: usize,
        superblock: Option<Arc<Superblock>>,
    ) -> io::Result<Self> {
        let length = (log_segments + run_units) as usize;
        let all = match &superblock {
            Some(superblock) => Table::map(&superblock.segments_part(), length)?,
            None => Table::reserve(length)?,
        };
        let segments = Self {
            all,
            log_segments,
            segment_bytes,
            segment_power: segment_bytes.ilog2(),
            unit_power: run_unit_bytes(segment_bytes).ilog2(),
            runs_start: log_segments as usize * segment_bytes,
            pool: CachePadded::new(Mutex::new(Pool::new(log_segments))),
            sums: CachePadded::default(),
            ready_count: CachePadded::default(),
            committed_ends: [AtomicU32::new(0), AtomicU32::new(log_segments)],
            capacity_bytes: AtomicU64::new(0),
            superblock,
        };
        // Searches begin with the first, whether or not it was ever in use.
        if segments.commit(0) { Ok(segments) } else { Err(io::ErrorKind::OutOfMemory.into()) }
    }

    /// To be called before a segment or run gets memory. Commits the metadata of it and of all before it, which are
    /// scanned as well. False: the system has no memory for that.
    #[must_use]
    pub(crate) fn commit(&self, id: SegmentId) -> bool {
        let is_run = self.is_run(id);
        let committed_end = &self.committed_ends[usize::from(is_run)];
        let region_end = if is_run { self.all.len() as SegmentId } else { self.log_segments };
        let start = committed_end.load(Relaxed);
        if id < start {
            return true;
        }
        let end = (id + 1).next_multiple_of(COMMITTED_STEP).min(region_end);
        // Others may commit the same meanwhile.
        if !self.all.commit(start as usize..end as usize) {
            return false;
        }
        committed_end.fetch_max(end, Relaxed);
        if let Some(superblock) = &self.superblock {
            superblock.note_metadata(is_run, if is_run { end - self.log_segments } else { end });
        }
        true
    }

    /// Segments that were ever in use, and runs that are.
    pub(crate) fn used_count(&self) -> usize {
        self.log_ids().len() + self.sums.runs()
    }

    #[inline]
    pub(crate) fn get(&self, id: SegmentId) -> &Segment {
        &self.all[id as usize]
    }

    /// The segment or run of an item at this offset.
    #[inline]
    pub(crate) fn segment_ref_at(&self, offset: Offset) -> SegmentRef<'_> {
        self.segment_ref(self.id_at(offset))
    }

    #[inline]
    pub(crate) fn segment_ref(&self, id: SegmentId) -> SegmentRef<'_> {
        SegmentRef { segment: self.get(id), id, is_run: self.is_run(id) }
    }

    /// Prefetches a segment's metadata.
    pub(crate) fn prefetch(&self, id: SegmentId) {
        let segment = self.get(id);
        prefetch((&raw const segment.state).cast());
        prefetch((&raw const segment.usage).cast());
    }

    /// The segment, or the run's first unit, that holds an offset at which an item starts.
    #[inline]
    pub(crate) fn id_at(&self, offset: Offset) -> SegmentId {
        self.id_at_byte(offset.bytes())
    }

    /// The same for any byte of the log.
    #[inline]
    pub(crate) fn id_at_byte(&self, byte: usize) -> SegmentId {
        match byte.checked_sub(self.runs_start) {
            None => (byte >> self.segment_power) as SegmentId,
            Some(byte) => self.log_segments + (byte >> self.unit_power) as SegmentId,
        }
    }

    /// The place of the first item of a segment that is not open, and the end: no item begins there or beyond. A run
    /// has one item, and memory to whole units.
    pub(crate) fn items(&self, id: SegmentId) -> (Offset, Offset) {
        let start = self.start(id);
        let bytes = if self.is_run(id) { ALIGN_BYTES } else { self.get(id).usage.filled_bytes() as usize };
        (Offset::new(start), Offset::new(start + bytes))
    }

    /// In bytes from the start of the log.
    pub(crate) fn start(&self, id: SegmentId) -> usize {
        match id.checked_sub(self.log_segments) {
            None => (id as usize) << self.segment_power,
            Some(unit) => self.runs_start + ((unit as usize) << self.unit_power),
        }
    }

    /// The unit of runs.
    pub(crate) fn unit_bytes(&self) -> usize {
        1 << self.unit_power
    }

    /// Converts bytes to units, rounded up.
    pub(crate) fn units_of(&self, bytes: usize) -> u32 {
        bytes.div_ceil(self.unit_bytes()) as u32
    }

    /// Rounds bytes up to units.
    pub(crate) fn whole_units(&self, bytes: usize) -> usize {
        bytes.next_multiple_of(self.unit_bytes())
    }

    /// The charge for memory of runs, in whole units: each unit may have metadata.
    pub(crate) fn charge_of_run(&self, memory_bytes: u64) -> u64 {
        memory_bytes + (memory_bytes >> self.unit_power) * size_of::<Segment>() as u64
    }

    /// Converts units to bytes.
    pub(crate) fn bytes_of(&self, units: u32) -> u64 {
        u64::from(units) << self.unit_power
    }

    #[inline]
    pub(crate) fn is_run(&self, id: SegmentId) -> bool {
        id >= self.log_segments
    }

    /// Opens a free segment.
    pub(crate) fn open(
        &self,
        free: FreeSegment,
        queue: usize,
        group: usize,
        flush_mark: u32,
        now: Now,
    ) -> OpenSegment {
        self.get(free.id()).open(queue, group, flush_mark, now);
        self.note_opened(free.id());
        OpenSegment(free.id())
    }

    /// Makes a run that is filled one of the log's.
    ///
    /// # Safety
    /// It is the caller's alone, holds one item, and is not freed by the caller from here on.
    pub(super) unsafe fn open_run(
        &self,
        id: SegmentId,
        item_bytes: usize,
        queue: usize,
        group: usize,
        flush_mark: u32,
        now: Now,
    ) -> OpenSegment {
        let usage = &self.get(id).usage;
        let memory_bytes = usage.filled_bytes();
        self.get(id).open(queue, group, flush_mark, now);
        usage.set_filled(memory_bytes);
        usage.dead_bytes.store(memory_bytes - item_bytes as u64, Relaxed);
        self.note_opened(id);
        OpenSegment(id)
    }

    /// Opens a segment to fill holes of so many bytes.
    ///
    /// # Safety
    /// Nobody reads the holes.
    pub(super) unsafe fn reopen(&self, held: HeldSegment, hole_bytes: usize, now: Now) -> OpenSegment {
        let id = held.id();
        self.note_closed(id);
        self.get(id).reopen(hole_bytes, now);
        self.note_opened(id);
        OpenSegment(id)
    }

    /// Takes over a segment or run that another process left in the file, with so many bytes of items (of memory, for a
    /// run). Its contents are still to be examined; what is not counted as dead meanwhile is live.
    ///
    /// # Safety
    /// The caller's process has taken over the file, and nobody knows of the segment.
    pub(super) unsafe fn adopt(&self, id: SegmentId, filled_bytes: u64, now: Now) -> OpenSegment {
        let segment = self.get(id);
        segment.queue.fetch_and(1, Relaxed);
        segment.group.fetch_min(GROUPS as u8 - 1, Relaxed);
        segment.opened_secs.fetch_min(now.secs, Relaxed);
        segment.usage.dead_bytes.store(0, Relaxed);
        segment.usage.set_filled(filled_bytes);
        segment.expiry_max.store(0, Relaxed);
        segment.pins.store(0, Relaxed);
        segment.listed.store(0, Relaxed);
        segment.has_unfilled_holes.store(false, Relaxed);
        segment.on_large_page.store(false, Relaxed);
        segment.state.store(OPEN, Release);
        self.note_opened(id);
        OpenSegment(id)
    }

    /// Forgets what another process left in the file: nothing there is kept.
    ///
    /// # Safety
    /// As of [`Segments::adopt`].
    pub(super) unsafe fn disown(&self, id: SegmentId) {
        let segment = self.get(id);
        segment.pins.store(0, Relaxed);
        segment.listed.store(0, Relaxed);
        segment.on_large_page.store(false, Relaxed);
        segment.set_free();
    }

    /// Frees a segment that was taken over, and in which nothing is alive.
    ///
    /// # Safety
    /// As of [`Segments::adopt`], and the index does not point into it.
    pub(super) unsafe fn abandon(&self, open: OpenSegment) {
        self.set_free(open.id());
    }

    /// Metadata that another process left in the file is accessible from here on. False: the system has no memory.
    #[must_use]
    pub(super) fn recommit(&self, segments_end: u32, runs_end: u32) -> bool {
        for (first, end) in [(0, segments_end), (self.log_segments, runs_end)] {
            if end > 0 && !self.all.commit(first as usize..(first + end) as usize) {
                return false;
            }
            self.committed_ends[usize::from(first != 0)].fetch_max(first + end, Relaxed);
        }
        true
    }

    /// The segments that are in use are those that were taken over; all others are free.
    pub(super) fn rebuild_pool(&self, is_used: impl Fn(SegmentId) -> bool) {
        let end = self.log_ids().end;
        let free = (0..end).filter(|&id| !is_used(id)).map(FreeSegment);
        self.with_pool(|pool| {
            *pool = Pool { ready: Vec::new(), reserved: free.collect(), unused: end..self.log_segments };
        });
    }

    /// Seals a segment or run: from here on any thread may claim it.
    pub(crate) fn seal(&self, open: OpenSegment) {
        self.get(open.id()).seal();
    }

    /// The same for one that was claimed and has not changed.
    pub(crate) fn seal_again(&self, claim: Claim) {
        self.get(claim.id()).seal();
    }

    /// Claims a sealed segment or run. `None`: it is not sealed, or another thread has claimed it.
    pub(crate) fn claim(&self, id: SegmentId) -> Option<Claim> {
        self.get(id).claim().then_some(Claim(id))
    }

    /// Keeps a claimed segment until its holes can be filled.
    pub(crate) fn hold_for_refill(&self, claim: Claim, epochs: &Epochs) -> HeldSegment {
        // From here on nobody begins to walk it ...
        self.get(claim.id()).state.store(OPEN, Release);
        // ... and every guard that is walking it, or still reads an item that was unlinked before its mark was seen, is
        // pinned in this epoch or an earlier one.
        fence(Acquire);
        HeldSegment { claim, epoch: epochs.retire() }
    }

    /// Frees an open segment.
    ///
    /// # Safety
    /// Nothing in it was ever found.
    pub(super) unsafe fn free_unused(&self, open: OpenSegment) -> FreeSegment {
        self.set_free(open.id());
        FreeSegment(open.id())
    }

    /// Frees a segment that comes out of limbo.
    ///
    /// # Safety
    /// The index does not point into it, and no guard can see it.
    pub(super) unsafe fn free_claimed(&self, claim: Claim) -> FreeSegment {
        FreeSegment(claim.id())
    }

    /// Marks an item dead, and counts its bytes.
    ///
    /// # Safety
    /// It is in the log at this offset. The index has pointed to it until now, under the lock of its bucket, or it is
    /// the caller's and was never found. No item is marked twice.
    #[inline(always)]
    pub(crate) unsafe fn mark_dead<'t>(&'t self, offset: Offset, raw: ItemRef<'t>) -> DeadItem<'t> {
        let (segment_ref, bytes) = (self.segment_ref_at(offset), raw.size() as u64);
        // Counted before it is marked: reclaiming skips marked items.
        let dead_bytes = segment_ref.segment.usage.add_dead(bytes);
        crash_point();
        // SAFETY: by the caller's promise.
        unsafe { raw.mark_dead() };
        crash_point();
        DeadItem { raw, bytes, segment_ref, dead_bytes }
    }

    /// The same for an item that nobody will find.
    pub(crate) fn discard_fresh(&self, item: FreshItem<'_>) {
        // SAFETY: nobody else has it, and we no longer do.
        unsafe { self.mark_dead(item.allocation().at(), item.raw()) };
    }

    /// Works on the free list, and updates the hint.
    pub(crate) fn with_pool<R>(&self, work: impl FnOnce(&mut Pool) -> R) -> R {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let result = work(&mut pool);
        self.ready_count.store(pool.ready_count() as u32, Relaxed);
        result
    }

    /// Counts a segment or run that was opened.
    fn note_opened(&self, id: SegmentId) {
        let (segment_ref, opened_secs) = (self.segment_ref(id), self.get(id).opened_secs.load(Relaxed));
        self.sums.add(segment_ref.queue(), self.memory_bytes(id), opened_secs);
        if !segment_ref.is_run {
            self.sums.note_use(id);
        }
    }

    /// Counts it no longer, as it is about to be freed or opened again.
    fn note_closed(&self, id: SegmentId) {
        let opened_secs = self.get(id).opened_secs.load(Relaxed);
        self.sums.remove(self.segment_ref(id).queue(), self.memory_bytes(id), opened_secs);
    }

    /// It has no owner, or goes to limbo: no walk begins from here on.
    pub(super) fn set_free(&self, id: SegmentId) {
        self.note_closed(id);
        self.get(id).set_free();
    }

    /// The segments of the log proper that were ever in use.
    pub(crate) fn log_ids(&self) -> Range<SegmentId> {
        0..self.sums.segments_end()
    }

    pub(crate) fn memory_bytes(&self, id: SegmentId) -> u64 {
        if self.is_run(id) { self.get(id).usage.filled_bytes() } else { self.segment_bytes as u64 }
    }
}

/// Explores the life of a segment, with a thread that walks it and one that empties or refills it, in every order.
#[cfg(all(loom, test))]
mod orders {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::epoch::limbo::Limbo;

    const NOW: Now = Now { secs: 1, micros: 1 };

    /// A sealed segment and its contents.
    struct World {
        segments: Segments,
        epochs: Epochs,
        limbo: Limbo<Claim>,
        memory: UnsafeCell<u64>,
    }

    impl World {
        fn new() -> Self {
            let world = Self {
                segments: Segments::new(1, 0, 1 << 14, None).expect("a vector"),
                epochs: Epochs::new(2),
                limbo: Limbo::default(),
                memory: UnsafeCell::new(0),
            };
            let free = world.segments.with_pool(|pool| pool.take_reserved()).expect("one");
            world.fill(free, 1);
            world
        }

        /// Opens it, writes, and seals it.
        fn fill(&self, free: FreeSegment, value: u64) {
            let open = self.segments.open(free, SMALL, 0, 0, NOW);
            self.write(value);
            self.segments.get(0).usage.set_filled(64);
            self.segments.seal(open);
        }

        fn write(&self, value: u64) {
            // SAFETY: the model checker ends the test if another thread is there.
            self.memory.with_mut(|memory| unsafe { *memory = value });
        }

        /// Reads it under a guard, if it is sealed.
        fn walk(&self) {
            // SAFETY: its only pin.
            let _pin = unsafe { self.epochs.pin(0) };
            if self.segments.get(0).is_walkable() {
                // SAFETY: as above.
                let value = self.memory.with(|memory| unsafe { *memory });
                assert!([1, 2].contains(&value), "{value}");
            }
        }
    }

    fn model(change: impl Fn(&World) + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let world = Arc::new(World::new());
            let walker = thread::spawn({
                let world = Arc::clone(&world);
                move || world.walk()
            });
            change(&world);
            walker.join().expect("a walk");
        });
    }

    #[test]
    fn nobody_reads_a_segment_that_is_emptied_and_filled_anew() {
        model(|world| {
            let claim = world.segments.claim(0).expect("it is sealed");
            world.segments.set_free(0);
            world.limbo.push(claim, 64, &world.epochs);
            world.limbo.drain(&world.epochs, 1, |claim| {
                // SAFETY: the model checker ends the test if somebody reads it.
                let free = unsafe { world.segments.free_claimed(claim) };
                world.write(0);
                world.fill(free, 2);
            });
        });
    }

    #[test]
    fn nobody_reads_a_hole_that_is_filled() {
        model(|world| {
            let claim = world.segments.claim(0).expect("it is sealed");
            let held = world.segments.hold_for_refill(claim, &world.epochs);
            if held.is_unread(&world.epochs) {
                world.write(0);
                // SAFETY: as above.
                let open = unsafe { world.segments.reopen(held, 0, NOW) };
                world.write(2);
                world.segments.seal(open);
            }
        });
    }
}
