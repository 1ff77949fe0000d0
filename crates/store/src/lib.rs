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
mod log;
mod memory;
mod store;
#[cfg(test)]
mod tests;
mod validate;

pub use backup::{Manifest, restore};
pub use entry::{
    BATCH_BYTES_MAX, Entry, KEY_BYTES_MAX, Marks, Meta, NoValue, PendingFlush, Put, SequenceRange, Sink,
    VALUE_BYTES_MAX, VecSink,
};
pub use error::{Error, Result};
pub use log::check::{Damage, Report, check};
pub use log::{LogOptions, LogStore};
pub use memory::{MemoryFaults, MemoryStore};
pub use store::{Budget, Cursor, Progress, Stats, Store};
