//! Batches, and making them durable.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rocksdb::{WriteBatch, WriteOptions};
use rustix::fs::statvfs;

use super::ROCKS_VALUE_BYTES_MAX;
use super::record::{ITEM, PENDING, STATE, encode_flush, encode_item, encode_pair, flush_key, key_of};
use super::store::RocksStore;
use crate::entry::{Entry, FlushBy, SequenceRange};
use crate::error::{Error, Result};
use crate::log::bugs::{Bug, is_planted};
use crate::validate::validate_batch;

pub(super) fn append(store: &RocksStore, entries: &[Entry<'_>]) -> Result<SequenceRange> {
    let _appender = store.appender();
    store.read_only.check()?;
    validate_batch(entries)?;
    if entries.iter().any(|entry| value_bytes(entry) > ROCKS_VALUE_BYTES_MAX) {
        return Err(Error::Invalid { what: "its value has more than 64 MiB, and RocksDB keeps the store" });
    }
    if entries.iter().any(is_replicated) {
        return Err(Error::Unsupported { what: "replication" });
    }
    let first = store.last_sequence.load(Relaxed) + 1;
    let last = first - 1 + entries.len() as u64;
    if entries.is_empty() {
        return Ok(SequenceRange { first, last });
    }
    let written = find_room(store, entries).and_then(|()| write(store, entries, first, last));
    if let Err(Error::Full { .. }) = written {
        store.counters.full_errors.fetch_add(1, Relaxed);
    }
    written?;
    Ok(SequenceRange { first, last })
}

fn write(store: &RocksStore, entries: &[Entry<'_>], first: u64, last: u64) -> Result<()> {
    let mut batch = WriteBatch::default();
    for (entry, sequence) in entries.iter().zip(first..) {
        match *entry {
            Entry::Put(put) => batch.put(key_of(ITEM, put.key), encode_item(&put, sequence)),
            Entry::Delete { key, .. } => batch.delete(key_of(ITEM, key)),
            Entry::Flush { prefix, except, version, .. } => {
                batch.put(flush_key(sequence), encode_flush(prefix, except, version));
                batch.delete(key_of(PENDING, prefix));
            }
            Entry::FlushAt { prefix, at_secs } => {
                batch.put(key_of(PENDING, prefix), encode_pair(sequence, at_secs));
            }
            Entry::CancelFlushAt { prefix } => batch.delete(key_of(PENDING, prefix)),
            Entry::Touch { .. } | Entry::Note { .. } => {}
        }
    }
    let highest = entries.iter().map(Entry::version).max().unwrap_or(0);
    let highest = highest.max(store.highest_version.load(Relaxed));
    batch.put(STATE, encode_pair(last, highest));
    let bytes = batch.size_in_bytes() as u64;
    store.db.write_opt(batch, &unsynced()).map_err(|error| store.write_failed("appending", &error))?;

    store.counters.appended_bytes.fetch_add(bytes, Relaxed);
    store.highest_version.store(highest, Relaxed);
    for (entry, sequence) in entries.iter().zip(first..) {
        match *entry {
            Entry::Put(put) if put.exptime_secs != 0 => store.has_expiring.store(true, Relaxed),
            Entry::Flush { .. } if is_planted(Bug::IgnoreFlush) => {}
            _ => store.flushes.append(entry, sequence),
        }
    }
    store.last_sequence.store(last, Relaxed);
    Ok(())
}

/// Of a write that `sync` makes durable.
pub(super) fn unsynced() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(false);
    options
}

/// True if it says what only a replicated store keeps.
fn is_replicated(entry: &Entry<'_>) -> bool {
    match entry {
        Entry::Flush { by, .. } => *by == FlushBy::Version,
        Entry::Touch { .. } | Entry::Note { .. } => true,
        _ => false,
    }
}

fn value_bytes(entry: &Entry<'_>) -> usize {
    if let Entry::Put(put) = entry { put.value_bytes() } else { 0 }
}

/// Refuses in time: a RocksDB whose own writes find the disk full may write nothing more until it is opened again.
fn find_room(store: &RocksStore, entries: &[Entry<'_>]) -> Result<()> {
    let only_removes = !entries.iter().any(|entry| matches!(entry, Entry::Put(_)));
    let room = if only_removes { store.options.room_bytes() / 2 } else { store.options.room_bytes() };
    let bytes: usize = entries.iter().map(value_bytes).sum();
    if free_bytes(store)? < room + bytes as u64 {
        return Err(Error::Full { doing: "appending to RocksDB".to_owned() });
    }
    Ok(())
}

fn free_bytes(store: &RocksStore) -> Result<u64> {
    #[cfg(test)]
    if let Some(bytes) = store.faults.lock().ok().and_then(|faults| faults.free_bytes) {
        return Ok(bytes);
    }
    let system = statvfs(&store.directory).map_err(|error| {
        Error::io(format!("asking for the room in {}", store.directory.display()), error.into())
    })?;
    Ok(system.f_bavail.saturating_mul(system.f_frsize))
}

pub(super) fn sync(store: &RocksStore) -> Result<u64> {
    let last = {
        let _appender = store.appender();
        store.read_only.check()?;
        store.last_sequence.load(Relaxed)
    };
    store.counters.fsyncs.fetch_add(1, Relaxed);
    sync_log(store).map_err(|error| store.read_only.set(format!("fsync failed: {error}")))?;
    advance(&store.durable_sequence, last);
    Ok(store.durable_sequence.load(Relaxed))
}

fn sync_log(store: &RocksStore) -> std::result::Result<(), String> {
    #[cfg(test)]
    if store.faults.lock().is_ok_and(|faults| faults.fail_sync) {
        return Err("as the test demands".to_owned());
    }
    store.db.flush_wal(true).map_err(|error| error.to_string())
}

/// Numbers may come late, but never fall.
fn advance(sequence: &AtomicU64, to: u64) {
    sequence.fetch_max(to, Relaxed);
}

pub(super) fn close(store: &RocksStore) -> Result<()> {
    sync(store)?;
    let _appender = store.appender();
    store.read_only.check()?;
    // So that the next opening has no log to read.
    store.db.flush().map_err(|error| store.write_failed("closing", &error))?;
    store.read_only.set("it was closed".to_owned());
    store.db.cancel_all_background_work(true);
    Ok(())
}
