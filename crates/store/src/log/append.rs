//! Appending a batch: one write, then the index.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use super::account::Account;
use super::index::IndexEntry;
use super::next::{SegmentFile, make_room};
use super::notes::Note;
use super::record::{EXTENSION_BYTES, HEADER_BYTES, Header, Kind, SEQUENCE_MAX, pad, padded};
use super::segment::{FooterEntry, Segment, take_log_number};
use super::{Appender, LogStore};
use crate::entry::{Entry, Marks, SequenceRange};
use crate::error::{Error, Result};
use crate::flushes::encode_exceptions;
use crate::usage::PrefixUsage;
use crate::validate::{exceptions_bytes, validate_batch, validate_notes};

/// Values from here on are written from where they are; smaller ones are copied into one piece.
const LARGE_VALUE_BYTES: usize = 16 << 10;

pub(super) fn append(store: &LogStore, entries: &[Entry<'_>]) -> Result<SequenceRange> {
    validate_batch(entries)?;
    let mut appender = store.appender();
    let result = append_locked(store, &mut appender, entries);
    let is_full = matches!(result, Err(Error::Full { .. }));
    store.counters.full_errors.fetch_add(u64::from(is_full), Relaxed);
    store.is_full.store(is_full, Relaxed);
    result
}

/// See [`Store::try_write`](crate::Store::try_write): takes room, and writes a mark.
pub(super) fn try_write(store: &LogStore, bytes: u64, entries: usize) -> Result<()> {
    let mut appender = store.appender();
    store.read_only.check()?;
    make_room(store, &mut appender, bytes + HEADER_BYTES as u64, entries, false)?;
    write_mark(store, &mut appender)
}

fn append_locked(store: &LogStore, appender: &mut Appender, entries: &[Entry<'_>]) -> Result<SequenceRange> {
    store.read_only.check()?;
    append_where(store, appender, entries, |appender, bytes| {
        // On a full disk, entries that free space later may use the space that is set aside for them.
        let only_removes = !entries
            .iter()
            .any(|entry| matches!(entry, Entry::Put(_) | Entry::Touch { .. } | Entry::Note { .. }));
        make_room(store, appender, bytes, entries.len(), only_removes)
    })
}

/// Implements [`Store::keep_readable`](crate::Store::keep_readable): the entries go to a segment in memory, and nothing
/// goes to the disk.
pub(super) fn keep_readable(store: &LogStore, entries: &[Entry<'_>]) -> Result<()> {
    validate_batch(entries)?;
    let mut appender = store.appender();
    if !store.read_only.is_set() {
        return append_locked(store, &mut appender, entries).map(drop);
    }
    if !appender.is_in_memory {
        let number = take_log_number(&mut store.manifest().next_number)?;
        let mut writer = SegmentFile::in_memory(store, number).open(store)?;
        writer.limit = u64::MAX;
        appender.writer = Some(writer);
        appender.is_in_memory = true;
    }
    append_where(store, &mut appender, entries, |_, _| Ok(())).map(drop)
}

/// Appends after `make_room` has made room for the given number of bytes.
fn append_where(
    store: &LogStore,
    appender: &mut Appender,
    entries: &[Entry<'_>],
    make_room: impl FnOnce(&mut Appender, u64) -> Result<()>,
) -> Result<SequenceRange> {
    {
        let notes = store.notes.read().unwrap_or_else(PoisonError::into_inner);
        validate_notes(entries, |name| notes.get(name).is_some(), notes.len())?;
    }
    let first = store.last_sequence.load(Relaxed) + 1;
    let last = first - 1 + entries.len() as u64;
    if last > SEQUENCE_MAX {
        return Err(Error::Full { doing: "appending: the sequence numbers are used up".to_owned() });
    }
    if entries.is_empty() {
        return Ok(SequenceRange { first, last });
    }
    let bytes =
        entries.iter().map(|entry| padded(record_bytes(entry)) as u64).sum::<u64>() + HEADER_BYTES as u64;
    make_room(appender, bytes)?;
    let durable = store.durable_sequence.load(Relaxed);
    let Appender { writer: Some(writer), scratch, noted_durable, .. } = appender else {
        return Err(Error::Full { doing: "appending".to_owned() });
    };

    scratch.clear();
    let mut batch = Batch::new(writer.segment.seed, writer.end, scratch);
    for (entry, sequence) in entries.iter().zip(first..) {
        batch.push(store, entry, sequence);
    }
    batch.push_commit(SequenceRange { first, last }, durable);
    let Batch { pieces, footer_entries, .. } = batch;
    let slices: Vec<IoSlice<'_>> = (pieces.iter())
        .map(|piece| match piece {
            Piece::Scratch(range) => IoSlice::new(&scratch[range.clone()]),
            Piece::Value(value) => IoSlice::new(value),
        })
        .collect();
    writer.write(&slices).map_err(|error| Error::io(format!("writing {}", writer.segment.name()), error))?;

    writer.accept(bytes, &footer_entries, Some((first, last)));
    *noted_durable = durable;
    store.counters.appended_bytes.fetch_add(bytes, Relaxed);
    let highest = entries.iter().map(Entry::highest_version).max().unwrap_or(0);
    store.highest_version.fetch_max(highest, Relaxed);
    publish(store, &writer.segment, entries, &footer_entries, first);
    store.last_sequence.store(last, Relaxed);
    if scratch.capacity() > 4 << 20 {
        *scratch = Vec::new();
    }
    Ok(SequenceRange { first, last })
}

/// Lets readers find what was written.
fn publish(
    store: &LogStore,
    segment: &Arc<Segment>,
    entries: &[Entry<'_>],
    footer_entries: &[FooterEntry],
    first: u64,
) {
    for (entry, sequence) in entries.iter().zip(first..) {
        if let Entry::Note { name, value } = *entry {
            let note = Note { sequence, value: value.to_vec() };
            store.notes.write().unwrap_or_else(PoisonError::into_inner).set(name, note);
        }
        store.flushes.append(entry, sequence);
    }
    let (mut records, mut tombstones) = (0, 0);
    let usage = store.usage();
    let keeps_tombstones = store.retention().is_replicated;
    // Of a put that has expired already the sweep that would find it may be over, so it is not counted at all.
    let now_unix_secs = store.now_unix_secs.load(Relaxed);
    let is_expired = |entry: &Entry<'_>| match entry {
        Entry::Put(put) => put.exptime_secs != 0 && put.exptime_secs <= now_unix_secs,
        _ => false,
    };
    let of_keys = entries.iter().filter(|entry| entry.has_key());
    for (entry, appended) in footer_entries.iter().zip(of_keys) {
        let mut new = index_entry(segment, entry);
        // It comes after a flush that means it: only cleaning finds out about those that came before.
        new.dead = entry.is_put && store.flushes.covers_version(appended.key(), appended.version());
        if let Some(usage) = usage.as_deref().filter(|_| new.is_live() && !is_expired(appended))
            && let Some(prefix) = usage.find(appended.key())
        {
            new.account = Account::new(prefix, entry.class, padded(record_bytes(appended)));
            usage.add(prefix, new.account.bytes(new.class));
        }
        let mut shard = store.index.write(entry.digest);
        let before = shard.put(entry.digest.tag, &new, keeps_tombstones);
        if let Some(before) = before {
            uncount(usage.as_deref(), &before);
            records -= i64::from(before.is_live());
            if !before.dead
                && let Some(old) = store.segments.get(before.location.slot)
            {
                old.count_live(before.class, -1);
            }
        }
        if (before.is_some() || entry.is_put || keeps_tombstones) && !new.dead {
            segment.count_live(new.class, 1);
            tombstones += i64::from(new.tombstone);
        }
        if new.tombstone && keeps_tombstones {
            segment.tombstone_version.fetch_max(appended.highest_version(), Relaxed);
        }
        tombstones -= i64::from(before.is_some_and(|before| before.tombstone));
        records += i64::from(new.is_live());
    }
    store.counters.records.fetch_add(records, Relaxed);
    if tombstones != 0 {
        store.counters.tombstones.fetch_add(tombstones, Relaxed);
    }
}

/// A record is no longer live: if it was counted, it is not any more.
pub(super) fn uncount(usage: Option<&PrefixUsage>, entry: &IndexEntry) {
    if let Some(usage) = usage.filter(|_| !entry.account.is_none()) {
        usage.add(entry.account.prefix(), -entry.account.bytes(entry.class));
    }
}

/// What the index says of a record.
pub(super) fn index_entry(segment: &Segment, entry: &FooterEntry) -> IndexEntry {
    IndexEntry {
        location: segment.location(entry.offset),
        class: entry.class,
        tombstone: !entry.is_put,
        dead: false,
        account: Account::NONE,
    }
}

/// The bytes of a batch, as they come together.
struct Batch<'a, 's> {
    seed: u32,
    /// Where the next record will be in the file.
    at: u64,
    scratch: &'s mut Vec<u8>,
    /// What of `scratch` is in `pieces`.
    taken: usize,
    pieces: Vec<Piece<'a>>,
    footer_entries: Vec<FooterEntry>,
}

enum Piece<'a> {
    Scratch(Range<usize>),
    Value(&'a [u8]),
}

impl<'a, 's> Batch<'a, 's> {
    fn new(seed: u32, at: u64, scratch: &'s mut Vec<u8>) -> Self {
        Self { seed, at, scratch, taken: 0, pieces: Vec::new(), footer_entries: Vec::new() }
    }

    fn push(&mut self, store: &LogStore, entry: &Entry<'a>, sequence: u64) {
        let header = header(entry, sequence);
        let key = entry.key();
        header.encode(key, self.seed, self.scratch);
        match entry {
            Entry::Put(put) if header.value_bytes < LARGE_VALUE_BYTES => {
                put.value.iter().for_each(|piece| self.scratch.extend_from_slice(piece));
            }
            Entry::Put(put) => {
                self.take_scratch();
                self.pieces.extend(put.value.iter().map(|piece| Piece::Value(piece)));
            }
            Entry::Flush { except, .. } => encode_exceptions(except, self.scratch),
            Entry::Note { value, .. } => self.scratch.extend_from_slice(value),
            _ => {}
        }
        pad(header.record_bytes(), self.scratch);
        if matches!(header.kind, Kind::Put | Kind::Delete) {
            self.footer_entries.push(FooterEntry::of(&header, store.secret.digest(key), self.at));
        }
        self.at += header.padded_bytes() as u64;
    }

    fn push_commit(&mut self, range: SequenceRange, durable: u64) {
        commit_mark(range, durable).encode(&[], self.seed, self.scratch);
        self.take_scratch();
    }

    fn take_scratch(&mut self) {
        self.pieces.push(Piece::Scratch(self.taken..self.scratch.len()));
        self.taken = self.scratch.len();
    }
}

fn commit_mark(range: SequenceRange, durable: u64) -> Header {
    Header { version: durable, exptime_secs: range.first, ..Header::bare(Kind::Commit, range.last) }
}

fn record_bytes(entry: &Entry<'_>) -> usize {
    let value_bytes = match entry {
        Entry::Put(put) => put.value_bytes(),
        Entry::Flush { except, .. } => exceptions_bytes(except),
        Entry::Note { value, .. } => value.len(),
        _ => 0,
    };
    let in_extension = [entry.base_version(), entry.expiry_value_version(), entry.expiry_version()];
    let extension_bytes = if in_extension == [0; 3] { 0 } else { EXTENSION_BYTES };
    HEADER_BYTES + entry.key().len() + extension_bytes + value_bytes
}

fn header(entry: &Entry<'_>, sequence: u64) -> Header {
    let bare = |kind| Header {
        key_bytes: entry.key().len(),
        version: entry.version(),
        base_version: entry.base_version(),
        expiry_value_version: entry.expiry_value_version(),
        expiry_version: entry.expiry_version(),
        ..Header::bare(kind, sequence)
    };
    match *entry {
        Entry::Put(put) => Header {
            value_bytes: put.value_bytes(),
            exptime_secs: put.exptime_secs,
            client_flags: put.client_flags,
            marks: put.marks,
            origin: put.origin,
            value_checksum: put.value.iter().fold(0, |sum, piece| crc32c::crc32c_append(sum, piece)),
            ..bare(Kind::Put)
        },
        Entry::Delete { .. } => bare(Kind::Delete),
        Entry::Touch { exptime_secs, .. } => Header { exptime_secs, ..bare(Kind::Delete) },
        Entry::Note { value, .. } => {
            Header { value_bytes: value.len(), value_checksum: crc32c::crc32c(value), ..bare(Kind::Note) }
        }
        Entry::Flush { except, by, .. } => {
            let mut value = Vec::new();
            encode_exceptions(except, &mut value);
            Header {
                value_bytes: value.len(),
                value_checksum: crc32c::crc32c(&value),
                flush_by: by,
                ..bare(Kind::Flush)
            }
        }
        Entry::FlushAt { at_secs, .. } => Header { exptime_secs: at_secs, ..bare(Kind::FlushAt) },
        Entry::CancelFlushAt { .. } => bare(Kind::CancelFlushAt),
    }
}

/// A header like that of a put, but of a deletion with the same sequence and version.
pub(super) fn tombstone_of(header: &Header) -> Header {
    Header {
        kind: Kind::Delete,
        value_bytes: 0,
        value_checksum: 0,
        exptime_secs: 0,
        client_flags: 0,
        marks: Marks::NONE,
        base_version: 0,
        expiry_value_version: 0,
        expiry_version: 0,
        ..*header
    }
}

/// Lets the log itself say what is durable, if nothing was appended since that could.
pub(super) fn note_durable(store: &LogStore, appender: &mut Appender) -> Result<()> {
    let durable = store.durable_sequence.load(Relaxed);
    let Appender { writer: Some(writer), noted_durable, .. } = appender else { return Ok(()) };
    if durable == *noted_durable || !writer.has_room(HEADER_BYTES as u64, 0) {
        return Ok(());
    }
    write_mark(store, appender)
}

/// Writes a mark of an empty batch, which says what is durable.
fn write_mark(store: &LogStore, appender: &mut Appender) -> Result<()> {
    let durable = store.durable_sequence.load(Relaxed);
    let last = store.last_sequence.load(Relaxed);
    let Appender { writer: Some(writer), noted_durable, .. } = appender else { return Ok(()) };
    let mut bytes = Vec::new();
    let nothing = SequenceRange { first: last + 1, last };
    commit_mark(nothing, durable).encode(&[], writer.segment.seed, &mut bytes);
    writer
        .write(&[IoSlice::new(&bytes)])
        .map_err(|error| Error::io(format!("writing {}", writer.segment.name()), error))?;
    writer.accept(bytes.len() as u64, &[], None);
    *noted_durable = durable;
    Ok(())
}
