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
    /// their memory is taken at once. Errors: `Interrupted` if a signal came, or bytes of TLS that are none of a reply.
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
        let read = read_once(stream, &mut self.bytes[self.end..])?;
        self.end += read;
        Ok(read)
    }
}

/// Reads from the socket at most once, where a read of TLS goes on until a record is complete.
fn read_once(stream: &mut Stream, buffer: &mut [u8]) -> io::Result<usize> {
    let Stream::Tls(tls) = stream else { return stream.read(buffer) };
    tls.conn.read_tls(&mut tls.sock)?;
    tls.conn.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    match tls.conn.reader().read(buffer) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::Interrupted.into()),
        read => read,
    }
}

/// Buffer space for a read. It is more than a record of TLS: none of it stays inside TLS, where no poll finds it.
const READ_BYTES: usize = 32 << 10;
/// Buffer space for a read of a large value.
const READ_BYTES_MAX: usize = 1 << 20;
/// A buffer that is larger is freed when it is empty.
const KEPT_BYTES_MAX: usize = 64 << 10;
