//! What the clients know of their keys while a backup is taken.
//!
//! A backup is of some moment while it is taken. So what it must have is what was acknowledged before it began and did
//! not change until it had ended: each client looks at its keys before, notes which it changes, and tells the others
//! afterwards.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use larder_conformance::Result;

use super::flushes::Flushes;
use super::model::{Death, Entry, Held};

/// The backups of a soak, as the clients see them.
#[derive(Default)]
pub(crate) struct Rounds {
    /// Odd while a backup is taken.
    number: AtomicU64,
    /// Clients that have noticed the number.
    noticed: AtomicUsize,
    known: Mutex<Vec<Known>>,
}

/// A key that no client has changed while a backup was taken.
pub(crate) struct Known {
    pub(crate) name: String,
    /// It holds a number, which may have blanks behind it.
    pub(crate) is_number: bool,
    pub(crate) state: State,
}

pub(crate) enum State {
    /// The backup has none.
    Absent,
    /// The backup has this item, or it has expired.
    Present(Content),
    /// Something may have taken it: none, or this.
    Perhaps(Content),
}

#[derive(Clone)]
pub(crate) struct Content {
    pub(crate) value_bytes: usize,
    pub(crate) value_hash: u64,
    pub(crate) client_flags: u32,
    pub(crate) cas: Option<u64>,
    pub(crate) death: Option<Death>,
}

impl Content {
    fn of(held: &Held) -> Self {
        Self {
            value_bytes: held.value.len(),
            value_hash: hash(&held.value),
            client_flags: held.client_flags,
            cas: held.cas,
            death: held.death,
        }
    }
}

pub(crate) fn hash(value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Rounds {
    /// Begins a round, or ends it: returns once all clients have noticed. Errors: a client has failed.
    pub(crate) fn advance(&self, clients: usize, wait: impl Fn() -> Result<()>) -> Result<()> {
        self.noticed.store(0, SeqCst);
        self.number.fetch_add(1, SeqCst);
        while self.noticed.load(SeqCst) < clients {
            wait()?;
        }
        Ok(())
    }

    /// What all clients know of the round that has ended.
    pub(crate) fn take_known(&self) -> Vec<Known> {
        std::mem::take(&mut *self.known())
    }

    fn known(&self) -> MutexGuard<'_, Vec<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client's part in the rounds.
#[derive(Default)]
pub(crate) struct Part {
    number: u64,
    /// Keys that it has changed in this round.
    changed: HashSet<usize>,
    /// The state of its keys when the round began; empty between rounds.
    before: Vec<Option<(Content, Instant, bool)>>,
}

impl Part {
    /// A request that may change these keys is about to be sent.
    pub(crate) fn change(&mut self, keys: &[usize]) {
        if !self.before.is_empty() {
            self.changed.extend(keys);
        }
    }

    /// Notices that a round has begun or ended. No request is under way.
    pub(crate) fn notice(
        &mut self,
        rounds: &Rounds,
        entries: &mut [Entry],
        flushes: &Mutex<Flushes>,
        name: impl Fn(usize) -> (String, bool),
    ) {
        let number = rounds.number.load(SeqCst);
        if number == self.number {
            return;
        }
        self.number = number;
        let mut flushes = flushes.lock().unwrap_or_else(PoisonError::into_inner);
        if number % 2 == 1 {
            let gone_before = flushes.gone_before();
            self.changed.clear();
            self.before = entries
                .iter_mut()
                .map(|entry| {
                    entry.settle(gone_before);
                    let held = entry.held.as_ref()?;
                    Some((Content::of(held), held.written, held.is_certain))
                })
                .collect();
        } else {
            let before = std::mem::take(&mut self.before).into_iter().enumerate();
            let unchanged = before.filter(|(key, _)| !self.changed.contains(key));
            let known = unchanged.map(|(key, before)| {
                let (name, is_number) = name(key);
                let state = match before {
                    None => State::Absent,
                    // Judged now: a flush since then may have been in the backup.
                    Some((content, written, true)) if flushes.spare(written) => State::Present(content),
                    Some((content, ..)) => State::Perhaps(content),
                };
                Known { name, is_number, state }
            });
            rounds.known().extend(known);
        }
        rounds.noticed.fetch_add(1, SeqCst);
    }
}
