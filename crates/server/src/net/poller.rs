//! Readiness of sockets, by epoll. No other file of the workers uses epoll; a poller by io_uring would be a file beside
//! this one.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

/// A set of sockets to watch.
pub(crate) struct Poller {
    epoll: OwnedFd,
}

/// What a socket is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    Readable,
    Writable,
}

/// What is ready.
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

/// The events of one wait.
pub(crate) struct Events(Vec<epoll::Event>);

impl Poller {
    /// Errors: no descriptor is left.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Watches a socket from now on. The kernel forgets it when its last descriptor is closed.
    pub(crate) fn add(&self, fd: impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, token.data(), interest.flags())?)
    }

    /// The same for a socket that other pollers watch too: an event wakes one of them. Adding it again does nothing.
    pub(crate) fn add_shared(&self, fd: impl AsFd, token: Token) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
        match epoll::add(&self.epoll, fd, token.data(), flags) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Watches a socket for something else.
    pub(crate) fn modify(&self, fd: impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, token.data(), interest.flags())?)
    }

    /// Stops watching a socket.
    pub(crate) fn delete(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits until a socket is ready, the time is up (`None`: never), or a signal arrives. Replaces the earlier events.
    pub(crate) fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        // Rounded up to the clock that epoll uses, so that no wait ends just before its deadline.
        let timeout = timeout.map(|timeout| {
            let millis = timeout.subsec_nanos().div_ceil(1_000_000);
            let secs = timeout.as_secs().min(WAIT_SECS_MAX) + u64::from(millis / 1000);
            Timespec { tv_sec: secs as i64, tv_nsec: i64::from(millis % 1000 * 1_000_000) }
        });
        events.0.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events.0), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Events {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(EVENTS_MAX))
    }

    pub(crate) fn tokens(&self) -> impl Iterator<Item = Token> {
        self.0.iter().map(|event| Token::of(event.data.u64()))
    }
}

impl Interest {
    fn flags(self) -> epoll::EventFlags {
        match self {
            Self::Readable => epoll::EventFlags::IN,
            Self::Writable => epoll::EventFlags::OUT,
        }
    }
}

impl Token {
    fn data(self) -> epoll::EventData {
        epoll::EventData::new_u64(match self {
            Self::Client(fd) => fd as u64,
            Self::Listener(number) => LISTENERS + number as u64,
            Self::UdpSocket(number) => UDP_SOCKETS + number as u64,
            Self::Wake => WAKE,
        })
    }

    fn of(data: u64) -> Self {
        match data {
            WAKE => Self::Wake,
            UDP_SOCKETS.. => Self::UdpSocket((data - UDP_SOCKETS) as usize),
            LISTENERS.. => Self::Listener((data - LISTENERS) as usize),
            _ => Self::Client(data as usize),
        }
    }
}

const EVENTS_MAX: usize = 256;
/// A longer wait ends here, and its caller checks and waits again.
const WAIT_SECS_MAX: u64 = 3600;
/// Numbers below this are descriptors of clients.
const LISTENERS: u64 = 1 << 32;
const UDP_SOCKETS: u64 = 1 << 33;
const WAKE: u64 = u64::MAX;
