//! What a subscriber asks of its caller.

use super::super::Closed;
use super::super::channel::Action;
use crate::compare::AskingStep;
use crate::members::{Cursor, Position};
use crate::wire::{CopyReason, Side};

/// What the caller has to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscriberAction {
    /// Send these bytes.
    Send(Vec<u8>),
    /// Both sides know the token. If [`Members::introduced`](crate::members::Members::introduced) returns something,
    /// make that durable. Answer: [`Subscriber::subscribe`](super::Subscriber::subscribe), or
    /// [`Subscriber::say`](super::Subscriber::say).
    Connected {
        /// The publisher's site.
        site: u8,
        /// Of its log.
        incarnation: u64,
        /// Run of the publisher's process, which cursors in its log carry from here on.
        run: u64,
    },
    /// The log follows, and this site's cursor is one of the publisher's run from here on. If the publisher is not
    /// [in](crate::members::Standing), end the connection, and try again later. Answer:
    /// [`Subscriber::durable`](super::Subscriber::durable), when that cursor is.
    Started,
    /// The log is of no use without a copy. If the reason is silence, this site counts anew
    /// ([`Members::count_anew`](crate::members::Members::count_anew)). If
    /// [`Members::trust`](crate::members::Members::trust) allows it, answer:
    /// [`Subscriber::copy`](super::Subscriber::copy); else end the connection, and try again later.
    CopyNeeded(CopyReason),
    /// Merge these entries, and keep the cursor in the same batch. Answer:
    /// [`Subscriber::applied`](super::Subscriber::applied), and [`Subscriber::durable`](super::Subscriber::durable)
    /// when it is.
    Apply(Batch),
    /// A copy begins.
    CopyBegun(CopyBegun),
    /// Merge these states. Answer: [`Subscriber::piece_applied`](super::Subscriber::piece_applied).
    ApplyPiece(CopyPiece),
    /// All pieces are applied: drop what the copy does not have, keep cursor and positions, make all durable. Answer:
    /// [`Subscriber::copy_taken`](super::Subscriber::copy_taken).
    FinishCopy,
    /// The other side says this, with its body, on a connection that does not pull its log.
    Side(Side, Vec<u8>),
    /// Changes of the publisher are so far ahead of the wall clock. They wait.
    Ahead {
        /// Ahead of the wall clock.
        micros: u64,
    },
    /// They wait no longer.
    NoLongerAhead,
    /// Do this for the comparison that [`Subscriber::compare`](super::Subscriber::compare) has begun.
    Compare(AskingStep),
    /// Close the connection, after what was sent.
    Close(Closed),
}

/// A part of the publisher's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// What was applied before it.
    pub from: u64,
    /// What is applied with it.
    pub to: u64,
    /// For [`Entries`](crate::entry::Entries), which are known to be well-formed, and the publisher's own.
    pub body: Vec<u8>,
    /// The publisher's wall clock when it was sent.
    pub unix_micros: u64,
}

/// How a copy begins: see [`Message::CopyBegin`](crate::wire::Message::CopyBegin).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyBegun {
    /// The cursor that the copy ends with.
    pub cursor: Cursor,
    /// What the copy does not have, up to this version, is gone.
    pub horizon: u64,
    /// About how many bytes the whole copy has.
    pub whole_bytes: u64,
    /// True if the copy goes on where it was interrupted.
    pub is_continued: bool,
    /// How far the publisher is in other logs.
    pub others: Vec<Position>,
}

/// A piece of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyPiece {
    /// 1, 2, 3 and so on.
    pub number: u64,
    /// For [`Entries`](crate::entry::Entries), which are known to be well-formed.
    pub body: Vec<u8>,
    /// Where an interrupted copy continues after this.
    pub position: Vec<u8>,
}

impl Action for SubscriberAction {
    fn send(bytes: Vec<u8>) -> Self {
        Self::Send(bytes)
    }

    fn close(closed: Closed) -> Self {
        Self::Close(closed)
    }
}
