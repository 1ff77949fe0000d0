//! Namespaces: each has a policy and an engine of its own, so none evicts the items of another, and flushing one is
//! flushing its engine. Without `--namespaces` there is the default alone, and no policy.
//!
//! A key becomes a place, its engine and its policy, in [`Guards::place`] (`guards`). [`build()`] turns a table of
//! policies into engines: another kind of namespace begins there.

mod build;
mod counters;
mod guards;
mod handles;
mod plan;
mod reload;
mod rights;
mod warm;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_engine::{Engine, Stats};
use larder_policy::{DEFAULT, Durability, Keep, QuotaError, Table};

use crate::persistence::Persistence;
use crate::persistence::disk_quotas::DiskUse;

pub use build::{BackingOf, NamespacesFile, StoredNamespace, build};
pub(crate) use build::{is_replicated, stored_below};
pub(crate) use counters::{NamespaceCounters, NamespaceTotals};
pub(crate) use guards::Place;
pub use guards::{Guards, Prepared};
pub use handles::Handles;
pub use plan::Plan;
pub(crate) use rights::{Right, Rights};
pub use warm::WarmCaches;

/// The engines of a server, by the numbers of their namespaces, and the policies.
pub struct Namespaces {
    /// Not empty: the default's is the first.
    engines: Box<[Arc<Engine>]>,
    named: Option<Named>,
}

/// What there is with `--namespaces` alone.
struct Named {
    /// Absolute. `None`: the policy comes from the command line alone (`--store`).
    path: Option<PathBuf>,
    /// Where no policy says.
    durability: Durability,
    /// The largest item where no policy says (`-I`).
    item_bytes_max: u32,
    /// What all namespaces share (`-m`, `cache_memlimit`).
    memory_bytes: AtomicU64,
    table: Mutex<Arc<Table>>,
    /// Rises with each table.
    version: AtomicU32,
    /// By the numbers of the namespaces: the files of those that are kept in one.
    memory_files: Box<[Option<PathBuf>]>,
    /// Of each worker, by the numbers of the namespaces.
    counters: Vec<Arc<[NamespaceCounters]>>,
    /// The counters at the last `stats reset`.
    baseline: Mutex<Vec<NamespaceTotals>>,
}

/// A namespace in figures.
pub(crate) struct Report {
    pub(crate) number: u8,
    /// Empty: the default.
    pub(crate) prefix: Vec<u8>,
    pub(crate) keep: &'static str,
    /// What it is kept in; with `keep = "warm"`.
    pub(crate) memory_file: Option<PathBuf>,
    pub(crate) is_read_only: bool,
    pub(crate) memory_limit_bytes: u64,
    /// Of a namespace of the store, where that is counted.
    pub(crate) disk: Option<DiskUse>,
    pub(crate) disk_limit_bytes: Option<u64>,
    /// Concurrent changes of which one was lost; where other sites are told of the namespace.
    pub(crate) conflicts: Option<u64>,
    pub(crate) engine: Stats,
    pub(crate) totals: NamespaceTotals,
}

impl Report {
    /// The prefix; of the default what it is flushed by.
    pub(crate) fn name(&self) -> String {
        name_of(&self.prefix)
    }
}

/// The name of the namespace with this prefix, to people: the prefix; of the default what it is flushed by.
pub(crate) fn name_of(prefix: &[u8]) -> String {
    let name = if prefix.is_empty() { WITHOUT_PREFIX } else { prefix };
    String::from_utf8_lossy(name).into_owned()
}

impl Namespaces {
    /// The default alone, without a policy.
    pub fn single(engine: Arc<Engine>) -> Self {
        Self { engines: Box::new([engine]), named: None }
    }

    /// The namespaces of a table, with an engine for each.
    fn new(engines: Vec<Arc<Engine>>, named: Option<Named>) -> Self {
        let others = named.as_ref().map_or(0, |named| named.lock_table().len());
        debug_assert_eq!(engines.len(), others + 1, "one for each namespace");
        Self { engines: engines.into(), named }
    }

    /// True if a cache is kept in a file.
    pub fn are_kept(&self) -> bool {
        self.engines.iter().any(|engine| engine.is_kept())
    }

    /// Marks the files of caches as left in order. Call it last, when all handles are dropped. `None`: there are none.
    /// Else how many items they have.
    pub fn keep(&self) -> Option<u64> {
        let kept: Vec<_> = self.engines.iter().filter(|engine| engine.keep()).collect();
        (!kept.is_empty()).then(|| kept.iter().map(|engine| engine.stats().items).sum())
    }

    /// The engine of the default namespace.
    pub fn default_engine(&self) -> &Arc<Engine> {
        &self.engines[0]
    }

    /// The engine of a namespace; the default's of one that there is not.
    pub fn engine(&self, number: u8) -> &Arc<Engine> {
        self.engines.get(usize::from(number)).unwrap_or(&self.engines[0])
    }

    /// All engines, by the numbers of their namespaces.
    pub fn engines(&self) -> &[Arc<Engine>] {
        &self.engines
    }

    /// True if there are policies (`--namespaces`).
    pub fn are_named(&self) -> bool {
        self.named.is_some()
    }

    /// The counters and gauges of all engines together.
    pub fn stats(&self) -> Stats {
        let mut stats = self.engines[0].stats();
        self.engines[1..].iter().for_each(|engine| stats.merge(&engine.stats()));
        stats
    }

    /// Resets the counters (not the gauges).
    pub(crate) fn reset_stats(&self) {
        self.engines.iter().for_each(|engine| engine.reset_stats());
        if let Some(named) = &self.named {
            *named.lock_baseline() = named.totals();
        }
    }

    /// The memory of all namespaces together.
    pub fn memory_limit(&self) -> u64 {
        self.engines.iter().map(|engine| engine.memory_limit()).sum()
    }

    /// The highest memory of all namespaces together: quotas stay, and the default has the rest.
    pub(crate) fn memory_limit_max(&self) -> u64 {
        self.engines[1..].iter().map(|engine| engine.memory_limit()).sum::<u64>()
            + self.engines[0].memory_limit_max()
    }

    /// Changes the memory of all namespaces together: quotas stay, and the namespaces without share the rest, as at the
    /// start. False: it is too little or too much, and nothing has changed.
    pub(crate) fn set_memory_limit(&self, memory_bytes: u64) -> bool {
        let Some(named) = &self.named else { return self.engines[0].set_memory_limit(memory_bytes) };
        // Held, so that a reload does not divide at the same time.
        let table = named.lock_table();
        let Ok(shares) = table.divide(memory_bytes) else { return false };
        if !self.set_memory_limits(&shares) {
            return false;
        }
        named.memory_bytes.store(memory_bytes, Relaxed);
        true
    }

    /// Sets the seconds by which the wall clock is ahead, in all engines.
    pub(crate) fn set_wall_ahead(&self, secs: i32) {
        self.engines.iter().for_each(|engine| engine.set_wall_ahead(secs));
    }

    /// All or none.
    fn set_memory_limits(&self, shares: &[u64]) -> bool {
        let mut engines = self.engines.iter().zip(shares);
        if engines.any(|(engine, share)| *share > engine.memory_limit_max()) {
            return false;
        }
        self.engines.iter().zip(shares).all(|(engine, share)| engine.set_memory_limit(*share))
    }

    /// The policies, as they are now.
    pub(crate) fn table(&self) -> Option<Arc<Table>> {
        self.named.as_ref().map(|named| Arc::clone(&named.lock_table()))
    }

    /// The engine of the namespace of the store with exactly this prefix; of the default, if it is empty.
    pub(crate) fn stored_engine(&self, prefix: &[u8]) -> Option<&Arc<Engine>> {
        let number = if prefix.is_empty() { DEFAULT } else { self.named(prefix)? };
        let is_stored = self.table()?.policy(number).keep == Keep::Store;
        self.engines.get(usize::from(number)).filter(|_| is_stored)
    }

    /// The rights of a user under the current policies. `None`: a client without a name.
    pub(crate) fn rights(&self, user: Option<&[u8]>) -> Rights {
        self.table().map_or(Rights::ALL, |table| Rights::of(&table, user))
    }

    /// The number of the namespace of a key.
    pub(crate) fn number(&self, key: &[u8]) -> u8 {
        self.named.as_ref().map_or(DEFAULT, |named| named.lock_table().find(key))
    }

    /// The number of the namespace with exactly this prefix; [`WITHOUT_PREFIX`] is the default.
    pub(crate) fn named(&self, prefix: &[u8]) -> Option<u8> {
        if prefix == WITHOUT_PREFIX {
            return Some(DEFAULT);
        }
        self.named.as_ref()?.lock_table().named(prefix)
    }

    /// All namespaces in figures; none without `--namespaces`.
    pub(crate) fn reports(&self, persistence: Option<&Persistence>) -> Vec<Report> {
        let Some(named) = &self.named else { return Vec::new() };
        let table = Arc::clone(&named.lock_table());
        let (totals, baseline) = (named.totals(), named.lock_baseline().clone());
        let numbers = table.numbers().zip(self.engines.iter()).zip(totals);
        let report = |(at, ((number, engine), totals)): (usize, ((u8, &Arc<Engine>), NamespaceTotals))| {
            let policy = table.policy(number);
            Report {
                number,
                prefix: table.prefix(number).to_vec(),
                keep: policy.keep.name(),
                memory_file: named.memory_files.get(at).cloned().flatten(),
                is_read_only: policy.is_read_only,
                memory_limit_bytes: engine.memory_limit(),
                disk: persistence
                    .filter(|_| policy.keep == Keep::Store)
                    .and_then(|persistence| persistence.disk_quotas.used(number)),
                disk_limit_bytes: policy.disk_bytes,
                conflicts: persistence
                    .and_then(|persistence| persistence.replication.get())
                    .filter(|_| is_replicated(&table, number))
                    .map(|site| site.conflicts_of(number)),
                engine: engine.stats(),
                totals: baseline.get(at).map_or(totals, |earlier| totals.since(earlier)),
            }
        };
        numbers.enumerate().map(report).collect()
    }

    /// Look-ups of keys of the default namespace that hit and missed. `None` without `--namespaces`: then all are.
    pub(crate) fn default_reads(&self) -> Option<(u64, u64)> {
        let named = self.named.as_ref()?;
        let (totals, baseline) = (named.totals(), named.lock_baseline());
        let of_default = totals.first()?.since(baseline.first()?);
        Some((of_default.get_hits, of_default.get_misses))
    }
}

impl Named {
    fn lock_table(&self) -> MutexGuard<'_, Arc<Table>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_baseline(&self) -> MutexGuard<'_, Vec<NamespaceTotals>> {
        self.baseline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of all workers, by the numbers of the namespaces.
    fn totals(&self) -> Vec<NamespaceTotals> {
        let count = self.counters.first().map_or(0, |counters| counters.len());
        let of = |at: usize| NamespaceTotals::sum(self.counters.iter().map(|counters| &counters[at]));
        (0..count).map(of).collect()
    }

    /// The memory of each namespace. Errors: the quotas leave too little.
    fn divide(&self, table: &Table) -> Result<Vec<u64>, QuotaError> {
        table.divide(self.memory_bytes.load(Relaxed))
    }
}

/// What clients call the default namespace, as Arcus does the keys without a prefix.
pub(crate) const WITHOUT_PREFIX: &[u8] = b"<null>";
