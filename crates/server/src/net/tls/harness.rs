//! A client's TLS without a worker and a session, for tests that send it arbitrary bytes.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{Buffers, Channel, ClientCertificates, Tls};
use crate::conn::buffer_budget::BufferBudget;
use crate::net::socket::{ROOM_BYTES_MIN, SCRATCH_BYTES};
use crate::net::socket::{Received, Wire};
use crate::observe::counters::Counters;

/// The buffers and counters that a worker would lend.
pub struct WorkerBuffers {
    buffers: Buffers,
    scratch: Vec<u8>,
    counters: Counters,
}

/// The socket and TLS of a connection that has no session.
pub struct TlsHarness(Wire);

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadResult<'l> {
    /// Plain text.
    Text(&'l [u8]),
    /// Nothing at the moment.
    Nothing,
    /// The connection is to be closed.
    End,
}

impl WorkerBuffers {
    /// The most bytes of the scratch buffer that other connections of the round may have filled.
    pub const OTHERS_BYTES_MAX: usize = SCRATCH_BYTES - ROOM_BYTES_MIN;

    /// The same as a worker's.
    pub fn new() -> Self {
        Self { buffers: Buffers::new(true), scratch: vec![0; SCRATCH_BYTES], counters: Counters::default() }
    }

    /// What other connections of the round sent: the first `bytes` of the scratch buffer.
    pub fn others(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.scratch[..bytes]
    }
}

impl Default for WorkerBuffers {
    fn default() -> Self {
        Self::new()
    }
}

impl TlsHarness {
    /// A new client. `socket` does not block. Errors: none that a client could cause.
    pub fn new(tls: &Tls, certificates: ClientCertificates, socket: OwnedFd) -> io::Result<Self> {
        let buffers = Arc::new(BufferBudget::new(0, 0));
        let channel = Channel::new(tls.context(certificates), buffers).map_err(io::Error::other)?;
        Ok(Self(Wire::new(socket, Some(channel))))
    }

    /// Reads once, in a round in which other connections have filled `others_bytes` of the scratch buffer, at most
    /// [`WorkerBuffers::OTHERS_BYTES_MAX`].
    pub fn receive<'l>(&mut self, worker: &'l mut WorkerBuffers, others_bytes: usize) -> ReadResult<'l> {
        let WorkerBuffers { buffers, scratch, counters } = worker;
        let scratch = &mut scratch[others_bytes..];
        match self.0.receive(scratch, buffers, counters) {
            Received::Bytes(n) => ReadResult::Text(&scratch[..n]),
            Received::Nothing | Received::Busy => ReadResult::Nothing,
            Received::End(_) => ReadResult::End,
        }
    }

    /// Sends from the head of `parts`. Returns how many bytes were taken; [`TlsHarness::flush`] sends those that are
    /// held. Errors: of the socket; or TLS is not established, or was closed.
    pub fn send(&mut self, worker: &mut WorkerBuffers, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write(parts, &mut worker.buffers)
    }

    /// Sends what is held. True once nothing is. Errors: of the socket.
    pub fn flush(&mut self) -> io::Result<bool> {
        self.0.flush()
    }

    /// Call before dropping it.
    pub fn close_notify(&mut self) {
        self.0.close_notify();
    }
}
