//! Values kept in the process, in front of the servers.
//!
//! No entry is removed to be wrong no more: it says what was true when its request began, and is a miss once something
//! of that is true no longer. So a reply that was under way while its key changed is kept, and never found.

mod flushes;
mod server_log;

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};
use tokio::time::Instant;

use self::flushes::Flushes;
use self::server_log::{ServerLog, ServerLogs};
use super::recache::MetaItem;
use super::reply::FoundItem;
use super::{AsyncClient, Shared, TIMEOUT_MAX};
use crate::client::Item;

/// Values that [`AsyncClient::get`] and [`AsyncClient::get_or_compute`] keep in the process, for keys that are read all
/// the time: [`AsyncBuilder::near_cache`](super::AsyncBuilder::near_cache).
///
/// Changes that this client makes are seen at once by all of its clones, those of others as [`Coherence`] says, and a
/// value is never returned after its own time to live (in the meta protocol; the others do not tell it). A key that is
/// read once does not push out those that are read often.
///
/// An own change that may still be made, since it was dropped, has no reply or has failed with
/// [`Error::Unknown`](crate::Error::Unknown), is awaited: nothing is kept of its key until the timeout of its client
/// and a second are over. The same holds for flushes. A delayed flush of this client is seen when it takes effect:
/// about then, for four seconds, nothing is kept. What remains: a server that makes such a change still later, as after
/// a pause, is noticed only as for changes of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearCache {
    /// At most so many values.
    pub entries_max: usize,
    /// At most so many bytes: of keys, values, and 200 for each. A value is not kept if it is larger than the part of
    /// the cache that has its key, of which there are up to four for each CPU.
    pub bytes_max: usize,
    /// The longest time that a value is returned without asking its server, from the request for it: as old as this it
    /// may be.
    pub ttl: Duration,
    /// How changes of other clients are seen.
    pub coherence: Coherence,
}

/// How a [near cache](NearCache) sees changes that other clients make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coherence {
    /// Once [`NearCache::ttl`] is over.
    Ttl,
    /// Soon: each server is watched (`watch mutations deletions`), which takes a connection of it, and one of the 20
    /// watchers that it has. Nothing of a server is kept while it is not watched, and all is dropped when its
    /// connection is lost, when it says that it has left lines out, or when it was flushed, of which it is asked once a
    /// second.
    ///
    /// Servers tell of stores and of deletes, but not of `incr`, `decr`, `touch`, `invalidate`, `flush_prefix`, and
    /// deletes in the binary protocol: those are seen once [`NearCache::ttl`] is over, and so are flushes with a delay,
    /// which are counted when they are asked for and not when they take effect. A server whose statistics take more
    /// than 64 KiB cannot be watched. memcached 1.6.18 and older do
    /// not tell of deletes either, but count them: once a second all of such a server is dropped if there were any. Not
    /// with logins in the binary protocol: there nothing is kept.
    Watch,
}

/// What a [near cache](NearCache) has, and has done: [`AsyncClient::near_cache_stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NearCacheStats {
    /// Values, also those that are not valid any more and will be replaced.
    pub entries: usize,
    /// Their bytes, as [`NearCache::bytes_max`] counts.
    pub bytes: u64,
    /// Reads that needed no server.
    pub hits: u64,
    /// Reads that did.
    pub misses: u64,
    /// How often all, or all of a server, was dropped.
    pub drops: u64,
    /// Servers that are watched.
    pub watched: usize,
}

impl AsyncClient {
    /// What the near cache has. `None`: there is none.
    pub fn near_cache_stats(&self) -> Option<NearCacheStats> {
        self.shared.near.as_ref().map(|near| near.stats())
    }
}

/// The values, and what makes them invalid.
pub(super) struct NearStore {
    limits: NearCache,
    entries: Cache<Box<[u8]>, Arc<CachedItem>, Weigher, RandomState>,
    hasher: RandomState,
    slots: Box<[Slot]>,
    /// How often all of it became invalid.
    epoch: AtomicU64,
    flushes: Flushes,
    begin: Instant,
    logs: Option<ServerLogs>,
    hits: AtomicU64,
    misses: AtomicU64,
    drops: AtomicU64,
}

/// What is known of the keys that share it.
#[derive(Default)]
struct Slot {
    /// How often one of them was changed.
    changes: AtomicU64,
    /// A change may still be made: nothing is kept until then, in milliseconds since the beginning.
    doubt_until_ms: AtomicU64,
}

struct CachedItem {
    item: Item,
    until: Instant,
    stamp: Stamp,
}

/// What was true when a request began.
#[derive(Clone)]
pub(super) struct Stamp {
    began: Instant,
    slot: usize,
    changes: u64,
    epoch: u64,
    /// The log of the key's server, and how often it was lost.
    log: Option<(Arc<ServerLog>, u64)>,
}

impl NearStore {
    pub(super) fn new(limits: NearCache) -> Self {
        let entries_max = limits.entries_max.clamp(1, ENTRIES_MAX);
        let bytes_max = limits.bytes_max as u64;
        let options = OptionsBuilder::new()
            .estimated_items_capacity(entries_max)
            .weight_capacity(bytes_max)
            .build()
            .expect("both capacities are set");
        // As many as weigh together what may be kept.
        let weigher = Weigher { bytes_min: bytes_max.div_ceil(entries_max as u64) };
        let hasher = RandomState::new();
        let slots = entries_max.saturating_mul(SLOTS_PER_ENTRY).clamp(SLOTS_MIN, SLOTS_MAX);
        Self {
            limits,
            entries: Cache::with_options(options, weigher, hasher.clone(), DefaultLifecycle::default()),
            hasher,
            slots: (0..slots.next_power_of_two()).map(|_| Slot::default()).collect(),
            epoch: AtomicU64::new(0),
            flushes: Flushes::default(),
            begin: Instant::now(),
            logs: (limits.coherence == Coherence::Watch).then(ServerLogs::default),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            drops: AtomicU64::new(0),
        }
    }

    /// True if servers tell of changes.
    pub(super) fn is_watching(&self) -> bool {
        self.logs.is_some()
    }

    /// The value of a key, if it is valid.
    pub(super) fn get(&self, key: &[u8]) -> Option<Item> {
        let entry = self.entries.get(key);
        let found = entry.filter(|entry| Instant::now() < entry.until && self.is_valid(&entry.stamp));
        let count = if found.is_some() { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
        found.map(|entry| entry.item.clone())
    }

    /// To be taken before a key is read. `None`: its value may not be kept.
    pub(super) fn stamp(&self, key: &[u8], shared: &Arc<Shared>) -> Option<Stamp> {
        let slot = self.slot(key);
        let changes = self.slots[slot].changes.load(Ordering::SeqCst);
        if self.slots[slot].doubt_until_ms.load(Ordering::SeqCst) > self.now_ms() {
            return None;
        }
        // The epoch first: a flush is noted before the epoch changes, and another list of servers is there.
        let (epoch, began) = (self.epoch.load(Ordering::SeqCst), Instant::now());
        let log = match &self.logs {
            Some(logs) => Some(logs.of(key, shared)?),
            None => None,
        };
        self.flushes.next(began).is_none_or(|flush| began < flush).then_some(Stamp {
            began,
            slot,
            changes,
            epoch,
            log,
        })
    }

    /// Keeps what was found after the stamp was taken.
    pub(super) fn put(&self, key: &[u8], stamp: Stamp, found: &FoundItem) {
        let item = MetaItem::new(found.item.clone(), &found.meta_flags);
        if !item.is_stale && !item.has_won && !item.is_taken {
            self.keep(key, stamp, item.item, item.ttl);
        }
    }

    /// Keeps an item that lives for so long.
    pub(super) fn keep(&self, key: &[u8], stamp: Stamp, item: Item, ttl: Option<Duration>) {
        // A server counts whole seconds, and the last may be almost over.
        let left = ttl.map_or(Duration::MAX, |ttl| ttl.saturating_sub(Duration::from_secs(1)));
        let ttl = self.limits.ttl.min(left).min(TIMEOUT_MAX);
        let Some(mut until) = stamp.began.checked_add(ttl) else { return };
        if let Some(flush) = self.flushes.next(stamp.began) {
            until = until.min(flush);
        }
        if Instant::now() < until && self.is_valid(&stamp) {
            self.entries.insert(key.into(), Arc::new(CachedItem { item, until, stamp }));
        }
    }

    fn is_valid(&self, stamp: &Stamp) -> bool {
        self.slots[stamp.slot].changes.load(Ordering::SeqCst) == stamp.changes
            && self.epoch.load(Ordering::SeqCst) == stamp.epoch
            && stamp.log.as_ref().is_none_or(|(log, losses)| log.is_whole_since(*losses))
    }

    /// A key was changed.
    pub(super) fn invalidate(&self, key: &[u8]) {
        self.slots[self.slot(key)].changes.fetch_add(1, Ordering::SeqCst);
        // Only for its memory.
        self.entries.remove(key);
    }

    /// A key was changed, or may be within this time: its request may be on its way to the server.
    pub(super) fn doubt(&self, key: &[u8], time: Duration) {
        let time = time.saturating_add(DOUBT);
        let until_ms = self.now_ms().saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        self.slots[self.slot(key)].doubt_until_ms.fetch_max(until_ms, Ordering::SeqCst);
        self.invalidate(key);
    }

    /// All will be flushed at a time from `from` to `to`: nothing is kept from before it to after it. To be cleared
    /// after this, since what was read before knows nothing of it.
    pub(super) fn expect_flush(&self, from: Instant, to: Instant) {
        self.flushes.add(from, to);
    }

    /// Every key may have changed.
    pub(super) fn clear(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.drops.fetch_add(1, Ordering::Relaxed);
        self.entries.clear();
    }

    fn slot(&self, key: &[u8]) -> usize {
        // The number of slots is a power of two.
        self.hasher.hash_one(key) as usize & (self.slots.len() - 1)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn stats(&self) -> NearCacheStats {
        NearCacheStats {
            entries: self.entries.len(),
            bytes: self.entries.weight(),
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            drops: self.drops.load(Ordering::Relaxed),
            watched: self.logs.as_ref().map_or(0, ServerLogs::whole),
        }
    }
}

impl fmt::Debug for NearStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NearStore").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// The bytes of an entry, and at least so many that there are never too many entries.
#[derive(Clone)]
struct Weigher {
    bytes_min: u64,
}

impl Weighter<Box<[u8]>, Arc<CachedItem>> for Weigher {
    fn weight(&self, key: &Box<[u8]>, entry: &Arc<CachedItem>) -> u64 {
        ((key.len() + entry.item.value.len() + ENTRY_BYTES) as u64).max(self.bytes_min)
    }
}

/// What an entry takes besides key and value.
const ENTRY_BYTES: usize = 200;
/// More need too much memory for themselves.
const ENTRIES_MAX: usize = 1 << 24;
/// Few keys share a slot with another that changes.
const SLOTS_PER_ENTRY: usize = 4;
const SLOTS_MIN: usize = 1 << 10;
/// A megabyte.
const SLOTS_MAX: usize = 1 << 16;
/// So long after the time of a change that was given up a server may still make it.
pub(super) const DOUBT: Duration = Duration::from_secs(1);
