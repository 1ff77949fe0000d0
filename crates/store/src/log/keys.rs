//! A scan of all items, segment by segment: what moves or changes meanwhile gets a place further on.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::LogStore;
use super::record::Kind;
use super::segment::{FooterEntry, SEGMENT_HEADER_BYTES, Segment};
use super::window::Window;
use crate::entry::Meta;
use crate::error::Result;
use crate::store::{Cursor, Position};

pub(super) fn for_each_key(
    store: &LogStore,
    cursor: &mut Cursor,
    limit: usize,
    now_unix_secs: u64,
    visit: &mut dyn FnMut(&[u8], &Meta),
) -> Result<bool> {
    let (number, offset) = match &cursor.position {
        Position::Start | Position::AfterKey(_) => (0, 0),
        Position::At { segment, offset } => (*segment, *offset),
        Position::End => return Ok(false),
    };
    let mut left = limit.max(1);
    let mut next = store.segments.first_from(number);
    while let Some(segment) = next {
        let from = if segment.number == number { offset } else { 0 };
        let from = from.max(SEGMENT_HEADER_BYTES as u64);
        let stopped_at = visit_segment(store, &segment, from, &mut left, now_unix_secs, visit)?;
        if let Some(offset) = stopped_at {
            cursor.position = Position::At { segment: segment.number, offset };
            return Ok(true);
        }
        next = store.segments.first_from(segment.number + 1);
        if left == 0
            && let Some(later) = &next
        {
            cursor.position = Position::At { segment: later.number, offset: 0 };
            return Ok(true);
        }
    }
    cursor.position = Position::End;
    Ok(false)
}

/// Visits the items of a segment from `from` on. Returns where to go on, if `left` was used up before its end.
fn visit_segment(
    store: &LogStore,
    segment: &Arc<Segment>,
    from: u64,
    left: &mut usize,
    now_unix_secs: u64,
    visit: &mut dyn FnMut(&[u8], &Meta),
) -> Result<Option<u64>> {
    let mut window = Window::new(segment.clone());
    // Without its footer all of it is read.
    if segment.sealed.load(Acquire)
        && let Ok(entries) = segment.read_footer()
    {
        let start = entries.partition_point(|entry| entry.offset < from);
        for entry in entries[start..].iter().filter(|entry| entry.is_put) {
            if *left == 0 {
                return Ok(Some(entry.offset));
            }
            visit_record(store, segment, &mut window, entry.offset, Some(entry), now_unix_secs, left, visit)?;
        }
        return Ok(None);
    }
    let mut offset = from;
    // What is overwritten meanwhile may go to the end of this one.
    while offset < segment.data_bytes.load(Acquire) {
        if *left == 0 {
            return Ok(Some(offset));
        }
        offset += visit_record(store, segment, &mut window, offset, None, now_unix_secs, left, visit)?;
    }
    Ok(None)
}

/// Visits the record at `offset`, if it is an item. Returns its length, 0 if it was not read.
#[expect(
    clippy::too_many_arguments,
    reason = "a step of one loop, apart for two ways to find the next record"
)]
fn visit_record(
    store: &LogStore,
    segment: &Arc<Segment>,
    window: &mut Window,
    offset: u64,
    entry: Option<&FooterEntry>,
    now_unix_secs: u64,
    left: &mut usize,
    visit: &mut dyn FnMut(&[u8], &Meta),
) -> Result<u64> {
    // A retired segment's slot may be another's by now; what was live in it is visited there.
    let is_newest = |digest: super::digest::Digest| {
        let found = store.index.read(digest).get(digest.tag);
        found.is_some_and(|found| found.is_live() && found.location == segment.location(offset))
            && !segment.retired.load(Relaxed)
    };
    if entry.is_some_and(|entry| !is_newest(entry.digest)) {
        return Ok(0);
    }
    store.counters.reads.fetch_add(1, Relaxed);
    let found = window.record_at(offset)?.map_err(|bad| segment.bad_header(offset, bad))?;
    let (meta, padded_bytes) = (found.header.meta(), found.header.padded_bytes() as u64);
    if found.header.kind == Kind::Put
        && (entry.is_some() || is_newest(store.secret.digest(found.key)))
        && !meta.is_expired(now_unix_secs)
        && !store.flushes.covers(found.key, meta.sequence, meta.version)
    {
        visit(found.key, &meta);
        *left -= 1;
    }
    Ok(padded_bytes)
}
