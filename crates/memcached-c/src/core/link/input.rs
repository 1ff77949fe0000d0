//! Received bytes.

use std::io::{self, Read};

use larder_client::Stream;

/// Received bytes that have not been taken: `bytes[start..end]`.
#[derive(Default)]
pub(super) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    pub(super) fn unread(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    pub(super) fn len(&self) -> usize {
        self.end - self.start
    }

    pub(super) fn take(&mut self, bytes: usize) {
        self.start += bytes;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.bytes.len() > KEPT_BYTES_MAX {
                self.bytes = Vec::new();
            }
        }
    }

    /// Reads once. `needed`: so many bytes there have to be at last; the server has only announced them, so not all of
    /// their memory is taken at once.
    pub(super) fn read(&mut self, stream: &mut Stream, needed: usize) -> io::Result<usize> {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let room = needed.saturating_sub(self.end).clamp(READ_BYTES, READ_BYTES_MAX);
        if self.bytes.len() < self.end + room {
            let more = self.end + room - self.bytes.len();
            self.bytes.try_reserve(more).map_err(|_| io::ErrorKind::OutOfMemory)?;
            self.bytes.resize(self.end + room, 0);
        }
        let read = stream.read(&mut self.bytes[self.end..])?;
        self.end += read;
        Ok(read)
    }
}

/// Buffer space for a read.
const READ_BYTES: usize = 16 << 10;
/// Buffer space for a read of a large value.
const READ_BYTES_MAX: usize = 1 << 20;
/// A buffer that is larger is freed when it is empty.
const KEPT_BYTES_MAX: usize = 64 << 10;
