//! The larder engine: an in-memory cache of small items, kept in a log of segments.
//!
//! It knows items but no wires, is told the time, never blocks on I/O and never reads a clock. A read takes no lock,
//! memory stays within its budget, and the index grows step by step. `ARCHITECTURE.md` has the walk of a get and of a
//! store.
//!
//! Modules, from the outside in. Each knows those below it, and none above:
//!
//! | module | what it knows | what it must not know |
//! |---|---|---|
//! | `request` | what one can ask, and the answers | how any of it is done |
//! | `handle`, `engine` | the state of a thread ([`Handle`], [`Guard`]), and the shared state | |
//! | `ops` | look-ups (`get`); changes of items (`change`), uploads | which segment comes next |
//! | `inspect` | counters, scans, segment reports | how to change what it sees |
//! | `reclaim` | how memory comes back, and who gets it | requests |
//! | `policy` | what is kept, in which order it goes | items, how they are moved |
//! | `index` | key hash -> offset of the item | what an item is |
//! | `log` | the arena: segments, runs, items, limbo; the allocator | keys, policy, reclaiming, handles |
//! | `epoch` | which guards may still read unlinked memory | what is in that memory |
//! | `mem` | address space, pages, tables, the budget | items |
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

pub use engine::{Config, Engine, Reservation, segment_bytes};
pub use handle::{Guard, Handle};
pub use index::hash::Hash;
pub use inspect::eviction_log::Evicted;
pub use inspect::index_scan::{IndexScan, ScanStep};
pub use inspect::segment_report::{Queue, SegmentInfo, SegmentReport, TtlGroup};
pub use inspect::stats::{QueueStats, Stats};
pub use log::large_pages::LargePages;
pub use mem::heap::share_heap;
pub use mem::region::commits_memory;
pub use ops::get::Item;
pub use ops::prefetch::{BATCH_MAX, LookupHint, LookupHints};
pub use ops::upload::{UPLOAD_BYTES_MIN, Upload, ValueRef};
pub use request::{
    Arith, Compare, Counted, Deleted, Expiry, Fetch, FetchError, Fetched, Invalidate, Miss, Mode, Now, Store,
    Stored, Token, WriteError,
};

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 250;
