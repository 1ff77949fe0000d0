//! The engine: what all handles share. Construction, limits, flushes, counters.
//!
//! Its parts do the work: the arena for memory, the index for keys, the policy for what is kept.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError};

use crate::crash_points::crash_point;
use crate::epoch::limbo::Limbo;
use crate::handle::Handle;
use crate::index::buckets::Index;
use crate::index::hash::{Hash, HashKey};
use crate::inspect::stats::{Counters, Stats};
use crate::log::allocator::Parked;
use crate::log::arena::{Arena, ArenaConfig};
use crate::log::item::ItemRef;
use crate::log::large_pages::{LargePages, Mover};
use crate::log::offset::Offset;
use crate::log::segment::SegmentRef;
use crate::log::superblock::{Geometry, Superblock};
use crate::mem::cache_padded::CachePadded;
use crate::ops::backing::{Backing, Position};
use crate::ops::cas::CasValues;
use crate::policy::Policy;
use crate::policy::streams::Streams;
use crate::reclaim::over_provisioning::OverProvisioning;
use crate::reclaim::pressure::Watermarks;
use crate::request::{Expiry, Miss, Now};

pub(crate) const SEGMENT_BYTES_MIN: usize = 16 << 10;
pub(crate) const SEGMENT_BYTES_MAX: usize = 1 << 20;
/// Larger items have memory of their own, however large a segment is.
const LARGE_ITEM_BYTES_MAX: usize = 64 << 10;
/// Unlinked overflow buckets of the index are reused in steps of this many.
const BUCKETS_STEP: usize = 16;
/// The limit may be raised to this multiple later, unless [`Reservation`] says otherwise.
const GROWTH_FACTOR: u64 = 4;
/// With fewer segments a cache is crowded: see [`Engine::is_crowded`].
const SEGMENTS_PER_HANDLE: usize = 16;
/// There are at least so many, whatever the limit.
const LIMIT_SEGMENTS_MIN: usize = 8;
/// A handle keeps at most this part of its share of the segments open, as long as items can go to those that are open.
/// On average an open segment is half empty, so that is a sixteenth of the memory.
const OPEN_PART: usize = 8;
/// The largest that items may be allowed to be.
const ITEM_BYTES_MAX: u32 = 1 << 30;
/// For this long after a flush the background step leaves flushed items alone, so that a look-up reports "flushed" and
/// not "absent", as in memcached. Reclaiming for a store takes them at once.
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
    /// The largest number of [`Handle`]s at a time.
    pub handles_max: usize,
    /// log2 of the initial number of index buckets; `None`: from `memory_bytes`. The index grows by itself; starting
    /// near the final size saves that work.
    pub index_power: Option<u8>,
    /// What is moved to pages of 2 MiB, where the system has some.
    pub large_pages: LargePages,
    /// Key of the hash function; random, so that nobody can choose colliding keys.
    pub hash_key: [u64; 2],
}

/// The addresses that a cache sets aside at the start. They cost no memory until items come.
#[derive(Clone, Copy, Debug)]
pub struct Reservation {
    /// The highest limit that [`Engine::set_memory_limit`] may be asked for. [`Config::memory_bytes`], if that is more.
    pub memory_bytes_max: u64,
    /// What the process has left of its address space; `u64::MAX` without a limit.
    pub address_space_bytes: u64,
}

impl Reservation {
    /// For a limit of up to four times `memory_bytes`, and no more: for where addresses are scarce.
    pub fn modest(memory_bytes: u64, address_space_bytes: u64) -> Self {
        Self { memory_bytes_max: memory_bytes.saturating_mul(GROWTH_FACTOR), address_space_bytes }
    }
}

/// The cache. Shared by all threads; each works on it through a [`Handle`] of its own.
pub struct Engine {
    item_bytes_max: AtomicU32,
    // Constant after construction.
    pub(crate) evict: bool,
    pub(crate) large_pages: LargePages,
    /// As it was asked for. The arena has room for a few segments under any.
    memory_limit: AtomicU64,
    /// Segments of the log that the limit allows, beside what was charged for other things when it was set.
    limit_segments: AtomicUsize,
    pub(crate) parked: CachePadded<Parked>,
    pub(crate) watermarks: Watermarks,
    pub(crate) over_provisioning: CachePadded<OverProvisioning>,
    pub(crate) hash_key: HashKey,
    pub(crate) arena: Arena,
    pub(crate) index: Index,
    pub(crate) policy: Policy,
    pub(crate) counters: Box<[Counters]>,
    pub(crate) cas_values: CasValues,
    /// The store whose memory tier this is.
    pub(crate) backing: Option<Arc<dyn Backing>>,

    /// The number of flushes. A segment opened under a lower mark is flushed.
    pub(crate) flush_mark: AtomicU32,
    /// Seconds by which the wall clock is ahead of [`Now::secs`].
    wall_ahead_secs: AtomicI32,
    /// When the next flush is due; 0: none is pending.
    flush_at: AtomicU32,
    flushed_secs: AtomicU32,
    /// Flushes of an engine with a store, one at a time.
    flushing: Mutex<()>,
    /// The time of the last background step.
    ticked_secs: AtomicU32,
    pub(crate) mover: CachePadded<Mover>,

    /// Unlinked overflow buckets of the index. Apart from other limbo, since they are many and small: a store that
    /// wants a segment would have to drain thousands of them first.
    limbo_buckets: CachePadded<Limbo<u32>>,
    handles_free: Mutex<Vec<usize>>,
    reset: Mutex<Stats>,
}

impl Engine {
    /// Reserves the address space, for a limit of up to four times the memory; no memory is used before items come.
    ///
    /// Errors: the configuration makes no sense (`InvalidInput`), or the system refuses the address space.
    pub fn new(config: Config) -> io::Result<Arc<Self>> {
        let reservation = Reservation::modest(config.memory_bytes, u64::MAX);
        Self::new_within(config, reservation)
    }

    /// The same for any highest limit, and for a process whose address space is limited. About three times the highest
    /// limit is reserved. Where so much is not to be had, it is halved, down to `memory_bytes`, and large values may
    /// find no contiguous space.
    ///
    /// Errors: as of [`Engine::new`]; also `OutOfMemory` if the address space is too small.
    pub fn new_within(config: Config, reservation: Reservation) -> io::Result<Arc<Self>> {
        Self::new_backed(config, reservation, None)
    }

    /// The same with a store behind it: see [`Backing`].
    ///
    /// Errors: as of [`Engine::new_within`].
    pub fn new_backed(
        config: Config,
        reservation: Reservation,
        backing: Option<Arc<dyn Backing>>,
    ) -> io::Result<Arc<Self>> {
        let memory_bytes = config.memory_bytes;
        let mut memory_bytes_max = reservation.memory_bytes_max.max(memory_bytes);
        loop {
            match Self::reserve(&config, memory_bytes_max, reservation.address_space_bytes, backing.clone()) {
                Err(error)
                    if error.kind() == io::ErrorKind::OutOfMemory && memory_bytes_max > memory_bytes =>
                {
                    memory_bytes_max = (memory_bytes_max / 2).max(memory_bytes);
                }
                reserved => return reserved,
            }
        }
    }

    /// Reserves the address space that a limit of `memory_bytes_max` needs, and as much again for large items: runs are
    /// never moved, so fragmentation must not use up the address space before the memory.
    fn reserve(
        config: &Config,
        memory_bytes_max: u64,
        address_space_bytes: u64,
        backing: Option<Arc<dyn Backing>>,
    ) -> io::Result<Arc<Self>> {
        let geometry = Self::plan(config, memory_bytes_max)?;
        Self::build(config, geometry, Self::buckets_at_first(config), None, address_space_bytes, backing)
    }

    /// The layout of the log for such a limit. Errors: the configuration makes no sense.
    pub(crate) fn plan(config: &Config, memory_bytes_max: u64) -> io::Result<Geometry> {
        let memory_bytes = usize::try_from(config.memory_bytes).unwrap_or(usize::MAX);
        if !(1 << 20..=1 << 41).contains(&memory_bytes) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "memory must be 1 MiB to 2 TiB"));
        }
        if config.item_bytes_max > ITEM_BYTES_MAX || config.handles_max == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "items of at most 1 GiB, at least one handle",
            ));
        }
        let segment_bytes = segment_bytes(memory_bytes, config.handles_max);
        let log_segments = memory_bytes / segment_bytes;
        let item_segments = (config.item_bytes_max as usize).div_ceil(segment_bytes) + 1;
        // An index entry has bits for no more.
        let segments_max = crate::index::buckets::LOG_BYTES_MAX / segment_bytes;
        let memory_bytes_max = usize::try_from(memory_bytes_max).unwrap_or(usize::MAX);
        let reserved_segments = (memory_bytes_max / segment_bytes).min(segments_max / 2).max(log_segments);
        let items_max = (reserved_segments / log_segments).min(GROWTH_FACTOR as usize);
        let run_segments =
            reserved_segments.max(items_max * item_segments).min(segments_max - reserved_segments);
        if Self::buckets_at_first(config) * 64 > memory_bytes / 2 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the index would take most of the memory",
            ));
        }
        Ok(Geometry { segment_bytes, segments: reserved_segments as u32, run_segments: run_segments as u32 })
    }

    /// Buckets of the index to begin with.
    pub(crate) fn buckets_at_first(config: &Config) -> usize {
        match config.index_power {
            Some(power) => 1 << power.min(32),
            None => ((config.memory_bytes >> 16) as usize).next_power_of_two().clamp(64, 1 << 16),
        }
    }

    /// A cache with this layout, in memory or in the file of a superblock, which has room for its limit.
    pub(crate) fn build(
        config: &Config,
        geometry: Geometry,
        buckets: usize,
        superblock: Option<Arc<Superblock>>,
        address_space_bytes: u64,
        backing: Option<Arc<dyn Backing>>,
    ) -> io::Result<Arc<Self>> {
        let memory_bytes = config.memory_bytes as usize;
        let log_segments = memory_bytes / geometry.segment_bytes;
        let memory_bytes_max = geometry.segments as usize * geometry.segment_bytes;
        let needed_bytes = geometry.log_bytes() + Index::reserved_bytes(memory_bytes_max, buckets);
        if needed_bytes as u64 > address_space_bytes {
            let (needed_mib, left_mib) = (needed_bytes.div_ceil(1 << 20), address_space_bytes >> 20);
            let error = format!("it needs {needed_mib} MiB of addresses, and {left_mib} MiB are left");
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, error));
        }
        let arena = Arena::new(&ArenaConfig {
            memory_bytes: config.memory_bytes,
            geometry,
            handles_max: config.handles_max,
            superblock: superblock.clone(),
        })?;
        if config.large_pages == LargePages::FromTheStart {
            arena.region.prefer_large_pages();
        }
        let index = Index::new(memory_bytes_max, buckets, &arena.budget)?;
        let streams = Streams::new(log_segments / config.handles_max, config.evict);
        let policy = Policy::new(streams, if config.evict { memory_bytes / 64 } else { 0 })?;
        arena.budget.force(policy.ghost.bytes());
        let watermarks = Watermarks::new(config.evict, &arena, log_segments as u32, config.handles_max);
        Ok(Arc::new(Self {
            item_bytes_max: AtomicU32::new(config.item_bytes_max),
            evict: config.evict,
            large_pages: config.large_pages,
            memory_limit: AtomicU64::new(config.memory_bytes),
            limit_segments: AtomicUsize::new(log_segments),
            parked: CachePadded::default(),
            watermarks,
            over_provisioning: CachePadded::default(),
            hash_key: HashKey::new(
                superblock.as_ref().map_or(config.hash_key, |superblock| superblock.constants().hash_key),
            ),
            arena,
            index,
            policy,
            counters: (0..config.handles_max).map(|_| Counters::default()).collect(),
            cas_values: match &superblock {
                Some(superblock) => CasValues::kept_in(superblock, config.handles_max)?,
                None => CasValues::new(config.handles_max)?,
            },
            backing,
            flush_mark: AtomicU32::new(0),
            wall_ahead_secs: AtomicI32::new(0),
            flush_at: AtomicU32::new(0),
            flushed_secs: AtomicU32::new(0),
            flushing: Mutex::default(),
            ticked_secs: AtomicU32::new(0),
            mover: CachePadded::default(),
            limbo_buckets: CachePadded::default(),
            handles_free: Mutex::new((0..config.handles_max).rev().collect()),
            reset: Mutex::default(),
        }))
    }

    /// For machines with several memory nodes (NUMA): interleaves the index and the ghost, which every thread reads at
    /// random, over these nodes, except pages already touched. Items lie on the node of the thread that first writes to
    /// their segment. False: this thread has a memory policy already (`numactl`), and nothing has changed.
    ///
    /// Errors: there are no such nodes, or the process may not set a policy. The cache works as before.
    pub fn spread_over(&self, nodes: &[u32]) -> io::Result<bool> {
        if crate::mem::numa::has_policy()? {
            return Ok(false);
        }
        self.index.interleave(nodes)?;
        self.policy.ghost.interleave(nodes)?;
        Ok(true)
    }

    /// As [`Guard::prepare`](crate::Guard::prepare).
    #[inline]
    pub(crate) fn prepare(&self, key: &[u8]) -> Hash {
        let hash = self.hash_key.hash(key);
        self.index.prefetch(hash);
        hash
    }

    /// A handle for one thread. `None` if `handles_max` exist already. Dropping a handle makes room for another.
    pub fn handle(self: &Arc<Self>) -> Option<Handle> {
        let id = self.handles_free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some(Handle::new(Arc::clone(self), id))
    }

    /// # Safety
    /// The handle with this number pins nothing from here on.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn take_back_handle(&self, id: usize) {
        self.handles_free.lock().unwrap_or_else(PoisonError::into_inner).push(id);
    }

    /// Changes [`Config::memory_bytes`] while the cache is in use. Under a lower limit, stores and background steps
    /// evict and give memory back; without eviction nothing can be stored until enough is deleted. Index and ghost keep
    /// their size, and beside them the cache keeps room for a few segments, also under a limit that is lower. Idle
    /// handles may hold segments that others need now: look at [`Handle::is_holding`] again. False: the limit exceeds
    /// [`Engine::memory_limit_max`], and nothing has changed.
    pub fn set_memory_limit(&self, memory_bytes: u64) -> bool {
        if memory_bytes > self.memory_limit_max() {
            return false;
        }
        self.memory_limit.store(memory_bytes, Relaxed);
        let segment_bytes = self.arena.segments.segment_bytes;
        let fixed_bytes = self.index.bytes() + self.policy.ghost.bytes();
        let log_bytes = memory_bytes.saturating_sub(fixed_bytes) as usize;
        let log_bytes = log_bytes.max(LIMIT_SEGMENTS_MIN * segment_bytes);
        let limit_bytes = fixed_bytes + log_bytes as u64;
        self.arena.set_limit_bytes(limit_bytes);
        let log_segments = log_bytes / segment_bytes;
        self.watermarks.set_log_segments(&self.arena, log_segments as u32);
        self.limit_segments.store(log_segments, Relaxed);
        true
    }

    /// Changes [`Config::item_bytes_max`], up to 1 GiB, while the cache is in use. Items that are larger stay.
    /// Addresses were set aside for the size at the start: much larger items may find no contiguous space.
    pub fn set_item_bytes_max(&self, item_bytes_max: u32) {
        self.item_bytes_max.store(item_bytes_max.min(ITEM_BYTES_MAX), Relaxed);
    }

    /// The largest item.
    #[inline]
    pub fn item_bytes_max(&self) -> u32 {
        self.item_bytes_max.load(Relaxed)
    }

    /// True if there are so few segments that idle handles may hold all of them open.
    pub(crate) fn is_crowded(&self) -> bool {
        self.limit_segments.load(Relaxed) < SEGMENTS_PER_HANDLE * self.counters.len()
    }

    /// Segments that a handle keeps open, one for each write stream. On average they are half empty.
    pub(crate) fn open_max(&self) -> usize {
        (self.limit_segments.load(Relaxed) / self.counters.len() / OPEN_PART).max(2)
    }

    /// The limit that was set last.
    pub fn memory_limit(&self) -> u64 {
        self.memory_limit.load(Relaxed)
    }

    /// The highest limit for which addresses are reserved: see [`Engine::new_within`].
    pub fn memory_limit_max(&self) -> u64 {
        self.arena.segments.log_segments as u64 * self.arena.segments.segment_bytes as u64
    }

    /// True if more large values are being sent than may be evicted meanwhile: evicting a value would close the
    /// connection that it is sent on. Looks at all segments.
    pub fn has_many_readers(&self) -> bool {
        let (values, bytes) = self.arena.pinned_runs();
        values > 1 && bytes > self.memory_limit() / 4
    }

    /// Values of this many bytes and more have memory of their own, and count as large ([`Stats::queues`]).
    pub fn large_value_bytes(&self) -> u32 {
        self.large_item_bytes() as u32
    }

    /// Items larger than this get a run of their own.
    pub(crate) fn large_item_bytes(&self) -> usize {
        (self.arena.segments.segment_bytes / 2).min(LARGE_ITEM_BYTES_MAX)
    }

    /// Sets the number of seconds by which the wall clock of [`Expiry::at_wall`] is ahead of [`Now::secs`]. Call it
    /// again whenever that clock is set. Memory of items that had expired by the clock before it was set back may
    /// already be reused.
    pub fn set_wall_ahead(&self, secs: i32) {
        self.wall_ahead_secs.store(secs, Relaxed);
    }

    /// The second from which an item counts as expired, by the current wall clock; `None`: never.
    pub(crate) fn secs_of(&self, expiry: Expiry) -> Option<u32> {
        expiry.secs_with(self.wall_ahead_secs.load(Relaxed))
    }

    /// Converts an expiry by the wall clock to one on the scale of [`Now::secs`]; others are unchanged.
    #[inline]
    pub(crate) fn counted(&self, expiry: Expiry) -> Expiry {
        if expiry.is_by_wall() { self.secs_of(expiry).map_or(Expiry::NEVER, Expiry::at) } else { expiry }
    }

    /// True if an item with this expiry is expired.
    #[inline]
    pub(crate) fn is_past(&self, expiry: Expiry, now: Now) -> bool {
        expiry.is_past_with(now, self.wall_ahead_secs.load(Relaxed))
    }

    /// Flushes everything stored before second `at`, once that has come; `None`: now. Replaces a pending flush.
    /// Returns the position of the flush, or of the note of it, if there is a store: see [`Backing`].
    pub fn flush(&self, now: Now, at: Option<u32>) -> Option<Position> {
        self.set_flush_at(at.unwrap_or(0));
        match at {
            None => self.flush_now(now),
            Some(_) => self.backing.as_ref().map(|backing| backing.schedule_flush(at)),
        }
    }

    fn set_flush_at(&self, at: u32) {
        self.flush_at.store(at, Relaxed);
        if let Some(superblock) = &self.arena.superblock {
            superblock.set_pending_flush(self.flush_mark.load(Relaxed), at);
        }
    }

    /// Cancels a pending flush.
    pub fn cancel_flush(&self) -> Option<Position> {
        self.set_flush_at(0);
        self.backing.as_ref().map(|backing| backing.schedule_flush(None))
    }

    /// Carries out a pending flush that is due.
    #[inline]
    pub(crate) fn flush_if_due(&self, now: Now) {
        let at = self.flush_at.load(Relaxed);
        if at != 0 && at <= now.secs {
            self.flush_once(now, at);
        }
    }

    #[cold]
    fn flush_once(&self, now: Now, at: u32) {
        if self.flush_at.compare_exchange(at, 0, Relaxed, Relaxed).is_ok() {
            self.flush_now(now);
        }
    }

    fn flush_now(&self, now: Now) -> Option<Position> {
        self.flushed_secs.store(now.secs, Relaxed);
        let Some(backing) = &self.backing else {
            let before = self.flush_mark.fetch_add(1, Release);
            crash_point();
            if let Some(superblock) = &self.arena.superblock {
                superblock.note_flush(before.wrapping_add(1));
            }
            return None;
        };
        Some(self.flush_as(|| backing.flush()))
    }

    /// Drops all items from memory, of an engine with a store, while `flush` tells the store of a flush, and returns
    /// its position: what the store has counts again.
    pub fn flush_as(&self, flush: impl FnOnce() -> Position) -> Position {
        // Odd while the flush takes its position: see `is_flushing`.
        let _one_at_a_time = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        self.flush_mark.fetch_add(1, AcqRel);
        let position = flush();
        self.flush_mark.fetch_add(1, AcqRel);
        position
    }

    /// With a store: true if a flush has begun since this segment was opened, or was under way then. If not, a change
    /// that has its position by now has a lower one than any later flush: a flush raises the mark before it takes its
    /// position, and positions are taken from one counter.
    pub(crate) fn is_flushing(&self, segment_ref: SegmentRef<'_>) -> bool {
        let mark = self.flush_mark.load(Acquire);
        !mark.is_multiple_of(2) || segment_ref.segment.flush_mark.load(Relaxed) != mark
    }

    /// A mark for [`Engine::have_guards_ended`].
    pub fn mark_guards(&self) -> u64 {
        self.arena.epochs.retire()
    }

    /// True if all guards that existed at the mark have ended, and thereby all changes that were under way.
    pub fn have_guards_ended(&self, mark: u64) -> bool {
        self.arena.epochs.horizon() > mark
    }

    /// Goes on from the flushes of an earlier process, before anything else.
    pub(crate) fn resume_flushes(&self, flush_mark: u32, flush_at: u32) {
        self.flush_mark.store(flush_mark, Release);
        if let Some(superblock) = &self.arena.superblock {
            superblock.note_flush(flush_mark);
        }
        self.set_flush_at(flush_at);
    }

    pub(crate) fn tick(&self, now: Now) {
        self.ticked_secs.store(now.secs, Relaxed);
        if let Some(superblock) = &self.arena.superblock {
            superblock.tick(now.secs, self.index.items());
        }
    }

    /// Takes all handles, for good. False: some are out.
    pub(crate) fn close_handles(&self) -> bool {
        let mut free = self.handles_free.lock().unwrap_or_else(PoisonError::into_inner);
        let is_all = free.len() == self.counters.len();
        if is_all {
            free.clear();
        }
        is_all
    }

    /// True if the background step may remove flushed items.
    pub(crate) fn is_flush_settled(&self, now: Now) -> bool {
        now.secs >= self.flushed_secs.load(Relaxed).saturating_add(FLUSH_GRACE_SECS)
    }

    /// Whether the item at this offset is alive, or why not.
    pub(crate) fn liveness(&self, offset: Offset, item: ItemRef<'_>, now: Now) -> Result<(), Miss> {
        self.liveness_in(self.arena.segments.segment_ref_at(offset), item, now)
    }

    /// The same for a caller that knows the item's segment.
    #[inline]
    pub(crate) fn liveness_in(
        &self,
        segment_ref: SegmentRef<'_>,
        item: ItemRef<'_>,
        now: Now,
    ) -> Result<(), Miss> {
        if segment_ref.segment.flush_mark.load(Relaxed) != self.flush_mark.load(Acquire) {
            return Err(Miss::Flushed);
        }
        if self.is_past(item.expiry(), now) { Err(Miss::Expired) } else { Ok(()) }
    }

    /// Retires an overflow bucket of the index. It is reused once no guard can see it.
    pub(crate) fn retire_overflow(&self, overflow: u32) {
        let waiting = self.limbo_buckets.push(overflow, 0, &self.arena.epochs);
        // Each step drains more than it adds, so that they never pile up.
        if waiting.is_multiple_of(BUCKETS_STEP) {
            self.drain_limbo_buckets(2 * BUCKETS_STEP);
        }
    }

    pub(crate) fn drain_limbo_buckets(&self, count_max: usize) {
        if !self.limbo_buckets.is_empty() {
            let reuse = |overflow| self.index.reuse_overflow(overflow);
            self.limbo_buckets.drain(&self.arena.epochs, count_max, reuse);
        }
    }

    /// Adds up the counters. Not on the request path.
    pub fn stats(&self) -> Stats {
        let mut stats = self.totals();
        stats.since(&self.reset.lock().unwrap_or_else(PoisonError::into_inner));
        stats
    }

    /// Resets the counters (not the gauges).
    pub fn reset_stats(&self) {
        *self.reset.lock().unwrap_or_else(PoisonError::into_inner) = self.totals();
    }

    fn totals(&self) -> Stats {
        let mut stats = Stats {
            memory_bytes: self.arena.budget.limit_bytes(),
            memory_used_bytes: self.arena.budget.used_bytes(),
            index_power: self.index.bucket_count().ilog2() as u8,
            index_bytes: self.index.bytes(),
            index_growing: self.index.is_growing(),
            ghost_bytes: self.policy.ghost.bytes(),
            segment_bytes: self.arena.segments.segment_bytes as u64,
            segments_free: u64::from(self.arena.segments.ready_count.load(Relaxed)),
            ..Stats::default()
        };
        stats.free_bytes = stats.segments_free * stats.segment_bytes;
        self.counters.iter().for_each(|counters| stats.sum(counters));
        let now_secs = self.ticked_secs.load(Relaxed);
        for (queue, sum) in stats.queues.iter_mut().zip(self.arena.segments.sums.sums()) {
            queue.segments = sum.segments;
            queue.memory_bytes = sum.memory_bytes;
            queue.age_secs = sum.opened_secs.map_or(0, |opened| now_secs.saturating_sub(opened));
        }
        stats
    }
}

/// The segment size of a cache of this size: some 512 segments, so that there are enough for queues and TTL groups, and
/// more where many handles keep segments open.
pub fn segment_bytes(memory_bytes: usize, handles_max: usize) -> usize {
    let wanted = (memory_bytes / 512).min(memory_bytes / (SEGMENTS_PER_HANDLE * handles_max));
    let power = 1 << wanted.max(1).ilog2();
    power.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
}
