//! Who is connected, for `stats conns`, and for whoever watches.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::net::listeners::Listener;
use crate::net::udp;

/// Everybody's place.
#[derive(Debug, Default)]
pub struct ConnectionTable {
    sockets: Mutex<Vec<ServerSocket>>,
    /// By descriptor.
    clients: Mutex<Vec<Option<Arc<Client>>>>,
}

/// A socket of the server's own.
#[derive(Clone, Debug)]
pub struct ServerSocket {
    /// Its descriptor.
    pub fd: RawFd,
    /// What it is bound to, in memcached's notation.
    pub address: String,
    /// Receives datagrams; else connections.
    pub is_udp: bool,
}

/// A client, as others see it. Its worker writes, anybody reads.
#[derive(Debug)]
pub struct Client {
    /// Its descriptor, by which memcached's tools know it.
    pub fd: RawFd,
    /// Where it calls from.
    pub peer: Peer,
    /// Which of the server's listeners it came by: the first of [`ConnectionTable::sockets`] are these.
    pub listener: u16,
    state: AtomicU8,
    heard_secs: AtomicU32,
}

/// Where a client calls from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// An address.
    Tcp(SocketAddr),
    /// The same machine: such clients have no name.
    Unix,
    /// Whoever sends datagrams.
    Udp,
}

/// What a client waits for. memcached's names are of its own innards; these are the ones a tool can meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// For its next command.
    Read,
    /// It is being served.
    ParseCommand,
    /// It sends a value.
    Value,
    /// It is to read replies.
    Write,
    /// It watches.
    Watch,
}

impl ConnectionTable {
    /// The sockets by which clients come.
    pub fn add_sockets(&self, listeners: &[Listener], udp: &[Vec<udp::Socket>]) {
        let listeners = listeners.iter().map(|listener| ServerSocket {
            fd: listener.fd.as_raw_fd(),
            address: listener.address.to_string(),
            is_udp: false,
        });
        let udp = udp.iter().flatten().map(|socket| ServerSocket {
            fd: socket.as_fd().as_raw_fd(),
            address: tcp_name(socket.address()).replacen("tcp", "udp", 1),
            is_udp: true,
        });
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.extend(listeners.chain(udp));
    }

    pub(crate) fn sockets(&self) -> Vec<ServerSocket> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn enter(&self, client: Arc<Client>) {
        let at = client.fd as usize;
        let mut clients = self.clients_mut();
        if clients.len() <= at {
            clients.resize_with(at + 1, || None);
        }
        clients[at] = Some(client);
    }

    /// To be called before the descriptor is closed: then it may be another's at once.
    pub(crate) fn leave(&self, client: &Client) {
        if let Some(place) = self.clients_mut().get_mut(client.fd as usize) {
            *place = None;
        }
    }

    /// All clients, by descriptor.
    pub(crate) fn clients(&self) -> Vec<Arc<Client>> {
        self.clients_mut().iter().flatten().cloned().collect()
    }

    fn clients_mut(&self) -> MutexGuard<'_, Vec<Option<Arc<Client>>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client {
    /// One that has just come.
    pub fn new(fd: RawFd, peer: Peer, listener: usize, now_secs: u32) -> Self {
        Self {
            fd,
            peer,
            listener: listener as u16,
            state: AtomicU8::new(State::Read as u8),
            heard_secs: AtomicU32::new(now_secs),
        }
    }

    /// Whoever sends a datagram.
    pub fn of_datagrams() -> Self {
        Self::new(0, Peer::Udp, 0, 0)
    }

    pub(crate) fn set_state(&self, state: State) {
        self.state.store(state as u8, Relaxed);
    }

    pub(crate) fn state(&self) -> State {
        let state = self.state.load(Relaxed);
        [State::ParseCommand, State::Value, State::Write, State::Watch]
            .into_iter()
            .find(|known| *known as u8 == state)
            .unwrap_or(State::Read)
    }

    /// It sent something.
    pub(crate) fn hear(&self, now_secs: u32) {
        self.heard_secs.store(now_secs, Relaxed);
    }

    pub(crate) fn heard_secs(&self) -> u32 {
        self.heard_secs.load(Relaxed)
    }
}

impl State {
    /// memcached's word for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "conn_read",
            Self::ParseCommand => "conn_parse_cmd",
            Self::Value => "conn_nread",
            Self::Write => "conn_mwrite",
            Self::Watch => "conn_watch",
        }
    }
}

/// In memcached's notation.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(&tcp_name(*address)),
            Self::Unix => f.write_str("unix:"),
            Self::Udp => f.write_str("udp:"),
        }
    }
}

pub(crate) fn tcp_name(address: SocketAddr) -> String {
    let family = if address.is_ipv4() { "tcp" } else { "tcp6" };
    format!("{family}:{address}")
}
