//! Reading one item: the index, then the disk.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::LogStore;
use super::index::Location;
use super::record::{HEADER_BYTES, Header, Kind, u16_at};
use super::segment::Segment;
use crate::entry::{KEY_BYTES_MAX, Meta, Sink};
use crate::error::{Error, Result};

/// The first read: all of a record of this length, of a longer one its front.
const FIRST_READ_BYTES: usize = 64 << 10;
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
    let digest = store.secret.digest(key);
    let (segment, location, class) = {
        let shard = store.index.read(digest);
        let Some(entry) = shard.get(digest.tag).filter(|entry| entry.is_live()) else { return Ok(None) };
        // Under the shard's lock: a segment goes when no entry names it any more.
        let Some(segment) = store.segments.get(entry.location.slot) else { return Ok(None) };
        (segment, entry.location, entry.class)
    };
    let first_bytes = class.bytes().min(FIRST_READ_BYTES);
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.resize(first_bytes, 0);
        read_record(store, &segment, location, scratch, key, now_unix_secs, sink)
    })
}

fn read_record(
    store: &LogStore,
    segment: &Arc<Segment>,
    Location { offset, .. }: Location,
    scratch: &mut Vec<u8>,
    key: &[u8],
    now_unix_secs: u64,
    sink: &mut dyn Sink,
) -> Result<Option<Meta>> {
    store.counters.reads.fetch_add(1, Relaxed);
    let mut count = segment.read(scratch, offset)?;
    // A key that is longer than the first read: there are few.
    if count >= HEADER_BYTES && count < HEADER_BYTES + usize::from(u16_at(scratch, 40)) {
        scratch.resize(HEADER_BYTES + KEY_BYTES_MAX, 0);
        store.counters.reads.fetch_add(1, Relaxed);
        count = segment.read(scratch, offset)?;
    }
    let bytes = &scratch[..count];
    let header = Header::decode(bytes, segment.seed).map_err(|bad| segment.bad_header(offset, bad))?;
    let key_end = HEADER_BYTES + header.key_bytes;
    if header.kind != Kind::Put || bytes[HEADER_BYTES..key_end] != *key {
        return Ok(None);
    }
    let meta = header.meta();
    if meta.is_expired(now_unix_secs) || store.flushes.covers(key, meta.sequence) {
        return Ok(None);
    }
    let front = &bytes[key_end..count.min(header.record_bytes())];
    let wrong = || Error::corrupt(&segment.name(), offset, "the checksum of a value does not match");
    if front.len() == header.value_bytes && crc32c::crc32c(front) != header.value_checksum {
        return Err(wrong());
    }
    if !sink.start(&meta) {
        return Ok(Some(meta));
    }
    let mut front = front;
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
            segment.read(buffer, offset + (key_end + done) as u64)?
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
