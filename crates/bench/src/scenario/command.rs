//! A command and its share of the requests.

use serde::{Deserialize, Serialize};

use super::{Keys, Values};

/// A command and its weight.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Command {
    /// The command.
    pub kind: Kind,
    /// Its share of the requests is its weight divided by the sum of all weights.
    pub weight: f64,
    /// Keys in a get. Text: one line; meta and binary: quiet gets, ended by a no-op.
    pub keys: usize,
    /// Suppress the reply (text `noreply`, meta `q`, binary quiet opcodes). The request counts as done when it is sent;
    /// a no-op at the end (text: `version`) ensures that the server has processed it.
    pub noreply: bool,
    /// Expiry of stored items, drawn by weight. Empty: none.
    pub ttl: Vec<Ttl>,
    /// Client flags of stored items. With `truth.verify` the key determines them, and they are checked.
    pub client_flags: u32,
    /// The amount of incr and decr.
    pub delta: u64,
    /// Meta only: flags appended to the command unchanged.
    pub meta_flags: String,
    /// Keys for this command only, instead of the group's. With `popularity` `sequential`, the command has its own
    /// position.
    pub key_set: Option<Keys>,
    /// Values for this command only, instead of the group's.
    pub value_set: Option<Values>,
}

impl Default for Command {
    fn default() -> Self {
        Self {
            kind: Kind::Get,
            weight: 1.0,
            keys: 1,
            noreply: false,
            ttl: Vec::new(),
            client_flags: 0,
            delta: 1,
            meta_flags: String::new(),
            key_set: None,
            value_set: None,
        }
    }
}

/// A time to live with its weight. 0 seconds: no expiry.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Ttl {
    /// Whole seconds.
    pub secs: u32,
    /// Its weight.
    pub weight: f64,
}

/// A command of any dialect, by its text name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// `get`.
    Get,
    /// `gets`: with CAS.
    Gets,
    /// `gat`: get and touch.
    Gat,
    /// `set`.
    Set,
    /// `add`.
    Add,
    /// `replace`.
    Replace,
    /// `append`.
    Append,
    /// `prepend`.
    Prepend,
    /// `gets`, then `cas` with the returned CAS value: two requests.
    Cas,
    /// `delete`.
    Delete,
    /// `incr`.
    Incr,
    /// `decr`.
    Decr,
    /// `touch`.
    Touch,
    /// `version`.
    Version,
    /// A no-op (text: `version`).
    Noop,
}

impl Kind {
    /// True if it may change stored items.
    pub fn changes(self) -> bool {
        !matches!(self, Self::Get | Self::Gets | Self::Version | Self::Noop)
    }
}
