//! A store in memory, with the faults of a disk on demand: for simulations and tests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::backup::Manifest;
use crate::entry::{Entry, FlushBy, Meta, PendingFlush, Put, SequenceRange, Sink, VersionFlush, fill};
use crate::error::{Error, Result};
use crate::files::Files;
use crate::history::{LogEntry, LogRead, Retention};
use crate::state::{ItemState, KeyState, VisitState};
use crate::store::{Budget, Cursor, Position, Progress, Stats, Store};
use crate::usage::PrefixUsage;
use crate::validate::{validate_batch, validate_notes};

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
#[derive(Debug)]
pub struct MemoryStore {
    inner: Mutex<Inner>,
    faults: MemoryFaults,
    incarnation: u64,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::from_state(State { log_start: 1, ..State::default() }, fastrand::u64(1..))
    }
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
    retention: Retention,
}

#[derive(Clone, Debug, Default)]
struct State {
    records: BTreeMap<Vec<u8>, Record>,
    pending_flushes: BTreeMap<Vec<u8>, u64>,
    version_flushes: BTreeSet<VersionFlush>,
    notes: BTreeMap<Vec<u8>, Vec<u8>>,
    last_sequence: u64,
    highest_version: u64,
    is_replicated: bool,
    /// Of a replicated store: its entries from `log_start` on.
    log: VecDeque<(u64, Owned)>,
    log_start: u64,
    log_bytes: u64,
}

/// The newest entry of a key.
#[derive(Clone, Debug)]
struct Record {
    state: KeyState,
    value: Arc<[u8]>,
}

impl Record {
    /// Of an item.
    fn meta(&self) -> Option<Meta> {
        let KeyState { version, exptime_secs, origin, sequence, .. } = self.state;
        let ItemState { value_bytes, client_flags, marks } = self.state.item?;
        Some(Meta { value_bytes, client_flags, exptime_secs, version, marks, origin, sequence })
    }
}

/// An entry that owns its bytes.
#[derive(Clone, Debug)]
enum Owned {
    /// A put, a deletion, or a touch. The sequence comes when it is applied.
    Change {
        key: Vec<u8>,
        state: KeyState,
        value: Arc<[u8]>,
    },
    Flush {
        flush: VersionFlush,
        by: FlushBy,
    },
    FlushAt {
        prefix: Vec<u8>,
        at_secs: u64,
    },
    CancelFlushAt {
        prefix: Vec<u8>,
    },
    Note {
        name: Vec<u8>,
        value: Vec<u8>,
    },
}

impl Owned {
    fn of(entry: &Entry<'_>) -> Self {
        let (version, base_version) = (entry.version(), entry.base_version());
        match *entry {
            Entry::Put(put) => {
                let Put { key, value, client_flags, exptime_secs, marks, origin, .. } = put;
                let item = Some(ItemState { value_bytes: put.value_bytes(), client_flags, marks });
                let expiry_value_version = version.max(put.expiry_value_version);
                let expiry_version = entry.highest_version();
                let state = KeyState {
                    version,
                    base_version,
                    item,
                    expiry_value_version,
                    expiry_version,
                    exptime_secs,
                    origin,
                    sequence: 0,
                };
                Self::Change { key: key.to_vec(), state, value: value.concat().into() }
            }
            Entry::Delete { key, .. } => {
                let state = KeyState { version, base_version, ..KeyState::default() };
                Self::Change { key: key.to_vec(), state, value: Arc::default() }
            }
            Entry::Touch { key, expiry_value_version, expiry_version, exptime_secs, .. } => {
                let state = KeyState {
                    version,
                    base_version,
                    expiry_value_version,
                    expiry_version,
                    exptime_secs,
                    ..KeyState::default()
                };
                Self::Change { key: key.to_vec(), state, value: Arc::default() }
            }
            Entry::Flush { prefix, except, version, by } => {
                let flush = VersionFlush { prefix: prefix.to_vec(), except: except.to_vec(), version };
                Self::Flush { flush, by }
            }
            Entry::FlushAt { prefix, at_secs } => Self::FlushAt { prefix: prefix.to_vec(), at_secs },
            Entry::CancelFlushAt { prefix } => Self::CancelFlushAt { prefix: prefix.to_vec() },
            Entry::Note { name, value } => Self::Note { name: name.to_vec(), value: value.to_vec() },
        }
    }

    /// What it counts for in the log.
    fn bytes(&self) -> usize {
        ITEM_BYTES
            + match self {
                Self::Change { key, value, .. } => key.len() + value.len(),
                Self::Note { name, value } => name.len() + value.len(),
                Self::Flush { flush: VersionFlush { prefix, .. }, .. }
                | Self::FlushAt { prefix, .. }
                | Self::CancelFlushAt { prefix } => prefix.len(),
            }
    }

    /// Passes it on as an entry of the log, if it is one that others read.
    fn visit(&self, visit: &mut dyn FnMut(Entry<'_>)) {
        match self {
            Self::Change { key, state, value } => state.visit(key, value, visit),
            Self::Flush { flush: VersionFlush { prefix, except, version }, by } => {
                visit(Entry::Flush { prefix, except, version: *version, by: *by });
            }
            Self::Note { name, value } => visit(Entry::Note { name, value }),
            Self::FlushAt { .. } | Self::CancelFlushAt { .. } => {}
        }
    }
}

fn covers(flush: &VersionFlush, key: &[u8]) -> bool {
    key.starts_with(&flush.prefix) && !flush.except.iter().any(|longer| key.starts_with(longer))
}

impl State {
    fn apply(&mut self, entry: Owned) {
        self.last_sequence += 1;
        if self.is_replicated && self.last_sequence >= self.log_start {
            self.log_bytes += entry.bytes() as u64;
            self.log.push_back((self.last_sequence, entry.clone()));
        }
        let version = match entry {
            Owned::Change { key, state, value } => {
                let highest = state.highest_version();
                let state = KeyState { sequence: self.last_sequence, ..state };
                let left = state.flushed(self.newest_flush_version(&key));
                let is_kept = |state: &KeyState| state.item.is_some() || self.is_replicated;
                match left.filter(is_kept) {
                    Some(state) => drop(self.records.insert(key, Record { state, value })),
                    None => drop(self.records.remove(&key)),
                }
                highest
            }
            Owned::Flush { flush, by } => {
                self.pending_flushes.remove(&flush.prefix);
                let version = flush.version;
                self.records.retain(|key, record| {
                    let is_replicated = self.is_replicated;
                    match (covers(&flush, key), by) {
                        (false, _) => true,
                        (true, FlushBy::Sequence) => false,
                        (true, FlushBy::Version) => match record.state.flushed(version) {
                            Some(state) if state.item.is_some() || is_replicated => {
                                record.state = state;
                                true
                            }
                            _ => false,
                        },
                    }
                });
                if by == FlushBy::Version {
                    self.version_flushes.insert(flush);
                }
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
            Owned::Note { name, value } => {
                self.notes.insert(name, value);
                0
            }
        };
        self.highest_version = self.highest_version.max(version);
    }

    fn newest_flush_version(&self, key: &[u8]) -> u64 {
        let reaching = self.version_flushes.iter().filter(|flush| covers(flush, key));
        reaching.map(|flush| flush.version).max().unwrap_or(0)
    }

    fn item(&self, key: &[u8]) -> Option<(Meta, &Arc<[u8]>)> {
        let record = self.records.get(key)?;
        Some((record.meta()?, &record.value))
    }

    fn items(&self) -> impl Iterator<Item = (&Vec<u8>, &Record)> {
        self.records.iter().filter(|(_, record)| record.state.item.is_some())
    }

    /// From now on deletions and the log are kept, or not.
    fn set_replicated(&mut self, is_replicated: bool, next_sequence: u64) {
        if self.is_replicated != is_replicated {
            self.is_replicated = is_replicated;
            self.log.clear();
            self.log_start = next_sequence;
            self.log_bytes = 0;
        }
    }

    /// Forgets what the retention no longer asks for.
    fn forget(&mut self, retention: &Retention, now_unix_secs: u64) {
        if !self.is_replicated {
            return;
        }
        let (horizon, secs) = (retention.deletions_above_version, retention.expired_by(now_unix_secs));
        self.records.retain(|_, record| !record.state.is_obsolete(horizon, secs));
        self.version_flushes.retain(|flush| flush.version > horizon);
        while let Some((sequence, entry)) = self.log.front() {
            if *sequence > retention.log_after_sequence && self.log_bytes <= retention.log_bytes_max {
                break;
            }
            self.log_bytes -= entry.bytes() as u64;
            self.log_start = sequence + 1;
            self.log.pop_front();
        }
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
        Self::from_state(Self::replay(&inner, kept), self.incarnation)
    }

    /// The store after the death of the process alone: all that was appended is there.
    pub fn kill(&self) -> Self {
        let inner = self.lock();
        Self::from_state(Self::replay(&inner, inner.unsynced.len()), self.incarnation)
    }

    /// The same store with other faults.
    pub fn and_faults(mut self, faults: MemoryFaults) -> Self {
        self.faults = faults;
        self
    }

    /// The same store with this incarnation, so that a simulation can be repeated.
    pub fn and_incarnation(mut self, incarnation: u64) -> Self {
        self.incarnation = incarnation;
        self
    }

    fn replay(inner: &Inner, kept: usize) -> State {
        let mut state = inner.durable.clone();
        for entry in inner.unsynced[..kept].iter().flatten() {
            state.apply(entry.clone());
        }
        state
    }

    fn from_state(state: State, incarnation: u64) -> Self {
        let retention = Retention::of_opening(state.is_replicated);
        let inner = Inner { now: state.clone(), durable: state, retention, ..Inner::default() };
        Self { inner: Mutex::new(inner), faults: MemoryFaults::default(), incarnation }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append_to_read(&self, entries: &[Entry<'_>]) -> Result<SequenceRange> {
        let mut inner = self.lock();
        validate_batch(entries)?;
        validate_notes(entries, |name| inner.now.notes.contains_key(name), inner.now.notes.len())?;
        inner.appends += 1;
        if self.faults.fail_append == Some(inner.appends) {
            inner.full_errors += 1;
            return Err(Error::Full { doing: "appending, as the simulation demands".to_owned() });
        }
        let first = inner.now.last_sequence + 1;
        let batch: Vec<Owned> = entries.iter().map(Owned::of).collect();
        for entry in &batch {
            if let Owned::Change { key, value, .. } = entry {
                inner.appended_bytes += (key.len() + value.len()) as u64;
            }
            inner.apply(entry.clone());
        }
        inner.unsynced.push(batch);
        Ok(SequenceRange { first, last: inner.now.last_sequence })
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
            && let Some((_, value)) = self.now.item(key)
        {
            usage.add(nth, sign * (ITEM_BYTES + key.len() + value.len()) as i64);
        }
    }

    fn count_all(&self, sign: i64) {
        self.now.items().for_each(|(key, _)| self.count(key, sign));
    }

    fn apply(&mut self, entry: Owned) {
        match &entry {
            Owned::Change { key, .. } => {
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
            Owned::FlushAt { .. } | Owned::CancelFlushAt { .. } | Owned::Note { .. } => {
                self.now.apply(entry);
            }
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
        self.lock().writable()?;
        self.append_to_read(entries)
    }

    fn keep_readable(&self, entries: &[Entry<'_>]) -> Result<()> {
        self.append_to_read(entries).map(drop)
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
        self.lock().now.item(key).is_some()
    }

    fn get(&self, key: &[u8], now_unix_secs: u64, sink: &mut dyn Sink) -> Result<Option<Meta>> {
        let found = self.lock().now.item(key).map(|(meta, value)| (meta, Arc::clone(value)));
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
        let page: Vec<_> = (self.lock().now.records.range((from, Bound::Unbounded)).take(limit.max(1)))
            .map(|(key, record)| (key.clone(), record.meta()))
            .collect();
        for (key, meta) in &page {
            if let Some(meta) = meta.filter(|meta| !meta.is_expired(now_unix_secs)) {
                visit(key, &meta);
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
        let live = inner.now.items().map(|(key, record)| (key.len() + record.value.len()) as u64);
        let records = inner.now.items().count() as u64;
        Stats {
            records,
            live_bytes: live.sum(),
            appended_bytes: inner.appended_bytes,
            fsyncs: inner.syncs,
            full_errors: inner.full_errors,
            read_only: inner.read_only.is_some(),
            log_start_sequence: inner.now.log_start,
            log_bytes: inner.now.log_bytes,
            tombstones: inner.now.records.len() as u64 - records,
            ..Stats::default()
        }
    }

    fn log_bytes_after(&self, sequence: u64) -> u64 {
        let inner = self.lock();
        let newer = inner.now.log.iter().rev().take_while(|(known, _)| *known > sequence);
        newer.map(|(_, entry)| entry.bytes() as u64).sum()
    }

    /// Drops what has expired, where that is counted; of a replicated store, what nobody needs.
    fn maintain(&self, _: Budget, now_unix_secs: u64) -> Result<Progress> {
        let mut inner = self.lock();
        inner.count_all(-1);
        if inner.usage.is_some() && !inner.now.is_replicated {
            inner.now.records.retain(|_, record| !record.state.is_expired(now_unix_secs));
        }
        let Inner { now, durable, unsynced, retention, .. } = &mut *inner;
        now.forget(retention, now_unix_secs);
        if unsynced.is_empty() {
            durable.forget(retention, now_unix_secs);
        }
        inner.count_all(1);
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

    fn state(&self, key: &[u8]) -> Result<Option<KeyState>> {
        Ok(self.lock().now.records.get(key).map(|record| record.state))
    }

    fn newest_flush_version(&self, key: &[u8]) -> u64 {
        self.lock().now.newest_flush_version(key)
    }

    fn notes(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.lock().now.notes.clone().into_iter().collect()
    }

    fn read_log(
        &self,
        after_sequence: u64,
        budget_bytes: usize,
        visit: &mut dyn FnMut(LogEntry<'_>),
    ) -> Result<LogRead> {
        let (entries, durable_sequence) = {
            let inner = self.lock();
            let durable_sequence = inner.durable.last_sequence;
            let oldest_sequence = inner.now.log_start.max(inner.durable.log_start);
            if after_sequence.saturating_add(1) < oldest_sequence {
                return Err(Error::TooFarBehind { oldest_sequence });
            }
            let (mut entries, mut bytes) = (Vec::new(), 0);
            let from = inner.now.log.partition_point(|(sequence, _)| *sequence <= after_sequence);
            for (sequence, entry) in inner.now.log.range(from..) {
                if *sequence > durable_sequence || (bytes > 0 && bytes >= budget_bytes) {
                    break;
                }
                bytes += entry.bytes();
                let is_newest = match entry {
                    Owned::Change { key, .. } => {
                        (inner.now.records.get(key)).is_none_or(|record| record.state.sequence == *sequence)
                    }
                    _ => true,
                };
                entries.push((*sequence, is_newest, entry.clone()));
            }
            (entries, durable_sequence)
        };
        let through_sequence = entries.last().map_or(after_sequence, |(sequence, ..)| *sequence);
        for (sequence, is_newest, entry) in entries {
            entry.visit(&mut |entry| visit(LogEntry { sequence, is_newest, is_damaged: false, entry }));
        }
        Ok(LogRead { through_sequence, more: through_sequence < durable_sequence })
    }

    fn retain(&self, retention: Retention) -> Result<()> {
        let mut inner = self.lock();
        inner.retention = retention;
        let next_sequence = inner.now.last_sequence + 1;
        inner.now.set_replicated(retention.is_replicated, next_sequence);
        inner.durable.set_replicated(retention.is_replicated, next_sequence);
        Ok(())
    }

    fn for_each_state(
        &self,
        cursor: &mut Cursor,
        budget_bytes: usize,
        _unreadable: Option<&mut u64>,
        visit: &mut VisitState<'_>,
    ) -> Result<bool> {
        let from = match &cursor.position {
            Position::AfterKey(key) => Bound::Excluded(key.clone()),
            Position::Start | Position::At { .. } => Bound::Unbounded,
            Position::End => return Ok(false),
        };
        let mut bytes = 0;
        let page: Vec<_> = (self.lock().now.records.range((from, Bound::Unbounded)))
            .take_while(|(key, record)| {
                let is_within = bytes == 0 || bytes < budget_bytes;
                bytes += ITEM_BYTES + key.len() + record.value.len();
                is_within
            })
            .map(|(key, record)| (key.clone(), record.clone()))
            .collect();
        for (key, record) in &page {
            let value = if record.state.item.is_some() { &record.value[..] } else { &[] };
            visit(key, &record.state, Some(value));
        }
        cursor.position = match page.into_iter().next_back() {
            Some((key, _)) => Position::AfterKey(key),
            None => Position::End,
        };
        Ok(cursor.position != Position::End)
    }

    fn version_flushes(&self) -> Vec<VersionFlush> {
        self.lock().now.version_flushes.iter().cloned().collect()
    }

    fn incarnation(&self) -> u64 {
        self.incarnation
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
