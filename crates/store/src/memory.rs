//! A store in memory, with the faults of a disk on demand: for simulations and tests.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::backup::Manifest;
use crate::entry::{Entry, Meta, PendingFlush, Put, SequenceRange, Sink, fill};
use crate::error::{Error, Result};
use crate::files::Files;
use crate::store::{Budget, Cursor, Position, Progress, Stats, Store};
use crate::usage::PrefixUsage;
use crate::validate::validate_batch;

/// What is to go wrong. Counts begin with 1, from the opening of the store on.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryFaults {
    /// This `sync` fails, and the store is read-only then.
    pub fail_sync: Option<u64>,
    /// This `append` fails, as if the disk was full.
    pub fail_append: Option<u64>,
    /// Each `append` and `sync` takes so long.
    pub delay: Option<Duration>,
}

/// What an item is counted for beside its key and value.
const ITEM_BYTES: usize = 48;

/// A store in memory.
///
/// What was not synced when it crashes is lost from some batch on: [`crash`](Self::crash) returns the store as it could
/// be found then.
#[derive(Debug, Default)]
pub struct MemoryStore {
    inner: Mutex<Inner>,
    faults: MemoryFaults,
}

#[derive(Debug, Default)]
struct Inner {
    /// All that was appended.
    now: State,
    /// All that is durable.
    durable: State,
    /// The batches that lie between.
    unsynced: Vec<Vec<Owned>>,
    appends: u64,
    syncs: u64,
    appended_bytes: u64,
    full_errors: u64,
    read_only: Option<String>,
    usage: Option<Arc<PrefixUsage>>,
}

#[derive(Clone, Debug, Default)]
struct State {
    items: BTreeMap<Vec<u8>, (Meta, Arc<[u8]>)>,
    pending_flushes: BTreeMap<Vec<u8>, u64>,
    last_sequence: u64,
    highest_version: u64,
}

/// An entry that owns its bytes.
#[derive(Clone, Debug)]
enum Owned {
    Put { key: Vec<u8>, meta: Meta, value: Arc<[u8]> },
    Delete { key: Vec<u8>, version: u64 },
    Flush { prefix: Vec<u8>, except: Vec<Vec<u8>>, version: u64 },
    FlushAt { prefix: Vec<u8>, at_secs: u64 },
    CancelFlushAt { prefix: Vec<u8> },
}

impl Owned {
    fn of(entry: &Entry<'_>) -> Self {
        match *entry {
            Entry::Put(put) => {
                let Put { key, value, client_flags, exptime_secs, version, marks, origin } = put;
                let value_bytes = put.value_bytes();
                let meta =
                    Meta { value_bytes, client_flags, exptime_secs, version, marks, origin, sequence: 0 };
                Self::Put { key: key.to_vec(), meta, value: value.concat().into() }
            }
            Entry::Delete { key, version } => Self::Delete { key: key.to_vec(), version },
            Entry::Flush { prefix, except, version } => {
                Self::Flush { prefix: prefix.to_vec(), except: except.to_vec(), version }
            }
            Entry::FlushAt { prefix, at_secs } => Self::FlushAt { prefix: prefix.to_vec(), at_secs },
            Entry::CancelFlushAt { prefix } => Self::CancelFlushAt { prefix: prefix.to_vec() },
        }
    }
}

impl State {
    fn apply(&mut self, entry: Owned) {
        self.last_sequence += 1;
        let version = match entry {
            Owned::Put { key, meta, value } => {
                self.items.insert(key, (Meta { sequence: self.last_sequence, ..meta }, value));
                meta.version
            }
            Owned::Delete { key, version } => {
                self.items.remove(&key);
                version
            }
            Owned::Flush { prefix, except, version } => {
                let is_left = |key: &Vec<u8>| except.iter().any(|longer| key.starts_with(longer));
                self.items.retain(|key, _| !key.starts_with(&prefix) || is_left(key));
                self.pending_flushes.remove(&prefix);
                version
            }
            Owned::FlushAt { prefix, at_secs } => {
                self.pending_flushes.insert(prefix, at_secs);
                0
            }
            Owned::CancelFlushAt { prefix } => {
                self.pending_flushes.remove(&prefix);
                0
            }
        };
        self.highest_version = self.highest_version.max(version);
    }
}

impl MemoryStore {
    /// An empty store without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store with faults.
    pub fn with_faults(faults: MemoryFaults) -> Self {
        Self { faults, ..Self::default() }
    }

    /// The store as it could be found after a crash now: all that is durable, and some of the batches after that, each
    /// whole, none without those before. The last that survives may have been torn: then it is not there.
    pub fn crash(&self, seed: u64) -> Self {
        let inner = self.lock();
        let kept = fastrand::Rng::with_seed(seed).usize(..=inner.unsynced.len());
        Self::from_state(Self::replay(&inner, kept))
    }

    /// The store after the death of the process alone: all that was appended is there.
    pub fn kill(&self) -> Self {
        let inner = self.lock();
        Self::from_state(Self::replay(&inner, inner.unsynced.len()))
    }

    /// The same store with other faults.
    pub fn and_faults(mut self, faults: MemoryFaults) -> Self {
        self.faults = faults;
        self
    }

    fn replay(inner: &Inner, kept: usize) -> State {
        let mut state = inner.durable.clone();
        for entry in inner.unsynced[..kept].iter().flatten() {
            state.apply(entry.clone());
        }
        state
    }

    fn from_state(state: State) -> Self {
        let inner = Inner { now: state.clone(), durable: state, ..Inner::default() };
        Self { inner: Mutex::new(inner), faults: MemoryFaults::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn be_slow(&self) {
        if let Some(delay) = self.faults.delay {
            std::thread::sleep(delay);
        }
    }
}

impl Inner {
    /// Counts the item of a key, if there is one, for its prefix.
    fn count(&self, key: &[u8], sign: i64) {
        if let Some(usage) = &self.usage
            && let Some(nth) = usage.find(key)
            && let Some((_, value)) = self.now.items.get(key)
        {
            usage.add(nth, sign * (ITEM_BYTES + key.len() + value.len()) as i64);
        }
    }

    fn count_all(&self, sign: i64) {
        self.now.items.keys().for_each(|key| self.count(key, sign));
    }

    fn apply(&mut self, entry: Owned) {
        match &entry {
            Owned::Put { key, .. } | Owned::Delete { key, .. } => {
                let key = key.clone();
                self.count(&key, -1);
                self.now.apply(entry);
                self.count(&key, 1);
            }
            Owned::Flush { .. } => {
                self.count_all(-1);
                self.now.apply(entry);
                self.count_all(1);
            }
            Owned::FlushAt { .. } | Owned::CancelFlushAt { .. } => self.now.apply(entry),
        }
    }

    fn writable(&self) -> Result<()> {
        match &self.read_only {
            Some(reason) => Err(Error::ReadOnly { reason: reason.clone() }),
            None => Ok(()),
        }
    }
}

impl Store for MemoryStore {
    fn append(&self, entries: &[Entry<'_>]) -> Result<SequenceRange> {
        self.be_slow();
        let mut inner = self.lock();
        inner.writable()?;
        validate_batch(entries)?;
        inner.appends += 1;
        if self.faults.fail_append == Some(inner.appends) {
            inner.full_errors += 1;
            return Err(Error::Full { doing: "appending, as the simulation demands".to_owned() });
        }
        let first = inner.now.last_sequence + 1;
        let batch: Vec<Owned> = entries.iter().map(Owned::of).collect();
        for entry in &batch {
            if let Owned::Put { key, value, .. } = entry {
                inner.appended_bytes += (key.len() + value.len()) as u64;
            }
            inner.apply(entry.clone());
        }
        inner.unsynced.push(batch);
        Ok(SequenceRange { first, last: inner.now.last_sequence })
    }

    fn sync(&self) -> Result<u64> {
        self.be_slow();
        let mut inner = self.lock();
        inner.writable()?;
        inner.syncs += 1;
        if self.faults.fail_sync == Some(inner.syncs) {
            inner.read_only = Some("a sync failed, as the simulation demands".to_owned());
            inner.writable()?;
        }
        for entry in std::mem::take(&mut inner.unsynced).into_iter().flatten() {
            inner.durable.apply(entry);
        }
        Ok(inner.durable.last_sequence)
    }

    fn may_contain(&self, key: &[u8]) -> bool {
        self.lock().now.items.contains_key(key)
    }

    fn get(&self, key: &[u8], now_unix_secs: u64, sink: &mut dyn Sink) -> Result<Option<Meta>> {
        let found = self.lock().now.items.get(key).cloned();
        let Some((meta, value)) = found.filter(|(meta, _)| !meta.is_expired(now_unix_secs)) else {
            return Ok(None);
        };
        if sink.start(&meta) {
            fill(sink, &value)?;
        }
        Ok(Some(meta))
    }

    fn for_each_key(
        &self,
        cursor: &mut Cursor,
        limit: usize,
        now_unix_secs: u64,
        visit: &mut dyn FnMut(&[u8], &Meta),
    ) -> Result<bool> {
        let from = match &cursor.position {
            Position::AfterKey(key) => Bound::Excluded(key.clone()),
            Position::Start | Position::At { .. } => Bound::Unbounded,
            Position::End => return Ok(false),
        };
        let page: Vec<_> = (self.lock().now.items.range((from, Bound::Unbounded)).take(limit.max(1)))
            .map(|(key, (meta, _))| (key.clone(), *meta))
            .collect();
        for (key, meta) in &page {
            if !meta.is_expired(now_unix_secs) {
                visit(key, meta);
            }
        }
        cursor.position = match page.into_iter().next_back() {
            Some((key, _)) => Position::AfterKey(key),
            None => Position::End,
        };
        Ok(cursor.position != Position::End)
    }

    fn pending_flushes(&self) -> Vec<PendingFlush> {
        (self.lock().now.pending_flushes.iter())
            .map(|(prefix, &at_secs)| PendingFlush { prefix: prefix.clone(), at_secs })
            .collect()
    }

    fn last_sequence(&self) -> u64 {
        self.lock().now.last_sequence
    }

    fn durable_sequence(&self) -> u64 {
        self.lock().durable.last_sequence
    }

    fn highest_version(&self) -> u64 {
        self.lock().now.highest_version
    }

    fn stats(&self) -> Stats {
        let inner = self.lock();
        let live = inner.now.items.iter().map(|(key, (_, value))| (key.len() + value.len()) as u64);
        Stats {
            records: inner.now.items.len() as u64,
            live_bytes: live.sum(),
            appended_bytes: inner.appended_bytes,
            fsyncs: inner.syncs,
            full_errors: inner.full_errors,
            read_only: inner.read_only.is_some(),
            ..Stats::default()
        }
    }

    /// Drops what has expired, where that is counted.
    fn maintain(&self, _: Budget, now_unix_secs: u64) -> Result<Progress> {
        let mut inner = self.lock();
        if inner.usage.is_some() {
            inner.count_all(-1);
            inner.now.items.retain(|_, (meta, _)| !meta.is_expired(now_unix_secs));
            inner.count_all(1);
        }
        Ok(Progress::default())
    }

    fn count_prefixes(&self, prefixes: &[&[u8]]) -> Result<Arc<PrefixUsage>> {
        let usage = Arc::new(PrefixUsage::new(prefixes)?);
        usage.set_complete(true);
        let mut inner = self.lock();
        inner.usage = (!prefixes.is_empty()).then(|| Arc::clone(&usage));
        inner.count_all(1);
        Ok(usage)
    }

    fn backup(&self, _: &dyn Files, _: Option<&Manifest>) -> Result<Manifest> {
        Err(Error::Unsupported { what: "backup" })
    }

    fn close(&self) -> Result<()> {
        self.sync()?;
        self.lock().read_only = Some("it was closed".to_owned());
        Ok(())
    }
}
