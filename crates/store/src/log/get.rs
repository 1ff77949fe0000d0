//! Reading one item: the index, then the disk.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::LogStore;
use super::index::{IndexEntry, Location};
use super::record::{FRONT_BYTES_MAX, HEADER_BYTES, Header, Kind, front_bytes};
use super::segment::Segment;
use crate::entry::{Meta, Sink};
use crate::error::{Error, Result};
use crate::state::KeyState;
use crate::store::TryGet;

/// The first read: all of a record of this length, of a longer one its front.
const FIRST_READ_BYTES: usize = 64 << 10;
/// Longer records are not read without waiting: copying them would take too long.
const TRY_BYTES_MAX: usize = 16 << 10;
/// Read for the state of a key.
const STATE_READ_BYTES: usize = 512;
/// The most that one read puts into a sink's buffer.
const PIECE_BYTES: usize = 1 << 20;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn get(
    store: &LogStore,
    key: &[u8],
    now_unix_secs: u64,
    sink: &mut dyn Sink,
) -> Result<Option<Meta>> {
    SCRATCH.with_borrow_mut(|scratch| {
        loop {
            let Some((segment, entry)) = locate(store, key) else { return Ok(None) };
            let location = entry.location;
            scratch.resize(entry.class.bytes().min(FIRST_READ_BYTES), 0);
            let count = read_front(store, &segment, location.offset, scratch)?;
            let Some(item) = item(store, &segment, location, &scratch[..count], key, now_unix_secs)? else {
                return Ok(None);
            };
            if is_current(store, key, &segment, location) {
                return read_value(store, &segment, location, item, sink);
            }
        }
    })
}

/// The same without waiting for the disk.
pub(super) fn try_get(
    store: &LogStore,
    key: &[u8],
    now_unix_secs: u64,
    found: &mut dyn FnMut(&Meta, &[u8]),
) -> TryGet {
    let Some((segment, entry)) = locate(store, key) else { return TryGet::Absent };
    let record_bytes_max = entry.class.bytes();
    if record_bytes_max > TRY_BYTES_MAX {
        return TryGet::WouldBlock;
    }
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.resize(record_bytes_max, 0);
        let Some(count) = segment.try_read(scratch, entry.location.offset) else {
            return TryGet::WouldBlock;
        };
        store.counters.reads.fetch_add(1, Relaxed);
        match item(store, &segment, entry.location, &scratch[..count], key, now_unix_secs) {
            Ok(None) => TryGet::Absent,
            Ok(Some(item)) if item.is_whole() && is_current(store, key, &segment, entry.location) => {
                found(&item.header.meta(), item.front);
                TryGet::Found
            }
            _ => TryGet::WouldBlock,
        }
    })
}

/// Where the newest record of a key is, if that may be an item.
fn locate(store: &LogStore, key: &[u8]) -> Option<(Arc<Segment>, IndexEntry)> {
    let digest = store.secret.digest(key);
    let shard = store.index.read(digest);
    let entry = shard.get(digest.tag).filter(|entry| entry.is_live())?;
    // Under the shard's lock: a segment goes when no entry names it any more.
    Some((store.segments.get(entry.location.slot)?, entry))
}

/// True if what the flushes say of a record that was just read holds: they are forgotten once no segment has records
/// that they mean, and the record's own segment may have gone meanwhile.
fn is_current(store: &LogStore, key: &[u8], segment: &Segment, location: Location) -> bool {
    if !segment.retired.load(Relaxed) {
        return true;
    }
    let digest = store.secret.digest(key);
    store.index.read(digest).get(digest.tag).is_some_and(|entry| entry.location == location)
}

/// The newest record of a key, and its segment.
fn newest(store: &LogStore, key: &[u8]) -> Option<(Arc<Segment>, IndexEntry)> {
    let digest = store.secret.digest(key);
    let shard = store.index.read(digest);
    shard.get(digest.tag).and_then(|entry| Some((store.segments.get(entry.location.slot)?, entry)))
}

/// See [`Store::sequence_bound`](crate::Store::sequence_bound).
pub(super) fn sequence_bound(store: &LogStore, key: &[u8]) -> Option<u64> {
    newest(store, key).map(|(segment, _)| segment.max_sequence.load(Relaxed))
}

/// What the newest record of a key says, but for what was flushed.
pub(super) fn state(store: &LogStore, key: &[u8]) -> Result<Option<KeyState>> {
    SCRATCH.with_borrow_mut(|scratch| {
        loop {
            let Some((segment, entry)) = newest(store, key) else { return Ok(None) };
            scratch.resize(entry.class.bytes().min(STATE_READ_BYTES), 0);
            let count = read_front(store, &segment, entry.location.offset, scratch)?;
            let header = Header::decode(&scratch[..count], segment.seed)
                .map_err(|bad| segment.bad_header(entry.location.offset, bad))?;
            if scratch[HEADER_BYTES..HEADER_BYTES + header.key_bytes] != *key {
                return Ok(None);
            }
            let left = store.flushes.left_of(key, header.state());
            if is_current(store, key, &segment, entry.location) {
                return Ok(left);
            }
        }
    })
}

/// Fills the buffer with the front of a record, and makes it longer if the key needs that: there are few such keys.
fn read_front(store: &LogStore, segment: &Segment, offset: u64, scratch: &mut Vec<u8>) -> Result<usize> {
    store.counters.reads.fetch_add(1, Relaxed);
    let count = segment.read(scratch, offset)?;
    if scratch[..count].first_chunk().is_none_or(|head| front_bytes(head) <= count) {
        return Ok(count);
    }
    scratch.resize(FRONT_BYTES_MAX, 0);
    store.counters.reads.fetch_add(1, Relaxed);
    segment.read(scratch, offset)
}

/// An item of which the first bytes have been read.
struct FrontOfItem<'b> {
    header: Header,
    /// Where its value begins in its record.
    value_start: usize,
    /// Of the value what was read.
    front: &'b [u8],
}

impl FrontOfItem<'_> {
    /// All of the value was read, and matches its checksum.
    fn is_whole(&self) -> bool {
        self.has_whole_value() && crc32c::crc32c(self.front) == self.header.value_checksum
    }

    fn has_whole_value(&self) -> bool {
        self.front.len() == self.header.value_bytes
    }
}

/// The item in the first bytes of a record, if it is of this key and neither expired nor flushed. The bytes have its
/// key.
fn item<'b>(
    store: &LogStore,
    segment: &Segment,
    Location { offset, .. }: Location,
    bytes: &'b [u8],
    key: &[u8],
    now_unix_secs: u64,
) -> Result<Option<FrontOfItem<'b>>> {
    let header = Header::decode(bytes, segment.seed).map_err(|bad| segment.bad_header(offset, bad))?;
    let value_start = header.value_start();
    if header.kind != Kind::Put || bytes[HEADER_BYTES..HEADER_BYTES + header.key_bytes] != *key {
        return Ok(None);
    }
    if header.meta().is_expired(now_unix_secs) || store.flushes.covers(key, header.sequence, header.version) {
        return Ok(None);
    }
    let front = &bytes[value_start..bytes.len().min(header.record_bytes())];
    Ok(Some(FrontOfItem { header, value_start, front }))
}

fn read_value(
    store: &LogStore,
    segment: &Segment,
    Location { offset, .. }: Location,
    item: FrontOfItem<'_>,
    sink: &mut dyn Sink,
) -> Result<Option<Meta>> {
    let wrong = || Error::corrupt(&segment.name(), offset, "the checksum of a value does not match");
    if item.has_whole_value() && !item.is_whole() {
        return Err(wrong());
    }
    let FrontOfItem { header, value_start, mut front } = item;
    let meta = header.meta();
    if !sink.start(&meta) {
        return Ok(Some(meta));
    }
    let mut done = 0;
    let mut checksum = 0;
    while done < header.value_bytes {
        let left = header.value_bytes - done;
        let buffer = sink.buffer(left);
        if buffer.is_empty() {
            return Err(Error::Declined);
        }
        let length = buffer.len().min(left).min(PIECE_BYTES);
        let buffer = &mut buffer[..length];
        let filled = if front.is_empty() {
            store.counters.reads.fetch_add(1, Relaxed);
            segment.read(buffer, offset + (value_start + done) as u64)?
        } else {
            let length = length.min(front.len());
            buffer[..length].copy_from_slice(&front[..length]);
            front = &front[length..];
            length
        };
        if filled == 0 {
            return Err(Error::corrupt(&segment.name(), offset, "the file ends within a value"));
        }
        checksum = crc32c::crc32c_append(checksum, &buffer[..filled]);
        done += filled;
    }
    if checksum != header.value_checksum {
        return Err(wrong());
    }
    Ok(Some(meta))
}
