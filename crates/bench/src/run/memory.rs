//! What a socket has to remember besides what is due: keys of gets of many, and requests that nobody answers.

use std::collections::VecDeque;

use super::ledger::{Effect, Witness};

/// Of one socket.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Keys of gets of many that have neither been found nor passed over, in the order asked. Only where a miss
    /// matters.
    pub(crate) keys: VecDeque<(u64, Witness)>,
    /// How many of the request whose answer is coming have.
    pub(crate) keys_seen: u32,
    /// The server refused some of them, and it is not known which: those that are not found may be there.
    pub(crate) keys_refused: bool,
    /// Changes without an answer that have not been worked off as far as we know. Only where there is a ledger.
    quiet: VecDeque<Quiet>,
    /// Requests without an answer: sent, and known to be worked off.
    quiet_sent: u32,
    quiet_confirmed: u32,
}

/// A change that nobody answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quiet {
    /// Its place among the socket's quiet requests.
    mark: u32,
    /// Index of its key set in the group.
    pub(crate) key_set: usize,
    pub(crate) number: u64,
    pub(crate) witness: Witness,
    /// What becomes of it when it is worked off.
    pub(crate) effect: Effect,
}

impl Memory {
    /// Quiet requests sent: whatever is answered that was asked now shows that all of them are worked off.
    #[inline]
    pub(crate) fn quiet_mark(&self) -> u32 {
        self.quiet_sent
    }

    /// A request without an answer goes out. With `key_set`: the ledger wants to know what becomes of it.
    #[inline]
    pub(crate) fn send_quiet(
        &mut self,
        key_set: Option<usize>,
        number: u64,
        witness: Witness,
        effect: Effect,
    ) {
        self.quiet_sent = self.quiet_sent.wrapping_add(1);
        if let Some(key_set) = key_set {
            self.quiet.push_back(Quiet { mark: self.quiet_sent, key_set, number, witness, effect });
        }
    }

    /// A request was answered that was asked at `mark`.
    #[inline]
    pub(crate) fn confirm(&mut self, mark: u32) {
        self.quiet_confirmed = mark;
    }

    /// The next change that is known to be worked off.
    #[inline]
    pub(crate) fn next_confirmed(&mut self) -> Option<Quiet> {
        let quiet = self.quiet.front()?;
        // Marks wrap.
        let is_confirmed = self.quiet_confirmed.wrapping_sub(quiet.mark) < u32::MAX / 2;
        if is_confirmed { self.quiet.pop_front() } else { None }
    }

    /// Something was sent of which it is not known whether it has been worked off.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.quiet_sent != self.quiet_confirmed
    }

    /// Time to ask for a sign, lest too many changes be remembered.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.quiet.len() >= QUIET_MAX && self.quiet.len().is_multiple_of(QUIET_MAX)
    }
}

const QUIET_MAX: usize = 1024;
