//! Segments: the units of the log, and their owners.
//!
//! A segment holds items of one write stream, which are appended until it is full. A large item has a run of segments
//! of its own (`runs.rs`), with the same states. The states, their owners and transitions:
//!
//! | state | owner | next | by |
//! |---|---|---|---|
//! | [`FREE`], reserved | the pool's; has no memory | open | `Arena::add_segment`, `Arena::take_run` |
//! | [`FREE`], ready (a run: committed) | the pool's; has memory | open | `Arena::take_segment`, `Arena::take_run` |
//! | | | reserved, when the memory is wanted elsewhere | `decommit_segment`, `decommit_run` |
//! | [`OPEN`] | a handle appends to it | sealed | `Allocator::close`, then `Policy::seal` |
//! | (a run: still [`FREE`]) | an upload fills it | sealed | `Guard::publish` |
//! | | | limbo, when others need its memory | `Arena::admit_step`, `revoke_upload` |
//! | [`SEALED`] | its queue's | reclaiming | [`Segment::claim`], by `Policy::next_victim`, `withdraw` and others |
//! | [`RECLAIMING`] | a handle empties it, or maps its holes | sealed | `Policy::put_back`; a run: `Policy::seal` |
//! | | | limbo | `Arena::retire_segment`, `Arena::retire` |
//! | | | open | [`Segments::hold_for_refill`]: its holes are filled later |
//! | limbo: [`FREE`] (a run: [`RECLAIMING`]) | nobody's; may be read | ready, committed | `drain_limbo`, last unpin, revoking (`leases.rs`) |
//!
//! A sealed segment whose last item dies is claimed and retired at once.

use std::io;
use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::*};

use crate::epoch::epochs::Epochs;
use crate::log::offset::Offset;
use crate::log::segment_sums::SegmentSums;
use crate::mem::cache_padded::CachePadded;
use crate::mem::region::prefetch;
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

/// The number of a segment, or of a run's first segment.
pub(crate) type SegmentId = u32;

/// The metadata of a segment. Written by its owner, except the counters. All zeros: a segment that was never used.
#[cfg_attr(all(loom, test), derive(Default))]
pub(crate) struct Segment {
    /// SMALL or MAIN.
    pub(crate) queue: AtomicU8,
    pub(crate) group: AtomicU8,
    /// [`FREE`], [`OPEN`], [`SEALED`] or [`RECLAIMING`]. Changed by the functions of this file alone.
    state: sync::AtomicU8,
    /// Changes whenever the segment is opened or claimed, so that stale queue entries are recognised.
    pub(crate) generation: sync::AtomicU32,
    /// The flush mark when it was opened. Its items are flushed if the engine's mark is higher.
    pub(crate) flush_mark: AtomicU32,
    pub(crate) usage: Usage,
    /// The second from which all items are expired; u32::MAX: one never expires; 0: no item yet.
    pub(crate) expiry_max: AtomicU32,
    pub(crate) opened_secs: AtomicU32,
    /// Runs: the number of pins of readers beyond guards, and [`FREE_ON_UNPIN`].
    pub(crate) pins: AtomicU32,
    /// Runs: how often its leases were revoked (`leases.rs`).
    pub(crate) revocations: AtomicU32,
    /// Runs: address space in segments.
    pub(crate) run_segments: AtomicU32,
    /// Sum of the weights of the items appended (`priority.rs`); for a run, the weight of its item.
    pub(crate) weight: AtomicU32,
    /// The policy's clock when it was opened.
    pub(crate) opened_clock: AtomicU64,
    /// The garbage levels under which it is listed, as bits. Written under the queues' lock.
    pub(crate) listed: AtomicU8,
    /// Most of its holes stayed empty the last time: it is better compacted than refilled.
    pub(crate) has_unfilled_holes: AtomicBool,
    /// Its memory was moved to a large page.
    pub(crate) on_large_page: AtomicBool,
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

/// The counters that every store and overwrite changes. Every look-up reads the fields beside them. Only one line:
/// there are many segments.
#[cfg_attr(all(loom, test), derive(Default))]
#[repr(align(64))]
pub(crate) struct Usage {
    /// Bytes appended, written by its owner; for a run its memory.
    pub(crate) filled_bytes: sync::AtomicU64,
    /// ... of which of items that the index no longer points to; for a run also what its item leaves empty.
    pub(crate) dead_bytes: sync::AtomicU64,
}

impl Usage {
    /// Bytes of items that the index points to, or will in a moment. Never below the truth once the segment is sealed.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.filled_bytes.load(Relaxed).saturating_sub(self.dead_bytes.load(Acquire))
    }
}

// SAFETY: only atomic numbers.
#[allow(unsafe_code)]
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

/// The metadata of so many segments is committed at once.
const COMMITTED_STEP: u32 = 512;

impl Segment {
    /// Begins a new generation.
    pub(crate) fn open(&self, queue: usize, group: usize, flush_mark: u32, now: Now) {
        self.queue.store(queue as u8, Relaxed);
        self.group.store(group as u8, Relaxed);
        self.state.store(OPEN, Relaxed);
        self.generation.fetch_add(1, Relaxed);
        self.flush_mark.store(flush_mark, Relaxed);
        self.usage.filled_bytes.store(0, Relaxed);
        self.usage.dead_bytes.store(0, Relaxed);
        self.expiry_max.store(0, Relaxed);
        self.opened_secs.store(now.secs, Relaxed);
        self.pins.store(0, Relaxed);
        self.weight.store(0, Relaxed);
        self.has_unfilled_holes.store(false, Relaxed);
    }

    /// Begins a generation in which live items stay and holes of so many bytes count as filled.
    pub(crate) fn reopen(&self, hole_bytes: usize, now: Now) {
        self.generation.fetch_add(1, Relaxed);
        self.usage.dead_bytes.fetch_sub(hole_bytes as u64, Relaxed);
        self.opened_secs.store(now.secs, Relaxed);
    }

    /// From here on its items do not move, and any thread may claim it.
    pub(crate) fn seal(&self) {
        self.state.store(SEALED, Release);
    }

    /// Claims a sealed segment. False: another thread has claimed it. Its queue entries become stale.
    pub(crate) fn claim(&self) -> bool {
        let won = self.state.compare_exchange(SEALED, RECLAIMING, AcqRel, Relaxed).is_ok();
        if won {
            self.generation.fetch_add(1, Relaxed);
        }
        won
    }

    /// It has no owner, and nobody can find it.
    fn free(&self) {
        self.state.store(FREE, Relaxed);
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

    /// Acquire: everything that preceded the state change is visible.
    pub(crate) fn state(&self) -> u8 {
        self.state.load(Acquire)
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

/// Free segments. Locked once per segment.
pub(crate) struct Pool {
    /// Free segments that have memory and no readers.
    ready: Vec<SegmentId>,
    /// Free segments without memory that were in use.
    reserved: Vec<SegmentId>,
    /// Segments that were never in use: many, where the limit may be raised far.
    unused: Range<SegmentId>,
}

impl Pool {
    fn new(segments: u32) -> Self {
        Self { ready: Vec::new(), reserved: Vec::new(), unused: 0..segments }
    }

    /// Takes one, if there are more than `kept`.
    pub(crate) fn take_ready(&mut self, kept: usize) -> Option<SegmentId> {
        if self.ready.len() > kept { self.ready.pop() } else { None }
    }

    pub(crate) fn take_reserved(&mut self) -> Option<SegmentId> {
        self.reserved.pop().or_else(|| self.unused.next())
    }

    pub(crate) fn put_ready(&mut self, id: SegmentId) {
        self.ready.push(id);
    }

    pub(crate) fn put_reserved(&mut self, id: SegmentId) {
        self.reserved.push(id);
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
    pool: CachePadded<Mutex<Pool>>,
    pub(crate) sums: CachePadded<SegmentSums>,
    /// Segments that are ready to be opened: a hint that needs no lock.
    pub(crate) ready_count: CachePadded<AtomicU32>,
    /// Below these numbers segments, and runs, have metadata.
    committed_ends: [AtomicU32; 2],
    /// What all segments with memory can hold: less than their size if the ends of sealed ones stayed empty.
    pub(crate) capacity_bytes: AtomicU64,
}

impl Segments {
    pub(crate) fn new(log_segments: u32, run_segments: u32, segment_bytes: usize) -> io::Result<Self> {
        let segments = Self {
            all: Table::reserve((log_segments + run_segments) as usize)?,
            log_segments,
            segment_bytes,
            segment_power: segment_bytes.ilog2(),
            pool: CachePadded::new(Mutex::new(Pool::new(log_segments))),
            sums: CachePadded::default(),
            ready_count: CachePadded::default(),
            committed_ends: [AtomicU32::new(0), AtomicU32::new(log_segments)],
            capacity_bytes: AtomicU64::new(0),
        };
        // Searches begin with the first, whether or not it was ever in use.
        if segments.commit(0) { Ok(segments) } else { Err(io::ErrorKind::OutOfMemory.into()) }
    }

    /// To be called before a segment or run gets memory. Commits the metadata of it and of all before it, which are
    /// scanned as well. False: the system has no memory for that.
    #[must_use]
    pub(crate) fn commit(&self, id: SegmentId) -> bool {
        let is_run = self.is_run(id);
        let (committed_end, end) = (&self.committed_ends[usize::from(is_run)], self.all.len() as SegmentId);
        let start = committed_end.load(Relaxed);
        if id < start {
            return true;
        }
        let end = (id + 1).next_multiple_of(COMMITTED_STEP).min(if is_run { end } else { self.log_segments });
        // Others may commit the same meanwhile.
        let is_committed = self.all.commit(start as usize..end as usize);
        if is_committed {
            committed_end.fetch_max(end, Relaxed);
        }
        is_committed
    }

    /// The number of segments and runs that were ever in use, with the segments between runs.
    pub(crate) fn used_count(&self) -> usize {
        self.log_ids().len() + self.run_ids().len()
    }

    pub(crate) fn get(&self, id: SegmentId) -> &Segment {
        &self.all[id as usize]
    }

    /// The segment or run of an item at this offset.
    #[inline]
    pub(crate) fn segment_ref_at(&self, offset: Offset) -> SegmentRef<'_> {
        self.segment_ref(self.id_at(offset))
    }

    pub(crate) fn segment_ref(&self, id: SegmentId) -> SegmentRef<'_> {
        SegmentRef { segment: self.get(id), id, is_run: self.is_run(id) }
    }

    /// Prefetches a segment's metadata.
    pub(crate) fn prefetch(&self, id: SegmentId) {
        let segment = self.get(id);
        prefetch((&raw const segment.state).cast());
        prefetch((&raw const segment.usage).cast());
    }

    /// The segment, or the run's first segment, that holds an offset at which an item starts.
    #[inline]
    pub(crate) fn id_at(&self, offset: Offset) -> SegmentId {
        self.id_at_byte(offset.bytes())
    }

    /// The same for any byte of the log.
    #[inline]
    pub(crate) fn id_at_byte(&self, byte: usize) -> SegmentId {
        (byte >> self.segment_power) as SegmentId
    }

    /// The place of the first item, once there is one.
    pub(crate) fn first(&self, id: SegmentId) -> Offset {
        Offset::new(self.start(id))
    }

    /// The end of the items, for a segment that is not open.
    pub(crate) fn end(&self, id: SegmentId) -> Offset {
        Offset::new(self.start(id) + self.get(id).usage.filled_bytes.load(Relaxed) as usize)
    }

    /// In bytes from the start of the log.
    pub(crate) fn start(&self, id: SegmentId) -> usize {
        (id as usize) << self.segment_power
    }

    pub(crate) fn is_run(&self, id: SegmentId) -> bool {
        id >= self.log_segments
    }

    /// Keeps a claimed segment until its holes can be filled: once every guard has ended that is pinned in the returned
    /// epoch, or an earlier one.
    pub(crate) fn hold_for_refill(&self, id: SegmentId, epochs: &Epochs) -> u64 {
        // From here on nobody begins to walk it ...
        self.get(id).state.store(OPEN, Release);
        // ... and every guard that is walking it, or still reads an item that was unlinked before its mark was seen, is
        // pinned in this epoch or an earlier one.
        fence(Acquire);
        epochs.retire()
    }

    /// Works on the free list, and updates the hint.
    pub(crate) fn with_pool<R>(&self, work: impl FnOnce(&mut Pool) -> R) -> R {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let result = work(&mut pool);
        self.ready_count.store(pool.ready_count() as u32, Relaxed);
        result
    }

    /// Counts a segment or run that was opened.
    pub(crate) fn note_opened(&self, id: SegmentId) {
        let (segment_ref, opened_secs) = (self.segment_ref(id), self.get(id).opened_secs.load(Relaxed));
        self.sums.add(segment_ref.queue(), self.memory_bytes(id), opened_secs);
        self.sums.note_use(if segment_ref.is_run { id - self.log_segments } else { id }, segment_ref.is_run);
    }

    /// Counts it no longer, as it is about to be freed or opened again.
    pub(crate) fn note_closed(&self, id: SegmentId) {
        let opened_secs = self.get(id).opened_secs.load(Relaxed);
        self.sums.remove(self.segment_ref(id).queue(), self.memory_bytes(id), opened_secs);
    }

    /// Frees a claimed segment, or an open one that stayed empty. It is then retired, or returned to the pool.
    pub(crate) fn free(&self, id: SegmentId) {
        self.note_closed(id);
        self.get(id).free();
    }

    /// The segments of the log proper that were ever in use.
    pub(crate) fn log_ids(&self) -> Range<SegmentId> {
        0..self.sums.segments_end()
    }

    /// The same for runs, including the segments between them.
    pub(crate) fn run_ids(&self) -> Range<SegmentId> {
        self.log_segments..self.log_segments + self.sums.runs_end()
    }

    /// All segments and runs that may hold something.
    pub(crate) fn ids(&self) -> impl Iterator<Item = SegmentId> {
        self.log_ids().chain(self.run_ids())
    }

    /// The segment after this one, cyclically.
    pub(crate) fn next_id(&self, id: SegmentId) -> SegmentId {
        let next = id + 1;
        let (segments, runs) = (self.log_ids(), self.run_ids());
        if segments.contains(&next) || runs.contains(&next) {
            next
        } else if next <= runs.start && !runs.is_empty() {
            runs.start
        } else {
            0
        }
    }

    pub(crate) fn memory_bytes(&self, id: SegmentId) -> u64 {
        if self.is_run(id) {
            self.get(id).usage.filled_bytes.load(Relaxed)
        } else {
            self.segment_bytes as u64
        }
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
        limbo: Limbo<SegmentId>,
        memory: UnsafeCell<u64>,
    }

    impl World {
        fn new() -> Self {
            let world = Self {
                segments: Segments::new(1, 0, 1 << 14).expect("a vector"),
                epochs: Epochs::new(2),
                limbo: Limbo::default(),
                memory: UnsafeCell::new(0),
            };
            assert_eq!(world.segments.with_pool(|pool| pool.take_reserved()), Some(0));
            world.fill(1);
            world
        }

        /// Opens it, writes, and seals it.
        fn fill(&self, value: u64) {
            self.segments.get(0).open(SMALL, 0, 0, NOW);
            self.segments.note_opened(0);
            self.write(value);
            self.segments.get(0).usage.filled_bytes.store(64, Relaxed);
            self.segments.get(0).seal();
        }

        #[allow(unsafe_code)]
        fn write(&self, value: u64) {
            // SAFETY: the model checker ends the test if another thread is there.
            self.memory.with_mut(|memory| unsafe { *memory = value });
        }

        /// Reads it under a guard, if it is sealed.
        #[allow(unsafe_code)]
        fn walk(&self) {
            self.epochs.pin(0);
            if self.segments.get(0).is_walkable() {
                // SAFETY: as above.
                let value = self.memory.with(|memory| unsafe { *memory });
                assert!([1, 2].contains(&value), "{value}");
            }
            self.epochs.unpin(0);
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
            assert!(world.segments.get(0).claim());
            world.segments.free(0);
            world.limbo.push(0, 64, &world.epochs);
            world.limbo.drain(world.epochs.horizon(), 1, |_| {
                world.write(0);
                world.fill(2);
            });
        });
    }

    #[test]
    fn nobody_reads_a_hole_that_is_filled() {
        model(|world| {
            assert!(world.segments.get(0).claim());
            let tag = world.segments.hold_for_refill(0, &world.epochs);
            if world.epochs.horizon() > tag {
                world.write(0);
                world.segments.get(0).reopen(0, NOW);
                world.write(2);
                world.segments.get(0).seal();
            }
        });
    }
}
