//! Operations on items that may be in a store, not in memory.

use std::sync::Arc;

use larder_engine::{Guard, Position};
use larder_protocol::Error;
use larder_store::TryGet;
use larder_store::commit::OnItsWay;

use super::{Answered, Context, Done};
use crate::conn::client::Peer;
use crate::conn::waiter::{Waiter, Waiting};
use crate::namespaces::Place;
use crate::persistence::fetch::{Fetching, Finding, Wanted};
use crate::persistence::{Behind, Persistence};
use crate::replication::home::Asked;

/// The way to items that may be in a store, not in memory.
pub(crate) struct StoreAccess<'e, 'c> {
    pub(super) cx: &'e Context<'c>,
    /// What look-ups in the store have found out for the request that waited for them.
    findings: Vec<Finding>,
    /// What is to be looked up in the store before the request can be executed: with [`Waiting::Signal`].
    wanted: Vec<Wanted>,
    /// What the key's home has answered, to the request that waited for it.
    pub(super) answered: Option<Arc<Asked>>,
    /// What the home of a key was asked: with [`Waiting::Signal`].
    pub(super) asked: Option<Arc<Asked>>,
}

/// Why an operation has no result.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unanswered {
    /// Execute the command again after this wait.
    Wait(Waiting),
    /// The answer is this error.
    Refused(Error),
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    Read,
    /// It only removes the item, if anything.
    Remove,
    /// It may change the item.
    Change,
    /// It may store a value of so many bytes.
    Store {
        value_bytes: u64,
    },
}

impl Unanswered {
    pub(super) fn into_answer<'t>(self) -> Answered<'t> {
        match self {
            Self::Wait(waiting) => Err(Done::Wait(waiting)),
            Self::Refused(error) => Ok(larder_protocol::Reply::Error(error)),
        }
    }
}

impl<'e, 'c> StoreAccess<'e, 'c> {
    pub(crate) fn new(cx: &'e Context<'c>, findings: Vec<Finding>, answered: Option<Arc<Asked>>) -> Self {
        Self { cx, findings, wanted: Vec::new(), answered, asked: None }
    }

    /// Takes what the home of a key was asked; the connection is signalled once it has answered.
    pub(crate) fn take_asked(&mut self) -> Option<Arc<Asked>> {
        self.asked.take()
    }

    /// Takes what is to be looked up.
    pub(crate) fn take_wanted(&mut self) -> Vec<Wanted> {
        std::mem::take(&mut self.wanted)
    }

    /// Passes what is to be looked up to the threads that do it; the connection is signalled afterwards. `None`:
    /// nothing is.
    pub(crate) fn begin_fetching(&mut self) -> Option<Arc<Fetching>> {
        let persistence = self.cx.shared.persistence.as_ref().filter(|_| !self.wanted.is_empty())?;
        let connection = usize::try_from(self.cx.client.fd).ok()?;
        let waiter = Waiter { worker: self.cx.worker, connection };
        Some(persistence.fetches.begin(waiter, std::mem::take(&mut self.wanted)))
    }

    /// True if a store is behind the engine of this place. Never without namespaces, which the compiler sees where
    /// there are none.
    #[inline(always)]
    pub(super) fn is_behind(place: &Place<'_>) -> bool {
        place.namespace.is_some() && place.guard.is_backed()
    }

    /// The result of an operation on a key. Where a store is behind the engine, of one that knows what the store has.
    /// Plain gets and sets ask [`is_behind`](Self::is_behind) instead: what is called here is not inlined.
    #[inline(always)]
    pub(crate) fn operate<'t, R>(
        &mut self,
        place: &Place<'t>,
        key: &[u8],
        intent: Intent,
        mut operate: impl FnMut(&'t Guard<'t>) -> R,
    ) -> Result<R, Unanswered> {
        if Self::is_behind(place) {
            return self.operate_backed(place, key, intent, &mut operate);
        }
        Ok(operate(place.guard))
    }

    /// Whether a change of an item of this namespace may be made now: each that the store is told of asks first.
    pub(super) fn admit(&self, number: u8, intent: Intent) -> Result<(), Unanswered> {
        self.admit_to_journal(number, intent)?;
        let Some(persistence) = &self.cx.shared.persistence else { return Ok(()) };
        persistence.admit_to_write(number).map_err(|when| Unanswered::Wait(Waiting::Until(when)))
    }

    /// As [`admit`](Self::admit), without the write budget of the namespace.
    fn admit_to_journal(&self, number: u8, intent: Intent) -> Result<(), Unanswered> {
        self.refuse_datagram()?;
        let Some(persistence) = &self.cx.shared.persistence else { return Ok(()) };
        if let Some(refusal) = persistence.site_refusal()
            && self.cx.shared.is_replicated(number)
        {
            return Err(Unanswered::Refused(refusal));
        }
        // Read before what it is about: then no change of that is missed.
        let progress = persistence.journal.progress();
        persistence.admit(intent == Intent::Remove).map_err(|error| match error {
            None => Unanswered::Wait(Waiting::Commit(progress)),
            Some(error) => Unanswered::Refused(error),
        })
    }

    /// A datagram cannot wait for the disk.
    pub(super) fn refuse_datagram(&self) -> Result<(), Unanswered> {
        match self.cx.client.peer {
            Peer::Udp => Err(Unanswered::Refused(Error::NotOverUdp)),
            _ => Ok(()),
        }
    }

    /// The same where a store is behind the engine.
    #[inline(never)]
    pub(super) fn operate_backed<'t, R>(
        &mut self,
        place: &Place<'t>,
        key: &[u8],
        intent: Intent,
        operate: &mut dyn FnMut(&'t Guard<'t>) -> R,
    ) -> Result<R, Unanswered> {
        let shared = self.cx.shared;
        let Some(persistence) = &shared.persistence else { return Ok(operate(place.guard)) };
        // Read before what it is about: then no change of that is missed.
        let wait = Unanswered::Wait(Waiting::Commit(persistence.journal.progress()));
        // Held until the operation is done.
        let _admitted = match intent {
            Intent::Remove | Intent::Change => {
                self.admit(place.number(), intent)?;
                None
            }
            Intent::Store { value_bytes } => {
                self.admit(place.number(), intent)?;
                admit_to_disk(persistence, place, key, value_bytes)?
            }
            Intent::Read => {
                self.refuse_datagram()?;
                None
            }
        };
        if let Some(finding) = self.findings.iter().find(|finding| finding.hash == place.hash) {
            let position = finding.absent.map_err(Unanswered::Refused)?;
            place.guard.assume_absent(place.hash, position);
        }
        // Of an observer that looked before.
        place.guard.take_unproven();
        let result = operate(place.guard);
        if !place.guard.take_unproven() {
            return Ok(result);
        }
        match persistence.look_behind(key, place.hash) {
            Behind::OnItsWay => return Err(wait),
            Behind::Absent(position) => place.guard.assume_absent(place.hash, position),
            Behind::Unread(position) => {
                match persistence.try_fetch(
                    self.cx.worker,
                    place.guard,
                    key,
                    place.hash,
                    position,
                    place.ttl_max_secs(),
                ) {
                    TryGet::Found => {}
                    TryGet::Absent => place.guard.assume_absent(place.hash, position),
                    TryGet::WouldBlock => {
                        self.wanted.push(wanted(key, place, position));
                        return Err(Unanswered::Wait(Waiting::Signal));
                    }
                }
            }
        }
        let result = operate(place.guard);
        // It has changed in between, or is out of memory again.
        if place.guard.take_unproven() { Err(Unanswered::Wait(Waiting::Yield)) } else { Ok(result) }
    }

    /// False: a store is behind this engine, and takes no changes now. A write budget that is used up does not count: a
    /// get that found a stale item would tell nobody to renew it.
    pub(super) fn may_change(&self, place: &Place<'_>) -> bool {
        !place.guard.is_backed() || self.admit_to_journal(place.number(), Intent::Change).is_ok()
    }

    /// Asks for the look-up in the store of a key that a later part of the same request needs, if memory has not got
    /// it.
    pub(crate) fn read_ahead(&mut self, key: &[u8], place: &Place<'_>) {
        let Some(persistence) = &self.cx.shared.persistence else { return };
        if place.guard.is_backed()
            && self.wanted.len() < READ_AHEAD_MAX
            && self.findings.iter().all(|finding| finding.hash != place.hash)
            && place.guard.peek(key, place.hash).is_err()
            && let Behind::Unread(position) = persistence.look_behind(key, place.hash)
        {
            self.wanted.push(wanted(key, place, position));
        }
    }
}

fn wanted(key: &[u8], place: &Place<'_>, position: Position) -> Wanted {
    Wanted {
        key: key.into(),
        hash: place.hash,
        number: place.number(),
        position,
        ttl_max_secs: place.ttl_max_secs(),
    }
}

/// Whether the quota of disk, if there is one, has room for an item.
fn admit_to_disk(
    persistence: &Persistence,
    place: &Place<'_>,
    key: &[u8],
    value_bytes: u64,
) -> Result<Option<OnItsWay>, Unanswered> {
    let Some(namespace) = &place.namespace else { return Ok(None) };
    let Some(limit_bytes) = namespace.policy.disk_bytes else { return Ok(None) };
    persistence.disk_quotas.admit(namespace.number, limit_bytes, key, value_bytes).map_err(|error| {
        namespace.counters.refused_disk.add(1);
        Unanswered::Refused(error)
    })
}

/// Keys of a list that are looked up together.
const READ_AHEAD_MAX: usize = 32;
