//! A command and its share of the requests.

use serde::{Deserialize, Serialize};

use super::{Keys, Values};

/// A command and how often it is drawn.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Command {
    /// Which one.
    pub kind: Kind,
    /// Its share is its weight by the sum of all weights.
    pub weight: f64,
    /// Keys in a get. Text: one line; meta and binary: quiet gets, ended by a no-op.
    pub keys: usize,
    /// Ask for no reply (text `noreply`, meta `q`, binary quiet opcodes). It counts as done when it is sent; a no-op
    /// (text: `version`) at the end makes sure that the server has worked it off.
    pub noreply: bool,
    /// What it stores lives so long; drawn by weight. Empty: for ever.
    pub ttl: Vec<Ttl>,
    /// Client flags of what it stores. With `truth.verify` they are chosen by the key, and checked.
    pub client_flags: u32,
    /// What incr and decr change by.
    pub delta: u64,
    /// Meta only: flags appended to the command as they stand.
    pub meta_flags: String,
    /// Keys of this command alone, instead of the group's. Where `popularity` is `sequential`, it goes through them on
    /// its own.
    pub key_set: Option<Keys>,
    /// Values of this command alone, instead of the group's.
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

/// A time to live with its weight. 0 seconds: for ever.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Ttl {
    /// Whole seconds.
    pub secs: u32,
    /// Its share.
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
    /// `gets`, then `cas` with what it told: counts as two.
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
    /// Whether it may change what a server holds.
    pub fn changes(self) -> bool {
        !matches!(self, Self::Get | Self::Gets | Self::Version | Self::Noop)
    }
}
