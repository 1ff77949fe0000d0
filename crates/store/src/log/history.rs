//! Reading the log in its order.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Arc, PoisonError};

use super::LogStore;
use super::manifest::MANIFEST;
use super::record::{
    ALIGN_BYTES, BadHeader, EXTENSION_BYTES, HEADER_BYTES, Header, Kind, front_bytes, may_be_header,
};
use super::segment::{SEGMENT_HEADER_BYTES, Segment, Stream};
use super::window::Window;
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::flushes::decode_exceptions;
use crate::history::{LogEntry, LogRead};

/// What an entry counts for beside key and value.
const ENTRY_BYTES: usize = 64;

/// Where the last reads of the log ended, so that the next ones need not search, and the memory that they used.
#[derive(Default)]
pub(super) struct Places {
    recent: VecDeque<Place>,
    spare: Vec<u8>,
}

/// To read less at once would not cost less.
const READ_BYTES_MIN: usize = 4 << 10;

/// Of disks: the least that cannot be read. A multiple of [`ALIGN_BYTES`].
const SECTOR_BYTES: u64 = 512;

/// Behind a damaged header, what is no longer than this without its value is verified wherever it might be: the keys of
/// memcached's clients have at most 250 bytes.
const SHORT_FRONT_BYTES_MAX: usize = HEADER_BYTES + 256 + EXTENSION_BYTES;
/// In a read, what is longer is verified up to so many bytes: a client can put it at every 8 bytes of a value.
const LONG_FRONTS_BYTES_MAX: usize = 4 << 20;

/// More than there are sites in a cluster.
const PLACES_MAX: usize = 16;
/// Of the memory that is kept.
const SPARE_BYTES_MAX: usize = 512 << 10;

#[derive(Clone, Copy)]
struct Place {
    through_sequence: u64,
    segment: u64,
    offset: u64,
}

impl Places {
    fn note(&mut self, after_sequence: u64, place: Place) {
        self.recent
            .retain(|known| ![after_sequence, place.through_sequence].contains(&known.through_sequence));
        self.recent.push_front(place);
        self.recent.truncate(PLACES_MAX);
    }

    fn find(&self, through_sequence: u64, segment: u64) -> Option<u64> {
        let mut known = self.recent.iter();
        known
            .find(|known| known.through_sequence == through_sequence && known.segment == segment)
            .map(|known| known.offset)
    }
}

pub(super) fn read_log(
    store: &LogStore,
    after_sequence: u64,
    budget_bytes: usize,
    visit: &mut dyn FnMut(LogEntry<'_>),
) -> Result<LogRead> {
    let durable_sequence = store.durable_sequence.load(Acquire);
    let is_wanted = |segment: &Arc<Segment>| {
        let is_over = segment.sealed.load(Acquire) && segment.max_sequence.load(Relaxed) <= after_sequence;
        let has_begun = segment.min_sequence.load(Relaxed) <= durable_sequence;
        segment.stream == Stream::Log && has_begun && !is_over
    };
    let segments: Vec<_> = store.segments.all().into_iter().filter(is_wanted).collect();
    // One that is full may not be sealed yet.
    let next_sequence = after_sequence.saturating_add(1);
    let has_begun = |segment: &Arc<Segment>| segment.min_sequence.load(Relaxed) <= next_sequence;
    let first = segments.iter().rposition(has_begun).unwrap_or(0);
    // In this order: the start rises before a segment goes.
    let oldest_sequence = store.log_start.load(Acquire);
    if after_sequence.saturating_add(1) < oldest_sequence {
        return Err(Error::TooFarBehind { oldest_sequence });
    }
    let mut reader = Reader {
        store,
        durable_sequence,
        budget_bytes,
        bytes: 0,
        through_sequence: after_sequence,
        damage: None,
        long_fronts_bytes: LONG_FRONTS_BYTES_MAX,
    };
    if after_sequence >= durable_sequence {
        return Ok(LogRead { through_sequence: after_sequence, more: false });
    }
    for segment in segments.into_iter().skip(first) {
        let from = start_in(store, &segment, after_sequence);
        let (offset, is_over) = match reader.visit_segment(&segment, from, visit) {
            // What cannot be read is for the next read to tell.
            Err(_) if reader.through_sequence > after_sequence => break,
            visited => visited?,
        };
        let place = Place { through_sequence: reader.through_sequence, segment: segment.number, offset };
        store.places.lock().unwrap_or_else(PoisonError::into_inner).note(after_sequence, place);
        if is_over {
            break;
        }
    }
    let through_sequence = reader.through_sequence;
    if through_sequence == after_sequence {
        let what = format!("it names no segment with sequence {}", after_sequence + 1);
        return Err(reader.damage.unwrap_or_else(|| Error::corrupt(MANIFEST, 0, what)));
    }
    Ok(LogRead { through_sequence, more: through_sequence < durable_sequence })
}

/// From where on the entries after this sequence are found in a segment.
fn start_in(store: &LogStore, segment: &Segment, after_sequence: u64) -> u64 {
    let start = SEGMENT_HEADER_BYTES as u64;
    if segment.min_sequence.load(Relaxed) > after_sequence {
        return start;
    }
    let place =
        store.places.lock().unwrap_or_else(PoisonError::into_inner).find(after_sequence, segment.number);
    match place {
        Some(offset) => offset,
        // Without its footer all of it is read.
        None if segment.sealed.load(Acquire) => segment.read_footer().map_or(start, |entries| {
            let later = entries.partition_point(|entry| entry.sequence <= after_sequence);
            later.checked_sub(1).map_or(start, |nth| entries[nth].offset)
        }),
        None => start,
    }
}

struct Reader<'s> {
    store: &'s LogStore,
    durable_sequence: u64,
    budget_bytes: usize,
    bytes: usize,
    through_sequence: u64,
    /// A record that cannot be read was passed over: that is an error if its entry is wanted.
    damage: Option<Error>,
    /// What is left of [`LONG_FRONTS_BYTES_MAX`].
    long_fronts_bytes: usize,
}

impl Reader<'_> {
    /// Visits the entries of a segment. Returns where to go on, and whether all that is wanted was visited.
    fn visit_segment(
        &mut self,
        segment: &Arc<Segment>,
        from: u64,
        visit: &mut dyn FnMut(LogEntry<'_>),
    ) -> Result<(u64, bool)> {
        let end = segment.data_bytes.load(Acquire);
        let store = self.store;
        let places = || store.places.lock().unwrap_or_else(PoisonError::into_inner);
        let spare = std::mem::take(&mut places().spare);
        let mut window = Window::up_to(segment.clone(), end, spare);
        let visited = self.visit_window(segment, &mut window, from..end, visit);
        let spare = window.into_bytes();
        if spare.capacity() <= SPARE_BYTES_MAX {
            places().spare = spare;
        }
        visited
    }

    fn visit_window(
        &mut self,
        segment: &Segment,
        window: &mut Window,
        range: Range<u64>,
        visit: &mut dyn FnMut(LogEntry<'_>),
    ) -> Result<(u64, bool)> {
        let Range { start: mut at, mut end } = range;
        let data_end = end;
        let mut is_lost = false;
        while at < end {
            // A record takes little more than it counts.
            let left = self.budget_bytes.saturating_sub(self.bytes);
            window.want(left.saturating_add(left / 8).max(READ_BYTES_MIN));
            let found = if is_lost {
                self.search_record(segment, window, at, data_end)
            } else {
                record_at(segment, window, at).map(Some)
            };
            let header = match found {
                Ok(Some(header)) => header,
                Ok(None) => {
                    at += ALIGN_BYTES as u64;
                    continue;
                }
                Err(error @ Error::NewerFormat { .. }) => return Err(error),
                Err(error) => {
                    at += if matches!(error, Error::Corrupt { .. }) {
                        ALIGN_BYTES as u64
                    } else {
                        sector_left(at)
                    };
                    self.damage.get_or_insert(error);
                    is_lost = true;
                    // It may have been cut off.
                    end = segment.file.len().map_or(end, |file_bytes| end.min(file_bytes));
                    continue;
                }
            };
            is_lost = false;
            let next = at + header.padded_bytes() as u64;
            let is_entry = !matches!(header.kind, Kind::Commit | Kind::Footer);
            if is_entry && header.sequence <= self.through_sequence + 1 {
                // What was passed over is not wanted.
                self.damage = None;
            }
            if is_entry && header.sequence > self.through_sequence {
                let is_enough = self.bytes > 0 && self.bytes >= self.budget_bytes;
                if is_enough || header.sequence > self.durable_sequence {
                    return Ok((at, true));
                }
                if header.sequence != self.through_sequence + 1 {
                    let missing = || window.corrupt(at, "entries of the log before it are missing");
                    return Err(self.damage.take().unwrap_or_else(missing));
                }
                self.visit_record(segment, window, at, &header, visit)?;
                self.through_sequence = header.sequence;
            }
            at = next;
        }
        Ok((at, false))
    }

    /// The header of the record at an offset behind a damaged one, whose length nobody knows. `None`: there is none.
    /// What a client has put into a value is none either, since checksums begin with the store's secret. A long front
    /// may be passed over although it is one.
    fn search_record(
        &mut self,
        segment: &Segment,
        window: &mut Window,
        offset: u64,
        data_end: u64,
    ) -> Result<Option<Header>> {
        let head = window.bytes_at(offset, HEADER_BYTES)?.first_chunk();
        let Some(head) = head.filter(|head| may_be_header(head, data_end - offset)) else { return Ok(None) };
        let front_bytes = front_bytes(head);
        if front_bytes > SHORT_FRONT_BYTES_MAX {
            let Some(left) = self.long_fronts_bytes.checked_sub(front_bytes) else { return Ok(None) };
            self.long_fronts_bytes = left;
        }
        match window.record_at(offset)? {
            Ok(found) => Ok(Some(found.header)),
            Err(BadHeader::Newer(kind)) => Err(segment.bad_header(offset, BadHeader::Newer(kind))),
            Err(_) => Ok(None),
        }
    }

    fn visit_record(
        &mut self,
        segment: &Segment,
        window: &mut Window,
        at: u64,
        header: &Header,
        visit: &mut dyn FnMut(LogEntry<'_>),
    ) -> Result<()> {
        let corrupt = |what| Error::corrupt(&segment.name(), at, what);
        let value_range = header.value_start()..header.record_bytes();
        let matches = |value: &[u8]| crc32c::crc32c(value) == header.value_checksum;
        let is_whole = window
            .bytes_at(at, header.record_bytes())
            .is_ok_and(|record| record.get(value_range.clone()).is_some_and(matches));
        let record = window.bytes_at(at, if is_whole { value_range.end } else { value_range.start })?;
        let key = &record[HEADER_BYTES..HEADER_BYTES + header.key_bytes];
        let value = if is_whole { &record[value_range] } else { &[] };
        let is_damaged = !is_whole;
        self.bytes += ENTRY_BYTES + key.len() + value.len();
        let (sequence, version) = (header.sequence, header.version);
        match header.kind {
            Kind::Put | Kind::Delete => {
                let is_newest = is_newest(self.store, segment, key, at);
                header.state().visit(key, value, &mut |entry| {
                    visit(LogEntry { sequence, is_newest, is_damaged, entry });
                });
            }
            Kind::Flush => {
                let except = decode_exceptions(key, value)
                    .filter(|_| is_whole)
                    .ok_or_else(|| corrupt("the exceptions of a flush are none"))?;
                let by = header.flush_by;
                let entry = Entry::Flush { prefix: key, except: &except, version, by };
                visit(LogEntry { sequence, is_newest: true, is_damaged, entry });
            }
            Kind::Note => {
                let entry = Entry::Note { name: key, value };
                visit(LogEntry { sequence, is_newest: true, is_damaged, entry });
            }
            Kind::FlushAt | Kind::CancelFlushAt | Kind::Commit | Kind::Footer => {}
        }
        Ok(())
    }
}

/// The header of the record at an offset.
fn record_at(segment: &Segment, window: &mut Window, offset: u64) -> Result<Header> {
    let found = window.record_at(offset)?;
    found.map(|found| found.header).map_err(|bad| segment.bad_header(offset, bad))
}

/// To the next byte that another sector of a disk may have.
fn sector_left(offset: u64) -> u64 {
    SECTOR_BYTES - offset % SECTOR_BYTES
}

/// False if the index names a later record of the key. Of one that cleaning has copied nobody knows which it is.
fn is_newest(store: &LogStore, segment: &Segment, key: &[u8], offset: u64) -> bool {
    let digest = store.secret.digest(key);
    let shard = store.index.read(digest);
    let Some(entry) = shard.get(digest.tag).filter(|entry| entry.location != segment.location(offset)) else {
        return true;
    };
    store.segments.get(entry.location.slot).is_none_or(|named| named.stream != Stream::Log)
}
