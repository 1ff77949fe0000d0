//! RocksDB as the store: a Cargo feature, `rocksdb`. What tells its directories from those of the log is always there.
//!
//! | module | what it does |
//! |---|---|
//! | `manifest` | the file that says whose directory it is, and what a backup has |
//! | `record` | keys and values of the database |
//! | `options` | how RocksDB is set up |
//! | `open` | from a directory to a store |
//! | `append` | batches, and making them durable |
//! | `read` | reading one item; a scan of all |
//! | `sweep` | removing what has expired or was flushed |
//! | `copy` | backups |
//!
//! Locks, in the order in which a thread takes them: the backup, the sweep, the appender, the flushes. Readers take the
//! last one only.

pub(crate) mod manifest;

/// The longest value that RocksDB is given. It is whole in memory up to three times while it is written: as it came, in
/// the batch, and in the table of what is not in a file yet.
pub const ROCKS_VALUE_BYTES_MAX: usize = 64 << 20;

/// Files that RocksDB has open at most, beside its own logs: they do not grow with the data.
pub const ROCKS_FILES_OPEN_MAX: usize = 1_000;

#[cfg(feature = "rocksdb")]
mod append;
#[cfg(feature = "rocksdb")]
mod copy;
#[cfg(feature = "rocksdb")]
mod open;
#[cfg(feature = "rocksdb")]
mod options;
#[cfg(feature = "rocksdb")]
mod read;
#[cfg(feature = "rocksdb")]
mod record;
#[cfg(feature = "rocksdb")]
mod store;
#[cfg(feature = "rocksdb")]
mod sweep;

#[cfg(feature = "rocksdb")]
pub use options::RocksOptions;
#[cfg(all(feature = "rocksdb", test))]
pub(crate) use store::Faults;
#[cfg(feature = "rocksdb")]
pub use store::RocksStore;
