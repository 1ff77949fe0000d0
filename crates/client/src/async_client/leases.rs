//! Leases of the meta protocol on what is computed: how long those of others are respected, and how own ones are given
//! back.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::AsyncClient;
use super::flight::{Flight, Member};
use super::request::Request;

/// Since when leases on old values are known to be taken. The server does not tell whether who has one still lives.
#[derive(Debug, Default)]
pub(super) struct TakenLeases {
    hasher: RandomState,
    since: Mutex<Since>,
}

#[derive(Debug, Default)]
struct Since {
    /// By the hash of key and lease: where two have the same, one is taken over early, which costs a computation.
    by_hash: HashMap<u64, Instant>,
    pruned: Option<Instant>,
}

impl TakenLeases {
    /// A lease is taken. `true`: for so long that the caller is to compute as well. The next is told so after another
    /// `wait`.
    pub(super) fn take_over(&self, key: &[u8], lease: u64, wait: Duration) -> bool {
        let (hash, now) = (self.hash(key, lease), Instant::now());
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        match since.by_hash.get_mut(&hash) {
            Some(since) if now.duration_since(*since) >= wait => {
                *since = now;
                true
            }
            Some(_) => false,
            None => {
                since.insert(hash, now, wait);
                false
            }
        }
    }

    /// A computation with this lease has failed: it is taken from now on.
    pub(super) fn note(&self, key: &[u8], lease: u64) {
        let (hash, now) = (self.hash(key, lease), Instant::now());
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        since.insert(hash, now, PRUNE_PAUSE);
    }

    fn hash(&self, key: &[u8], lease: u64) -> u64 {
        self.hasher.hash_one((key, lease))
    }
}

impl Since {
    /// Once it is full, what is left out waits for a place. Places come free: those of leases that nobody has asked
    /// for within twice their time.
    fn insert(&mut self, hash: u64, now: Instant, wait: Duration) {
        if self.by_hash.len() >= LEASES_MAX
            && self.pruned.is_none_or(|pruned| now.duration_since(pruned) >= PRUNE_PAUSE)
        {
            self.pruned = Some(now);
            let age_max = wait.max(PRUNE_PAUSE).saturating_mul(2);
            self.by_hash.retain(|_, since| now.duration_since(*since) < age_max);
        }
        if self.by_hash.len() < LEASES_MAX || self.by_hash.contains_key(&hash) {
            self.by_hash.insert(hash, now);
        }
    }
}

/// A member that gives the lease back if it is left unused.
pub(super) struct Leaving<'a> {
    client: &'a AsyncClient,
    member: Member<'a>,
    has_old: bool,
    /// What came of the store is not known.
    is_storing: AtomicBool,
}

impl<'a> Leaving<'a> {
    pub(super) fn new(client: &'a AsyncClient, member: Member<'a>, has_old: bool) -> Self {
        Self { client, member, has_old, is_storing: AtomicBool::new(false) }
    }

    pub(super) fn has_old(&self) -> bool {
        self.has_old
    }

    pub(super) fn flight(&self) -> &Flight {
        &self.member.flight
    }

    /// Until the server has answered, the lease may be unused.
    pub(super) fn begin_store(&self) {
        self.is_storing.store(true, Ordering::Relaxed);
    }

    pub(super) fn end_store(&self) {
        self.is_storing.store(false, Ordering::Relaxed);
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let unused = self.member.leave();
        let flight = self.flight();
        // If it was stored, the item has another CAS value, and stays.
        let unstored = flight.lease.filter(|_| self.is_storing.load(Ordering::Relaxed) && flight.has_won());
        let Some(lease) = unused.or(unstored) else { return };
        // The runtime may have ended.
        let Ok(runtime) = Handle::try_current() else { return };
        let (client, key, has_old) = (self.client.clone(), self.member.key().to_vec(), self.has_old);
        runtime.spawn(async move { client.release(&key, lease, has_old, client.deadline()).await });
    }
}

impl AsyncClient {
    /// Gives a lease back. The old item is stale then, and its next reader computes it.
    pub(super) async fn release(&self, key: &[u8], lease: u64, has_old: bool, deadline: Instant) {
        let Ok(wire_key) = self.key(key) else { return };
        let invalidate = has_old.then_some(None);
        let request = Request::Delete { key: wire_key, compare: Some(lease), invalidate };
        // The lease ends by itself.
        let _ = self.ask_hooked(deadline, key, request, false).await;
    }
}

/// 24 bytes each.
const LEASES_MAX: usize = 16_384;
const PRUNE_PAUSE: Duration = Duration::from_secs(1);
