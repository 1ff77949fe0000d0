//! The larder engine: an in-memory cache of small items, kept in a log of segments.
//!
//! Knows items, not wires; is told the time; never blocks on I/O and never reads a clock. A read takes no lock; memory
//! stays within its budget; the index grows step by step. `ARCHITECTURE.md` has the walk of a get and of a store;
//! the files, in reading order:
//!
//! | file | noun |
//! |---|---|
//! | `request` | what one can ask, and the answers |
//! | `handle` | [`Handle`], [`Guard`], look-ups |
//! | `ahead` | what a batch of gets or changes will look at, fetched ahead |
//! | `index` | key hash -> place of the item |
//! | `item` | an item as it lies in memory |
//! | `store` | what changes an item: stores, deletes, numbers |
//! | `change` | the one movement by which all of them do |
//! | `write` | open segments: where new items go |
//! | `segment` | segments, and who holds them |
//! | `gaps` | what is dead in them, written again where it lies |
//! | `queues`, `worth` | the order in which they go: what is kept, and for how long |
//! | `evict` | emptying segments: eviction, expiry, compaction, background work |
//! | `slack` | without eviction: which stores are let through when memory is nearly full |
//! | `large_pages` | what is full, moved to large pages in the background |
//! | `run`, `upload` | large items: where they live, how they arrive |
//! | `held` | what clients hold beyond guards: values in arrival, what slow readers read |
//! | `evicted` | what was evicted, for those who watch |
//! | `walk` | all items, one after the other |
//! | `survey`, `sums` | what every segment holds; what they hold together |
//! | `engine` | what all handles share; how memory comes back |
//! | `limbo`, `epoch` | memory that was unlinked, and when nobody reads it any more |
//! | `apart`, `budget`, `digits`, `ghost`, `hash`, `lines`, `memory`, `numa`, `stats`, `sync`, `table` | what they are called |
//! | `poison` | in tests: memory that nobody may read |
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
//! let turn = handle.pin(Now { secs: 1, micros: 1 });
//! let hash = turn.prepare(b"greeting");
//! turn.store(hash, &Store::set(b"greeting", b"hello"));
//! assert_eq!(turn.get(b"greeting", hash).map(|item| item.value()), Ok(&b"hello"[..]));
//! # Ok::<(), std::io::Error>(())
//! ```

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

pub use engine::{Config, Engine, segment_bytes};
pub use handle::{Guard, Handle, Item};
pub use index::hash::Hash;
pub use inspect::eviction_log::Evicted;
pub use inspect::index_scan::{IndexScan, ScanStep};
pub use inspect::segment_report::{Queue, SegmentInfo, SegmentReport, TtlGroup};
pub use inspect::stats::{QueueStats, Stats};
pub use mem::large_pages::LargePages;
pub use ops::prefetch::{BATCH_MAX, LookupHint, LookupHints};
pub use ops::upload::{UPLOAD_BYTES_MIN, Upload, ValueRef};
pub use request::{
    Arith, Compare, Counted, Deleted, Expiry, Fetch, FetchError, Fetched, Invalidate, Miss, Mode, Now, Store,
    Stored, Token, WriteError,
};

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 250;
