//! `MANIFEST`: which files make up the store. Replaced as a whole, by a rename, when a segment comes, is sealed or
//! goes.
//!
//! What it names is there: a missing file is damage. What it does not name is left over from a crash, and is removed.
//! Flushes and notes are in it too, so that cleaning need not carry their records.

use std::io::IoSlice;

use super::bugs::{Bug, is_planted};
use super::bytes::Bytes;
use super::digest::Secret;
use super::index::SLOTS_MAX;
use super::notes::{Note, NoteTable};
use super::record::SEQUENCE_MAX;
use super::segment::{DATA_BYTES_MAX, Expiry, FOOTER_BYTES_MAX, NUMBER_MAX, Stream};
use crate::entry::{FlushBy, NOTES_MAX};
use crate::error::{Error, Result};
use crate::files::Files;
use crate::flushes::{FlushMark, FlushTable, PendingMark, decode_exception, encode_exceptions};

pub(crate) const MANIFEST: &str = "MANIFEST";
pub(super) const MANIFEST_NEW: &str = "MANIFEST.new";
pub(crate) const MAGIC: &[u8; 8] = b"LARDRMAN";
/// Start of the file `MANIFEST` where an earlier larder kept a store with RocksDB.
const ROCKSDB_MAGIC: &[u8; 8] = b"LARDRRKS";
/// RocksDB makes this file: a directory that has it and no `MANIFEST` is damaged, not new.
pub(super) const ROCKSDB_FILE: &str = "CURRENT";
/// More than a million segments need. A sparse file may pretend to be longer than the memory.
pub(crate) const FILE_BYTES_MAX: u64 = 256 << 20;
/// Stands in the file while a backup is restored to the directory.
pub(crate) const RESTORING: &[u8] = b"A backup is being restored to this directory.\n";
/// A store with another major number, or a higher minor one than [`MINOR_MAX`], is refused.
pub(super) const FORMAT: (u16, u16) = (1, 2);
/// The minor number while a segment of the log is open: others may follow it, which an earlier larder takes for damage.
/// After a clean stop it can read the store.
const OPEN_LOG_MINOR: u16 = 3;
const MINOR_MAX: u16 = OPEN_LOG_MINOR;

/// The minor number of the first format in which flushes have exceptions.
const EXCEPTIONS_MINOR: u16 = 1;
/// The minor number of the first format with what replication needs.
const REPLICATION_MINOR: u16 = 2;

/// What the file says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ManifestImage {
    pub(crate) secret: Secret,
    /// Of the next segment, and of the next snapshot.
    pub(crate) next_number: u64,
    /// Of the last appended entry: all up to it was durable before the manifest was.
    pub(crate) last_sequence: u64,
    /// The highest version that an entry has had so far.
    pub(crate) highest_version: u64,
    /// In order of their numbers.
    pub(crate) segments: Vec<SegmentImage>,
    pub(crate) flushes: FlushTable,
    pub(crate) notes: NoteTable,
    /// See [`Store::incarnation`](crate::Store).
    pub(crate) incarnation: u64,
    /// No segment of the log that has entries from this sequence on was removed.
    pub(crate) log_start: u64,
    pub(crate) is_replicated: bool,
    /// The snapshot of the index, if nothing has changed since it was written.
    pub(crate) snapshot: Option<SnapshotImage>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SegmentImage {
    pub(crate) number: u64,
    pub(crate) stream: Stream,
    pub(crate) sealed: bool,
    /// Where its data ends: of a sealed segment, where the footer begins; of an open one, what is surely durable.
    pub(crate) data_bytes: u64,
    /// Of a sealed segment: the file's length.
    pub(crate) file_bytes: u64,
    /// Of a sealed segment: of its records.
    pub(crate) min_sequence: u64,
    pub(crate) max_sequence: u64,
    pub(crate) expiry: Expiry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotImage {
    pub(crate) number: u64,
    pub(crate) file_bytes: u64,
    pub(crate) checksum: u32,
}

impl ManifestImage {
    pub(super) fn new(secret: Secret) -> Self {
        Self {
            secret,
            next_number: 1,
            last_sequence: 0,
            highest_version: 0,
            segments: Vec::new(),
            flushes: FlushTable::default(),
            notes: NoteTable::default(),
            incarnation: fastrand::u64(1..),
            log_start: 1,
            is_replicated: false,
            snapshot: None,
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let has_open_log =
            self.segments.iter().any(|segment| segment.stream == Stream::Log && !segment.sealed);
        let minor = if has_open_log { OPEN_LOG_MINOR } else { FORMAT.1 };
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&FORMAT.0.to_le_bytes());
        out.extend_from_slice(&minor.to_le_bytes());
        out.extend_from_slice(&self.secret.0);
        out.extend_from_slice(&self.next_number.to_le_bytes());
        out.extend_from_slice(&self.last_sequence.to_le_bytes());
        out.extend_from_slice(&self.highest_version.to_le_bytes());
        out.extend_from_slice(&self.incarnation.to_le_bytes());
        out.extend_from_slice(&self.log_start.to_le_bytes());
        out.push(u8::from(self.is_replicated));
        out.extend_from_slice(&(self.segments.len() as u32).to_le_bytes());
        for segment in &self.segments {
            out.extend_from_slice(&segment.number.to_le_bytes());
            out.extend_from_slice(&[segment.stream as u8, u8::from(segment.sealed)]);
            for number in [segment.data_bytes, segment.file_bytes, segment.min_sequence, segment.max_sequence]
            {
                out.extend_from_slice(&number.to_le_bytes());
            }
            segment.expiry.encode(&mut out);
        }
        out.extend_from_slice(&(self.flushes.iter().count() as u32).to_le_bytes());
        for (prefix, mark) in self.flushes.iter() {
            put_prefix(&mut out, prefix, mark.sequence, mark.version);
            out.push(u8::from(mark.by == FlushBy::Version));
            out.extend_from_slice(&mark.settled_sequence.to_le_bytes());
            out.extend_from_slice(&(mark.except.len() as u16).to_le_bytes());
            encode_exceptions(&mark.except, &mut out);
        }
        out.extend_from_slice(&(self.flushes.pending.len() as u32).to_le_bytes());
        for (prefix, mark) in &self.flushes.pending {
            put_prefix(&mut out, prefix, mark.sequence, mark.at_secs);
        }
        let notes = if is_planted(Bug::LoseNotes) { &NoteTable::default() } else { &self.notes };
        out.extend_from_slice(&(notes.len() as u16).to_le_bytes());
        for (name, note) in notes.iter() {
            out.push(name.len() as u8);
            out.extend_from_slice(name);
            out.extend_from_slice(&note.sequence.to_le_bytes());
            out.extend_from_slice(&(note.value.len() as u16).to_le_bytes());
            out.extend_from_slice(&note.value);
        }
        out.push(u8::from(self.snapshot.is_some()));
        if let Some(snapshot) = &self.snapshot {
            out.extend_from_slice(&snapshot.number.to_le_bytes());
            out.extend_from_slice(&snapshot.file_bytes.to_le_bytes());
            out.extend_from_slice(&snapshot.checksum.to_le_bytes());
        }
        let checksum = crc32c::crc32c(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        if bytes == RESTORING {
            return Err(Error::Unrestored);
        }
        let damaged = |what: &str| Error::corrupt(MANIFEST, 0, what);
        let (body, checksum) = bytes.split_last_chunk::<4>().ok_or_else(|| damaged("it is too short"))?;
        let mut body = Bytes(body);
        match body.take(8) {
            Some(magic) if magic == MAGIC => {}
            Some(magic) if magic == ROCKSDB_MAGIC => return Err(Error::OfRocksDb),
            _ => return Err(damaged("it does not begin as a manifest does")),
        }
        let format = (body.u16(), body.u16());
        let (Some(major), Some(minor)) = format else { return Err(damaged("it is too short")) };
        if crc32c::crc32c(&bytes[..bytes.len() - 4]) != u32::from_le_bytes(*checksum) {
            return Err(damaged("its checksum does not match"));
        }
        refuse_newer(MANIFEST, (major, minor))?;
        Self::decode_body(&mut body, minor).ok_or_else(|| damaged("it is cut short, or says too much"))
    }

    fn decode_body(body: &mut Bytes<'_>, minor: u16) -> Option<Self> {
        let mut secret = [0; 16];
        secret.copy_from_slice(body.take(16)?);
        let mut image = Self::new(Secret(secret));
        image.next_number = body.u64()?;
        image.last_sequence = body.u64()?;
        image.highest_version = body.u64()?;
        if minor >= REPLICATION_MINOR {
            image.incarnation = body.u64()?;
            image.log_start = body.u64()?;
            image.is_replicated = body.u8()? == 1;
        } else {
            // The same at each reading. What was removed so far is not known.
            image.incarnation = image.secret.incarnation();
            image.log_start = image.last_sequence.saturating_add(1);
        }
        for _ in 0..body.u32().filter(|&count| (count as usize) < SLOTS_MAX)? {
            image.segments.push(SegmentImage {
                number: body.u64()?,
                stream: Stream::from_byte(body.u8()?)?,
                sealed: body.u8()? == 1,
                data_bytes: body.u64()?,
                file_bytes: body.u64()?,
                min_sequence: body.u64()?,
                max_sequence: body.u64()?,
                expiry: Expiry::decode(body)?,
            });
        }
        for _ in 0..body.u32()? {
            let (prefix, sequence, version) = take_prefix(body)?;
            let (mut by, mut settled_sequence) = (FlushBy::Sequence, u64::MAX);
            if minor >= REPLICATION_MINOR {
                by = if body.u8()? == 1 { FlushBy::Version } else { FlushBy::Sequence };
                settled_sequence = body.u64()?;
            }
            let count = if minor >= EXCEPTIONS_MINOR { body.u16()? } else { 0 };
            let except = (0..count).map(|_| decode_exception(prefix, body)).collect::<Option<_>>()?;
            image.flushes.insert(prefix, FlushMark { sequence, version, by, settled_sequence, except });
        }
        image.flushes.measure();
        for _ in 0..body.u32()? {
            let (prefix, sequence, at_secs) = take_prefix(body)?;
            image.flushes.delay(prefix, PendingMark { sequence, at_secs });
        }
        for _ in 0..if minor >= REPLICATION_MINOR { body.u16()? } else { 0 } {
            let length = usize::from(body.u8()?);
            let name = body.take(length)?;
            let (sequence, length) = (body.u64()?, usize::from(body.u16()?));
            image.notes.set(name, Note { sequence, value: body.take(length)?.to_vec() });
        }
        if body.u8()? == 1 {
            image.snapshot =
                Some(SnapshotImage { number: body.u64()?, file_bytes: body.u64()?, checksum: body.u32()? });
        }
        (body.0.is_empty() && image.is_sound()).then_some(image)
    }

    /// Are all numbers in their range? Then nothing that is computed from them overflows.
    fn is_sound(&self) -> bool {
        let is_sound = |segment: &SegmentImage| {
            let footer_bytes = segment.file_bytes.saturating_sub(segment.data_bytes);
            segment.data_bytes <= DATA_BYTES_MAX
                && footer_bytes <= FOOTER_BYTES_MAX
                && segment.max_sequence <= SEQUENCE_MAX
                && (segment.min_sequence <= SEQUENCE_MAX || segment.min_sequence == u64::MAX)
                && segment.number < self.next_number
        };
        let mut marks = self.flushes.marks.values().flatten().map(|mark| mark.sequence);
        let mut pending = self.flushes.pending.values().map(|mark| mark.sequence);
        self.next_number <= NUMBER_MAX + 1
            && self.last_sequence <= SEQUENCE_MAX
            && self.log_start <= SEQUENCE_MAX + 1
            && self.notes.len() <= NOTES_MAX
            && self.notes.iter().all(|(_, note)| note.sequence <= SEQUENCE_MAX)
            && self.segments.iter().all(is_sound)
            && self.segments.is_sorted_by(|one, other| one.number < other.number)
            && marks.all(|sequence| sequence <= SEQUENCE_MAX)
            && pending.all(|sequence| sequence <= SEQUENCE_MAX)
    }

    /// The file of a directory; `None` if there is none.
    pub(crate) fn read(files: &dyn Files) -> Result<Option<Self>> {
        read_bytes(files)?.map(|bytes| Self::decode(&bytes)).transpose()
    }

    /// Replaces the file. After an error before the first fsync the old one is there.
    pub(crate) fn write(&self, files: &dyn Files) -> std::result::Result<(), WriteFailure> {
        write_bytes(files, &self.encode())
    }
}

/// What the file of a directory says, whichever engine wrote it; `None` if there is none.
pub(crate) fn read_bytes(files: &dyn Files) -> Result<Option<Vec<u8>>> {
    let file = match files.open_to_read(MANIFEST) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("opening MANIFEST", error)),
    };
    let length = file.len().map_err(|error| Error::io("reading MANIFEST", error))?;
    if length > FILE_BYTES_MAX {
        return Err(Error::corrupt(MANIFEST, FILE_BYTES_MAX, "it is too long"));
    }
    let mut bytes = vec![0; length as usize];
    let count = file.read_at(&mut bytes, 0).map_err(|error| Error::io("reading MANIFEST", error))?;
    bytes.truncate(count);
    Ok(Some(bytes))
}

/// Replaces the file. After an error before the first fsync the old one is there.
pub(crate) fn write_bytes(files: &dyn Files, bytes: &[u8]) -> std::result::Result<(), WriteFailure> {
    let _ = files.remove(MANIFEST_NEW);
    let kept = |doing, error| WriteFailure { error: Error::io(doing, error), sync_failed: false };
    let file = files.create(MANIFEST_NEW).map_err(|error| kept("creating MANIFEST.new", error))?;
    file.write_at(&[IoSlice::new(bytes)], 0).map_err(|error| kept("writing MANIFEST.new", error))?;
    let uncertain = |doing, error| WriteFailure { error: Error::io(doing, error), sync_failed: true };
    // The old manifest is in place, and the next attempt writes a new file.
    let unless_passing = |doing, error| match Error::can_pass(&error) {
        true => kept(doing, error),
        false => uncertain(doing, error),
    };
    file.sync().map_err(|error| unless_passing("fsync of MANIFEST.new", error))?;
    files.rename(MANIFEST_NEW, MANIFEST).map_err(|error| unless_passing("renaming MANIFEST.new", error))?;
    sync_dir(files).map_err(|error| uncertain("fsync of the directory", error))
}

/// Why a manifest was not written.
pub(crate) struct WriteFailure {
    pub(crate) error: Error,
    /// An fsync or the rename failed, so it is unknown which of the two is on the disk.
    pub(crate) sync_failed: bool,
}

/// Makes the names durable.
pub(crate) fn sync_dir(files: &dyn Files) -> std::io::Result<()> {
    if is_planted(Bug::SkipDirSync) { Ok(()) } else { files.sync_dir() }
}

/// An error if a file of this format must not be read.
pub(super) fn refuse_newer(file: &str, (major, minor): (u16, u16)) -> Result<()> {
    if major != FORMAT.0 || minor > MINOR_MAX {
        return Err(Error::NewerFormat { file: file.to_owned(), format: format!("{major}.{minor}") });
    }
    Ok(())
}

fn put_prefix(out: &mut Vec<u8>, prefix: &[u8], sequence: u64, number: u64) {
    out.extend_from_slice(&(prefix.len() as u16).to_le_bytes());
    out.extend_from_slice(prefix);
    out.extend_from_slice(&sequence.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
}

fn take_prefix<'a>(body: &mut Bytes<'a>) -> Option<(&'a [u8], u64, u64)> {
    let length = usize::from(body.u16()?);
    Some((body.take(length)?, body.u64()?, body.u64()?))
}
