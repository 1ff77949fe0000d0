//! The engine itself: what all handles share, and how memory comes back to it.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError};

use crate::epoch::epochs::Epochs;
use crate::epoch::limbo::{Limbo, Retired};
use crate::handle::Handle;
use crate::index::buckets::{Entry, Index};
use crate::index::hash::HashKey;
use crate::inspect::stats::{Counters, Stats};
use crate::log::item::ItemRef;
use crate::log::runs::Runs;
use crate::log::segment::{GROUPS, SegmentId, SegmentRef, Segments};
use crate::log::writer::Parked;
use crate::mem::budget::Budget;
use crate::mem::cache_padded::CachePadded;
use crate::mem::large_pages::{LargePages, Mover};
use crate::mem::region::{PAGE_BYTES, Region};
use crate::ops::cas::CasValues;
use crate::policy::ghost::Ghost;
use crate::policy::priority::CLASSES;
use crate::reclaim::over_provisioning::{OverProvisioning, kept_segments};
use crate::request::{Miss, Now};

const SEGMENT_BYTES_MIN: usize = 16 << 10;
const SEGMENT_BYTES_MAX: usize = 1 << 20;
/// Segments and runs that come back at a time.
const RECLAIM_STEP: usize = 2;
/// By so many segments the index may exceed the limit before the next eviction gives them back.
const OVERDRAFT_SEGMENTS: u64 = 4;
/// Overflow buckets of the index come back once so many wait.
const BUCKETS_STEP: usize = 16;
/// How far the limit may be raised later, at most. Address space alone is set aside for it.
const GROWTH_FACTOR_MAX: usize = 4;
/// At least, unless the memory is too small.
const SEGMENTS_PER_HANDLE: usize = 16;
/// The part of its share of the segments that a handle keeps open at most, if items can go to those that are open: a sixteenth of
/// the memory would be empty.
const OPEN_PART: usize = 8;
/// After a flush its items are left to be found for so long, so that whoever asks is told "flushed" and not "absent";
/// memcached behaves the same. Memory that is wanted takes them at once.
const FLUSH_GRACE_SECS: u32 = 3;

/// How a cache is to be built.
#[derive(Clone, Debug)]
pub struct Config {
    /// All memory of the cache: index, ghost, segments, large values. At least 1 MiB.
    pub memory_bytes: u64,
    /// Largest item, counted as memcached counts it: key + value + 59 bytes (+ 4 with client flags). At most 1 GiB.
    pub item_bytes_max: u32,
    /// Evict when full; otherwise stores fail (`-M`).
    pub evict: bool,
    /// How many [`Handle`]s will exist at once, at most.
    pub handles_max: usize,
    /// log2 of the number of index buckets at the start; `None`: from `memory_bytes`. The index grows by itself; a start near
    /// the final size spares it the work.
    pub index_power: Option<u8>,
    /// What lies on pages of 2 MiB, where the system has some.
    pub large_pages: LargePages,
    /// Key of the hash function; random, so that nobody can choose colliding keys.
    pub hash_key: [u64; 2],
}

/// The cache. Shared by all threads; each works on it through a [`Handle`] of its own.
pub struct Engine {
    // Constant after construction.
    pub(crate) item_bytes_max: u32,
    pub(crate) evict: bool,
    pub(crate) large_pages: LargePages,
    /// TTL groups in use.
    pub(crate) groups: usize,
    /// Classes of worth in use.
    pub(crate) classes: usize,
    /// So many segments a handle keeps open for lines of their own: on average they are half empty.
    pub(crate) open_max: usize,
    /// So few segments that handles which keep some open while they do nothing may leave none to others.
    pub(crate) is_crowded: bool,
    pub(crate) parked: CachePadded<Parked>,
    /// Free segments to keep at hand, so that a store need not wait for readers to leave an evicted one; without eviction those that are left to
    /// gaps as well (`over_provisioning.rs`). Changes with the limit.
    free_target: AtomicU32,
    /// The system had no more memory the last time: there is less than the limit says.
    is_refused: AtomicBool,
    /// Free segments that only compaction may take: without eviction, what is dead comes back by moving what lives, and that
    /// needs a place first. One a handle, as each has its own open segments. None with eviction.
    reserve: usize,
    pub(crate) over_provisioning: CachePadded<OverProvisioning>,
    pub(crate) hash_key: HashKey,
    pub(crate) log: Region,
    pub(crate) index: Index,
    pub(crate) ghost: Ghost,
    pub(crate) segments: Segments,
    pub(crate) runs: CachePadded<Runs>,
    pub(crate) budget: CachePadded<Budget>,
    pub(crate) epochs: Epochs,
    pub(crate) counters: Box<[Counters]>,
    pub(crate) cas_values: CasValues,

    /// Counts flushes; a segment opened under an earlier mark is flushed.
    pub(crate) flush_mark: AtomicU32,
    /// When the next flush is due; 0: none is pending.
    flush_at: AtomicU32,
    flushed_secs: AtomicU32,
    /// The time of the last background step.
    ticked_secs: AtomicU32,
    pub(crate) mover: CachePadded<Mover>,

    /// Segments and runs.
    limbo: CachePadded<Limbo>,
    /// Overflow buckets of the index. They are many and small: among the segments, whoever wants one would have to work off
    /// thousands of them first.
    limbo_buckets: CachePadded<Limbo>,
    handles_free: Mutex<Vec<usize>>,
    reset: Mutex<Stats>,
}

impl Engine {
    /// Reserves the memory; none is used before items come.
    ///
    /// Errors: the configuration makes no sense (`InvalidInput`), or the system refuses the address space.
    pub fn new(config: Config) -> io::Result<Arc<Self>> {
        Self::new_within(config, u64::MAX)
    }

    /// The same for a process that has so much address space left for it. Twelve times the memory is plenty: the limit
    /// may be raised to four times what it is. With less (but about two times and a half at least) it may be raised by
    /// less, and large values may find no room in one piece.
    ///
    /// Errors: as of [`Engine::new`]; also if it is too little (`OutOfMemory`).
    pub fn new_within(config: Config, address_space_bytes: u64) -> io::Result<Arc<Self>> {
        let mut factor = GROWTH_FACTOR_MAX;
        loop {
            match Self::reserve(&config, factor, address_space_bytes) {
                Err(error) if error.kind() == io::ErrorKind::OutOfMemory && factor > 1 => factor /= 2,
                reserved => return reserved,
            }
        }
    }

    /// Reserves `factor` times the address space that the memory needs: for a limit that is raised, and twice as much
    /// for large items. Runs are never moved, so room that is free but in pieces should not run out before the memory
    /// does.
    fn reserve(config: &Config, factor: usize, address_space_bytes: u64) -> io::Result<Arc<Self>> {
        let memory_bytes = usize::try_from(config.memory_bytes).unwrap_or(usize::MAX);
        if !(1 << 20..=1 << 41).contains(&memory_bytes) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "memory must be 1 MiB to 2 TiB"));
        }
        if config.item_bytes_max > 1 << 30 || config.handles_max == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "items of at most 1 GiB, at least one handle",
            ));
        }
        let segment_bytes = segment_bytes(memory_bytes, config.handles_max);
        let log_segments = memory_bytes / segment_bytes;
        let item_segments = (config.item_bytes_max as usize).div_ceil(segment_bytes) + 1;
        // An entry of the index has room for so many addresses.
        let segments_max = crate::index::buckets::LOG_BYTES_MAX / segment_bytes;
        let reserved_segments = (factor * log_segments).min(segments_max / 2);
        let run_segments = (factor * log_segments.max(item_segments)).min(segments_max - reserved_segments);
        let budget = Budget::new(config.memory_bytes);
        let buckets = match config.index_power {
            Some(power) => 1 << power.min(32),
            None => (memory_bytes >> 16).next_power_of_two().clamp(64, 1 << 16),
        };
        if buckets * 64 > memory_bytes / 2 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the index would take most of the memory",
            ));
        }
        let reserve = if config.evict { 0 } else { config.handles_max.min(log_segments / 8).max(1) };
        let log_bytes = (reserved_segments + run_segments) * segment_bytes;
        let needed_bytes = log_bytes + Index::reserved_bytes(factor * memory_bytes, buckets);
        if needed_bytes as u64 > address_space_bytes {
            let (needed_mib, left_mib) = (needed_bytes.div_ceil(1 << 20), address_space_bytes >> 20);
            let error = format!("it needs {needed_mib} MiB of addresses, and {left_mib} MiB are left");
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, error));
        }
        let index = Index::new(factor * memory_bytes, buckets, &budget)?;
        let ghost = Ghost::new(if config.evict { memory_bytes / 64 } else { 0 })?;
        let log = Region::reserve(log_bytes)?;
        if config.large_pages == LargePages::FromTheStart {
            log.prefer_large_pages();
        }
        let segments = Segments::new(reserved_segments as u32, run_segments as u32, segment_bytes)?;
        budget.force(ghost.bytes());
        budget.force((log_segments * size_of::<crate::log::segment::Segment>()) as u64);
        Ok(Arc::new(Self {
            item_bytes_max: config.item_bytes_max,
            evict: config.evict,
            large_pages: config.large_pages,
            is_crowded: log_segments < SEGMENTS_PER_HANDLE * config.handles_max,
            groups: if log_segments / config.handles_max >= 48 { GROUPS } else { 2 },
            classes: classes(log_segments, config),
            open_max: (log_segments / config.handles_max / OPEN_PART).max(2),
            free_target: AtomicU32::new(if config.evict {
                (2 + config.handles_max as u32 / 8).min(log_segments as u32 / 16)
            } else {
                kept_segments(config.memory_bytes, segment_bytes, reserve)
            }),
            is_refused: AtomicBool::new(false),
            reserve,
            parked: CachePadded::default(),
            over_provisioning: CachePadded::default(),
            hash_key: HashKey::new(config.hash_key),
            log,
            index,
            ghost,
            segments,
            runs: CachePadded::new(Runs::new(reserved_segments as u32, run_segments as u32)),
            budget: CachePadded::new(budget),
            epochs: Epochs::new(config.handles_max),
            counters: (0..config.handles_max).map(|_| Counters::default()).collect(),
            cas_values: CasValues::new(config.handles_max),
            flush_mark: AtomicU32::new(0),
            flush_at: AtomicU32::new(0),
            flushed_secs: AtomicU32::new(0),
            ticked_secs: AtomicU32::new(0),
            mover: CachePadded::default(),
            limbo: CachePadded::default(),
            limbo_buckets: CachePadded::default(),
            handles_free: Mutex::new((0..config.handles_max).rev().collect()),
            reset: Mutex::default(),
        }))
    }

    /// For machines with several memory nodes (NUMA): spreads the index and the ghost, which every thread looks into at random, over these
    /// nodes, page by page; for the rest of its life, but for what was touched already. Items lie where the thread runs that first writes
    /// to their segment. False, and nothing has changed: it was settled for this thread where its memory comes from (`numactl`).
    ///
    /// Errors: there are no such nodes, or the process may not choose. The cache is as good as before.
    pub fn spread_over(&self, nodes: &[u32]) -> io::Result<bool> {
        if crate::mem::numa::has_policy()? {
            return Ok(false);
        }
        self.index.interleave(nodes)?;
        self.ghost.interleave(nodes)?;
        Ok(true)
    }

    /// A handle for one thread. `None` when `handles_max` are out already; a dropped handle makes room.
    pub fn handle(self: &Arc<Self>) -> Option<Handle> {
        let id = self.handles_free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some(Handle::new(Arc::clone(self), id))
    }

    pub(crate) fn take_back_handle(&self, id: usize) {
        self.handles_free.lock().unwrap_or_else(PoisonError::into_inner).push(id);
    }

    /// Changes [`Config::memory_bytes`] while the cache is in use. With less, items are evicted and memory is given back as stores and
    /// background steps come by; without eviction nothing can be stored until enough is deleted. False, and nothing has
    /// changed: more than address space was reserved for, which is four times what the cache was built with unless that
    /// was scarce ([`Engine::new_within`]).
    pub fn set_memory_limit(&self, memory_bytes: u64) -> bool {
        let reserved_bytes = self.segments.log_segments as u64 * self.segments.segment_bytes as u64;
        if memory_bytes > reserved_bytes {
            return false;
        }
        self.budget.set_limit_bytes(memory_bytes);
        if !self.evict {
            let kept = kept_segments(memory_bytes, self.segments.segment_bytes, self.reserve);
            self.free_target.store(kept, Relaxed);
        }
        true
    }

    /// The limit as it is now.
    pub fn memory_limit(&self) -> u64 {
        self.budget.limit_bytes()
    }

    /// Values of this many bytes and more have memory of their own, and count as large (`Stats::queues`).
    pub fn large_value_bytes(&self) -> u32 {
        self.large_item_bytes() as u32
    }

    /// Items of more bytes than this get a run of their own.
    pub(crate) fn large_item_bytes(&self) -> usize {
        self.segments.segment_bytes / 2
    }

    /// Everything stored before second `at` is gone from then on; `None`: gone now. One mark exists: a new call
    /// replaces a pending one.
    pub fn flush(&self, now: Now, at: Option<u32>) {
        self.flush_at.store(at.unwrap_or(0), Relaxed);
        if at.is_none() {
            self.flush_now(now);
        }
    }

    /// Forgets a pending flush.
    pub fn cancel_flush(&self) {
        self.flush_at.store(0, Relaxed);
    }

    /// Carries out a pending flush whose time has come.
    pub(crate) fn flush_if_due(&self, now: Now) {
        let at = self.flush_at.load(Relaxed);
        if at != 0 && at <= now.secs && self.flush_at.compare_exchange(at, 0, Relaxed, Relaxed).is_ok() {
            self.flush_now(now);
        }
    }

    fn flush_now(&self, now: Now) {
        self.flushed_secs.store(now.secs, Relaxed);
        self.flush_mark.fetch_add(1, Release);
    }

    pub(crate) fn tick(&self, now: Now) {
        self.ticked_secs.store(now.secs, Relaxed);
    }

    /// May the background step remove flushed items yet?
    pub(crate) fn is_flush_settled(&self, now: Now) -> bool {
        now.secs >= self.flushed_secs.load(Relaxed).saturating_add(FLUSH_GRACE_SECS)
    }

    /// The item behind an entry. The entry must have been read under the caller's present guard.
    pub(crate) fn item(&self, entry: Entry) -> ItemRef {
        self.item_at(entry.offset())
    }

    /// The item at an offset of the log; the same condition.
    #[allow(unsafe_code)]
    pub(crate) fn item_at(&self, offset: usize) -> ItemRef {
        // SAFETY: offsets come from the index or from walking a sealed segment, in both cases with acquire ordering after
        // the item was written, and under a guard, so neither the segment nor a gap in it is used again before the guard ends. Turns are the only
        // way to get here (`Guard` and its modules, and splits of the index, which a store under a guard carries out).
        unsafe { ItemRef::at(&self.log, offset) }
    }

    /// Is the item at this offset alive?
    pub(crate) fn liveness(&self, offset: usize, item: ItemRef, now: Now) -> Result<(), Miss> {
        self.liveness_in(self.segments.segment_ref_at(offset), item, now)
    }

    /// The same where it is known in which segment it lies.
    #[inline]
    pub(crate) fn liveness_in(
        &self,
        segment_ref: SegmentRef<'_>,
        item: ItemRef,
        now: Now,
    ) -> Result<(), Miss> {
        if segment_ref.segment.flush_mark.load(Relaxed) != self.flush_mark.load(Acquire) {
            return Err(Miss::Flushed);
        }
        if item.expiry().is_past(now) { Err(Miss::Expired) } else { Ok(()) }
    }

    /// Fewer free segments than there should be, even when what is in limbo has come back?
    pub(crate) fn is_low(&self) -> bool {
        self.has_less_than(self.kept_bytes())
    }

    /// So few that segments should be emptied? Without eviction it is the better the longer it waits: more of them is dead then.
    pub(crate) fn is_short(&self) -> bool {
        if self.evict {
            return self.is_low();
        }
        self.has_less_than((2 * self.reserve * self.segments.segment_bytes) as u64)
    }

    /// So few that handles do without segments for lines of their own? Without eviction room in one of them is none for others.
    pub(crate) fn is_sparing(&self) -> bool {
        !self.evict && self.is_low()
    }

    /// Will it soon be so, if a segment or two are taken and none is emptied?
    pub(crate) fn is_nearly_low(&self) -> bool {
        self.has_less_than(self.kept_bytes() + 2 * self.segments.segment_bytes as u64)
    }

    /// Memory that should be free.
    pub(crate) fn kept_bytes(&self) -> u64 {
        u64::from(self.free_target.load(Relaxed)) * self.segments.segment_bytes as u64
    }

    fn has_less_than(&self, wanted_bytes: u64) -> bool {
        self.budget.limit_bytes() + self.spare_bytes() < self.budget.used_bytes() + wanted_bytes
    }

    /// Will a store find so much memory when the guards that run now have ended? Also where the limit was lowered, and more has to
    /// go than comes back.
    pub(crate) fn is_coming(&self, bytes: usize) -> bool {
        let unused_bytes = match self.is_refused.load(Relaxed) {
            true => 0,
            false => self.budget.limit_bytes().saturating_sub(self.budget.used_bytes()),
        };
        unused_bytes + self.spare_bytes() >= (bytes + self.reserve * self.segments.segment_bytes) as u64
    }

    /// Is so little free of the memory in use that stores will soon take some that never was used?
    pub(crate) fn would_grow(&self) -> bool {
        self.spare_bytes() < self.kept_bytes()
    }

    /// Memory that is free, or will be.
    fn spare_bytes(&self) -> u64 {
        let ready_segments = u64::from(self.segments.ready_count.load(Relaxed));
        ready_segments * self.segments.segment_bytes as u64 + self.runs.committed_bytes() + self.limbo.bytes()
    }

    /// A free segment, with memory, in nobody's sight. Leaves the reserve alone unless it is for compaction.
    pub(crate) fn take_segment(&self, for_compaction: bool) -> Option<SegmentId> {
        if !self.evict && !self.is_low() {
            self.over_provisioning.forget();
        }
        let kept = if for_compaction { 0 } else { self.reserve };
        let ready = || self.segments.with_pool(|pool| pool.take_ready(kept));
        if let Some(id) = ready() {
            return Some(id);
        }
        self.drain_limbo();
        if let Some(id) = ready() {
            return Some(id);
        }
        while self.is_reserve_low() {
            let id = self.add_segment()?;
            if for_compaction {
                return Some(id);
            }
            self.segments.with_pool(|pool| pool.put_ready(id));
        }
        self.add_segment()
    }

    /// Without eviction: is there what compaction needs? While not, also what is open is left to it: stores that filled that up would
    /// find no room until all of some segment is dead.
    pub(crate) fn has_reserve(&self) -> bool {
        if self.reserve == 0 || !self.is_reserve_low() {
            return true;
        }
        self.drain_limbo();
        while self.is_reserve_low() {
            let Some(id) = self.add_segment() else { return false };
            self.segments.with_pool(|pool| pool.put_ready(id));
        }
        true
    }

    /// Beyond the limit by little?
    fn is_overdrawn(&self) -> bool {
        let excess_bytes = self.budget.used_bytes().saturating_sub(self.budget.limit_bytes());
        (1..=OVERDRAFT_SEGMENTS * self.segments.segment_bytes as u64).contains(&excess_bytes)
    }

    /// Free segments for whoever needs one next?
    fn has_ready(&self) -> bool {
        !self.evict || self.segments.ready_count.load(Relaxed) >= self.free_target.load(Relaxed)
    }

    fn is_reserve_low(&self) -> bool {
        (self.segments.ready_count.load(Relaxed) as usize) < self.reserve
    }

    /// One segment more that has memory, if the budget allows.
    fn add_segment(&self) -> Option<SegmentId> {
        let bytes = self.segments.segment_bytes as u64;
        if !self.take_budget(bytes) {
            return None;
        }
        let Some(id) = self.segments.with_pool(|pool| pool.take_reserved()) else {
            self.budget.give(bytes);
            return None;
        };
        if !self.commit(self.segments.start(id), self.segments.segment_bytes) {
            self.segments.with_pool(|pool| pool.put_reserved(id));
            self.budget.give(bytes);
            return None;
        }
        self.segments.capacity_bytes.fetch_add(bytes, Relaxed);
        Some(id)
    }

    /// Makes memory of the log fit for use. False: the system has none.
    pub(crate) fn commit(&self, start: usize, bytes: usize) -> bool {
        let is_committed = self.log.commit(start, bytes);
        self.is_refused.store(!is_committed, Relaxed);
        is_committed
    }

    /// Charges memory for a run, giving up free segments for it if need be.
    pub(crate) fn take_bytes(&self, bytes: u64) -> bool {
        let mut given_bytes = 0;
        loop {
            if self.take_budget(bytes) {
                return true;
            }
            self.drain_limbo();
            match self.segments.with_pool(|pool| pool.take_ready(self.reserve)) {
                Some(id) => self.decommit_segment(id),
                None => return self.take_budget(bytes),
            }
            given_bytes += self.segments.segment_bytes as u64;
            // The limit was lowered: until what is beyond it has gone, memory only changes hands.
            if given_bytes >= bytes && self.budget.is_exceeded() {
                self.budget.force(bytes);
                return true;
            }
        }
    }

    /// Charges memory, giving up that of free runs if need be.
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

    /// Takes memory out of use; it comes back when no guard can see it any more. Unlink it first.
    pub(crate) fn retire(&self, what: Retired) {
        match what {
            Retired::Segment(id) | Retired::Run(id) | Retired::Revoked(id) => {
                self.limbo.push(what, self.segments.memory_bytes(id), &self.epochs);
            }
            Retired::Overflow(_) => {
                let waiting = self.limbo_buckets.push(what, 0, &self.epochs);
                // Whoever adds to them takes off twice as many, so that they never pile up.
                if waiting.is_multiple_of(BUCKETS_STEP) {
                    self.drain_limbo_buckets(2 * BUCKETS_STEP);
                }
            }
        }
    }

    /// Brings back what nobody can see any more; a little at a time, since a request waits for it.
    pub(crate) fn drain_limbo(&self) {
        self.drain_limbo_up_to(RECLAIM_STEP);
    }

    /// The same, up to so many.
    pub(crate) fn drain_limbo_up_to(&self, count_max: usize) {
        if !self.limbo.is_empty() {
            self.limbo.drain(self.epochs.horizon(), count_max, |what| self.reuse(what));
        }
    }

    pub(crate) fn drain_limbo_buckets(&self, count_max: usize) {
        if !self.limbo_buckets.is_empty() {
            self.limbo_buckets.drain(self.epochs.horizon(), count_max, |what| self.reuse(what));
        }
    }

    fn reuse(&self, what: Retired) {
        if let Retired::Segment(id) = what {
            self.poison(self.segments.start(id)..self.segments.start(id) + self.segments.segment_bytes);
        }
        match what {
            // The index took more than there was. Much more means that the limit was lowered: the background step sees to that.
            Retired::Segment(id) if self.is_overdrawn() && self.has_ready() && !self.is_reserve_low() => {
                self.decommit_segment(id);
            }
            Retired::Segment(id) => self.segments.with_pool(|pool| pool.put_ready(id)),
            Retired::Run(id) => self.free_run_on_unpin(id),
            Retired::Revoked(id) => self.free_run(id),
            Retired::Overflow(overflow) => self.index.reuse_overflow(overflow),
        }
    }

    /// Gives free memory beyond the limit back to the system, up to so many segments. True: there is more.
    pub(crate) fn shrink(&self, segments_max: usize) -> bool {
        for _ in 0..segments_max {
            if !self.budget.is_exceeded() {
                return false;
            }
            let Some(id) = self.segments.with_pool(|pool| pool.take_ready(self.reserve)) else {
                return false;
            };
            self.decommit_segment(id);
        }
        true
    }

    /// Is address space for large items on its way back?
    pub(crate) fn is_reclaiming_runs(&self) -> bool {
        self.limbo.has_runs()
    }

    /// Is memory on its way back?
    pub(crate) fn has_limbo(&self) -> bool {
        !self.limbo.is_empty()
    }

    /// Gives a free segment's memory back to the system.
    fn decommit_segment(&self, id: SegmentId) {
        self.segments.get(id).on_large_page.store(false, Relaxed);
        self.decommit(self.segments.start(id), self.segments.segment_bytes);
        self.segments.capacity_bytes.fetch_sub(self.segments.segment_bytes as u64, Relaxed);
        self.budget.give(self.segments.segment_bytes as u64);
        self.segments.with_pool(|pool| pool.put_reserved(id));
    }

    /// See `poison.rs`.
    #[allow(unsafe_code)]
    pub(crate) fn poison(&self, part: Range<usize>) {
        // SAFETY: callers pass memory of a free segment or run, or of a gap that is about to be filled: unlinked, past
        // every guard that could have seen it, unpinned, and not in the pool.
        unsafe { self.log.poison(part) }
    }

    #[allow(unsafe_code)]
    pub(crate) fn decommit(&self, start: usize, bytes: usize) {
        // SAFETY: callers pass memory of a free segment or run: unlinked, past every guard that could have seen it, unpinned,
        // and taken out of the pool.
        unsafe { self.log.decommit(start, bytes.next_multiple_of(PAGE_BYTES)) }
    }

    /// Sums the counters. Not on the request path.
    pub fn stats(&self) -> Stats {
        let mut stats = self.totals();
        stats.since(&self.reset.lock().unwrap_or_else(PoisonError::into_inner));
        stats
    }

    /// Zeroes the counters (not the gauges).
    pub fn reset_stats(&self) {
        *self.reset.lock().unwrap_or_else(PoisonError::into_inner) = self.totals();
    }

    fn totals(&self) -> Stats {
        let mut stats = Stats {
            memory_bytes: self.budget.limit_bytes(),
            memory_used_bytes: self.budget.used_bytes(),
            index_power: self.index.bucket_count().ilog2() as u8,
            index_bytes: self.index.bytes(),
            index_growing: self.index.is_growing(),
            ghost_bytes: self.ghost.bytes(),
            segment_bytes: self.segments.segment_bytes as u64,
            segments_free: u64::from(self.segments.ready_count.load(Relaxed)),
            ..Stats::default()
        };
        self.counters.iter().for_each(|counters| stats.sum(counters));
        let now_secs = self.ticked_secs.load(Relaxed);
        for (queue, sum) in stats.queues.iter_mut().zip(self.segments.sums.sums()) {
            queue.segments = sum.segments;
            queue.memory_bytes = sum.memory_bytes;
            queue.age_secs = sum.opened_secs.map_or(0, |opened| now_secs.saturating_sub(opened));
        }
        stats
    }
}

/// How finely items are told apart by their worth: every handle may keep a segment open for each class.
fn classes(log_segments: usize, config: &Config) -> usize {
    match log_segments / config.handles_max {
        // Nothing is chosen.
        _ if !config.evict => 1,
        0..48 => 2,
        _ => CLASSES,
    }
}

/// How long the segments of a cache are that is built with so much memory: some 512 of them, so that queues and TTL groups have something
/// to divide; shorter when many handles keep segments open.
pub fn segment_bytes(memory_bytes: usize, handles_max: usize) -> usize {
    let wanted = (memory_bytes / 512).min(memory_bytes / (SEGMENTS_PER_HANDLE * handles_max));
    let power = 1 << wanted.max(1).ilog2();
    power.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
}
