//! A client as others see it: for `stats conns`, and for watchers.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

use crate::access::Hosts;

/// A client as others see it. Written by its worker, read by anyone.
#[derive(Debug)]
pub struct Client {
    /// Its descriptor, by which memcached's tools know it.
    pub fd: i32,
    /// Its address.
    pub peer: Peer,
    /// The listener that accepted it: its index among the server's sockets.
    pub listener: u16,
    /// Over HTTP: the hosts that its requests may be for, those of its listener.
    pub(crate) hosts: Hosts,
    state: AtomicU8,
    input_secs: AtomicU32,
}

/// The address of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// An address.
    Tcp(SocketAddr),
    /// A Unix socket; its clients have no address.
    Unix,
    /// Any source of datagrams.
    Udp,
}

impl Peer {
    /// The address without the port, of those that have one.
    pub(crate) fn ip(self) -> Option<IpAddr> {
        match self {
            Self::Tcp(address) => Some(address.ip()),
            Self::Unix | Self::Udp => None,
        }
    }
}

/// What a client waits for: those of memcached's states that a tool can meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// For its next command.
    Read,
    /// It is being served.
    ParseCommand,
    /// It sends a value.
    Value,
    /// Its replies wait until it reads.
    Write,
    /// It watches.
    Watch,
}

impl Client {
    /// A client that has just connected.
    pub fn new(fd: i32, peer: Peer, listener: usize, hosts: Hosts, now_secs: u32) -> Self {
        Self {
            fd,
            peer,
            listener: listener as u16,
            hosts,
            state: AtomicU8::new(State::Read as u8),
            input_secs: AtomicU32::new(now_secs),
        }
    }

    /// All sources of datagrams together.
    pub fn of_datagrams() -> Self {
        Self::new(0, Peer::Udp, 0, Hosts::Any, 0)
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
    pub(crate) fn on_input(&self, now_secs: u32) {
        self.input_secs.store(now_secs, Relaxed);
    }

    pub(crate) fn input_secs(&self) -> u32 {
        self.input_secs.load(Relaxed)
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
