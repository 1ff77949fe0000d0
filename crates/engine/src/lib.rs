//! A concurrent in-memory cache with a limit in bytes: the engine of larder, for Rust programs.
//!
//! ```
//! use larder_engine::Cache;
//!
//! let cache: Cache<String, u64> = Cache::new(64 << 20)?; // 64 MiB
//! cache.insert("answer", &42);
//! assert_eq!(cache.get("answer"), Some(42));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! [`Cache`] has all that most programs need: typed entries, times to live ([`CacheBuilder::ttl`]), a value that is
//! computed once for all threads that miss it ([`Cache::get_or_insert_with`]), and counters ([`Cache::stats`]). The
//! limit holds for all memory: keys, values, and what the cache adds to them. Look-ups of different threads do not wait
//! for each other, and what is read often for its size stays. It runs on Linux.
//!
//! # The engine
//!
//! [`Engine`] is the layer below, on which larderd is built: keys and values are bytes, each thread has a [`Handle`], a
//! [`Guard`] lends what it found, and the caller tells the time. It never blocks on I/O, and its index grows step by
//! step. Use it where many look-ups share one guard, or for what memcached offers: CAS, counters, appends, touches.
//!
//! ```
//! use larder_engine::{Config, Engine, LargePages, Now, Store};
//!
//! let engine = Engine::new(Config {
//!     memory_bytes: 64 << 20,
//!     item_bytes_max: 1 << 20,
//!     evict: true,
//!     handles_max: 1,
//!     index_power: None,
//!     large_pages: LargePages::Filled,
//!     hash_key: [1, 2], // from a random source, where keys come from strangers
//! })?;
//! let mut handle = engine.handle().expect("handles_max is 1 and none is out");
//! let guard = handle.pin(Now { secs: 1, micros: 1 });
//! let hash = guard.prepare(b"greeting");
//! guard.store(hash, &Store::set(b"greeting", b"hello"));
//! assert_eq!(guard.get(b"greeting", hash).map(|item| item.value()), Ok(&b"hello"[..]));
//! # Ok::<(), std::io::Error>(())
//! ```

// The order of the modules, and what each may use, is in ARCHITECTURE.md.
mod cache;
mod crash_points;
mod engine;
mod epoch;
mod handle;
mod index;
mod inspect;
mod log;
mod mem;
mod ops;
mod policy;
mod reclaim;
mod request;
mod sync;
mod warm;

#[cfg(feature = "postcard")]
pub use cache::Postcard;
pub use cache::{Buffer, Cache, CacheBuilder, CacheStats, Decode, Encode, EncodeError, InsertError, Plain};
pub use engine::{Config, Engine, Reservation};
pub use handle::{Guard, Handle};
pub use index::hash::Hash;
pub use inspect::eviction_log::Evicted;
pub use inspect::index_scan::{IndexScan, ScanStep};
pub use inspect::segment_report::{Queue, SegmentInfo, SegmentReport, TtlGroup};
pub use inspect::stats::{QueueStats, Stats};
pub use log::large_pages::LargePages;
pub use log::superblock::{Owner, Unusable};
pub use ops::backing::{Backing, Change, Filled, Issued, Kept, Pinnable, Position, Registers, Replaced};
pub use ops::get::Item;
pub use ops::prefetch::{BATCH_MAX, LookupHint, LookupHints};
pub use ops::upload::{FirmValue, UPLOAD_BYTES_MIN, Upload, ValueRef};
pub use request::{
    Arith, Compare, Counted, Deleted, Expiry, Fetch, FetchError, Fetched, Invalidate, Miss, Mode, Now, Store,
    Stored, Token, WriteError,
};
pub use warm::{CacheFile, ColdReason, Opened, Owns, Restored, Start};

/// For larderd, which limits its own address space. Not part of the interface.
#[doc(hidden)]
pub use {engine::segment_bytes, mem::heap::share_heap, mem::region::commits_memory};

/// The programs of the README run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 250;

/// Tests the examples in the crate's README.
#[cfg(all(doctest, feature = "postcard"))]
#[doc = include_str!("../README.md")]
struct CrateReadme;
