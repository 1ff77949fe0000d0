//! What a worker waits for, in one of two ways: [`epoll`] or [`uring`] (`--io`). No other file knows which.
//!
//! Listeners and the like are watched until they are deleted. A client is watched for what its connection wants next
//! ([`Poller::watch`]), and not while it waits for something other than its socket ([`Poller::delete`]).

mod epoll;
mod uring;

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

pub(crate) use larder_uring::SocketSend;

use self::epoll::Epoll;
use self::uring::Uring;
use crate::startup::settings::Io;

/// The sockets that a worker watches.
pub struct Poller(Kind);

enum Kind {
    Epoll(Epoll),
    Uring(Box<Uring>),
}

/// The events of one wait, where the poller does not keep them itself: epoll's hold pointers, so a poller with them
/// could not be sent to its worker's thread.
pub(crate) struct Events(epoll::Events);

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
    /// A poller of this kind. Errors: no descriptor is left; the kernel has no such poller, or does not allow it.
    pub fn new(io: Io) -> io::Result<Self> {
        Ok(Self(match io {
            Io::Epoll => Kind::Epoll(Epoll::new()?),
            Io::Uring => Kind::Uring(Box::new(Uring::new()?)),
        }))
    }

    /// Makes it the calling thread's, which alone waits from then on.
    pub(crate) fn enable(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Kind::Epoll(_) => Ok(()),
            Kind::Uring(uring) => uring.enable(),
        }
    }

    /// Watches a socket for input until [`Poller::delete`].
    pub(crate) fn add(&mut self, fd: impl AsFd, token: Token) -> io::Result<()> {
        match &mut self.0 {
            Kind::Epoll(epoll) => epoll.add(fd, token, Interest::Readable),
            Kind::Uring(uring) => uring.add(fd, token),
        }
    }

    /// The same for a socket that other pollers watch too: an event wakes one of them. Adding it again does nothing.
    pub(crate) fn add_shared(&mut self, fd: impl AsFd, token: Token) -> io::Result<()> {
        match &mut self.0 {
            Kind::Epoll(epoll) => epoll.add_shared(fd, token),
            Kind::Uring(uring) => uring.add_shared(fd, token),
        }
    }

    /// Stops watching a socket that stays open.
    pub(crate) fn delete(&mut self, fd: impl AsFd) -> io::Result<()> {
        match &mut self.0 {
            Kind::Epoll(epoll) => epoll.delete(fd),
            Kind::Uring(uring) => uring.forget(fd),
        }
    }

    /// Pauses a client that waits for something other than its socket. True: the socket is still watched, which costs
    /// nothing while the client waits, too; otherwise it has to be [resumed](Self::resume).
    pub(crate) fn pause(&mut self, fd: impl AsFd) -> io::Result<bool> {
        match &mut self.0 {
            Kind::Epoll(_) => Ok(true),
            Kind::Uring(uring) => uring.forget(fd).map(|()| false),
        }
    }

    /// Watches a new client.
    pub(crate) fn admit(&mut self, fd: impl AsFd, client: usize, interest: Interest) -> io::Result<()> {
        match &mut self.0 {
            Kind::Epoll(epoll) => epoll.add(fd, Token::Client(client), interest),
            Kind::Uring(uring) => uring.arm(fd, Token::Client(client), interest),
        }
    }

    /// Watches a client for what it wants now; what it wanted before was `was`.
    pub(crate) fn watch(
        &mut self,
        fd: impl AsFd,
        client: usize,
        interest: Interest,
        was: Interest,
    ) -> io::Result<()> {
        match &mut self.0 {
            Kind::Epoll(epoll) => epoll.watch(fd, Token::Client(client), interest, was),
            Kind::Uring(uring) => uring.arm(fd, Token::Client(client), interest),
        }
    }

    /// Watches a client again that was deleted while it waited for something other than its socket. Its turn comes
    /// without an event of that.
    pub(crate) fn resume(&mut self, fd: impl AsFd, client: usize, interest: Interest) -> io::Result<()> {
        match &mut self.0 {
            Kind::Epoll(epoll) => epoll.add(fd, Token::Client(client), interest),
            // Once it has had its turn it is watched for what it wants then.
            Kind::Uring(_) => Ok(()),
        }
    }

    /// Forgets a client whose socket is about to be closed.
    pub(crate) fn forget(&mut self, fd: impl AsFd) {
        match &mut self.0 {
            // The kernel does that when the last descriptor is closed, and nobody else holds one.
            Kind::Epoll(_) => {}
            Kind::Uring(uring) => {
                let _ = uring.forget(fd);
            }
        }
    }

    /// Waits until a socket is ready, the time is up (`None`: never), or a signal arrives. Earlier events are dropped.
    pub(crate) fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        match &mut self.0 {
            Kind::Epoll(epoll) => epoll.wait(&mut events.0, timeout),
            Kind::Uring(uring) => uring.wait(timeout),
        }
    }

    /// The next event of the last wait.
    pub(crate) fn take_event(&mut self, events: &mut Events) -> Option<Token> {
        match &mut self.0 {
            Kind::Epoll(_) => events.0.take(),
            Kind::Uring(uring) => uring.take_event(),
        }
    }

    /// True if it can send to several sockets at once: [`Poller::send_all`].
    pub(crate) fn sends_together(&self) -> bool {
        matches!(self.0, Kind::Uring(_))
    }

    /// Sends to each socket what it takes at once. Errors: nothing was sent.
    pub(crate) fn send_all(&mut self, sends: &mut [SocketSend<'_>]) -> io::Result<()> {
        match &mut self.0 {
            Kind::Epoll(_) => Err(io::ErrorKind::Unsupported.into()),
            Kind::Uring(uring) => uring.send_all(sends),
        }
    }
}

impl Events {
    pub(crate) fn new() -> Self {
        Self(epoll::Events::new())
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

/// Numbers below this are descriptors of clients.
const LISTENERS: u64 = 1 << 32;
const UDP_SOCKETS: u64 = 1 << 33;
const WAKE: u64 = u64::MAX;
