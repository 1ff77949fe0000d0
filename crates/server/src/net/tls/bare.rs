//! A client's TLS without a worker and its session: for those who feed it whatever bytes and look at what comes out.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;

use super::{Buffers, Channel, ClientCertificates, Tls};
use crate::net::socket::{ROOM_BYTES_MIN, SCRATCH_BYTES};
use crate::net::socket::{Received, Wire};
use crate::observe::counters::Counters;

/// What a worker lends to the connections that it serves, one after the other.
pub struct Lent {
    buffers: Buffers,
    scratch: Vec<u8>,
    counters: Counters,
}

/// A connection's socket and its TLS.
pub struct Bare(Wire);

/// What reading once brought.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard<'l> {
    /// Plain text.
    Text(&'l [u8]),
    /// None for now.
    Nothing,
    /// The connection is to be closed.
    End,
}

impl Lent {
    /// The most of the scratch buffer that others in the round may have filled, in bytes.
    pub const OTHERS_BYTES_MAX: usize = SCRATCH_BYTES - ROOM_BYTES_MIN;

    /// As a worker has it.
    pub fn new() -> Self {
        Self { buffers: Buffers::new(true), scratch: vec![0; SCRATCH_BYTES], counters: Counters::default() }
    }

    /// What others in the round have said: the first `bytes` of the scratch buffer.
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
    /// A client comes. `socket` does not block. Errors: none that a client could cause.
    pub fn new(tls: &Tls, certificates: ClientCertificates, socket: OwnedFd) -> io::Result<Self> {
        let channel = Channel::new(tls.context(certificates)).map_err(io::Error::other)?;
        Ok(Self(Wire::new(socket, Some(channel))))
    }

    /// Reads once, in a round in which others have filled `others_bytes` of the scratch buffer, at most
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

    /// Sends from the head of these, and says how many bytes of them are taken: [`Bare::flush`] sends what of them is
    /// held. Errors: of the socket, or there is no TLS yet or any more.
    pub fn say(&mut self, lent: &mut Lent, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write(parts, &mut lent.buffers)
    }

    /// Sends what is held; true when nothing is. Errors: the socket's.
    pub fn flush(&mut self) -> io::Result<bool> {
        self.0.flush()
    }

    /// To be called before it is dropped.
    pub fn close_notify(&mut self) {
        self.0.close_notify();
    }
}
