//! The larder engine: an in-memory cache of small items, kept in a log of segments.
//!
//! Knows items, not wires; is told the time; never blocks on I/O and never reads a clock.

mod request;

pub use request::{
    Arith, Compare, Counted, Deleted, Expiry, Fetch, Fetched, Invalidate, Miss, Mode, NoRoom, Now, Store, Stored, Token,
};

use std::marker::PhantomData;
use std::sync::Arc;

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 250;

/// How a cache is to be built.
#[derive(Clone, Debug)]
pub struct Config {
    /// All memory of the cache: index, ghost, segments, large values. At least 1 MiB.
    pub memory_bytes: u64,
    /// Largest item, counted as memcached counts it: key + value + 59 bytes (+ 4 with client flags).
    pub item_bytes_max: u32,
    /// Evict when full; otherwise stores fail (`-M`).
    pub evict: bool,
    /// How many [`Handle`]s will exist at once, at most.
    pub handles_max: usize,
    /// log2 of the number of index buckets at the start; `None`: from `memory_bytes`.
    pub index_power: Option<u8>,
    /// Key of the hash function; random, so that nobody can choose colliding keys.
    pub hash_key: [u64; 2],
}

/// The cache. Shared by all threads; each works on it through a [`Handle`] of its own.
pub struct Engine { _p: () }

/// A thread's access to the engine: its open segments, its epoch, its counters.
pub struct Handle { _p: PhantomData<*mut ()> }

/// A span of work during which every item found stays readable, whatever others do.
pub struct Turn<'h> { _h: &'h Handle }

/// A hashed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash(u64);

/// An item found, readable until the turn ends.
#[derive(Clone, Copy, Debug)]
pub struct Item<'t> { _p: PhantomData<&'t [u8]> }

/// Keeps one large value readable beyond the turn (for a client that reads slowly). Its memory stays in the budget.
pub struct Pin { _p: () }

/// Room for a large value whose bytes are still arriving. Invisible until committed; dropped, its memory is free.
/// Does not borrow a turn: lives in a connection.
pub struct Upload { _p: () }

/// Counters and gauges of the engine, summed over all handles at the moment of asking.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Live items.
    pub items: u64,
    /// Items ever linked.
    pub items_total: u64,
    /// Sum of live items' sizes (key + value + 59, + 4 with client flags: memcached's formula).
    pub bytes: u64,
    /// Memory budget.
    pub memory_bytes: u64,
    /// Memory taken from the budget.
    pub memory_used_bytes: u64,
    /// Live items evicted.
    pub evictions: u64,
    /// ... of which never fetched.
    pub evicted_unfetched: u64,
    /// ... of which fetched within the last minute.
    pub evicted_active: u64,
    /// Expired or flushed items whose memory was reclaimed while making room.
    pub reclaimed: u64,
    /// Expired items reclaimed that were never fetched.
    pub expired_unfetched: u64,
    /// Expired or flushed items removed by the background step.
    pub crawler_reclaimed: u64,
    /// Items the background step looked at.
    pub crawler_checked: u64,
    /// Items moved from the small to the main queue.
    pub moves_to_main: u64,
    /// Items kept at the end of the main queue because they were read.
    pub moves_within_main: u64,
    /// Items moved by compaction.
    pub compacted: u64,
    /// Stores that found no memory.
    pub out_of_memory: u64,
    /// Index: log2 of its buckets (rounded down), bytes, and whether it is growing right now.
    pub index_power: u8,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// Growing at the moment.
    pub index_growing: bool,
    /// Bytes of the ghost.
    pub ghost_bytes: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Segments not in use.
    pub segments_free: u64,
    /// The small queue, the main queue, and large items (each in a segment run of its own).
    pub queues: [QueueStats; 3],
}

/// One of the places where items live: see [`Stats::queues`].
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueStats {
    /// Live items.
    pub items: u64,
    /// Memory held.
    pub memory_bytes: u64,
    /// Segments (large: runs).
    pub segments: u64,
    /// Bytes of live items as stored.
    pub live_bytes: u64,
    /// Age in seconds of the oldest segment.
    pub age_secs: u32,
    /// Live items evicted from here.
    pub evictions: u64,
    /// ... that had an expiry.
    pub evicted_with_expiry: u64,
    /// ... never fetched.
    pub evicted_unfetched: u64,
    /// Seconds since last use of the item evicted last.
    pub evicted_idle_secs: u32,
    /// Expired or flushed items reclaimed from here.
    pub reclaimed: u64,
    /// ... never fetched.
    pub expired_unfetched: u64,
    /// Hits on items here.
    pub hits: u64,
}

impl Engine {
    /// Reserves the memory. Errors: the system refuses the address space, or the configuration makes no sense.
    pub fn new(_config: Config) -> std::io::Result<Arc<Self>> { todo!() }
    /// A handle for one thread. `None` when `handles_max` are out already; a dropped handle makes room.
    pub fn handle(self: &Arc<Self>) -> Option<Handle> { todo!() }
    /// Values of this many bytes and more go through [`Turn::reserve`] when they do not arrive at once.
    pub fn large_value_bytes(&self) -> u32 { todo!() }
    /// Sums the counters. Not on the request path.
    pub fn stats(&self) -> Stats { todo!() }
    /// Zeroes the counters (not the gauges).
    pub fn reset_stats(&self) { todo!() }
    /// Everything stored before second `at` is gone from then on; `None`: gone now. One mark exists: a new call
    /// replaces a pending one.
    pub fn flush(&self, _now: Now, _at: Option<u32>) { todo!() }
}

impl Handle {
    /// Starts a turn. Cheap; do many requests in one. Leaves it when dropped.
    pub fn enter(&mut self, _now: Now) -> Turn<'_> { todo!() }
}

impl Turn<'_> {
    /// The moment of this turn.
    pub fn now(&self) -> Now { todo!() }
    /// Hashes a key and starts fetching its index line.
    pub fn prepare(&self, _key: &[u8]) -> Hash { todo!() }
    /// Second step of a batched look-up: reads the index line and starts fetching the item.
    pub fn prefetch_item(&self, _hash: Hash) { todo!() }
    /// Finds a live item and counts as a use of it. The fast path of `get`.
    pub fn get(&self, _key: &[u8], _hash: Hash) -> Result<Item<'_>, Miss> { todo!() }
    /// Finds a live item, with everything `mg` and `gat` can ask.
    pub fn fetch(&self, _key: &[u8], _hash: Hash, _how: &Fetch) -> Result<Fetched<'_>, Fail> { todo!() }
    /// Looks without leaving a trace (`me`).
    pub fn peek(&self, _key: &[u8], _hash: Hash) -> Result<Fetched<'_>, Miss> { todo!() }
    /// Stores a value that is all there.
    pub fn store(&self, _hash: Hash, _store: &Store<'_>) -> Stored { todo!() }
    /// Room for a value that is still arriving (`store.value` is ignored). Charged to the budget as it fills.
    pub fn reserve(&self, _store: &Store<'_>, _value_bytes: u32) -> Result<Upload, NoRoom> { todo!() }
    /// The next piece of the upload to be filled from the socket; never empty before the value is complete.
    pub fn window<'u>(&self, _upload: &'u mut Upload) -> Result<&'u mut [u8], NoRoom> { todo!() }
    /// Stores a complete upload under the terms of the `store` (same key as at `reserve`; `store.value` is ignored).
    /// Consumes the upload unless the answer is `TryAgain`.
    pub fn commit(&self, _hash: Hash, _store: &Store<'_>, _upload: &mut Option<Upload>) -> Stored { todo!() }
    /// Deletes.
    pub fn delete(&self, _key: &[u8], _hash: Hash, _compare: Option<u64>) -> Deleted { todo!() }
    /// Marks stale or blanks.
    pub fn invalidate(&self, _key: &[u8], _hash: Hash, _how: &Invalidate) -> Result<Deleted, NoRoom> { todo!() }
    /// Sets the expiry; the CAS value stays.
    pub fn touch(&self, _key: &[u8], _hash: Hash, _expiry: Expiry) -> Result<Item<'_>, Fail> { todo!() }
    /// Adds to or subtracts from a decimal value.
    pub fn arith(&self, _key: &[u8], _hash: Hash, _how: &Arith) -> Counted { todo!() }
}

/// Why a fetch or touch gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fail {
    /// Not there.
    Miss(Miss),
    /// The change needed memory (an expiry for an item that had none, a vivified stub), and there is none.
    OutOfMemory,
    /// As [`Stored::TryAgain`].
    TryAgain,
}

impl<'t> Item<'t> {
    /// The key.
    pub fn key(&self) -> &'t [u8] { todo!() }
    /// The value.
    pub fn value(&self) -> &'t [u8] { todo!() }
    /// The client's flags.
    pub fn client_flags(&self) -> u32 { todo!() }
    /// The CAS value, never 0.
    pub fn cas(&self) -> u64 { todo!() }
    /// When it dies.
    pub fn expiry(&self) -> Expiry { todo!() }
    /// Its key came in base64.
    pub fn is_binary_key(&self) -> bool { todo!() }
    /// Size by memcached's formula, as in [`Stats::bytes`].
    pub fn accounted_bytes(&self) -> u32 { todo!() }
    /// Which of [`Stats::queues`] it lives in.
    pub fn queue(&self) -> usize { todo!() }
    /// A hold on the value that outlasts the turn; `None` for a small item, which is cheaper to copy.
    pub fn pin(&self) -> Option<Pin> { todo!() }
}

impl Pin {
    /// The value.
    pub fn value(&self) -> &[u8] { todo!() }
}

impl Upload {
    /// `n` bytes of the window were filled. Panics if the window was shorter.
    pub fn advance(&mut self, _n: usize) { todo!() }
    /// Bytes still to come.
    pub fn missing_bytes(&self) -> u32 { todo!() }
}
