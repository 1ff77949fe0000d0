//! What a publisher asks of its caller, and the answers.

use super::super::Closed;
use super::super::channel::Action;
use crate::compare::CompareStep;
use crate::members::{CopyExtent, Cursor};
use crate::wire::Side;

/// What the caller has to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublisherAction {
    /// Send these bytes.
    Send(Vec<u8>),
    /// A subscriber asks for what follows its cursor. Answer: [`Publisher::admit`](super::Publisher::admit).
    Admit {
        /// Its site.
        site: u8,
        /// Of its own log: [`Members::introduced`](crate::members::Members::introduced).
        incarnation: u64,
        /// How much it has of this site's log.
        cursor: Cursor,
        /// Prefixes of the keys that it wants; none: all.
        prefixes: Vec<Vec<u8>>,
    },
    /// Read the log: of each record that is durable, [`Entry::own_of_record`](crate::entry::Entry::own_of_record); the
    /// flushes that this site made; its last beat that is durable. Answer:
    /// [`Publisher::log_read`](super::Publisher::log_read).
    ReadLog {
        /// From the next sequence on.
        after: u64,
        /// End when the entries have so many bytes.
        bytes_max: usize,
    },
    /// Begin a copy, after [`Members::joining`](crate::members::Members::joining) is durable. Answer:
    /// [`Publisher::copy_begun`](super::Publisher::copy_begun).
    BeginCopy {
        /// For this site.
        site: u8,
        /// An earlier copy of the same site, and up to where it came, if that can be continued.
        interrupted: Option<(u64, Vec<u8>)>,
    },
    /// Read on. Answer: [`Publisher::copy_read`](super::Publisher::copy_read).
    ReadCopy {
        /// Behind this position.
        position: Vec<u8>,
        /// Without the states that are [obsolete](crate::state::State::is_obsolete) at this horizon, since they may be
        /// forgotten before the copy ends; 0: all.
        horizon: u64,
        /// As for the log.
        bytes_max: usize,
    },
    /// Do this for a comparison, before anything else of the log is read.
    Compare(CompareStep),
    /// The subscriber has the log up to here, durably:
    /// [`Members::note_confirmed`](crate::members::Members::note_confirmed).
    Confirmed {
        /// Its site.
        site: u8,
        /// Incarnation of that site's own log.
        incarnation: u64,
        /// Sequence in this site's log.
        sequence: u64,
    },
    /// The other side does not pull the log, and says this, with its body. Answer:
    /// [`Publisher::say`](super::Publisher::say).
    Side(Side, Vec<u8>),
    /// The subscriber has its copy: make [`Members::joined`](crate::members::Members::joined) durable before the next
    /// action.
    CopyTaken {
        /// Its site.
        site: u8,
    },
    /// Close the connection, after what was sent.
    Close(Closed),
}

/// What was read from the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogRead {
    /// Entries up to `to`, encoded; perhaps none. Durable.
    Entries {
        /// Of the last sequence that was looked at.
        to: u64,
        /// What [`Entry::encode`](crate::entry::Entry::encode) wrote.
        body: Vec<u8>,
    },
    /// Cleaning has passed the position.
    Gone,
}

/// How a copy begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyStart {
    /// What it is of: [`Members::begin_copy`](crate::members::Members::begin_copy).
    pub extent: CopyExtent,
    /// About how many bytes all of it has.
    pub whole_bytes: u64,
    /// The interrupted position, if that copy is continued; else empty.
    pub position: Vec<u8>,
}

/// A piece of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyRead {
    /// Encoded states and flushes.
    pub body: Vec<u8>,
    /// Where the next piece begins; `None`: there is none.
    pub position: Option<Vec<u8>>,
    /// The last sequence that was appended when this was read. The piece waits until that is durable.
    pub appended: u64,
}

impl Action for PublisherAction {
    fn send(bytes: Vec<u8>) -> Self {
        Self::Send(bytes)
    }

    fn close(closed: Closed) -> Self {
        Self::Close(closed)
    }
}
