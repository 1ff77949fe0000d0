//! The store in memory, with faults that begin and end when the scheduler says so.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use larder_engine::{Handle, Miss};
use larder_server::clock::Clock;
use larder_store::files::Files;
use larder_store::{
    Budget, Cursor, Entry, Error, Manifest, Marks, MemoryStore, Meta, PendingFlush, Progress, Result,
    SequenceRange, Sink, Stats, Store, TryGet, VecSink,
};

use crate::backing::lock;
use crate::scenario::{Bug, Scenario};
use crate::witness::{Item, Key};

/// A store in memory, and what goes wrong with it.
pub(crate) struct Disk {
    memory: MemoryStore,
    is_full: AtomicBool,
    fails_next_sync: AtomicBool,
    is_read_only: AtomicBool,
    bug: Option<Bug>,
    /// For [`Bug::DroppedWhenEvicted`]: what has the items in memory.
    tier: Mutex<Option<(Handle, Arc<Clock>)>>,
}

impl Disk {
    pub(crate) fn new(memory: MemoryStore, scenario: &Scenario) -> Self {
        Self {
            memory,
            is_full: AtomicBool::new(false),
            fails_next_sync: AtomicBool::new(false),
            is_read_only: AtomicBool::new(false),
            bug: scenario.bug,
            tier: Mutex::new(None),
        }
    }

    /// What is found after power loss, or after the death of the process alone.
    pub(crate) fn after_crash(&self, power_loss: Option<u64>) -> MemoryStore {
        power_loss.map_or_else(|| self.memory.kill(), |seed| self.memory.crash(seed))
    }

    pub(crate) fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Relaxed);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Relaxed)
    }

    /// No fault is to come.
    pub(crate) fn heal(&self) {
        self.set_full(false);
        self.fails_next_sync.store(false, Relaxed);
    }

    pub(crate) fn fail_next_sync(&self) {
        self.fails_next_sync.store(true, Relaxed);
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only.load(Relaxed)
    }

    pub(crate) fn watch_tier(&self, handle: Option<Handle>, clock: &Arc<Clock>) {
        *lock(&self.tier) = handle.map(|handle| (handle, Arc::clone(clock)));
    }

    /// What it has of a key, also if that has expired.
    pub(crate) fn item(&self, key: &[u8]) -> Option<Item> {
        let mut sink = VecSink::default();
        let meta = self.memory.get(key, BEFORE_ALL, &mut sink).ok()??;
        Some(Item {
            value: sink.into_value().into(),
            client_flags: meta.client_flags,
            expires_at: (meta.exptime_secs != 0)
                .then(|| i64::try_from(meta.exptime_secs).unwrap_or(i64::MAX)),
            version: meta.version,
            is_stale: meta.marks.contains(Marks::STALE),
            is_token_held: meta.marks.contains(Marks::TOKEN),
        })
    }

    /// All that it has.
    pub(crate) fn items(&self) -> BTreeMap<Key, Item> {
        let (mut keys, mut cursor) = (Vec::<Key>::new(), Cursor::new());
        while let Ok(true) =
            self.memory.for_each_key(&mut cursor, 1000, BEFORE_ALL, &mut |key, _| keys.push(key.into()))
        {
        }
        keys.into_iter().filter_map(|key| self.item(&key).map(|item| (key, item))).collect()
    }

    /// When a flush of all is due.
    pub(crate) fn flush_due(&self) -> Option<i64> {
        let pending = self.memory.pending_flushes();
        pending.first().map(|pending| i64::try_from(pending.at_secs).unwrap_or(i64::MAX))
    }

    fn writable(&self) -> Result<()> {
        if self.is_read_only() {
            return Err(Error::ReadOnly { reason: "an fsync has failed".to_owned() });
        }
        Ok(())
    }

    fn is_dropped(&self, entry: &Entry<'_>) -> bool {
        match (self.bug, entry) {
            (Some(Bug::LostFlush), Entry::Flush { .. }) => true,
            (Some(Bug::DroppedWhenEvicted), Entry::Put(put)) => {
                lock(&self.tier).as_mut().is_some_and(|(handle, clock)| {
                    let guard = handle.pin(clock.now());
                    matches!(guard.peek(put.key, guard.prepare(put.key)), Err(Miss::Absent))
                })
            }
            _ => false,
        }
    }
}

impl Store for Disk {
    fn append(&self, entries: &[Entry<'_>]) -> Result<SequenceRange> {
        self.writable()?;
        if self.is_full() {
            return Err(Error::Full { doing: "appending".to_owned() });
        }
        if self.bug.is_none() {
            return self.memory.append(entries);
        }
        let kept: Vec<Entry<'_>> = entries.iter().filter(|entry| !self.is_dropped(entry)).copied().collect();
        if kept.is_empty() {
            let last = self.memory.last_sequence();
            return Ok(SequenceRange { first: last + 1, last });
        }
        self.memory.append(&kept)
    }

    fn try_write(&self, _: u64, _: usize) -> Result<()> {
        self.writable()?;
        if self.is_full() { Err(Error::Full { doing: "appending".to_owned() }) } else { Ok(()) }
    }

    fn sync(&self) -> Result<u64> {
        self.writable()?;
        if self.fails_next_sync.swap(false, Relaxed) {
            self.is_read_only.store(true, Relaxed);
            self.writable()?;
        }
        self.memory.sync()
    }

    fn keep_readable(&self, entries: &[Entry<'_>]) -> Result<()> {
        self.memory.keep_readable(entries)
    }

    fn may_contain(&self, key: &[u8]) -> bool {
        self.memory.may_contain(key)
    }

    fn get(&self, key: &[u8], now_unix_secs: u64, sink: &mut dyn Sink) -> Result<Option<Meta>> {
        self.memory.get(key, now_unix_secs, sink)
    }

    /// Half of the keys can be read without waiting.
    fn try_get(&self, key: &[u8], now_unix_secs: u64, found: &mut dyn FnMut(&Meta, &[u8])) -> TryGet {
        if key.last().is_some_and(|last| last % 2 == 1) {
            return TryGet::WouldBlock;
        }
        let mut sink = VecSink::default();
        match self.memory.get(key, now_unix_secs, &mut sink) {
            Ok(Some(meta)) => {
                found(&meta, &sink.into_value());
                TryGet::Found
            }
            Ok(None) => TryGet::Absent,
            Err(_) => TryGet::WouldBlock,
        }
    }

    fn for_each_key(
        &self,
        cursor: &mut Cursor,
        limit: usize,
        now_unix_secs: u64,
        visit: &mut dyn FnMut(&[u8], &Meta),
    ) -> Result<bool> {
        self.memory.for_each_key(cursor, limit, now_unix_secs, visit)
    }

    fn pending_flushes(&self) -> Vec<PendingFlush> {
        if self.bug == Some(Bug::LostPendingFlush) { Vec::new() } else { self.memory.pending_flushes() }
    }

    fn last_sequence(&self) -> u64 {
        self.memory.last_sequence()
    }

    fn durable_sequence(&self) -> u64 {
        self.memory.durable_sequence()
    }

    fn highest_version(&self) -> u64 {
        if self.bug == Some(Bug::ForgottenVersions) { 0 } else { self.memory.highest_version() }
    }

    fn stats(&self) -> Stats {
        self.memory.stats()
    }

    fn maintain(&self, budget: Budget, now_unix_secs: u64) -> Result<Progress> {
        self.memory.maintain(budget, now_unix_secs)
    }

    fn backup(&self, target: &dyn Files, since: Option<&Manifest>) -> Result<Manifest> {
        self.memory.backup(target, since)
    }

    fn close(&self) -> Result<()> {
        self.memory.close()
    }
}

/// Nothing has expired by then.
const BEFORE_ALL: u64 = 0;
