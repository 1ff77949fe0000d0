//! Requests that wait for something other than their client's next bytes.
//!
//! A session that cannot answer yet returns [`crate::conn::session::Next::Wait`], and leaves the request unconsumed or
//! itself in a state that says what comes next. Whoever owns the connection executes it again, with no new bytes, when
//! what it waits for has come about; it may do so too early, so the session looks again and may wait again. Meanwhile
//! nothing more is read from that client, and replies to what it asked before are sent.
//!
//! A reply that may not leave before a write is durable is held in the same way: the session hands the write and its
//! [`Waiter`] to the store, returns [`Waiting::Signal`], and the store signals the waiter when the write is on disk.

use std::time::Instant;

use larder_engine::Guard;

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// For the others to have their turn: it had its share.
    Turn,
    /// For memory that is being reclaimed, which takes microseconds and a new guard.
    Memory,
    /// For a moment.
    Until(Instant),
    /// For somebody else to signal its [`Waiter`].
    Signal,
}

/// Names a connection to whoever is to wake it. It may have gone by then, and another have its place: that one looks,
/// and waits on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// The worker that serves it.
    pub worker: usize,
    /// The connection's number there: its descriptor.
    pub connection: usize,
}

/// How long the request at hand has waited for memory that is being reclaimed.
#[derive(Default)]
pub(crate) struct RetryDeadline {
    /// 0: it does not wait.
    since_secs: u32,
}

impl RetryDeadline {
    pub(crate) fn begin(&mut self, guard: &Guard<'_>) {
        if self.since_secs == 0 {
            self.since_secs = guard.now().secs;
        }
    }

    pub(crate) fn is_over(&self, guard: &Guard<'_>) -> bool {
        self.since_secs != 0 && guard.now().secs.saturating_sub(self.since_secs) > RETRY_SECS
    }
}

/// How long a request waits for memory that is being reclaimed, before it is told that there is none. Guards last
/// microseconds; only a thread that lost its core while it held one takes longer.
const RETRY_SECS: u32 = 2;
