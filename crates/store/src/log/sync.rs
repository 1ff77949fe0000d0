//! Making durable what was appended.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use super::bugs::{Bug, is_planted};
use super::segment::Segment;
use super::writer::{Writer, sync_file};
use super::{Appender, LogStore};
use crate::error::Result;

/// A sync that has begun: it makes everything durable that was appended before.
pub(super) struct Sync {
    /// The open segments in order, each with its number of writes and its end. None: nothing was written since the last
    /// seal.
    written: [Option<(Arc<Segment>, u64, u64)>; 2],
    last: u64,
}

/// Begins a sync. [`Sync::finish`] performs it without the appender's lock, so appending goes on meanwhile.
pub(super) fn begin_sync(store: &LogStore, appender: &Appender) -> Sync {
    let covered = |writer: &Writer| (writer.segment.clone(), writer.writes, writer.end);
    let full = appender.full.as_deref().filter(|_| !is_planted(Bug::SyncNewestAlone));
    let written = [full.map(covered), appender.writer.as_ref().map(covered)];
    Sync { written, last: store.last_sequence.load(Relaxed) }
}

impl Sync {
    pub(super) fn finish(self, store: &LogStore) -> Result<u64> {
        // The system reports a failed fsync only once: a second concurrent call would take the failure for success.
        let _syncing = store.syncing();
        store.read_only.check()?;
        for (segment, writes, end) in self.written.into_iter().flatten() {
            if segment.synced_writes.load(Relaxed) < writes {
                store.counters.fsyncs.fetch_add(1, Relaxed);
                sync_file(&segment, writes, end)
                    .map_err(|error| store.write_failed(format!("writing {}", segment.name()), error))?;
            }
        }
        store.durable_sequence.fetch_max(self.last, Release);
        Ok(store.durable_sequence.load(Relaxed))
    }
}

/// Makes everything that was appended before durable.
pub(super) fn sync(store: &LogStore) -> Result<u64> {
    let sync = begin_sync(store, &store.appender());
    sync.finish(store)
}
