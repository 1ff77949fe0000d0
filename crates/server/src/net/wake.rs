//! A bell that wakes a thread sleeping in epoll or poll.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// An eventfd.
#[derive(Debug)]
pub(crate) struct Wake(OwnedFd);

impl Wake {
    /// Errors: no descriptor to be had.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    /// Wakes whoever waits, now or next time.
    pub(crate) fn ring(&self) {
        // Fails only when the count would overflow: then it is rung already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Takes note of all rings so far.
    pub(crate) fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
