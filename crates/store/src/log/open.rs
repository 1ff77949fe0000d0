//! From files to a store.
//!
//! Sealed segments are known by the manifest and their footers (or all of them by the snapshot of a clean stop). An
//! open segment is read from its start: its end is where no record follows. If that cuts something that was
//! acknowledged, the store is not opened.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};

use super::append::index_entry;
use super::bugs::{Bug, is_planted};
use super::clean::Cleaner;
use super::digest::Secret;
use super::index::{Index, START_BYTES_MAX};
use super::manifest::{MANIFEST, MANIFEST_NEW, ManifestImage, ROCKSDB_FILE, SegmentImage};
use super::notes::{Note, NoteTable};
use super::record::{ALIGN_BYTES, BadHeader, HEADER_BYTES, Header, Kind, u32_at};
use super::segment::{
    DATA_BYTES_MAX, FOOTER_BYTES_MAX, FooterEntry, SEGMENT_HEADER_BYTES, Segment, SegmentHeader,
    SegmentTable, Stream, segment_name, segment_number,
};
use super::snapshot::{self, Snapshot};
use super::window::Window;
use super::writer::Writer;
use super::{Appender, Counters, LogOptions, LogStore, ManifestState};
use crate::entry::{FLUSH_EXCEPTIONS_BYTES_MAX, NOTE_BYTES_MAX, NOTE_NAME_BYTES_MAX, NOTES_MAX};
use crate::error::{Error, Result};
use crate::files::{DiskFiles, File, Files, Lock};
use crate::flushes::{FlushMark, FlushTable, Flushes, PendingMark, decode_exceptions};
use crate::history::Retention;
use crate::read_only::ReadOnly;
use crate::usage::PrefixUsage;

/// The lock file.
const LOCK: &str = "LOCK";

pub(super) fn open(files: Arc<dyn Files>, options: LogOptions, lock: StoreLock) -> Result<LogStore> {
    let image = match ManifestImage::read(&*files)? {
        Some(image) => image,
        None => create(&*files, &options)?,
    };
    let removed = remove_leftovers(&*files, &image)?;

    let mut found = Recovered::new(&image);
    let segments = SegmentTable::default();
    let (index, usage) = match open_by_snapshot(&*files, &image, &segments, &mut found)? {
        Some(found) => found,
        None => {
            let index = Index::new(true);
            for segment in &image.segments {
                recover_segment(&*files, &image, segment, &segments, &index, &mut found)?;
            }
            index.finish_recovery(image.is_replicated);
            count_live(&index, &segments);
            (index, None)
        }
    };
    let records = index
        .shards()
        .map(|shard| shard.entries().filter(|(_, entry)| entry.is_live()).count() as i64)
        .sum::<i64>();
    let tombstones = (index.shards())
        .map(|shard| shard.entries().filter(|(_, entry)| entry.tombstone).count() as i64)
        .sum::<i64>();
    found.flushes.forget_above(found.last_sequence);
    if image.is_replicated {
        // What the footers do not say.
        for segment in segments.all() {
            segment.tombstone_version.store(found.highest_version, Relaxed);
        }
    }

    let counters = Counters::default();
    counters.records.store(records, Relaxed);
    counters.tombstones.store(tombstones, Relaxed);
    Ok(LogStore {
        files,
        options,
        secret: image.secret,
        index,
        segments,
        flushes: Flushes::new(found.flushes),
        notes: RwLock::new(found.notes),
        incarnation: image.incarnation,
        log_start: AtomicU64::new(image.log_start),
        retention: RwLock::new(Retention::of_opening(image.is_replicated)),
        places: Mutex::default(),
        cleaner: Mutex::new(Cleaner::default()),
        appender: Mutex::new(Appender { noted_durable: found.last_sequence, ..Appender::default() }),
        next_appender: Mutex::default(),
        manifest: Mutex::new(ManifestState { next_number: image.next_number, garbage: found.garbage }),
        last_cold_number: AtomicU64::new(0),
        prepared: Mutex::default(),
        syncing: Mutex::default(),
        last_sequence: AtomicU64::new(found.last_sequence),
        durable_sequence: AtomicU64::new(found.last_sequence),
        highest_version: AtomicU64::new(found.highest_version),
        now_unix_secs: AtomicU64::new(0),
        read_only: ReadOnly::default(),
        is_full: AtomicBool::new(false),
        counters,
        usage: RwLock::new(usage.map(Arc::new)),
        removed,
        dropped: found.dropped,
        _lock: lock,
    })
}

/// A lock that keeps other processes out of a store.
pub struct StoreLock {
    _lock: Box<dyn Lock>,
}

impl StoreLock {
    /// Takes the lock of the store in this directory, which is created if it is missing. Errors: `Locked`, `Io`.
    pub fn take(dir: &Path) -> Result<Self> {
        let files =
            DiskFiles::open(dir).map_err(|error| Error::io(format!("opening {}", dir.display()), error))?;
        lock(&files)
    }
}

/// Keeps other processes out.
pub(crate) fn lock(files: &dyn Files) -> Result<StoreLock> {
    files.lock(LOCK).map(|lock| StoreLock { _lock: lock }).map_err(|error| {
        if error.kind() == io::ErrorKind::WouldBlock {
            Error::Locked { file: format!("{}/{LOCK}", files.describe()) }
        } else {
            Error::io(format!("locking {}/{LOCK}", files.describe()), error)
        }
    })
}

/// A new store: the manifest comes first, so that segments without one are damage.
fn create(files: &dyn Files, options: &LogOptions) -> Result<ManifestImage> {
    let names = files.list().map_err(|error| Error::io("listing the directory", error))?;
    if let Some(name) = names.iter().find(|name| segment_number(name).is_some() || *name == ROCKSDB_FILE) {
        return Err(Error::corrupt(MANIFEST, 0, format!("the file is missing, but there is {name}")));
    }
    let mut image = ManifestImage::new(options.secret.map_or_else(Secret::random, Secret));
    if options.secret.is_some() {
        image.incarnation = image.secret.incarnation();
    }
    image.write(files).map_err(|failure| failure.error)?;
    Ok(image)
}

/// Removes what a crash left: files that the manifest does not name. Returns their names.
fn remove_leftovers(files: &dyn Files, image: &ManifestImage) -> Result<Vec<String>> {
    let mut removed = Vec::new();
    let listing = |error| Error::io("listing the directory", error);
    for name in files.list().map_err(listing)? {
        let is_left = match segment_number(&name) {
            Some(number) => !image.segments.iter().any(|segment| segment.number == number),
            None if snapshot::is_snapshot(&name) => {
                image.snapshot.is_none_or(|snapshot| snapshot::snapshot_name(snapshot.number) != name)
            }
            None => name == MANIFEST_NEW,
        };
        if is_left {
            files.remove(&name).map_err(|error| Error::io(format!("removing {name}"), error))?;
            removed.push(name);
        }
    }
    Ok(removed)
}

/// What comes together while segments are looked at.
struct Recovered {
    last_sequence: u64,
    highest_version: u64,
    flushes: FlushTable,
    notes: NoteTable,
    garbage: Vec<String>,
    dropped: Vec<DroppedTail>,
    open_log: OpenLog,
}

/// Bytes after the last whole batch of a segment, as a crash leaves them; or all of a segment that follows such bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedTail {
    /// Name of the file.
    pub file: String,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes, without the zeros at the end.
    pub bytes: u64,
}

impl Recovered {
    fn new(image: &ManifestImage) -> Self {
        Self {
            last_sequence: image.last_sequence,
            highest_version: image.highest_version,
            flushes: image.flushes.clone(),
            notes: image.notes.clone(),
            garbage: image.snapshot.iter().map(|snapshot| snapshot::snapshot_name(snapshot.number)).collect(),
            dropped: Vec::new(),
            open_log: OpenLog::default(),
        }
    }
}

/// Opens the file of a segment, and reads its header. Returns its length too, which must be right if `must_be_whole`.
pub(super) fn open_file(
    files: &dyn Files,
    image: &ManifestImage,
    segment: &SegmentImage,
    must_be_whole: bool,
) -> Result<(SegmentHeader, Arc<dyn File>, u64)> {
    let name = segment_name(segment.number);
    let reading = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Error::corrupt(&name, 0, "the file is missing"),
        _ => Error::io(format!("reading {name}"), error),
    };
    let file = if segment.sealed { files.open_to_read(&name) } else { files.open(&name) }.map_err(reading)?;
    let mut head = [0; SEGMENT_HEADER_BYTES];
    let count = file.read_at(&mut head, 0).map_err(reading)?;
    let header = SegmentHeader::decode(&head[..count], &name)?;
    if header.number != segment.number || header.stream != segment.stream || header.secret != image.secret {
        return Err(Error::corrupt(&name, 0, "it is a segment of another store or another number"));
    }
    // An open one ends where no record follows. Zeros up to any length may be behind it.
    let longest = if segment.sealed { u64::MAX } else { DATA_BYTES_MAX + FOOTER_BYTES_MAX };
    let file_bytes = file.len().map_err(reading)?.min(longest);
    // A longer one was cut when it was sealed, and the cut was lost: what is behind the footer is nothing.
    if must_be_whole && segment.sealed && file_bytes < segment.file_bytes {
        let what = format!("it has {file_bytes} bytes instead of {}", segment.file_bytes);
        return Err(Error::corrupt(&name, file_bytes, what));
    }
    Ok((header, file, file_bytes))
}

/// A sealed segment, as the manifest knows it.
fn set_sealed(segment: &Segment, image: &SegmentImage) {
    segment.data_bytes.store(image.data_bytes, Relaxed);
    segment.durable_bytes.store(image.data_bytes, Relaxed);
    segment.file_bytes.store(image.file_bytes, Relaxed);
    segment.min_sequence.store(image.min_sequence, Relaxed);
    segment.max_sequence.store(image.max_sequence, Relaxed);
    segment.sealed.store(true, Relaxed);
    *segment.expiry.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = image.expiry.clone();
}

/// The index and all segments by the snapshot; `None` if there is none, or it does not fit.
fn open_by_snapshot(
    files: &dyn Files,
    image: &ManifestImage,
    segments: &SegmentTable,
    found: &mut Recovered,
) -> Result<Option<(Index, Option<PrefixUsage>)>> {
    let Some(snapshot) = &image.snapshot else { return Ok(None) };
    let Some(snapshot) = snapshot::read(files, snapshot, image.segments.len()) else { return Ok(None) };
    let Snapshot { segments: known, index, usage } = snapshot;
    let fits = known.len() == image.segments.len()
        && known
            .iter()
            .zip(&image.segments)
            .all(|(known, segment)| known.number == segment.number && segment.sealed);
    if !fits {
        return Ok(None);
    }
    for (known, segment_image) in known.iter().zip(&image.segments) {
        let (header, file, _) = open_file(files, image, segment_image, true)?;
        let segment = Segment::new(&header, known.slot, file);
        set_sealed(&segment, segment_image);
        segment.all_class_bytes.store(known.all_class_bytes, Relaxed);
        segment.live_class_bytes.store(known.live_class_bytes, Relaxed);
        if segments.insert_at(segment).is_none() {
            return Err(Error::corrupt(MANIFEST, 0, "its snapshot gives two segments one place"));
        }
        note_last_sequence(&header, segment_image.max_sequence, found);
    }
    if let Some(usage) = &usage {
        super::usage::sum(&index, usage);
    }
    Ok(Some((index, usage)))
}

fn note_last_sequence(header: &SegmentHeader, last_sequence: u64, found: &mut Recovered) {
    if header.stream == Stream::Log {
        let before_first = header.first_sequence.saturating_sub(1);
        found.last_sequence = found.last_sequence.max(last_sequence).max(before_first);
    }
}

fn recover_segment(
    files: &dyn Files,
    image: &ManifestImage,
    segment_image: &SegmentImage,
    segments: &SegmentTable,
    index: &Index,
    found: &mut Recovered,
) -> Result<()> {
    let (header, file, file_bytes) = open_file(files, image, segment_image, true)?;
    let segment = segments.insert(|slot| Segment::new(&header, slot, file))?;
    let entries = if segment_image.sealed {
        set_sealed(&segment, segment_image);
        let entries = segment.read_footer()?;
        let classes = entries.iter().map(|entry| entry.class.bytes() as u64).sum();
        segment.all_class_bytes.store(classes, Relaxed);
        note_last_sequence(&header, segment_image.max_sequence, found);
        entries
    } else {
        let tail = found.open_log.read(&segment, &header, segment_image, file_bytes, image)?;
        found.dropped.extend(tail.dropped(&segment));
        found.highest_version = found.highest_version.max(tail.highest_version);
        tail.flushes.into_iter().for_each(|flush| flush.apply(&mut found.flushes));
        tail.notes.iter().for_each(|note| note.apply(&mut found.notes));
        note_last_sequence(&header, tail.last_sequence, found);
        if tail.end == SEGMENT_HEADER_BYTES as u64 {
            segments.remove(segment.slot);
            found.garbage.push(segment.name());
            return Ok(());
        }
        let mut writer = Writer::recovered(segment.clone(), tail.end, Vec::new());
        let sequences = tail.sequences;
        writer.accept(0, &tail.entries, sequences);
        let name = segment.name();
        writer.seal().map_err(|error| Error::io(format!("sealing {name}"), error.source))?;
        tail.entries
    };
    for entry in &entries {
        if entry.offset >= START_BYTES_MAX {
            return Err(Error::corrupt(&segment.name(), entry.offset, "a record begins too far behind"));
        }
        let mut shard = index.write(entry.digest);
        shard.recover(entry.digest.tag, &index_entry(&segment, entry), entry.sequence);
    }
    Ok(())
}

/// Live bytes of each segment.
fn count_live(index: &Index, segments: &SegmentTable) {
    let table = segments.read();
    for shard in index.shards() {
        for (_, entry) in shard.entries() {
            if let Some(Some(segment)) = table.get(entry.location.slot as usize) {
                segment.count_live(entry.class, 1);
            }
        }
    }
}

/// The open segments of the log that were read so far. Each goes on where the one before ends: after a power loss, the
/// newer one may have records without those before them.
#[derive(Default)]
pub(super) struct OpenLog {
    /// The sequence at which the last one ends; `None`: none was read.
    last_sequence: Option<u64>,
    /// The place where the log ends, and why.
    stop: Option<(String, u64, &'static str)>,
}

impl OpenLog {
    /// Reads an open segment. Those of the log have to come in order.
    pub(super) fn read(
        &mut self,
        segment: &Arc<Segment>,
        header: &SegmentHeader,
        segment_image: &SegmentImage,
        file_bytes: u64,
        image: &ManifestImage,
    ) -> Result<Tail> {
        let first_sequence = self.first_sequence(header, segment_image, image);
        let tail = Tail::read(segment, first_sequence, segment_image.data_bytes, file_bytes, image)?;
        if segment.stream == Stream::Log {
            self.note(segment, &tail, image)?;
        }
        Ok(tail)
    }

    /// The sequence of the first record of a segment.
    fn first_sequence(&self, header: &SegmentHeader, segment: &SegmentImage, image: &ManifestImage) -> u64 {
        if header.stream != Stream::Log {
            return 0;
        }
        match self.last_sequence {
            Some(last) => last + 1,
            None if header.first_sequence > 0 => header.first_sequence,
            None if segment.min_sequence != u64::MAX => segment.min_sequence,
            // It was empty when the manifest was written.
            None => image.last_sequence + 1,
        }
    }

    fn note(&mut self, segment: &Segment, tail: &Tail, image: &ManifestImage) -> Result<()> {
        self.last_sequence = Some(tail.last_sequence);
        if tail.sequences.is_some() || self.stop.is_none() {
            let (at, why) = tail.stop;
            self.stop = Some((segment.name(), at, why));
        }
        let is_open = |known: &&SegmentImage| known.stream == Stream::Log && !known.sealed;
        let newest = image.segments.iter().rfind(is_open);
        if newest.is_none_or(|newest| newest.number <= segment.number)
            && image.last_sequence > tail.last_sequence
            && let Some((name, at, why)) = self.stop.take()
        {
            return Err(was_durable(&name, at, why));
        }
        Ok(())
    }
}

fn was_durable(name: &str, at: u64, why: &str) -> Error {
    Error::corrupt(name, at, format!("{why}, though what was here was durable"))
}

/// What an open segment turned out to hold.
pub(super) struct Tail {
    entries: Vec<FooterEntry>,
    flushes: Vec<FlushRecord>,
    notes: Vec<NoteRecord>,
    /// Where its last whole batch ends.
    end: u64,
    /// End of the bytes after that: only zeros follow.
    rest_end: u64,
    /// The offset at which reading ended, and the reason.
    stop: (u64, &'static str),
    /// Of the last whole batch.
    last_sequence: u64,
    /// The lowest and the highest sequence.
    sequences: Option<(u64, u64)>,
    highest_version: u64,
}

pub(super) struct FlushRecord {
    pub(super) header: Header,
    pub(super) prefix: Vec<u8>,
    /// Longer prefixes that it leaves alone.
    pub(super) except: Vec<Vec<u8>>,
}

impl FlushRecord {
    /// The flush, delayed flush or cancellation at this place, whose header and key these are. `None`: its value is
    /// broken, or none of a flush.
    pub(super) fn read(
        window: &mut Window,
        at: u64,
        header: Header,
        prefix: Vec<u8>,
    ) -> Result<Option<Self>> {
        if header.value_bytes > FLUSH_EXCEPTIONS_BYTES_MAX {
            return Ok(None);
        }
        let mut value = Vec::with_capacity(header.value_bytes);
        let is_whole = window.copy_value(at, &header, |piece| {
            value.extend_from_slice(piece);
            Ok(())
        })?;
        let except = if is_whole { decode_exceptions(&prefix, &value) } else { None };
        Ok(except.map(|except| Self { header, prefix, except }))
    }

    /// For records in any order: one that is older than what the table has changes nothing.
    pub(super) fn apply_if_newer(self, table: &mut FlushTable) {
        if self.header.kind == Kind::Flush || table.newest_of(&self.prefix) < self.header.sequence {
            self.apply(table);
        }
    }

    fn apply(self, table: &mut FlushTable) {
        let Header { sequence, version, exptime_secs, .. } = self.header;
        match self.header.kind {
            Kind::Flush => {
                let (by, except) = (self.header.flush_by, self.except);
                let mark = FlushMark { sequence, version, by, settled_sequence: u64::MAX, except };
                table.flush(&self.prefix, mark);
            }
            Kind::FlushAt => table.delay(&self.prefix, PendingMark { sequence, at_secs: exptime_secs }),
            _ => table.cancel(&self.prefix),
        }
    }
}

/// A note in the log.
pub(super) struct NoteRecord {
    name: Vec<u8>,
    note: Note,
}

impl NoteRecord {
    /// The note at this place, whose header and key these are. `None`: it is broken, or none.
    pub(super) fn read(window: &mut Window, at: u64, header: &Header, name: Vec<u8>) -> Result<Option<Self>> {
        if name.is_empty() || name.len() > NOTE_NAME_BYTES_MAX || header.value_bytes > NOTE_BYTES_MAX {
            return Ok(None);
        }
        let mut value = Vec::with_capacity(header.value_bytes);
        let is_whole = window.copy_value(at, header, |piece| {
            value.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(is_whole.then_some(Self { name, note: Note { sequence: header.sequence, value } }))
    }

    /// Unless there would be more than a store has.
    pub(super) fn apply(&self, table: &mut NoteTable) {
        if table.len() < NOTES_MAX || table.get(&self.name).is_some() {
            table.set(&self.name, self.note.clone());
        }
    }
}

impl Tail {
    /// `first_sequence`: of the first record, if it is a segment of the log. `durable_bytes`: what the manifest knows
    /// to have been durable.
    fn read(
        segment: &Arc<Segment>,
        first_sequence: u64,
        durable_bytes: u64,
        file_bytes: u64,
        image: &ManifestImage,
    ) -> Result<Self> {
        let is_log = segment.stream == Stream::Log;
        let mut window = Window::new(segment.clone());
        let mut tail = Self {
            entries: Vec::new(),
            flushes: Vec::new(),
            notes: Vec::new(),
            end: SEGMENT_HEADER_BYTES as u64,
            rest_end: 0,
            stop: (0, ""),
            last_sequence: first_sequence.saturating_sub(1),
            sequences: None,
            highest_version: 0,
        };
        let mut batch = Pending::default();
        let mut at = tail.end;
        let mut is_sealed = false;
        let why = loop {
            let found = match window.record_at(at)? {
                Ok(found) => found,
                Err(BadHeader::Zeros) => break "there is no record",
                Err(BadHeader::Checksum) => break "the checksum of a record's header does not match",
                Err(BadHeader::Sequence) => break "a sequence number is out of range",
                Err(bad @ BadHeader::Newer(_)) => return Err(segment.bad_header(at, bad)),
            };
            let header = found.header;
            let key = found.key.to_vec();
            if !window.verify_value(at, &header)? {
                break "the checksum of a value does not match";
            }
            let next = at + header.padded_bytes() as u64;
            if is_planted(Bug::IgnoreGap) && at == SEGMENT_HEADER_BYTES as u64 {
                tail.last_sequence = header.sequence.saturating_sub(1);
            }
            match header.kind {
                Kind::Footer => {
                    is_sealed = true;
                    break "the segment was about to be sealed here";
                }
                Kind::Commit => {
                    let expected_first = tail.last_sequence + 1;
                    if !is_log
                        || header.exptime_secs != expected_first
                        || header.sequence != batch.last(&tail)
                    {
                        break "a batch has no beginning";
                    }
                    tail.take(&mut batch, next);
                }
                Kind::Put | Kind::Delete | Kind::Flush | Kind::FlushAt | Kind::CancelFlushAt | Kind::Note => {
                    if is_log && header.sequence != batch.last(&tail) + 1 {
                        break "a record is out of order";
                    }
                    if matches!(header.kind, Kind::Put | Kind::Delete) {
                        let digest = image.secret.digest(&key);
                        batch.records.push((header, PendingKind::Item(FooterEntry::of(&header, digest, at))));
                    } else if header.kind == Kind::Note {
                        let Some(note) = NoteRecord::read(&mut window, at, &header, key)? else {
                            break "a note is too long";
                        };
                        batch.records.push((header, PendingKind::Note(note)));
                    } else {
                        let Some(flush) = FlushRecord::read(&mut window, at, header, key)? else {
                            break "the exceptions of a flush are none";
                        };
                        batch.records.push((header, PendingKind::Flush(flush)));
                    }
                    if !is_log {
                        tail.take(&mut batch, next);
                    }
                }
            }
            at = next;
        };
        if is_planted(Bug::IgnoreCommitMark) {
            tail.take(&mut batch, at);
        }
        let rest = Rest::read(&mut window, tail.end, file_bytes, tail.last_sequence)?;
        // A footer is written again.
        tail.rest_end = if is_sealed { tail.end } else { rest.end };
        if durable_bytes > tail.end || rest.proves_loss {
            return Err(was_durable(&segment.name(), at, why));
        }
        tail.stop = (at, why);
        Ok(tail)
    }

    /// The bytes after the last whole batch, if there are any.
    pub(super) fn dropped(&self, segment: &Segment) -> Option<DroppedTail> {
        let bytes = self.rest_end.saturating_sub(self.end);
        (bytes > 0).then(|| DroppedTail { file: segment.name(), offset: self.end, bytes })
    }

    fn take(&mut self, batch: &mut Pending, end: u64) {
        self.end = end;
        for (header, kind) in batch.records.drain(..) {
            let sequence = header.sequence;
            let (min, max) = self.sequences.unwrap_or((sequence, sequence));
            self.sequences = Some((min.min(sequence), max.max(sequence)));
            self.last_sequence = self.last_sequence.max(sequence);
            self.highest_version = self.highest_version.max(header.highest_version());
            match kind {
                PendingKind::Item(entry) => self.entries.push(entry),
                PendingKind::Flush(flush) => self.flushes.push(flush),
                PendingKind::Note(note) => self.notes.push(note),
            }
        }
    }
}

/// Records whose commit mark has not been seen yet.
#[derive(Default)]
struct Pending {
    records: Vec<(Header, PendingKind)>,
}

enum PendingKind {
    /// Of a key: a put or a deletion.
    Item(FooterEntry),
    Flush(FlushRecord),
    Note(NoteRecord),
}

impl Pending {
    fn last(&self, tail: &Tail) -> u64 {
        self.records.last().map_or(tail.last_sequence, |(header, ..)| header.sequence)
    }
}

/// Bytes after the last whole batch.
struct Rest {
    /// End of these bytes: only zeros follow.
    end: u64,
    /// A commit mark among them says that more was durable than was found. No client can have put it there, since its
    /// checksum begins with the store's secret.
    proves_loss: bool,
}

impl Rest {
    fn read(window: &mut Window, end: u64, file_bytes: u64, last_sequence: u64) -> Result<Self> {
        const STEP_BYTES: usize = 128 << 10;
        let mut rest = Self { end, proves_loss: false };
        let mut at = end;
        while at < file_bytes && !rest.proves_loss {
            let seed = window.seed();
            let bytes = window.bytes_at(at, STEP_BYTES + HEADER_BYTES)?;
            if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
                rest.end = at + last as u64 + 1;
            }
            let last_start = bytes.len().saturating_sub(HEADER_BYTES).min(STEP_BYTES);
            for start in (0..=last_start).step_by(ALIGN_BYTES) {
                let Some(head) = bytes.get(start..start + HEADER_BYTES) else { break };
                rest.proves_loss |= head[42] == Kind::Commit as u8
                    && u32_at(head, 4) as usize == HEADER_BYTES
                    && Header::decode(head, seed).is_ok_and(|mark| mark.version > last_sequence);
            }
            if bytes.len() < STEP_BYTES + HEADER_BYTES {
                break;
            }
            at += STEP_BYTES as u64;
        }
        Ok(rest)
    }
}
