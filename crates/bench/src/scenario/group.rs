//! A group of connections with the same load, transport and dialect.

use serde::{Deserialize, Serialize};

use super::{Arrival, Command, Keys, Trace, Values};

/// A group of connections with the same load.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Group {
    /// Its name in tables.
    pub name: String,
    /// Connections, over all threads. Each stands for a client: with several servers it has a socket to each of them.
    pub connections: usize,
    /// Requests in flight on each connection.
    pub pipeline: usize,
    /// The dialect.
    pub protocol: Protocol,
    /// The transport.
    pub transport: Transport,
    /// When requests are sent.
    pub arrival: Arrival,
    /// Commands, drawn by weight.
    #[serde(rename = "command")]
    pub commands: Vec<Command>,
    /// The keys.
    pub keys: Keys,
    /// The values to store.
    pub values: Values,
    /// Replay this file instead of drawing commands and keys.
    pub trace: Option<Trace>,
    /// Store a key after its get missed, and count hits and misses: a look-aside cache.
    pub look_aside: bool,
    /// Reopen a connection after so many requests. 0: never.
    pub reconnect_every: u64,
    /// TCP sockets of each connection. They are used in turn, one request each; `pipeline` still bounds what a
    /// connection has in flight over all of them: memaslap's `--conn_sock`.
    pub sockets: usize,
    /// The group ends after so many requests of its own. The run ends when every group has ended.
    pub requests: Option<u64>,
    /// The order of commands.
    pub order: Order,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            name: "all".into(),
            connections: 50,
            pipeline: 1,
            protocol: Protocol::default(),
            transport: Transport::default(),
            arrival: Arrival::default(),
            commands: Vec::new(),
            keys: Keys::default(),
            values: Values::default(),
            trace: None,
            look_aside: false,
            reconnect_every: 0,
            sockets: 1,
            requests: None,
            order: Order::default(),
        }
    }
}

/// The order of a connection's commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Drawn at random, by weight.
    #[default]
    Random,
    /// In the listed order, each as often as its weight (a whole number), then again from the first.
    Turn,
}

/// A dialect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// The classic text commands.
    #[default]
    Text,
    /// `mg`, `ms`, `md`, `ma`, `mn`.
    Meta,
    /// The binary protocol.
    Binary,
}

/// A transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// TCP, with TLS if the target has it. A server that is a path is a Unix socket.
    #[default]
    Tcp,
    /// UDP for everything.
    Udp,
    /// UDP for gets, TCP for the rest, as at Facebook; memaslap's `-a`.
    UdpGets,
}
