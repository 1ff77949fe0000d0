//! Readiness of sockets, by epoll. Level-triggered: a socket is reported at every wait while it is ready.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::{Interest, Token};

/// A set of sockets to watch.
pub(super) struct Epoll {
    epoll: OwnedFd,
}

/// The events of one wait.
pub(super) struct Events {
    events: Vec<epoll::Event>,
    /// How many of them were taken.
    taken: usize,
}

impl Epoll {
    /// Errors: no descriptor is left.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Watches a socket from now on. The kernel forgets it when its last descriptor is closed.
    pub(super) fn add(&self, fd: impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, data(token), flags(interest))?)
    }

    pub(super) fn add_shared(&self, fd: impl AsFd, token: Token) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
        match epoll::add(&self.epoll, fd, data(token), flags) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Watches a socket for `interest`; does nothing if it `was` watched for that.
    pub(super) fn watch(
        &self,
        fd: impl AsFd,
        token: Token,
        interest: Interest,
        was: Interest,
    ) -> io::Result<()> {
        if interest == was {
            return Ok(());
        }
        Ok(epoll::modify(&self.epoll, fd, data(token), flags(interest))?)
    }

    /// Stops watching a socket.
    pub(super) fn delete(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    pub(super) fn wait(&self, into: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        // Rounded up to the clock that epoll uses, so that no wait ends just before its deadline.
        let timeout = timeout.map(|timeout| {
            let millis = timeout.subsec_nanos().div_ceil(1_000_000);
            let secs = timeout.as_secs().min(WAIT_SECS_MAX) + u64::from(millis / 1000);
            Timespec { tv_sec: secs as i64, tv_nsec: i64::from(millis % 1000 * 1_000_000) }
        });
        into.events.clear();
        into.taken = 0;
        let events = rustix::buffer::spare_capacity(&mut into.events);
        match epoll::wait(&self.epoll, events, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Events {
    pub(super) fn new() -> Self {
        Self { events: Vec::with_capacity(EVENTS_MAX), taken: 0 }
    }

    pub(super) fn take(&mut self) -> Option<Token> {
        let event = self.events.get(self.taken)?;
        self.taken += 1;
        Some(Token::of(event.data.u64()))
    }
}

fn data(token: Token) -> epoll::EventData {
    epoll::EventData::new_u64(token.word())
}

fn flags(interest: Interest) -> epoll::EventFlags {
    match interest {
        Interest::Readable => epoll::EventFlags::IN,
        Interest::Writable => epoll::EventFlags::OUT,
    }
}

const EVENTS_MAX: usize = 256;
/// A longer wait ends here, and its caller checks and waits again.
const WAIT_SECS_MAX: u64 = 3600;
