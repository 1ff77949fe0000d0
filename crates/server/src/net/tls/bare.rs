//! A client's TLS without a worker and a session, for tests that send it arbitrary bytes.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;

use super::{Buffers, Channel, ClientCertificates, Tls};
use crate::net::socket::{ROOM_BYTES_MIN, SCRATCH_BYTES};
use crate::net::socket::{Received, Wire};
use crate::observe::counters::Counters;

/// What a worker lends to its connections.
pub struct Lent {
    buffers: Buffers,
    scratch: Vec<u8>,
    counters: Counters,
}

/// A connection's socket and TLS.
pub struct Bare(Wire);

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard<'l> {
    /// Plain text.
    Text(&'l [u8]),
    /// Nothing at the moment.
    Nothing,
    /// The connection is to be closed.
    End,
}

impl Lent {
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

impl Default for Lent {
    fn default() -> Self {
        Self::new()
    }
}

impl Bare {
    /// A new client. `socket` does not block. Errors: none that a client could cause.
    pub fn new(tls: &Tls, certificates: ClientCertificates, socket: OwnedFd) -> io::Result<Self> {
        let channel = Channel::new(tls.context(certificates)).map_err(io::Error::other)?;
        Ok(Self(Wire::new(socket, Some(channel))))
    }

    /// Reads once, in a round in which other connections have filled `others_bytes` of the scratch buffer, at most
    /// [`Lent::OTHERS_BYTES_MAX`].
    pub fn hear<'l>(&mut self, lent: &'l mut Lent, others_bytes: usize) -> Heard<'l> {
        let Lent { buffers, scratch, counters } = lent;
        let scratch = &mut scratch[others_bytes..];
        match self.0.receive(scratch, buffers, counters) {
            Received::Bytes(n) => Heard::Text(&scratch[..n]),
            Received::Nothing | Received::Busy => Heard::Nothing,
            Received::End(_) => Heard::End,
        }
    }

    /// Sends from the head of `parts`. Returns how many bytes were taken; [`Bare::flush`] sends those that are held.
    /// Errors: of the socket; or TLS is not established, or was closed.
    pub fn say(&mut self, lent: &mut Lent, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write(parts, &mut lent.buffers)
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
