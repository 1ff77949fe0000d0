//! The default driver: one ordered log.
//!
//! | module | what it does |
//! |---|---|
//! | `record`, `segment`, `manifest`, `snapshot` | the bytes of the files; `docs/store-format.md` |
//! | `digest`, `index` | where each key's newest record is |
//! | `notes` | the caller's notes |
//! | `open` | from files to a store: manifest, snapshot or footers, the tail |
//! | `writer`, `append` | the end of a segment; batches |
//! | `next`, `sync` | the next segment of the log; making durable |
//! | `get`, `keys`, `states` | reading one item, or the state of a key; scans of all |
//! | `history` | reading the log in its order |
//! | `clean` | getting back the room of dead records |
//! | `retain` | what cleaning keeps for other sites |
//! | `usage`, `account` | counting what the items of a prefix use |
//! | `window` | reading a segment forward |
//!
//! Locks, in the order in which a thread takes them: the cleaner, the appender, the manifest, the sync lock, then one
//! of: a shard of the index, the flushes, the notes, the retention, the usage, the prepared segment, the segment table
//! (which may be taken under a shard's lock). Readers only take the locks of a shard, of the flushes and of the segment
//! table.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};

mod account;
mod append;
pub(crate) mod bugs;
pub(crate) mod bytes;
pub(crate) mod check;
pub(crate) mod clean;
pub(crate) mod digest;
mod get;
mod history;
mod index;
mod keys;
pub(crate) mod manifest;
mod next;
mod notes;
pub(crate) mod open;
mod record;
mod retain;
pub(crate) mod segment;
mod snapshot;
mod states;
mod sync;
mod usage;
mod window;
mod writer;

use crate::backup::{self, Manifest};
use crate::entry::{Entry, Meta, PendingFlush, SequenceRange, Sink, VersionFlush};
use crate::error::{Error, Result};
use crate::files::{DiskFiles, Files};
use crate::flushes::{FlushMark, Flushes};
use crate::history::{LogEntry, LogRead, Retention};
use crate::read_only::ReadOnly;
use crate::state::{KeyState, VisitState};
use crate::store::{Budget, Cursor, Headroom, Progress, Stats, Store, TryGet};
use crate::usage::PrefixUsage;

use clean::Cleaner;
use digest::Secret;
use history::Places;
use index::Index;
use manifest::ManifestImage;
use notes::NoteTable;
use open::DroppedTail;
pub use open::StoreLock;
use segment::{Segment, SegmentTable};
use writer::{WriteError, Writer};

/// The smallest and the largest size of a segment, in bytes.
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 4 << 10..=64 << 20;

/// How a log is kept. What a store was written with, it can be opened without.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// About how long a file becomes; a batch that is longer has a file of its own. 4 KiB to 64 MiB. Up to six files of
    /// this length are the constant part of what the store uses on the disk.
    pub segment_bytes: u64,
    /// Cleaning begins when the disk usage exceeds this percentage of the live data (and one segment more).
    pub disk_percent: u32,
    /// For tests: the store's secret, instead of a random one.
    pub secret: Option<[u8; 16]>,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, disk_percent: 140, secret: None }
    }
}

impl LogOptions {
    fn clamped(mut self) -> Self {
        self.segment_bytes = self.segment_bytes.clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end());
        self
    }
}

/// A log in a directory.
pub struct LogStore {
    files: Arc<dyn Files>,
    options: LogOptions,
    secret: Secret,
    index: Index,
    segments: SegmentTable,
    flushes: Flushes,
    notes: RwLock<NoteTable>,
    incarnation: u64,
    /// See [`ManifestImage::log_start`]. Rises before the segment goes.
    log_start: AtomicU64,
    retention: RwLock<Retention>,
    /// Where reads of the log ended.
    places: Mutex<Places>,
    cleaner: Mutex<Cleaner>,
    appender: Mutex<Appender>,
    /// Held while a thread waits for the appender: see [`Self::appender`].
    next_appender: Mutex<()>,
    manifest: Mutex<ManifestState>,
    /// The last one below that of the log's open segment. The cleaner alone takes such numbers.
    last_cold_number: AtomicU64,
    /// The next segment of the log, if it is ready: empty, and named by the manifest.
    prepared: Mutex<Option<Writer>>,
    /// Held while a segment of the log is synced.
    syncing: Mutex<()>,
    last_sequence: AtomicU64,
    durable_sequence: AtomicU64,
    highest_version: AtomicU64,
    /// The latest time that `maintain` was told; 0: none yet.
    now_unix_secs: AtomicU64,
    read_only: ReadOnly,
    /// The last append found no room: cleaning is to make some, wherever it can.
    is_full: AtomicBool,
    counters: Counters,
    /// What the items of some prefixes use, if that is counted. Changes under the locks of cleaner and appender alone.
    usage: RwLock<Option<Arc<PrefixUsage>>>,
    /// Names of the files that opening it has removed.
    removed: Vec<String>,
    /// Segment ends that were dropped at the opening.
    dropped: Vec<DroppedTail>,
    _lock: StoreLock,
}

/// The end of the log.
#[derive(Default)]
struct Appender {
    /// `None` until there is something to append, and after a segment was sealed and the next could not be made.
    writer: Option<Writer>,
    /// The segment before, if it is not sealed yet. Nothing is appended to it.
    full: Option<Arc<Writer>>,
    /// The open segment was made in the space that is set aside for removals: nothing else is appended to it.
    is_reserve: bool,
    /// The bytes of a batch, but for large values.
    scratch: Vec<u8>,
    /// Up to which sequence number the log itself says that all is durable.
    noted_durable: u64,
    /// A sync has failed, and `writer` writes to memory.
    is_in_memory: bool,
}

/// What the file `MANIFEST` is about.
#[derive(Default)]
struct ManifestState {
    next_number: u64,
    /// Files that go when the next manifest is durable.
    garbage: Vec<String>,
}

#[derive(Default)]
struct Counters {
    records: AtomicI64,
    tombstones: AtomicI64,
    appended_bytes: AtomicU64,
    cleaned_bytes: AtomicU64,
    /// Bytes of segment files that cleaning has removed.
    removed_bytes: AtomicU64,
    reads: AtomicU64,
    fsyncs: AtomicU64,
    full_errors: AtomicU64,
    uncounted_records: AtomicU64,
}

impl LogStore {
    /// Opens the store in a directory, which is made if it is missing.
    ///
    /// Errors: `Locked`, `NewerFormat`, `Corrupt` (something that was acknowledged is not there any more), `Io`.
    pub fn open(dir: &Path, options: LogOptions) -> Result<Self> {
        let lock = StoreLock::take(dir)?;
        let files =
            DiskFiles::open(dir).map_err(|error| Error::io(format!("opening {}", dir.display()), error))?;
        open::open(Arc::new(files), options.clamped(), lock)
    }

    /// Opens the store in these files.
    pub fn open_files(files: Arc<dyn Files>, options: LogOptions) -> Result<Self> {
        let lock = open::lock(&*files)?;
        open::open(files, options.clamped(), lock)
    }

    /// The files that opening the store has removed, since its manifest does not name them: what a crash leaves, or
    /// somebody has put there.
    pub fn removed_files(&self) -> &[String] {
        &self.removed
    }

    /// Segment ends that were dropped when the store was opened: bytes that are not a whole batch, as a crash leaves
    /// them.
    pub fn dropped_tails(&self) -> &[DroppedTail] {
        &self.dropped
    }

    /// Locks the appender. Waiting threads take turns: a mutex is not fair, so a thread that keeps appending would
    /// always get the lock back first.
    fn appender(&self) -> MutexGuard<'_, Appender> {
        let _turn = self.next_appender.lock().unwrap_or_else(PoisonError::into_inner);
        self.appender.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn syncing(&self) -> MutexGuard<'_, ()> {
        self.syncing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the appender, unless another thread holds it.
    fn try_appender(&self) -> Option<MutexGuard<'_, Appender>> {
        match self.appender.try_lock() {
            Ok(appender) => Some(appender),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn usage(&self) -> Option<Arc<PrefixUsage>> {
        self.usage.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn retention(&self) -> Retention {
        *self.retention.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a failed write of a segment means.
    fn write_failed(&self, doing: String, error: WriteError) -> Error {
        if error.sync_failed {
            return self.read_only.set(format!("fsync failed while {doing}: {}", error.source));
        }
        Error::io(doing, error.source)
    }

    /// Captures the contents of a new manifest. The log has to be synced before the manifest is published, by a sync
    /// that began under this guard, so that the manifest makes no flush durable before earlier entries are.
    fn capture(&self, _: &Appender) -> ManifestImage {
        let segments: Vec<_> =
            self.segments.all().into_iter().filter(|segment| !segment.retired.load(Relaxed)).collect();
        let oldest = segments.iter().map(|segment| segment.min_sequence.load(Relaxed)).min();
        let mut flushes = self.flushes.read().clone();
        flushes.forget_below(oldest.unwrap_or(u64::MAX));
        ManifestImage {
            secret: self.secret,
            next_number: 0,
            last_sequence: self.last_sequence.load(Relaxed),
            highest_version: self.highest_version.load(Relaxed),
            segments: segments.iter().map(|segment| segment.image()).collect(),
            flushes,
            notes: self.notes.read().unwrap_or_else(PoisonError::into_inner).clone(),
            incarnation: self.incarnation,
            log_start: self.log_start.load(Relaxed),
            is_replicated: self.retention().is_replicated,
            snapshot: None,
        }
    }

    /// Makes a captured state the store's, and removes the files that are no longer part of it.
    fn publish(&self, state: &mut ManifestState, mut image: ManifestImage) -> Result<()> {
        image.next_number = state.next_number;
        self.counters.fsyncs.fetch_add(1, Relaxed);
        image.write(&*self.files).map_err(|failure| {
            if failure.sync_failed { self.read_only.set(failure.error.to_string()) } else { failure.error }
        })?;
        for name in state.garbage.drain(..) {
            // One that stays is removed at the next opening.
            let _ = self.files.remove(&name);
        }
        Ok(())
    }

    fn prepared(&self) -> MutexGuard<'_, Option<Writer>> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn manifest(&self) -> MutexGuard<'_, ManifestState> {
        self.manifest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An image with the open files of its segments, in the same order.
fn image_with_files(image: ManifestImage, segments: Vec<Arc<Segment>>) -> (ManifestImage, Vec<Arc<Segment>>) {
    let named = |segment: &Arc<Segment>| image.segments.iter().any(|known| known.number == segment.number);
    let segments = segments.into_iter().filter(named).collect();
    (image, segments)
}

impl Store for LogStore {
    fn append(&self, entries: &[Entry<'_>]) -> Result<SequenceRange> {
        append::append(self, entries)
    }

    fn try_write(&self, bytes: u64, entries: usize) -> Result<()> {
        append::try_write(self, bytes, entries)
    }

    fn sync(&self) -> Result<u64> {
        sync::sync(self)
    }

    fn keep_readable(&self, entries: &[Entry<'_>]) -> Result<()> {
        append::keep_readable(self, entries)
    }

    fn may_contain(&self, key: &[u8]) -> bool {
        let digest = self.secret.digest(key);
        self.index.read(digest).get(digest.tag).is_some_and(|entry| entry.is_live())
    }

    fn get(&self, key: &[u8], now_unix_secs: u64, sink: &mut dyn Sink) -> Result<Option<Meta>> {
        get::get(self, key, now_unix_secs, sink)
    }

    fn try_get(&self, key: &[u8], now_unix_secs: u64, found: &mut dyn FnMut(&Meta, &[u8])) -> TryGet {
        get::try_get(self, key, now_unix_secs, found)
    }

    fn for_each_key(
        &self,
        cursor: &mut Cursor,
        limit: usize,
        now_unix_secs: u64,
        visit: &mut dyn FnMut(&[u8], &Meta),
    ) -> Result<bool> {
        keys::for_each_key(self, cursor, limit, now_unix_secs, visit)
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
        let segments = self.segments.all();
        let live_bytes = segments.iter().map(|segment| segment.live_bytes()).sum();
        let disk_bytes: u64 = segments.iter().map(|segment| segment.file_bytes.load(Relaxed)).sum();
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        Stats {
            records: self.counters.records.load(Relaxed).max(0) as u64,
            live_bytes,
            disk_bytes,
            segments: segments.len() as u64,
            index_bytes: self.index.memory_bytes() as u64,
            appended_bytes: count(&self.counters.appended_bytes),
            cleaned_bytes: count(&self.counters.cleaned_bytes),
            cleaning_debt_bytes: clean::debt_bytes(self, &segments),
            reads: count(&self.counters.reads),
            fsyncs: count(&self.counters.fsyncs),
            full_errors: count(&self.counters.full_errors),
            uncounted_records: count(&self.counters.uncounted_records),
            read_only: self.read_only.is_set(),
            log_start_sequence: count(&self.log_start),
            log_bytes: retain::log_bytes(&segments),
            tombstones: self.counters.tombstones.load(Relaxed).max(0) as u64,
        }
    }

    fn room(&self) -> Option<Headroom> {
        Some(clean::room(self))
    }

    fn log_bytes_after(&self, sequence: u64) -> u64 {
        retain::log_bytes_after(&self.segments.all(), sequence)
    }

    fn maintain(&self, budget: Budget, now_unix_secs: u64) -> Result<Progress> {
        clean::maintain(self, budget, now_unix_secs)
    }

    fn count_prefixes(&self, prefixes: &[&[u8]]) -> Result<Arc<PrefixUsage>> {
        usage::count_prefixes(self, prefixes)
    }

    fn state(&self, key: &[u8]) -> Result<Option<KeyState>> {
        get::state(self, key)
    }

    fn sequence_bound(&self, key: &[u8]) -> Option<u64> {
        get::sequence_bound(self, key)
    }

    fn newest_flush_version(&self, key: &[u8]) -> u64 {
        self.flushes.newest_version(key)
    }

    fn notes(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let notes = self.notes.read().unwrap_or_else(PoisonError::into_inner);
        notes.iter().map(|(name, note)| (name.to_vec(), note.value.clone())).collect()
    }

    fn note(&self, name: &[u8]) -> Option<Vec<u8>> {
        let notes = self.notes.read().unwrap_or_else(PoisonError::into_inner);
        notes.get(name).map(|note| note.value.clone())
    }

    fn read_log(
        &self,
        after_sequence: u64,
        budget_bytes: usize,
        visit: &mut dyn FnMut(LogEntry<'_>),
    ) -> Result<LogRead> {
        history::read_log(self, after_sequence, budget_bytes, visit)
    }

    fn retain(&self, retention: Retention) -> Result<()> {
        retain::retain(self, retention)
    }

    fn for_each_state(
        &self,
        cursor: &mut Cursor,
        budget_bytes: usize,
        unreadable: Option<&mut u64>,
        visit: &mut VisitState<'_>,
    ) -> Result<bool> {
        states::for_each_state(self, cursor, budget_bytes, unreadable, visit)
    }

    fn version_flushes(&self) -> Vec<VersionFlush> {
        let flush = |(prefix, mark): (&[u8], &FlushMark)| VersionFlush {
            prefix: prefix.to_vec(),
            except: mark.except.clone(),
            version: mark.version,
        };
        self.flushes.read().by_version().map(flush).collect()
    }

    fn incarnation(&self) -> u64 {
        self.incarnation
    }

    fn backup(&self, target: &dyn Files, since: Option<&Manifest>) -> Result<Manifest> {
        let (sync, (mut image, segments)) = {
            let appender = self.appender();
            let image = self.capture(&appender);
            (sync::begin_sync(self, &appender), image_with_files(image, self.segments.all()))
        };
        sync.finish(self)?;
        image.next_number = self.manifest().next_number;
        let manifest = Manifest { image };
        for (file, segment) in manifest.files().zip(segments) {
            // Its file may be removed meanwhile; it is open.
            if !since.is_some_and(|since| since.has(&manifest, &file)) {
                let failed = |error| Error::io(format!("creating {}", file.name), error);
                let copied = target.create(&file.name).map_err(failed)?;
                backup::copy(&*segment.file, file.bytes, &*copied, &file.name)?;
            }
        }
        backup::finish(&manifest, target)?;
        Ok(manifest)
    }

    fn close(&self) -> Result<()> {
        snapshot::close(self)
    }
}
