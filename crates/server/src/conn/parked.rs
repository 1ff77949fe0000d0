//! The connections of a worker that wait for the committer.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use larder_engine::Position;
use larder_store::commit::Outcome;

use crate::conn::waiter::Waiting;
use crate::persistence::Persistence;

/// The connections of a worker that wait for the committer, by their numbers.
#[derive(Debug, Default)]
pub struct Parked {
    /// Those whose replies are held, with the positions for which they wait ([`Waiting::Durable`]).
    held: BinaryHeap<Reverse<(Position, usize)>>,
    /// The highest position that any connection has ever waited for.
    held_max: Position,
    /// Those that wait for anything that it does ([`Waiting::Commit`]), with what it had done.
    uncommitted: Vec<(u64, usize)>,
}

impl Parked {
    /// A connection waits, for [`Waiting::Durable`] or [`Waiting::Commit`].
    pub fn push(&mut self, connection: usize, waiting: Waiting) {
        match waiting {
            Waiting::Durable(position) => {
                self.held.push(Reverse((position, connection)));
                self.held_max = self.held_max.max(position);
            }
            Waiting::Commit(progress) => self.uncommitted.push((progress, connection)),
            _ => {}
        }
    }

    /// Asks the committer to wake this worker. True: what a connection waits for may have come to pass before that, so
    /// the worker is to look again by itself.
    pub fn ask(&self, persistence: &Persistence, worker: usize) -> bool {
        persistence.note_waiting(worker);
        persistence.journal().want_durable(self.held_max);
        if !self.uncommitted.is_empty() {
            persistence.journal().hurry_append();
        }
        let progress = persistence.journal().progress();
        self.uncommitted.iter().any(|(before, _)| *before != progress)
            || self.next_held(persistence).is_some()
    }

    /// Takes the connections that are to be executed again.
    pub fn take_ready(&mut self, persistence: &Persistence) -> Vec<usize> {
        let progress = persistence.journal().progress();
        let is_ready = |waiting: &mut (u64, usize)| waiting.0 != progress;
        let mut ready: Vec<_> = self.uncommitted.extract_if(.., is_ready).map(|(_, fd)| fd).collect();
        while let Some(connection) = self.next_held(persistence) {
            self.held.pop();
            ready.push(connection);
        }
        ready
    }

    /// True if no connection waits.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.uncommitted.is_empty()
    }

    /// The first whose change is durable or lost.
    fn next_held(&self, persistence: &Persistence) -> Option<usize> {
        let Reverse((position, connection)) = self.held.peek()?;
        (persistence.outcome(*position) != Outcome::Pending).then_some(*connection)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use larder_store::MemoryStore;
    use larder_store::commit::{Change, Kind, Step};

    use super::*;
    use crate::persistence::{self, StoreSettings};

    /// The change is from another site, or of a namespace whose replies do not wait: nothing else asks for a sync of
    /// it.
    #[test]
    fn who_waits_for_a_change_that_was_answered_gets_a_sync() {
        let store = Arc::new(MemoryStore::new());
        let (shared, mut committer) = persistence::tests::kept(StoreSettings::default(), store);
        let persistence = shared.persistence.as_ref().expect("it has one");
        let journal = persistence.journal();
        let position = journal.next_position(7);
        let deletion = Kind::Delete { version: 1, base_version: 0 };
        journal.submit(position, Change::new(deletion, b"key", b"", false).unfollowed());
        while committer.step_through(0) == Step::Again {}
        let mut parked = Parked::default();
        parked.push(3, Waiting::Durable(position));
        assert!(!parked.ask(persistence, 0), "it is not durable yet");
        while committer.step_through(0) == Step::Again {}
        assert_eq!((persistence.outcome(position), parked.take_ready(persistence)), (Outcome::Done, vec![3]));
    }
}
