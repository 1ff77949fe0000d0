//! What cleaning keeps for other sites: the end of the log, deletions, and items that have expired.

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use super::bugs::{Bug, is_planted};
use super::record::{Header, Kind};
use super::segment::{Segment, Stream};
use super::sync::begin_sync;
use super::{LogStore, clean};
use crate::entry::Marks;
use crate::error::Result;
use crate::history::Retention;

pub(super) fn retain(store: &LogStore, retention: Retention) -> Result<()> {
    if store.retention().is_replicated != retention.is_replicated {
        // A start has to know which tombstones stay.
        let _cleaner = clean::lock(store);
        let appender = store.appender();
        begin_sync(store, &appender).finish(store)?;
        let mut image = store.capture(&appender);
        image.is_replicated = retention.is_replicated;
        store.publish(&mut store.manifest(), image)?;
        set(store, retention);
    }
    set(store, retention);
    let version = retention.deletions_above_version;
    if store.flushes.read().has_unsettled(version) {
        store.flushes.change(|table| table.settle(version, store.last_sequence.load(Relaxed)));
    }
    Ok(())
}

fn set(store: &LogStore, retention: Retention) {
    *store.retention.write().unwrap_or_else(PoisonError::into_inner) = retention;
}

fn is_log(segment: &Segment) -> bool {
    segment.stream == Stream::Log && !segment.retired.load(Relaxed)
}

/// The files of the log.
pub(super) fn log_bytes(segments: &[Arc<Segment>]) -> u64 {
    log_bytes_after(segments, 0)
}

/// Those that have something after this sequence.
pub(super) fn log_bytes_after(segments: &[Arc<Segment>], sequence: u64) -> u64 {
    let has_more = |segment: &&Arc<Segment>| sequence == 0 || is_needed(segment, sequence);
    let files = segments.iter().filter(|segment| is_log(segment)).filter(has_more);
    files.map(|segment| segment.file_bytes.load(Relaxed)).sum()
}

/// Up to which sequence nobody needs the log. The segments are in order of their numbers.
pub(super) fn log_floor(retention: &Retention, segments: &[Arc<Segment>]) -> u64 {
    if is_planted(Bug::CleanNeededLog) {
        return u64::MAX;
    }
    let mut bytes = 0_u64;
    for segment in segments.iter().rev().filter(|segment| is_log(segment) && segment.has_records()) {
        bytes = bytes.saturating_add(segment.file_bytes.load(Relaxed));
        if bytes > retention.log_bytes_max {
            return retention.log_after_sequence.max(segment.max_sequence.load(Relaxed));
        }
    }
    retention.log_after_sequence
}

/// Does somebody still read the segment as a part of the log?
pub(super) fn is_needed(segment: &Segment, log_floor: u64) -> bool {
    segment.stream == Stream::Log && segment.max_sequence.load(Relaxed) > log_floor
}

/// What of the newest record of a key has to stay; `None`: nothing, but perhaps a tombstone for older records.
pub(super) fn left_of(
    store: &LogStore,
    retention: &Retention,
    header: &Header,
    key: &[u8],
    now_unix_secs: u64,
) -> Option<Header> {
    if !retention.is_replicated {
        let is_dead = header.kind != Kind::Put
            || header.meta().is_expired(now_unix_secs)
            || store.flushes.covers(key, header.sequence, header.version);
        return (!is_dead).then_some(*header);
    }
    let state = store.flushes.left_of(key, header.state())?;
    let is_forgotten = is_planted(Bug::ForgetDeletions) && state.item.is_none();
    if is_forgotten || state.is_obsolete(retention.deletions_above_version, now_unix_secs) {
        return None;
    }
    if state.item.is_some() {
        return Some(*header);
    }
    Some(Header {
        kind: Kind::Delete,
        value_bytes: 0,
        value_checksum: 0,
        exptime_secs: state.exptime_secs,
        client_flags: 0,
        marks: Marks::NONE,
        version: state.version,
        base_version: state.base_version,
        expiry_value_version: state.expiry_value_version,
        expiry_version: state.expiry_version,
        ..*header
    })
}
