//! Readiness and bytes of sockets, by io_uring.
//!
//! A client has one operation at most, armed when its connection wants something of its socket, and gone when it has
//! completed: nothing is received for a connection that is queued, parked or blocked. All that were armed in a round
//! are submitted by the next wait. What the ring is, and what keeps its memory sound: the crate larder-uring.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use larder_uring::{Buffer, Completion, Exclusive, Outcome, Readiness, Ring, Send};

use super::{Arrival, Interest, Token};

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
        match interest {
            Interest::Bytes => self.0.receive(fd, token.word()),
            Interest::Readable => self.0.poll(fd, token.word(), Readiness::Readable),
            Interest::Writable => self.0.poll(fd, token.word(), Readiness::Writable),
        }
    }

    /// Cancels whatever is armed on a socket.
    pub(super) fn forget(&mut self, fd: impl AsFd) -> io::Result<()> {
        self.0.cancel(fd)
    }

    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.wait(timeout)
    }

    pub(super) fn take_event(&mut self) -> Option<(Token, Arrival)> {
        let Completion { tag, outcome } = self.0.take_completion()?;
        let arrival = match outcome {
            Outcome::Ready => Arrival::Ready,
            Outcome::Received(buffer) => Arrival::Bytes(buffer),
            Outcome::End => Arrival::End,
            Outcome::Failed(_) => Arrival::Failed,
        };
        Some((Token::of(tag), arrival))
    }

    pub(super) fn give_back(&mut self, buffer: Buffer) {
        self.0.give_back(buffer);
    }

    pub(super) fn send_all(&mut self, sends: &mut [Send<'_>]) -> io::Result<()> {
        self.0.send_all(sends)
    }
}
