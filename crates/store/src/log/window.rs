//! Reading a segment forward: each part of the file once, in large pieces.

use std::sync::Arc;

use super::record::{HEADER_BYTES, Header, front_bytes};
use super::segment::Segment;
use crate::error::{Error, Result};

/// Of the pieces.
const WINDOW_BYTES: usize = 256 << 10;

/// A piece of a segment in memory.
pub(super) struct Window {
    segment: Arc<Segment>,
    /// The first `filled` ones were read.
    bytes: Vec<u8>,
    filled: usize,
    start: u64,
    /// There is nothing to read from here on.
    end: u64,
    /// The most that is read ahead.
    piece_bytes: usize,
    /// Read from the disk so far.
    pub(super) read_bytes: u64,
}

/// A record whose header and key are in the window.
pub(super) struct Found<'a> {
    pub(super) header: Header,
    pub(super) key: &'a [u8],
}

impl Window {
    /// Of the whole file, as long as it is now.
    pub(super) fn new(segment: Arc<Segment>) -> Self {
        let end = segment.file.len().unwrap_or(0);
        Self::up_to(segment, end, Vec::new())
    }

    /// Of what is before `end`. A file is longer than what was written into it, and to read on costs as much as to
    /// read. `bytes`: memory to reuse.
    pub(super) fn up_to(segment: Arc<Segment>, end: u64, bytes: Vec<u8>) -> Self {
        Self { segment, bytes, filled: 0, start: 0, end, piece_bytes: WINDOW_BYTES, read_bytes: 0 }
    }

    /// No more than about so many bytes are still wanted.
    pub(super) fn want(&mut self, bytes: usize) {
        self.piece_bytes = bytes.min(WINDOW_BYTES);
    }

    /// The memory, to be reused.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Of the segment's checksums.
    pub(super) fn seed(&self) -> u32 {
        self.segment.seed
    }

    /// At least `length` bytes from `offset` on, if the file has so many. Errors: one of these bytes cannot be read.
    pub(super) fn bytes_at(&mut self, offset: u64, length: usize) -> Result<&[u8]> {
        let inside = offset >= self.start && offset + length as u64 <= self.start + self.filled as u64;
        if !inside {
            let left = self.end.saturating_sub(offset).min(self.piece_bytes as u64) as usize;
            let count = match self.read(offset, length.max(left)) {
                // What follows may be what cannot be read.
                Err(_) if left > length => self.read(offset, length)?,
                other => other?,
            };
            self.read_bytes += count as u64;
        }
        let from = (offset - self.start) as usize;
        Ok(&self.bytes[from.min(self.filled)..self.filled])
    }

    /// Reads the window anew. It is empty after an error.
    fn read(&mut self, offset: u64, length: usize) -> Result<usize> {
        if self.bytes.len() < length {
            // Nothing of it is wanted any more: it need not be copied.
            self.bytes.clear();
            self.bytes.resize(length, 0);
        }
        (self.start, self.filled) = (offset, 0);
        self.filled = self.segment.read(&mut self.bytes[..length], offset)?;
        Ok(self.filled)
    }

    /// The record at `offset`, its header verified. `Ok(Err(_))`: there is none.
    pub(super) fn record_at(
        &mut self,
        offset: u64,
    ) -> Result<std::result::Result<Found<'_>, super::record::BadHeader>> {
        let seed = self.segment.seed;
        let head = self.bytes_at(offset, HEADER_BYTES)?.first_chunk();
        let front_bytes = head.map_or(HEADER_BYTES, front_bytes);
        let header = match Header::decode(self.bytes_at(offset, front_bytes)?, seed) {
            Ok(header) => header,
            Err(bad) => return Ok(Err(bad)),
        };
        let bytes = self.bytes_at(offset, front_bytes)?;
        Ok(Ok(Found { header, key: &bytes[HEADER_BYTES..HEADER_BYTES + header.key_bytes] }))
    }

    /// Passes the value of the record at `offset` on, in pieces, and verifies its checksum. False if it does not match:
    /// then what was passed on is worth nothing.
    pub(super) fn copy_value(
        &mut self,
        offset: u64,
        header: &Header,
        mut pass: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<bool> {
        let mut at = offset + header.value_start() as u64;
        let mut left = header.value_bytes;
        let mut checksum = 0;
        while left > 0 {
            let want = left.min(WINDOW_BYTES);
            let piece = self.bytes_at(at, want)?;
            if piece.len() < want {
                return Ok(false);
            }
            checksum = crc32c::crc32c_append(checksum, &piece[..want]);
            pass(&piece[..want])?;
            at += want as u64;
            left -= want;
        }
        Ok(checksum == header.value_checksum)
    }

    /// Verifies the value of the record at `offset`.
    pub(super) fn verify_value(&mut self, offset: u64, header: &Header) -> Result<bool> {
        self.copy_value(offset, header, |_| Ok(()))
    }

    /// An error of damage in this segment.
    pub(super) fn corrupt(&self, offset: u64, what: &str) -> Error {
        Error::corrupt(&self.segment.name(), offset, what)
    }
}
