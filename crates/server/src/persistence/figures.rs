//! The store in figures, at one moment: for statistics, metrics and the page.

use larder_store::Stats;
use larder_store::commit::Refusal;

use super::backups::Report;
use super::meters::Measured;
use crate::shared::Shared;

/// All that is known of a store in figures.
pub(crate) struct Figures {
    pub(crate) state: State,
    pub(crate) store: Stats,
    pub(crate) measured: Measured,
    /// Changes on their way to the log, and their memory.
    pub(crate) journal_changes: u64,
    pub(crate) journal_bytes: u64,
    /// Requests whose keys wait for a reader.
    pub(crate) lookups_waiting: u64,
    /// The namespaces that are kept in the store, in memory.
    pub(crate) memory: MemoryTier,
    /// Of the file system.
    pub(crate) free_bytes: Option<u64>,
    pub(crate) size_bytes: Option<u64>,
    /// The latest since the start.
    pub(crate) backup: Option<Report>,
    /// When the last one was complete.
    pub(crate) backed_up_unix_secs: Option<i64>,
}

/// Whether the store takes changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Writable,
    /// There is no room; it is tried again.
    Full,
    /// An append failed; it is tried again.
    Failing,
    /// A failed fsync ended writing.
    ReadOnly,
}

/// The namespaces with a store, as they are in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryTier {
    pub(crate) limit_bytes: u64,
    pub(crate) used_bytes: u64,
    pub(crate) items: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

impl State {
    pub(crate) const ALL: [Self; 4] = [Self::Writable, Self::Full, Self::Failing, Self::ReadOnly];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Writable => "writable",
            Self::Full => "full",
            Self::Failing => "failing",
            Self::ReadOnly => "read_only",
        }
    }
}

impl Figures {
    /// `None`: there is no store, or it is not open yet.
    pub(crate) fn read(shared: &Shared) -> Option<Self> {
        let persistence = shared.persistence.as_ref()?;
        let store = persistence.store()?.stats();
        let (journal_changes, journal_bytes) = persistence.journal.load();
        let state = match persistence.journal.refusal() {
            _ if store.read_only => State::ReadOnly,
            Some(Refusal::ReadOnly) => State::ReadOnly,
            Some(Refusal::Full) => State::Full,
            Some(Refusal::Failed) => State::Failing,
            Some(Refusal::Busy) | None => State::Writable,
        };
        let directory = &shared.settings.store.as_ref()?.directory;
        let disk = rustix::fs::statvfs(directory).ok();
        let mut memory = MemoryTier::default();
        let stored = shared.namespaces.reports(shared.persistence.as_ref());
        for report in stored.iter().filter(|report| report.keep == larder_policy::Keep::Store.name()) {
            memory.limit_bytes += report.memory_limit_bytes;
            memory.used_bytes += report.engine.memory_used_bytes;
            memory.items += report.engine.items;
            memory.hits += report.totals.get_hits;
            memory.misses += report.totals.get_misses;
        }
        Some(Self {
            state,
            store,
            measured: persistence.meters.read(),
            journal_changes,
            journal_bytes,
            lookups_waiting: persistence.fetches.len() as u64,
            memory,
            free_bytes: disk.as_ref().map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize)),
            backup: persistence.backups.latest(),
            backed_up_unix_secs: persistence.backups.completed_unix_secs(),
            size_bytes: disk.as_ref().map(|disk| disk.f_blocks.saturating_mul(disk.f_frsize)),
        })
    }

    /// Bytes written for each byte that was stored; `None`: nothing was stored.
    pub(crate) fn write_amplification(&self) -> Option<f64> {
        let Stats { appended_bytes, cleaned_bytes, .. } = self.store;
        let stored = self.measured.change_bytes;
        (stored > 0).then(|| (appended_bytes + cleaned_bytes) as f64 / stored as f64)
    }

    /// The share of the gets that found their item in memory, of those that found it. `None`: none found one.
    pub(crate) fn memory_hit_ratio(&self) -> Option<f64> {
        let (hits, read) = (self.memory.hits, self.measured.found.count());
        (hits > 0).then(|| hits.saturating_sub(read) as f64 / hits as f64)
    }
}
