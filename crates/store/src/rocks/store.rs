//! The driver over RocksDB.

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rocksdb::{DB, properties};

use super::manifest::RocksImage;
use super::sweep::Sweep;
use super::{RocksOptions, append, copy, open, read, sweep};
use crate::backup::Manifest;
use crate::entry::{Entry, Meta, PendingFlush, SequenceRange, Sink};
use crate::error::{Error, Result};
use crate::files::{DiskFiles, Files};
use crate::flushes::Flushes;
use crate::log::StoreLock;
use crate::read_only::ReadOnly;
use crate::store::{Budget, Cursor, Progress, Stats, Store};

/// A store that RocksDB keeps in a directory. Values have at most
/// [`ROCKS_VALUE_BYTES_MAX`](super::ROCKS_VALUE_BYTES_MAX).
pub struct RocksStore {
    pub(super) db: DB,
    pub(super) directory: PathBuf,
    pub(super) options: RocksOptions,
    pub(super) image: RocksImage,
    /// Held while a batch is written.
    pub(super) appender: Mutex<()>,
    pub(super) sweep: Mutex<Sweep>,
    pub(super) backup: Mutex<()>,
    pub(super) flushes: Flushes,
    pub(super) last_sequence: AtomicU64,
    pub(super) durable_sequence: AtomicU64,
    pub(super) highest_version: AtomicU64,
    /// The latest time that `maintain` was told.
    pub(super) now_unix_secs: Arc<AtomicU64>,
    /// An item that will expire was appended since a sweep began, or may have been before the opening.
    pub(super) has_expiring: AtomicBool,
    pub(super) read_only: ReadOnly,
    pub(super) counters: Counters,
    #[cfg(test)]
    pub(crate) faults: Mutex<Faults>,
    /// Behind the database: the directory is free when that is closed.
    pub(super) _lock: StoreLock,
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) appended_bytes: AtomicU64,
    pub(super) reads: AtomicU64,
    pub(super) fsyncs: AtomicU64,
    pub(super) full_errors: AtomicU64,
}

/// What is to go wrong, for tests.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// The disk has so many bytes left.
    pub(crate) free_bytes: Option<u64>,
    /// The next fsync fails.
    pub(crate) fail_sync: bool,
}

impl RocksStore {
    /// Opens the store in a directory, which is made if it is missing.
    ///
    /// Errors: `Locked`, `OtherEngine`, `NewerFormat`, `Corrupt` (files are missing), `Io`.
    pub fn open(directory: &Path, options: RocksOptions) -> Result<Self> {
        Self::open_locked(directory, options, StoreLock::take(directory)?)
    }

    /// The same, of a store whose lock was taken before.
    pub fn open_locked(directory: &Path, options: RocksOptions, lock: StoreLock) -> Result<Self> {
        let doing = || format!("opening {}", directory.display());
        let files = DiskFiles::open(directory).map_err(|error| Error::io(doing(), error))?;
        open::open(&files, directory, options.clamped(), lock)
    }

    pub(super) fn new(
        opened: open::Opened,
        directory: &Path,
        options: RocksOptions,
        now_unix_secs: Arc<AtomicU64>,
    ) -> Self {
        let open::Opened { db, image, lock, last_sequence, highest_version, flushes } = opened;
        Self {
            db,
            directory: directory.to_owned(),
            options,
            image,
            appender: Mutex::default(),
            sweep: Mutex::default(),
            backup: Mutex::default(),
            flushes: Flushes::new(flushes),
            last_sequence: AtomicU64::new(last_sequence),
            durable_sequence: AtomicU64::new(last_sequence),
            highest_version: AtomicU64::new(highest_version),
            now_unix_secs,
            has_expiring: AtomicBool::new(true),
            read_only: ReadOnly::default(),
            counters: Counters::default(),
            #[cfg(test)]
            faults: Mutex::default(),
            _lock: lock,
        }
    }

    pub(super) fn appender(&self) -> MutexGuard<'_, ()> {
        self.appender.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a write that RocksDB refused means. It writes nothing more then, unless it was for want of room.
    pub(super) fn write_failed(&self, doing: &str, error: &rocksdb::Error) -> Error {
        match failed(doing, error) {
            full @ Error::Full { .. } => full,
            other => self.read_only.set(format!("a write failed: {other}")),
        }
    }

    fn property(&self, name: &CStr) -> u64 {
        self.db.property_int_value(name).ok().flatten().unwrap_or(0)
    }
}

/// What RocksDB says. Its errors are sentences, and no more.
pub(super) fn failed(doing: &str, error: &rocksdb::Error) -> Error {
    let message = error.to_string();
    let doing = format!("RocksDB: {doing}");
    if message.contains("No space left on device") || message.contains("Disk quota exceeded") {
        return Error::Full { doing };
    }
    Error::Io { doing, source: std::io::Error::other(message) }
}

impl Store for RocksStore {
    fn append(&self, entries: &[Entry<'_>]) -> Result<SequenceRange> {
        append::append(self, entries)
    }

    fn sync(&self) -> Result<u64> {
        append::sync(self)
    }

    fn may_contain(&self, key: &[u8]) -> bool {
        read::may_contain(self, key)
    }

    fn get(&self, key: &[u8], now_unix_secs: u64, sink: &mut dyn Sink) -> Result<Option<Meta>> {
        read::get(self, key, now_unix_secs, sink)
    }

    fn for_each_key(
        &self,
        cursor: &mut Cursor,
        limit: usize,
        now_unix_secs: u64,
        visit: &mut dyn FnMut(&[u8], &Meta),
    ) -> Result<bool> {
        read::for_each_key(self, cursor, limit, now_unix_secs, visit)
    }

    fn pending_flushes(&self) -> Vec<PendingFlush> {
        self.flushes.pending()
    }

    fn last_sequence(&self) -> u64 {
        self.last_sequence.load(Relaxed)
    }

    fn durable_sequence(&self) -> u64 {
        self.durable_sequence.load(Relaxed)
    }

    fn highest_version(&self) -> u64 {
        self.highest_version.load(Relaxed)
    }

    fn stats(&self) -> Stats {
        let in_memory = self.property(properties::CUR_SIZE_ALL_MEM_TABLES);
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        Stats {
            records: self.property(properties::ESTIMATE_NUM_KEYS),
            live_bytes: self.property(properties::ESTIMATE_LIVE_DATA_SIZE) + in_memory,
            disk_bytes: self.property(properties::TOTAL_SST_FILES_SIZE) + in_memory,
            segments: (0..LEVELS).map(|level| self.property(&properties::num_files_at_level(level))).sum(),
            index_bytes: self.property(properties::ESTIMATE_TABLE_READERS_MEM)
                + self.property(properties::BLOCK_CACHE_USAGE)
                + in_memory,
            appended_bytes: count(&self.counters.appended_bytes),
            cleaned_bytes: 0,
            cleaning_debt_bytes: self.property(properties::ESTIMATE_PENDING_COMPACTION_BYTES),
            reads: count(&self.counters.reads),
            fsyncs: count(&self.counters.fsyncs),
            full_errors: count(&self.counters.full_errors),
            uncounted_records: 0,
            read_only: self.read_only.is_set(),
            log_bytes: 0,
            log_start_sequence: 0,
            tombstones: 0,
        }
    }

    fn maintain(&self, budget: Budget, now_unix_secs: u64) -> Result<Progress> {
        sweep::maintain(self, budget, now_unix_secs)
    }

    fn backup(&self, target: &dyn Files, since: Option<&Manifest>) -> Result<Manifest> {
        copy::backup(self, target, since)
    }

    fn close(&self) -> Result<()> {
        append::close(self)
    }
}

/// RocksDB's default.
const LEVELS: usize = 7;
