//! The sockets that a worker watches, by epoll. Level-triggered: a socket is reported at every wait while it is ready.
//!
//! Listeners and the like are watched until they are deleted. A client is watched for what its connection wants next
//! ([`Poller::watch`]).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

/// A set of sockets to watch. The kernel forgets a socket when its last descriptor is closed.
pub struct Poller {
    epoll: OwnedFd,
}

/// The events of one wait. They hold pointers: a poller that owned them could not be sent to its worker's thread.
pub(crate) struct Events {
    events: Vec<epoll::Event>,
    /// Number of events that were taken.
    taken: usize,
}

/// What a client's socket is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    Readable,
    Writable,
}

/// Whose event it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// The client of this descriptor.
    Client(usize),
    /// The listener of this number.
    Listener(usize),
    /// The UDP socket of this number.
    UdpSocket(usize),
    /// The worker's own wake-up.
    Wake,
}

impl Poller {
    /// Errors: no descriptor is left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Watches a socket for input until [`Poller::delete`].
    pub(crate) fn add(&self, fd: impl AsFd, token: Token) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, data(token), epoll::EventFlags::IN)?)
    }

    /// The same for a socket that other pollers watch too: an event wakes one of them. Adding it again does nothing.
    pub(crate) fn add_shared(&self, fd: impl AsFd, token: Token) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
        match epoll::add(&self.epoll, fd, data(token), flags) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Watches the worker's own wake-up. Each signal is reported once, so nobody has to clear it.
    pub(crate) fn add_wake(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, data(Token::Wake), epoll::EventFlags::IN | epoll::EventFlags::ET)?)
    }

    /// Watches a client: a new one, or one that was deleted.
    pub(crate) fn admit(&self, fd: impl AsFd, client: usize, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, data(Token::Client(client)), flags(interest))?)
    }

    /// Watches a client for what it wants now; what it wanted before was `was`.
    pub(crate) fn watch(
        &self,
        fd: impl AsFd,
        client: usize,
        interest: Interest,
        was: Interest,
    ) -> io::Result<()> {
        if interest == was {
            return Ok(());
        }
        Ok(epoll::modify(&self.epoll, fd, data(Token::Client(client)), flags(interest))?)
    }

    /// Stops watching a socket that stays open.
    pub(crate) fn delete(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits until a socket is ready, the time is up (`None`: never), or a signal arrives. Earlier events are dropped.
    pub(crate) fn wait(&self, into: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
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
    pub(crate) fn new() -> Self {
        Self { events: Vec::with_capacity(EVENTS_MAX), taken: 0 }
    }

    /// The next event of the wait.
    pub(crate) fn take(&mut self) -> Option<Token> {
        let event = self.events.get(self.taken)?;
        self.taken += 1;
        Some(Token::of(event.data.u64()))
    }
}

impl Token {
    /// As a word that travels through the kernel.
    fn word(self) -> u64 {
        match self {
            Self::Client(fd) => fd as u64,
            Self::Listener(number) => LISTENERS + number as u64,
            Self::UdpSocket(number) => UDP_SOCKETS + number as u64,
            Self::Wake => WAKE,
        }
    }

    fn of(word: u64) -> Self {
        match word {
            WAKE => Self::Wake,
            UDP_SOCKETS.. => Self::UdpSocket((word - UDP_SOCKETS) as usize),
            LISTENERS.. => Self::Listener((word - LISTENERS) as usize),
            _ => Self::Client(word as usize),
        }
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

/// Numbers below this are descriptors of clients.
const LISTENERS: u64 = 1 << 32;
const UDP_SOCKETS: u64 = 1 << 33;
const WAKE: u64 = u64::MAX;
const EVENTS_MAX: usize = 256;
/// A longer wait ends here, and its caller checks and waits again.
const WAIT_SECS_MAX: u64 = 3600;
