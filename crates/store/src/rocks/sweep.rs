//! Removing what has expired or was flushed. Nobody sees it any more, but it takes room.
//!
//! A pass goes over all items in bounded steps. One that began after a flush ends with nothing that the flush covers,
//! so the flush is forgotten. What has expired is also dropped by RocksDB's compaction (`options`).

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use rocksdb::WriteBatch;

use super::append::unsynced;
use super::open::within;
use super::record::{FLUSH, ITEM, decode_item, flush_key};
use super::store::{RocksStore, failed};
use crate::error::Result;
use crate::flushes::FlushTable;
use crate::store::{Budget, Progress};

/// How far the sweeping is.
#[derive(Default)]
pub(super) struct Sweep {
    /// The pass that is under way.
    pass: Option<Pass>,
    /// When the last one began, in seconds of Unix time; 0: none has.
    began_secs: u64,
}

struct Pass {
    /// The next key of the database; `None`: all items were visited.
    next: Option<Vec<u8>>,
    /// The last sequence when the pass began: it removes all that flushes up to there cover.
    up_to: u64,
}

/// The least time between the beginnings of two passes, in seconds: if something was flushed, and if something may
/// have expired.
const FLUSHED_SECS: u64 = 60;
const EXPIRED_SECS: u64 = 3600;
/// A step visits at most so many records.
const STEP_RECORDS: usize = 10_000;

pub(super) fn maintain(store: &RocksStore, budget: Budget, now_unix_secs: u64) -> Result<Progress> {
    // It may be earlier than before: the clock was set back, and what is newer has not expired yet.
    store.now_unix_secs.store(now_unix_secs, Relaxed);
    if store.read_only.is_set() {
        return Ok(Progress::default());
    }
    let mut sweep = store.sweep.lock().unwrap_or_else(PoisonError::into_inner);
    if sweep.pass.is_none() && is_due(store, &sweep, now_unix_secs) {
        store.has_expiring.store(false, Relaxed);
        sweep.began_secs = now_unix_secs;
        sweep.pass = Some(Pass { next: Some(vec![ITEM]), up_to: store.last_sequence.load(Relaxed) });
    }
    let Some(pass) = &mut sweep.pass else { return Ok(Progress::default()) };
    let (bytes, is_done) = match &mut pass.next {
        Some(_) => (sweep_items(store, pass, budget, now_unix_secs)?, false),
        None => forget_flushes(store, pass.up_to)?,
    };
    if is_done {
        sweep.pass = None;
    }
    Ok(Progress { bytes, more: !is_done })
}

fn is_due(store: &RocksStore, sweep: &Sweep, now_unix_secs: u64) -> bool {
    // Also after the clock was set back.
    let since_secs = now_unix_secs.abs_diff(sweep.began_secs);
    let is_first = sweep.began_secs == 0;
    let is_flushed = store.flushes.newest() != 0;
    let may_be_expired = store.has_expiring.load(Relaxed);
    (is_flushed && (is_first || since_secs >= FLUSHED_SECS))
        || (may_be_expired && (is_first || since_secs >= EXPIRED_SECS))
}

/// Visits the next items. Returns how many bytes they have.
fn sweep_items(store: &RocksStore, pass: &mut Pass, budget: Budget, now_unix_secs: u64) -> Result<u64> {
    let flushes = store.flushes.read().clone();
    let mut items = store.db.raw_iterator_opt(within(ITEM));
    items.seek(pass.next.as_deref().unwrap_or_default());
    let (mut bytes, mut count, mut dead) = (0, 0, Vec::new());
    while let Some((key, value)) = items.item()
        && count < STEP_RECORDS
        && bytes < budget.bytes.max(1)
    {
        bytes += (key.len() + value.len()) as u64;
        count += 1;
        if is_dead(store, key, value, &flushes, now_unix_secs)? {
            dead.push(key.to_vec());
        }
        items.next();
    }
    let next = items.key().map(<[u8]>::to_vec);
    items.status().map_err(|error| failed("sweeping", &error))?;
    drop(items);
    remove(store, &dead, &flushes, now_unix_secs)?;
    pass.next = next;
    Ok(bytes)
}

fn is_dead(
    store: &RocksStore,
    key: &[u8],
    value: &[u8],
    flushes: &FlushTable,
    now_unix_secs: u64,
) -> Result<bool> {
    let (meta, _) = decode_item(value)?;
    if meta.is_expired(now_unix_secs) {
        return Ok(true);
    }
    if meta.exptime_secs != 0 {
        store.has_expiring.store(true, Relaxed);
    }
    Ok(meta.sequence < flushes.newest(key.get(1..).unwrap_or_default()))
}

/// Removes these items, unless a newer one has come meanwhile. The log of RocksDB has this behind the flushes that
/// covered them, so it cannot survive without them.
fn remove(store: &RocksStore, dead: &[Vec<u8>], flushes: &FlushTable, now_unix_secs: u64) -> Result<()> {
    if dead.is_empty() {
        return Ok(());
    }
    let _appender = store.appender();
    let mut batch = WriteBatch::default();
    for key in dead {
        let found = store.db.get_pinned(key).map_err(|error| failed("sweeping", &error))?;
        if let Some(value) = found
            && is_dead(store, key, &value, flushes, now_unix_secs)?
        {
            batch.delete(key);
        }
    }
    write(store, batch)
}

/// Forgets flushes that cover nothing any more. Returns the bytes of their records, and whether it has come to the end.
fn forget_flushes(store: &RocksStore, up_to: u64) -> Result<(u64, bool)> {
    let _appender = store.appender();
    let mut batch = WriteBatch::default();
    let mut records = store.db.raw_iterator_opt(within(FLUSH));
    records.seek([FLUSH]);
    let end = flush_key(up_to);
    let (mut bytes, mut count) = (0, 0);
    while let Some((key, value)) = records.item()
        && key <= &end[..]
        && count < STEP_RECORDS
    {
        bytes += (key.len() + value.len()) as u64;
        count += 1;
        batch.delete(key);
        records.next();
    }
    records.status().map_err(|error| failed("sweeping", &error))?;
    write(store, batch)?;
    let is_done = count < STEP_RECORDS;
    if is_done {
        store.flushes.change(|table| table.forget_below(up_to));
    }
    Ok((bytes, is_done))
}

/// To be called by who has the appender.
fn write(store: &RocksStore, batch: WriteBatch) -> Result<()> {
    store.read_only.check()?;
    if batch.is_empty() {
        return Ok(());
    }
    store.db.write_opt(batch, &unsynced()).map_err(|error| store.write_failed("sweeping", &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Entry, FlushBy, Marks, Put};
    use crate::rocks::RocksOptions;
    use crate::store::Store;

    const NOW_SECS: u64 = 1_900_000_000;

    fn put(store: &RocksStore, key: &str, exptime_secs: u64) {
        let put = Put {
            key: key.as_bytes(),
            value: &[b"value"],
            client_flags: 0,
            exptime_secs,
            version: 1,
            marks: Marks::NONE,
            origin: 0,
            expiry_value_version: 0,
            expiry_version: 0,
            base_version: 0,
        };
        store.append(&[Entry::Put(put)]).expect("appends");
    }

    fn records(store: &RocksStore, kind: u8) -> usize {
        let mut records = store.db.raw_iterator_opt(within(kind));
        records.seek([kind]);
        let mut count = 0;
        while records.valid() {
            count += 1;
            records.next();
        }
        count
    }

    /// Steps until there is nothing to do. Returns how many there were.
    fn sweep(store: &RocksStore, bytes: u64, now_secs: u64) -> usize {
        let mut steps = 1;
        while store.maintain(Budget { bytes }, now_secs).expect("sweeps").more {
            steps += 1;
        }
        steps
    }

    #[test]
    fn what_is_gone_leaves_the_database_in_bounded_steps() {
        let directory = std::env::temp_dir().join(format!("larder-sweep-{}", std::process::id()));
        let store = RocksStore::open(&directory, RocksOptions::default()).expect("opens");
        for nth in 0..300 {
            put(&store, &format!("a:{nth:03}"), 0);
            put(&store, &format!("b:{nth:03}"), if nth < 100 { NOW_SECS + 1 } else { 0 });
        }
        for prefix in ["a:", "a:1"] {
            store
                .append(&[Entry::Flush {
                    prefix: prefix.as_bytes(),
                    except: &[],
                    version: 2,
                    by: FlushBy::Sequence,
                }])
                .expect("appends");
        }
        put(&store, "a:000", 0);
        assert_eq!((records(&store, ITEM), records(&store, FLUSH)), (600, 2));
        let steps = sweep(&store, 1_000, NOW_SECS);
        // An item has 6 bytes of key and 36 of value: 24 of them exceed a budget of 1,000.
        assert!((600 / 24..=600 / 24 + 3).contains(&steps), "{steps}");
        assert_eq!((records(&store, ITEM), records(&store, FLUSH)), (301, 0));
        assert!(store.flushes.read().marks.is_empty());
        assert_eq!(sweep(&store, 1_000, NOW_SECS + 1), 1, "the next pass is not due");
        sweep(&store, 1 << 20, NOW_SECS + EXPIRED_SECS);
        assert_eq!(records(&store, ITEM), 201);
        assert_eq!(sweep(&store, 1, NOW_SECS + 2 * EXPIRED_SECS), 1, "nothing expires any more");
        // A flush that comes while a pass is under way is for the next one.
        store
            .append(&[Entry::Flush { prefix: b"b:", except: &[], version: 3, by: FlushBy::Sequence }])
            .expect("appends");
        store.maintain(Budget { bytes: 1 }, NOW_SECS + 3 * EXPIRED_SECS).expect("sweeps");
        store
            .append(&[Entry::Flush { prefix: b"", except: &[], version: 4, by: FlushBy::Sequence }])
            .expect("appends");
        sweep(&store, 1 << 20, NOW_SECS + 3 * EXPIRED_SECS);
        assert_eq!(records(&store, FLUSH), 1);
        sweep(&store, 1 << 20, NOW_SECS + 4 * EXPIRED_SECS);
        assert_eq!((records(&store, ITEM), records(&store, FLUSH)), (0, 0));
        drop(store);
        std::fs::remove_dir_all(directory).expect("removes");
    }
}
