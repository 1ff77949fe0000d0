//! Writing a segment: strictly forward, until it is sealed.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Relaxed, Release};

use super::bugs::{Bug, is_planted};
use super::record::HEADER_BYTES;
use super::segment::{Expiry, FooterEntry, SEGMENT_HEADER_BYTES, Segment, encode_footer, footer_bytes};
use crate::files::allocate;

/// The end of an open segment.
pub(super) struct Writer {
    pub(super) segment: Arc<Segment>,
    /// Where the next record goes.
    pub(super) end: u64,
    /// What was allocated.
    pub(super) limit: u64,
    /// Of the records with keys.
    entries: Vec<FooterEntry>,
    /// Number of calls that wrote. A sync covers those that came before it.
    pub(super) writes: u64,
}

/// A failed call of the system, and whether it was an fsync.
pub(super) struct WriteError {
    pub(super) source: io::Error,
    pub(super) sync_failed: bool,
}

impl From<io::Error> for WriteError {
    fn from(source: io::Error) -> Self {
        Self { source, sync_failed: false }
    }
}

impl Writer {
    /// Of a segment whose file was just made with so many bytes.
    pub(super) fn new(segment: Arc<Segment>, limit: u64) -> Self {
        segment.file_bytes.store(limit, Relaxed);
        Self { segment, end: SEGMENT_HEADER_BYTES as u64, limit, entries: Vec::new(), writes: 0 }
    }

    /// Takes room for a file of so many bytes, before anything is written. After an error it has what it had.
    pub(super) fn allocate(&mut self, bytes: u64) -> io::Result<()> {
        allocate(&*self.segment.file, bytes)?;
        self.limit = bytes;
        self.segment.file_bytes.store(bytes, Relaxed);
        Ok(())
    }

    /// Gives back what was allocated and not used, but for the footer. If that fails, sealing does it.
    pub(super) fn trim(&mut self) {
        let bytes = self.segment.filled_bytes();
        if self.segment.file.truncate(bytes).is_ok() {
            self.limit = bytes;
            self.segment.file_bytes.store(bytes, Relaxed);
        }
    }

    /// How long a file must be for a batch of so many bytes and entries.
    pub(super) fn file_bytes_for(bytes: u64, entries: usize) -> u64 {
        // One bare record more: a note of what is durable.
        SEGMENT_HEADER_BYTES as u64 + bytes + HEADER_BYTES as u64 + footer_bytes(entries)
    }

    /// Is there room for so many bytes with so many entries, and the footer?
    pub(super) fn has_room(&self, bytes: u64, entries: usize) -> bool {
        self.end + bytes + footer_bytes(self.entries.len() + entries) <= self.limit
    }

    /// Would a record of this sequence be too far from the others for a footer?
    pub(super) fn is_too_far(&self, sequence: u64) -> bool {
        let (min, max) = (self.segment.min_sequence.load(Relaxed), self.segment.max_sequence.load(Relaxed));
        min <= max && max.max(sequence) - min.min(sequence) > u64::from(u32::MAX)
    }

    /// Writes at the end, which stays where it is: nobody reads there until [`accept`](Self::accept). After an error
    /// the next write goes to the same place.
    pub(super) fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        self.writes += 1;
        let result = self.segment.file.write_at(pieces, self.end);
        if result.is_err() {
            // What was written could pass for a batch after a crash. If this fails too, it may: as any write whose
            // outcome nobody knows.
            let _ = self.segment.file.write_at(&[IoSlice::new(&[0; HEADER_BYTES])], self.end);
        }
        result
    }

    /// Writes `ahead` bytes behind the end, and counts them: a large record in pieces. Nothing counts until it is
    /// whole.
    pub(super) fn write_ahead(&mut self, pieces: &[IoSlice<'_>], ahead: &mut u64) -> io::Result<()> {
        self.writes += 1;
        self.segment.file.write_at(pieces, self.end + *ahead)?;
        *ahead += pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
        Ok(())
    }

    /// The bytes just written count from now on.
    pub(super) fn accept(&mut self, bytes: u64, entries: &[FooterEntry], sequences: Option<(u64, u64)>) {
        self.end += bytes;
        self.entries.extend_from_slice(entries);
        let classes = entries.iter().map(|entry| entry.class.bytes() as u64).sum();
        self.segment.all_class_bytes.fetch_add(classes, Relaxed);
        if let Some((first, last)) = sequences {
            self.segment.min_sequence.fetch_min(first, Relaxed);
            self.segment.max_sequence.fetch_max(last, Relaxed);
        }
        self.segment.entry_count.store(self.entries.len() as u64, Relaxed);
        self.segment.data_bytes.store(self.end, Release);
    }

    /// Of the records with keys that were written so far.
    pub(super) fn entries(&self) -> &[FooterEntry] {
        &self.entries
    }

    /// True if no sync has covered all of its writes.
    pub(super) fn is_unsynced(&self) -> bool {
        self.segment.synced_writes.load(Relaxed) < self.writes
    }

    pub(super) fn sync(&mut self) -> Result<(), WriteError> {
        if self.is_unsynced() { sync_file(&self.segment, self.writes, self.end) } else { Ok(()) }
    }

    /// Writes the footer, gives back what was allocated and not used, and makes all of it durable. May be tried again
    /// after an error that was none of a sync.
    pub(super) fn seal(&self) -> Result<(), WriteError> {
        let segment = &self.segment;
        let range = (segment.min_sequence.load(Relaxed), segment.max_sequence.load(Relaxed));
        let footer = encode_footer(&self.entries, range, segment.seed);
        segment.file.write_at(&[IoSlice::new(&footer)], self.end)?;
        let file_bytes = self.end + footer.len() as u64;
        segment.file.truncate(file_bytes)?;
        *segment.expiry.lock().unwrap_or_else(PoisonError::into_inner) = Expiry::of(&self.entries);
        sync_file(segment, self.writes + 1, self.end)?;
        segment.file_bytes.store(file_bytes, Relaxed);
        segment.sealed.store(true, Release);
        Ok(())
    }

    /// A writer that goes on to seal what recovery found in a segment.
    pub(super) fn recovered(segment: Arc<Segment>, end: u64, entries: Vec<FooterEntry>) -> Self {
        Self { segment, end, limit: u64::MAX, entries, writes: 1 }
    }
}

/// Syncs a segment that had this number of writes, and ended at `end`, before this call.
pub(super) fn sync_file(segment: &Segment, writes: u64, end: u64) -> Result<(), WriteError> {
    if !is_planted(Bug::AcknowledgeBeforeSync) {
        segment.file.sync().map_err(|source| WriteError { source, sync_failed: true })?;
    }
    segment.synced_writes.fetch_max(writes, Relaxed);
    segment.durable_bytes.fetch_max(end, Relaxed);
    Ok(())
}
