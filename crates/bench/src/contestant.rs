//! Who takes part in a comparison: servers that run already, and servers that are started for it.
use serde::{Deserialize, Serialize};

/// A server with a name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Contestant {
    /// What it is called in tables.
    pub name: String,
    /// How it is reached.
    #[serde(flatten)]
    pub place: Place,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// It runs already: `host:port`, or the path of a unix socket; several, if it is a cluster.
    Contacted(Vec<String>),
    /// A program and its arguments, as memcached would take them. It gets a port on 127.0.0.1, and is killed at the end.
    Started(Vec<String>),
    /// The floor server: the same socket calls with no cache behind them.
    Floor,
}
