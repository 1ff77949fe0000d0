//! A request on its way: what its answer is judged and counted by.

use super::ledger::Witness;
use crate::scenario::Kind;

/// What has to be remembered of a request until it is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// When it should have been sent, and when it was, on the clock of the run.
    pub(crate) due_nanos: u64,
    pub(crate) sent_nanos: u64,
    /// Number of its key, or of its first one.
    pub(crate) number: u64,
    /// Keys asked for.
    pub(crate) keys: u32,
    /// Length of the value that it stores.
    pub(crate) value_bytes: u32,
    /// Index of its command in the group.
    pub(crate) command: u16,
    pub(crate) kind: Kind,
    /// Asked by the generator itself, to make sure of what was sent before: nobody counts it.
    pub(crate) is_own: bool,
    /// See [`Memory::quiet_mark`](super::memory::Memory::quiet_mark).
    pub(crate) quiet_mark: u32,
    /// What is known of its key.
    pub(crate) witness: Witness,
    /// A get of a trace: length of the value that is stored if it misses.
    pub(crate) follow_up_bytes: Option<u32>,
}

impl Asked {
    /// A no-op of the generator's own.
    pub(crate) fn own(now_nanos: u64) -> Self {
        Self {
            due_nanos: now_nanos,
            sent_nanos: now_nanos,
            number: 0,
            keys: 0,
            value_bytes: 0,
            command: 0,
            kind: Kind::Noop,
            is_own: true,
            quiet_mark: 0,
            witness: Witness::default(),
            follow_up_bytes: None,
        }
    }
}
