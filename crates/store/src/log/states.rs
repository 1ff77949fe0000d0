//! A scan of all states with their values, as [`keys`](super::keys) scans items.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::LogStore;
use super::digest::Digest;
use super::record::Kind;
use super::segment::{FooterEntry, SEGMENT_HEADER_BYTES, Segment};
use super::window::Window;
use crate::error::{Error, Result};
use crate::state::VisitState;
use crate::store::{Cursor, Position};

/// What a state counts for beside key and value.
const STATE_BYTES: usize = 64;
/// From here on a segment is read whole.
const LIVE_SHARE_TO_READ: f64 = 0.5;
/// What a record counts for that is not visited.
const STEP_BYTES: usize = 1;

/// `unreadable` counts what cannot be read; `None`: it ends the scan.
pub(super) fn for_each_state(
    store: &LogStore,
    cursor: &mut Cursor,
    budget_bytes: usize,
    unreadable: Option<&mut u64>,
    visit: &mut VisitState<'_>,
) -> Result<bool> {
    let (number, offset) = match &cursor.position {
        Position::Start | Position::AfterKey(_) => (0, 0),
        Position::At { segment, offset } => (*segment, *offset),
        Position::End => return Ok(false),
    };
    let mut scan = Scan { store, left_bytes: budget_bytes.max(1), value: Vec::new(), unreadable, visit };
    let mut next = store.segments.first_from(number);
    while let Some(segment) = next {
        let from = if segment.number == number { offset } else { 0 };
        let stopped_at = scan.visit_segment(&segment, from.max(SEGMENT_HEADER_BYTES as u64))?;
        if let Some(offset) = stopped_at {
            cursor.position = Position::At { segment: segment.number, offset };
            return Ok(true);
        }
        next = store.segments.first_from(segment.number + 1);
        if scan.left_bytes == 0
            && let Some(later) = &next
        {
            cursor.position = Position::At { segment: later.number, offset: 0 };
            return Ok(true);
        }
    }
    cursor.position = Position::End;
    Ok(false)
}

struct Scan<'s, 'v> {
    store: &'s LogStore,
    left_bytes: usize,
    value: Vec<u8>,
    unreadable: Option<&'s mut u64>,
    visit: &'s mut VisitState<'v>,
}

impl Scan<'_, '_> {
    /// Visits the states of a segment from `from` on. Returns where to go on, if the budget was used up before its end.
    fn visit_segment(&mut self, segment: &Arc<Segment>, from: u64) -> Result<Option<u64>> {
        let mut window = Window::new(segment.clone());
        // Each step reads the footer anew, which says what is worth reading: of no use where most of it is. And who
        // passes over what is damaged takes small steps. Without its footer all of it is read.
        let is_sparse = segment.sealed.load(Acquire) && segment.live_share() < LIVE_SHARE_TO_READ;
        if is_sparse
            && self.unreadable.is_none()
            && let Ok(entries) = segment.read_footer()
        {
            return self.visit_by_footer(segment, &mut window, &entries, from);
        }
        let mut offset = from;
        let mut named = None;
        // What is overwritten meanwhile may go to the end of this one.
        while offset < segment.data_bytes.load(Acquire) {
            if self.left_bytes == 0 {
                return Ok(Some(offset));
            }
            let left_bytes = self.left_bytes;
            offset = match self.visit_record(segment, &mut window, offset) {
                Ok(bytes) => {
                    let read_bytes = if self.unreadable.is_some() { bytes as usize } else { STEP_BYTES };
                    self.left_bytes = self.left_bytes.min(left_bytes.saturating_sub(read_bytes));
                    offset + bytes
                }
                Err(error @ Error::NewerFormat { .. }) => return Err(error),
                // Nobody knows what it is of, and where the next one begins, but the index knows which are wanted.
                Err(error) => {
                    let named = named.get_or_insert_with(|| self.named_in(segment, offset));
                    if named.binary_search(&offset).is_ok() {
                        self.pass(error)?;
                    }
                    match named.get(named.partition_point(|&at| at <= offset)) {
                        Some(&next) => next,
                        None => return Ok(None),
                    }
                }
            };
        }
        Ok(None)
    }

    fn visit_by_footer(
        &mut self,
        segment: &Arc<Segment>,
        window: &mut Window,
        entries: &[FooterEntry],
        from: u64,
    ) -> Result<Option<u64>> {
        let start = entries.partition_point(|entry| entry.offset < from);
        for entry in &entries[start..] {
            if self.left_bytes == 0 {
                return Ok(Some(entry.offset));
            }
            self.left_bytes -= STEP_BYTES;
            if self.is_newest(segment, entry.digest, entry.offset) {
                self.visit_record(segment, window, entry.offset)?;
            }
        }
        Ok(None)
    }

    /// Where records from `from` on begin that are the newest of their keys, in order. Takes a look at the whole index.
    fn named_in(&self, segment: &Segment, from: u64) -> Vec<u64> {
        let mut named = Vec::new();
        for shard in self.store.index.shards() {
            let locations = shard.entries().map(|(_, entry)| entry.location);
            let here = locations.filter(|at| at.slot == segment.slot && at.offset >= from);
            named.extend(here.map(|at| at.offset));
        }
        // As in `is_newest`.
        if segment.retired.load(Relaxed) {
            named.clear();
        }
        named.sort_unstable();
        named
    }

    /// Counts what cannot be read, if that may be.
    fn pass(&mut self, error: Error) -> Result<()> {
        match (&mut self.unreadable, error) {
            (Some(unreadable), Error::Corrupt { .. } | Error::Io { .. }) => {
                **unreadable += 1;
                Ok(())
            }
            (_, error) => Err(error),
        }
    }

    /// A retired segment's slot may be another's by now; what was named in it is visited there.
    fn is_newest(&self, segment: &Segment, digest: Digest, offset: u64) -> bool {
        let found = self.store.index.read(digest).get(digest.tag);
        found.is_some_and(|found| found.location == segment.location(offset))
            && !segment.retired.load(Relaxed)
    }

    /// Visits the record at `offset`, if it is the newest of a key. Returns its length.
    fn visit_record(&mut self, segment: &Arc<Segment>, window: &mut Window, offset: u64) -> Result<u64> {
        self.store.counters.reads.fetch_add(1, Relaxed);
        let found = window.record_at(offset)?.map_err(|bad| segment.bad_header(offset, bad))?;
        let (header, key) = (found.header, found.key.to_vec());
        let bytes = header.padded_bytes() as u64;
        if !matches!(header.kind, Kind::Put | Kind::Delete)
            || !self.is_newest(segment, self.store.secret.digest(&key), offset)
        {
            return Ok(bytes);
        }
        let Some(state) = self.store.flushes.left_of(&key, header.state()) else { return Ok(bytes) };
        self.value.clear();
        let mut is_whole = true;
        if state.item.is_some() {
            let value = &mut self.value;
            let read = window.copy_value(offset, &header, |piece| {
                value.extend_from_slice(piece);
                Ok(())
            });
            is_whole = matches!(read, Ok(true));
            if !is_whole {
                let what = "the checksum of a value does not match";
                self.pass(read.err().unwrap_or_else(|| window.corrupt(offset, what)))?;
            }
        }
        (self.visit)(&key, &state, is_whole.then_some(&self.value[..]));
        self.left_bytes = self.left_bytes.saturating_sub(STATE_BYTES + key.len() + self.value.len());
        if self.value.capacity() > 4 << 20 {
            self.value = Vec::new();
        }
        Ok(bytes)
    }
}
