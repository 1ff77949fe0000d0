//! The two ends of a connection, as state machines: bytes and answers go in, actions come out.
//!
//! Each site pulls the log of each other one over a connection of its own: the side that connects is the
//! [`Subscriber`], the other one the [`Publisher`]. Neither reads a clock, a socket or a store: whoever owns them
//! passes the time, performs the actions in order, and reports what came of them. Both keep a bounded number of bytes:
//! the publisher sends no more than a window ahead of what was applied, and the subscriber refuses more.

mod channel;
mod pace;
mod publisher;
mod subscriber;

pub use publisher::{
    Admission, CopyRead, CopyStart, LogExtent, LogRead, Publisher, PublisherAction, Subscription, admit,
};
pub use subscriber::{Batch, CopyBegun, CopyPiece, Subscriber, SubscriberAction};

use crate::compare::RATE_BYTES_PER_SEC;
use crate::wire::{PROTOCOL, Refusal, Token, WireError};

/// A side that has nothing to say says so after this time.
pub const ALIVE_MICROS: u64 = 1_000_000;
/// A connection on which nothing arrives for this time is given up.
pub const TIMEOUT_MICROS: u64 = 10_000_000;
/// A change that is further ahead of the wall clock than this waits: its site has a wrong clock, or this one has.
pub const AHEAD_MICROS_MAX: u64 = 60_000_000;

/// What a site is on all of its connections.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its number, 1 to 255.
    pub site: u8,
    /// Of its log. Not 0.
    pub incarnation: u64,
    /// Random number that is new with each start. Not 0.
    pub run: u64,
    /// What all sites of the cluster know.
    pub token: Token,
    /// Prefixes of the keys that it pulls, of at most 250 bytes each. None: all keys.
    pub prefixes: Vec<Vec<u8>>,
    /// About how many bytes a batch has. A longer entry is a batch of its own.
    pub batch_bytes: usize,
    /// How many bytes may be under way that are not applied yet, beside one batch.
    pub window_bytes: usize,
    /// How long a batch may be: at least the longest entry that any site has; and a body beside the log.
    pub body_bytes_max: usize,
    /// How many bytes of states are scanned in a second for a comparison.
    pub compare_bytes_per_sec: u64,
}

impl Settings {
    /// The defaults.
    pub fn new(site: u8, incarnation: u64, run: u64, token: Token) -> Self {
        Self {
            site,
            incarnation,
            run,
            token,
            prefixes: Vec::new(),
            batch_bytes: 128 << 10,
            window_bytes: 4 << 20,
            body_bytes_max: 64 << 20,
            compare_bytes_per_sec: RATE_BYTES_PER_SEC,
        }
    }
}

/// The time, as the caller has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Of a clock that nobody sets.
    pub micros: u64,
    /// Unix time. May go back.
    pub unix_micros: u64,
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// In short.
    pub refusal: Refusal,
    /// Which side ended it.
    pub by_peer: bool,
    /// A sentence for the operator.
    pub sentence: String,
}

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.sentence)
    }
}

/// The other side, once it has proven that it knows the token.
#[derive(Clone, Copy, Debug)]
struct Peer {
    site: u8,
    incarnation: u64,
    run: u64,
}

/// A reason to end the connection from here.
fn closed(refusal: Refusal, sentence: impl Into<String>) -> Closed {
    Closed { refusal, by_peer: false, sentence: sentence.into() }
}

impl From<WireError> for Closed {
    fn from(error: WireError) -> Self {
        closed(Refusal::Violation, format!("the other site does not follow the protocol: {error}"))
    }
}

fn other_protocol(theirs: u16) -> Closed {
    let sentence = format!("the other site speaks protocol {theirs}, and this one {PROTOCOL}");
    closed(Refusal::Protocol, sentence)
}

fn unexpected() -> Closed {
    closed(
        Refusal::Violation,
        "the other site does not follow the protocol: a message comes at the wrong time",
    )
}

/// Closes the connection: another server has this one's number, or this server has connected to itself.
fn same_number(settings: &Settings, run: u64) -> Closed {
    let site = settings.site;
    if run == settings.run {
        return closed(Refusal::Itself, "the site has connected to itself: its peers are the other sites");
    }
    closed(Refusal::SameSite, format!("two servers have the number {site}: give each its own `--site`"))
}

fn told_by_peer(refusal: Refusal, sentence: &str) -> Closed {
    // The sentence comes from outside: no control characters go to a log.
    let sentence = sentence.chars().filter(|c| !c.is_control()).collect();
    Closed { refusal, by_peer: true, sentence }
}
