//! Readiness of sockets, by io_uring.
//!
//! A client has one operation at most, armed when its connection wants something of its socket, and gone once the
//! socket is ready. All that were armed in a round are submitted by the next wait. What the ring is, and what keeps it
//! sound: the crate larder-uring.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use larder_uring::{Exclusive, Readiness, Ring, SocketSend};

use super::{Interest, Token};

/// The ring of a worker.
pub(super) struct Uring(Ring);

impl Uring {
    /// Errors: the kernel has no io_uring, or does not allow it.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Ring::new()?))
    }

    pub(super) fn enable(&mut self) -> io::Result<()> {
        self.0.enable()
    }

    pub(super) fn add(&mut self, fd: impl AsFd, token: Token) -> io::Result<()> {
        self.0.watch(fd, token.word(), Exclusive::No)
    }

    pub(super) fn add_shared(&mut self, fd: impl AsFd, token: Token) -> io::Result<()> {
        if self.0.is_armed(&fd) {
            return Ok(());
        }
        self.0.watch(fd, token.word(), Exclusive::Yes)
    }

    /// Arms the operation of a client.
    pub(super) fn arm(&mut self, fd: impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        let readiness = match interest {
            Interest::Readable => Readiness::Readable,
            Interest::Writable => Readiness::Writable,
        };
        self.0.poll(fd, token.word(), readiness)
    }

    /// Cancels whatever is armed on a socket.
    pub(super) fn forget(&mut self, fd: impl AsFd) -> io::Result<()> {
        self.0.cancel(fd)
    }

    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.wait(timeout)
    }

    pub(super) fn take_event(&mut self) -> Option<Token> {
        self.0.take_ready().map(Token::of)
    }

    pub(super) fn send_all(&mut self, sends: &mut [SocketSend<'_>]) -> io::Result<()> {
        self.0.send_all(sends)
    }
}
