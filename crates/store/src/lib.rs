//! A durable store for a cache.
//!
//! Everything goes through the trait [`Store`]: one thread appends batches of [`Entry`] and makes them durable; all
//! threads read. What a cache promises of an item in memory (flags, expiry, CAS value, marks, flushes) it keeps on
//! disk.
//!
//! ```
//! use larder_store::{Entry, Marks, MemoryStore, Put, Store, VecSink};
//!
//! let store = MemoryStore::new();
//! let (now, key) = (1_800_000_000, b"key");
//! let put = Put {
//!     key,
//!     value: &[b"va", b"lue"],
//!     client_flags: 7,
//!     exptime_secs: now + 60,
//!     version: 1,
//!     marks: Marks::NONE,
//!     origin: 0,
//!     base_version: 0,
//!     expiry_value_version: 0,
//!     expiry_version: 0,
//! };
//! store.append(&[Entry::Put(put)])?;
//! store.sync()?;
//!
//! let mut sink = VecSink::default();
//! let meta = store.get(key, now, &mut sink)?.expect("the item was put");
//! assert_eq!((meta.client_flags, sink.into_value()), (7, b"value".to_vec()));
//! # Ok::<(), larder_store::Error>(())
//! ```
//!
//! | call of [`Store`] | by whom | what it does |
//! |---|---|---|
//! | `append(&[Entry]) -> SequenceRange` | the committer | one batch, atomic; readable on return, not durable |
//! | `sync() -> u64` | the committer | all that was appended is durable on return |
//! | `may_contain(key) -> bool` | any thread | false is certain; never reads the disk |
//! | `get(key, now, &mut dyn Sink) -> Option<Meta>` | any thread | the value goes straight to where the sink says |
//! | `try_get(key, now, &mut FnMut(&Meta, &[u8])) -> TryGet` | any thread | the same, but does not wait for the disk |
//! | `for_each_key(&mut Cursor, limit, now, visit)` | any thread | a scan in pieces, keys and metas |
//! | `pending_flushes()` | at the start | delayed flushes that the caller has to make when they are due |
//! | `last_sequence()`, `durable_sequence()`, `highest_version()`, `stats()` | any thread | numbers |
//! | `state(key)`, `newest_flush_version(key)`, `note(name)`, `notes()` | any thread | what replication merges with |
//! | `read_log(after, budget, visit) -> LogRead` | any thread | the durable entries of the log, in their order |
//! | `for_each_state(cursor, budget, unreadable, visit)`, `version_flushes()` | any thread | a copy: deletions, too |
//! | `retain(Retention)`, `incarnation()` | who replicates | what cleaning keeps for other sites; which log it is |
//! | `count_prefixes(&[&[u8]]) -> Arc<PrefixUsage>` | at the start | what the items of each prefix use on the disk |
//! | `maintain(Budget, now) -> Progress` | one background thread | a bounded step of cleaning |
//! | `room() -> Option<Headroom>` | any thread | what may be appended before cleaning is too far behind |
//! | `backup(&dyn Files, since) -> Manifest` | any thread | a consistent copy while others go on; [`restore`] |
//! | `close()` | at the end | makes the next start fast |
//!
//! [`check`] verifies and repairs a log that is not open, and refuses a directory that RocksDB kept. A batch of
//! several entries has at most [`BATCH_BYTES_MAX`]; the committer splits what is longer. An append that fails leaves
//! nothing visible: with [`Error::Full`] it may be tried again when there is room (deletions and flushes have room set
//! aside), with [`Error::ReadOnly`] never.
//!
//! | driver | what it is |
//! |---|---|
//! | [`LogStore`] | one ordered log in a directory, with an index in memory: the default |
//! | [`MemoryStore`] | a map, with the faults of a disk on demand: for simulations |
//!
//! No driver reads a clock: callers pass the time.

#![forbid(unsafe_code)]

pub mod backup;
pub mod commit;
mod entry;
mod error;
pub mod files;
mod flushes;
mod history;
mod log;
mod memory;
mod read_only;
mod state;
mod store;
#[cfg(test)]
mod tests;
mod usage;
mod validate;

pub use backup::{Manifest, StreamReport, backup_stream, restore, restore_stream, verify_stream};
pub use entry::{
    BATCH_BYTES_MAX, Entry, FLUSH_EXCEPTIONS_BYTES_MAX, FlushBy, KEY_BYTES_MAX, Marks, Meta, NOTE_BYTES_MAX,
    NOTE_NAME_BYTES_MAX, NOTES_MAX, NoValue, PendingFlush, Put, SequenceRange, Sink, VALUE_BYTES_MAX,
    VecSink, VersionFlush,
};
pub use error::{Error, Result};
pub use history::{LogEntry, LogRead, Retention};
pub use log::check::{Damage, Report, check};
pub use log::open::DroppedTail;
pub use log::{LogOptions, LogStore, StoreLock};
pub use memory::{MemoryFaults, MemoryStore};
pub use state::{ItemState, KeyState, VisitState};
pub use store::{Budget, Cursor, Headroom, Progress, Stats, Store, TryGet};
pub use usage::{COUNTED_PREFIXES_MAX, PrefixUsage};
