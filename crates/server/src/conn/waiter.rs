//! Requests that wait for something other than their client's next bytes.
//!
//! A session that cannot answer yet returns [`crate::conn::session::Next::Wait`]. It leaves the request unconsumed, or
//! keeps a state that says what comes next. The connection's owner executes it again, without new bytes, once the event
//! has occurred. It may do so too early: the session checks again and may wait again. Meanwhile nothing more is read
//! from that client, and earlier replies are sent.
//!
//! A reply that must not leave before a change is durable is held by the connection ([`Waiting::Durable`]). The worker
//! keeps the positions for which its connections wait, and looks at them when the committer wakes it.

use std::cell::Cell;
use std::time::Instant;

use larder_engine::Position;

use crate::namespaces::Guards;

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Other connections run first: this one has used its share of the round.
    Yield,
    /// The next round of the worker that has room for an administrative command: see [`Turns`].
    Turn,
    /// Memory that is being reclaimed, which takes microseconds and a new guard.
    Memory,
    /// A moment in time.
    Until(Instant),
    /// Another thread's signal to its [`Waiter`].
    Signal,
    /// The committer has done something since it had done this much: a change was applied, or there is room for more.
    Commit(u64),
    /// The change at this position is durable, or lost: the replies are held until then.
    Durable(Position),
}

/// The administrative commands, and pieces of long replies, that a worker still executes in this round for all of its
/// connections together: each may take as long as a thousand gets.
#[derive(Debug)]
pub struct Turns {
    left: Cell<u32>,
}

impl Turns {
    /// With `turns` turns.
    pub fn new(turns: u32) -> Self {
        Self { left: Cell::new(turns) }
    }

    /// Takes one. False: none is left.
    pub(crate) fn take(&self) -> bool {
        let left = self.left.get().checked_sub(1);
        self.left.set(left.unwrap_or_default());
        left.is_some()
    }
}

/// Names a waiting connection to whoever wakes it. If the connection has been closed and another has its descriptor,
/// the other one checks, and waits on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// The worker that serves it.
    pub worker: usize,
    /// The connection's number there: its descriptor.
    pub connection: usize,
}

/// How long the current request has waited for memory that is being reclaimed.
#[derive(Default)]
pub(crate) struct RetryDeadline {
    /// 0: not waiting.
    since_secs: u32,
}

impl RetryDeadline {
    pub(crate) fn begin(&mut self, guards: &Guards<'_>) {
        if self.since_secs == 0 {
            self.since_secs = guards.now().secs;
        }
    }

    pub(crate) fn is_over(&self, guards: &Guards<'_>) -> bool {
        self.since_secs != 0 && guards.now().secs.saturating_sub(self.since_secs) > RETRY_SECS
    }
}

/// How long a request waits for memory that is being reclaimed before it fails. Guards last microseconds, unless the
/// thread that holds one loses its core.
const RETRY_SECS: u32 = 2;
/// Administrative commands in a round. Few: a round without others costs microseconds.
pub(crate) const TURNS_PER_ROUND: u32 = 2;
