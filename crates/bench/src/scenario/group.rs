//! Connections that ask the same, and the road and dialect they use.

use serde::{Deserialize, Serialize};

use super::{Arrival, Command, Keys, Trace, Values};

/// Connections that ask the same.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Group {
    /// What it is called in tables.
    pub name: String,
    /// Connections, over all threads. Each stands for a client: with several servers it has a socket to each of them.
    pub connections: usize,
    /// Requests in flight on each connection.
    pub pipeline: usize,
    /// How the server is spoken to.
    pub protocol: Protocol,
    /// By which road.
    pub transport: Transport,
    /// When requests are sent.
    pub arrival: Arrival,
    /// What is asked, drawn by weight.
    #[serde(rename = "command")]
    pub commands: Vec<Command>,
    /// Which keys.
    pub keys: Keys,
    /// What is stored.
    pub values: Values,
    /// Replay this file instead of drawing commands and keys.
    pub trace: Option<Trace>,
    /// Store the key after a get that missed, and count hits and misses: how a cache beside a database is used.
    pub look_aside: bool,
    /// Close and open a connection after so many requests on it. 0: never.
    pub reconnect_every: u64,
    /// TCP sockets of each connection. They are used in turn, one request each; `pipeline` still bounds what a
    /// connection has in flight over all of them: memaslap's `--conn_sock`.
    pub sockets: usize,
    /// The group is done after so many requests of its own. The run ends when every group is.
    pub requests: Option<u64>,
    /// In which order commands are drawn.
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

/// In which order a connection asks its group's commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Drawn at random, by weight.
    #[default]
    Random,
    /// One after the other as they are listed, each as many times as its weight says (a whole number), then again from
    /// the first.
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

/// A road to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// TCP, with TLS if the target says so. A server that is a path is a unix socket.
    #[default]
    Tcp,
    /// UDP for everything.
    Udp,
    /// UDP for gets, TCP for the rest: what Facebook did, memaslap's `-a`.
    UdpGets,
}
