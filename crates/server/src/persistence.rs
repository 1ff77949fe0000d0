//! What namespaces of the policy `store` add to a server: the store, the journal of changes on their way to it, and the
//! threads that do its I/O. A worker never waits for the disk: it parks the connection.
//!
//! - A change of an item is submitted to the journal ([`backing`]). Where the policy is `sync`, a reply that depends on
//!   it is held until it is durable: [`crate::conn::waiter::Waiting::Durable`].
//! - A key that is not in memory is looked up in the store ([`fetch`]), which puts the item into memory; then the
//!   request is executed again. The worker does it if the system has the record in its page cache, else a thread of its
//!   own.
//! - The committer ([`threads`]) appends and syncs; another thread cleans up.
//! - Disk quotas ([`disk_quotas`]) are checked before a value is stored; write budgets ([`write_budgets`]), before any
//!   change.
//! - Lists of keys ([`key_dumps`]) and backups ([`backups`]) read the disk for long, by threads of their own.
//! - The committer, each reader and each worker have a meter ([`meters`]); [`figures`] reads them all.

mod backing;
pub(crate) mod backups;
mod commit_observer;
pub(crate) mod disk_quotas;
pub(crate) mod fetch;
pub(crate) mod figures;
pub(crate) mod key_dumps;
mod lifetime;
pub(crate) mod meters;
mod reader;
mod threads;
mod write_budgets;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use larder_engine::{Backing, Guard, Hash, Position};
use larder_policy::{Durability, Keep, Table};
use larder_protocol::Error;
use larder_store::commit::{
    Clock as VersionClock, Journal, JournalConfig, Observer, Outcome, Refusal, SITE_BITS,
};
use larder_store::files::DiskFiles;
use larder_store::{DroppedTail, Entry, FlushBy, LogOptions, LogStore, MemoryStore, Store, TryGet};

use crate::clock::{Clock, unix_micros};
use crate::namespaces::{Handles, StoredNamespace, is_replicated, stored_below};
use crate::persistence::backing::NamespaceBacking;
use crate::persistence::backups::Backups;
use crate::persistence::commit_observer::CommitObserver;
use crate::persistence::disk_quotas::DiskQuotas;
use crate::persistence::fetch::FetchQueue;
use crate::persistence::key_dumps::KeyDumps;
use crate::persistence::lifetime::Lifetime;
use crate::persistence::meters::Meters;
pub use crate::persistence::reader::Reader;
pub use crate::persistence::threads::Threads;
use crate::persistence::write_budgets::WriteBudgets;
use crate::replication::{ReplicationSettings, Site};
use crate::shared::Shared;
use crate::startup::options::{EXIT_OS_ERROR, Refusal as StartRefusal};
use crate::startup::privileges::Target;

/// How the store is kept (`--store` and what belongs to it).
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// Its directory.
    pub directory: PathBuf,
    /// The driver.
    pub driver: Driver,
    /// When a change is durable, where no policy says.
    pub durability: Durability,
    /// Within this time changes of the durability `interval` are durable.
    pub interval: Duration,
    /// Threads that read.
    pub readers: usize,
    /// Where backups are taken to; `None`: there are none.
    pub backup_directory: Option<PathBuf>,
    /// The token with which a backup can be taken as a stream; `None`: none can.
    pub backup_token_file: Option<PathBuf>,
    /// Length of a file of the log.
    pub segment_bytes: u64,
    /// The other sites, if there are any (`--site`).
    pub replication: Option<ReplicationSettings>,
}

impl StoreSettings {
    /// Threads that access the engines: the readers, the committer, those that list keys, and those that apply what
    /// other sites have changed.
    pub fn threads(&self) -> usize {
        let peers = self.replication.as_ref().map_or(0, ReplicationSettings::pullers_max);
        self.readers + 1 + key_dumps::THREADS + peers
    }

    /// Number of descriptors besides those of segments: for directories, the lock, files being written, a backup, and
    /// connections with other sites.
    pub(crate) fn descriptors(&self) -> usize {
        let of_files = match self.driver {
            Driver::Log => FILES_OPEN_MAX,
            Driver::Memory => 0,
        };
        of_files + self.replication.as_ref().map_or(0, |_| crate::replication::DESCRIPTORS_MAX)
    }

    /// Numbers of descriptors for segments, each of which is an open file: the number to have at least, and how many
    /// more may be needed later. The minimum counts each segment twice, since a backup may still read those that
    /// cleaning has removed.
    pub fn segment_descriptors(&self) -> (usize, usize) {
        if self.driver != Driver::Log {
            return (0, 0);
        }
        let entries = std::fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let is_segment =
            |entry: &std::fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b"segment-");
        let segments = entries.filter(is_segment).count();
        (2 * segments + SEGMENTS_AHEAD_MIN, SEGMENTS_AHEAD)
    }

    /// Opens the store, for a server that will run as `user`, and keeps other processes out of it. Call it while there
    /// is one thread. Errors: also if it is not the store of this site; exit code 71.
    pub fn open(&self, user: Option<&Target>) -> Result<Arc<dyn Store>, StartRefusal> {
        let open = || {
            let store = open_store(self).map_err(io::Error::other)?;
            self.replication.as_ref().map_or(Ok(()), |replication| replication.check(&*store))?;
            Ok(store)
        };
        user.map_or_else(open, |user| user.lend_rights(open))
            .map_err(|error| StartRefusal::new(EXIT_OS_ERROR, format!("failed to start: {error}")))
    }

    /// Makes the directories in which it will write, if they are missing, and returns them.
    pub fn create_directories(&self) -> io::Result<Vec<PathBuf>> {
        let directories: Vec<_> =
            [Some(&self.directory), self.backup_directory.as_ref()].into_iter().flatten().cloned().collect();
        for directory in &directories {
            DiskFiles::open(directory)
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", directory.display())))?;
        }
        Ok(directories)
    }
}

fn open_store(settings: &StoreSettings) -> Result<Arc<dyn Store>, larder_store::Error> {
    if settings.driver == Driver::Memory {
        return Ok(Arc::new(MemoryStore::new()));
    }
    let options = LogOptions { segment_bytes: settings.segment_bytes, ..LogOptions::default() };
    let store = LogStore::open(&settings.directory, options)?;
    if !store.removed_files().is_empty() {
        let names = store.removed_files().join(", ");
        tracing::warn!("removed files that the store's MANIFEST does not name: {names}");
    }
    for tail in store.dropped_tails() {
        let DroppedTail { file, offset, bytes } = tail;
        tracing::warn!(file, offset, bytes, "dropped the end of the log, which is no whole change");
    }
    Ok(Arc::new(store))
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            directory: PathBuf::new(),
            driver: Driver::Log,
            durability: Durability::Sync,
            interval: Duration::from_secs(1),
            readers: 4,
            backup_directory: None,
            backup_token_file: None,
            segment_bytes: LogOptions::default().segment_bytes,
            replication: None,
        }
    }
}

/// Which driver keeps the store (`--store-engine`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The log of `larder-store`.
    Log,
    /// Memory: for tests. Nothing stays.
    Memory,
}

impl Driver {
    /// The driver of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "log" => Some(Self::Log),
            "memory" => Some(Self::Memory),
            _ => None,
        }
    }
}

/// The store of a server, and what is on its way there.
pub struct Persistence {
    pub(crate) journal: Arc<Journal>,
    /// Set once the server has the user that it runs as.
    store: OnceLock<Arc<dyn Store>>,
    pub(crate) fetches: FetchQueue,
    pub(crate) key_dumps: KeyDumps,
    pub(crate) backups: Backups,
    pub(crate) meters: Arc<Meters>,
    pub(crate) disk_quotas: Arc<DiskQuotas>,
    pub(crate) write_budgets: Arc<WriteBudgets>,
    segment_bytes: u64,
    /// Of several sites; 0: there is one.
    pub(crate) site: u8,
    /// What other sites are to this one, once it knows.
    pub(crate) replication: OnceLock<Arc<Site>>,
    /// By worker: it has connections that wait for the committer.
    waiting: Box<[AtomicBool]>,
    clock: Arc<Clock>,
}

/// What is known of a key that is not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// The store has no item, as of this position.
    Absent(Position),
    /// A change is on its way to the store: look again once it was applied.
    OnItsWay,
    /// The store may have it: to be read.
    Unread(Position),
}

impl Persistence {
    /// For a server of so many workers. Its store comes later: [`Threads::start`].
    pub fn new(workers: usize, settings: &StoreSettings, clock: Arc<Clock>) -> Self {
        let journal = JournalConfig {
            bytes_max: JOURNAL_BYTES_MAX,
            changes_max: JOURNAL_CHANGES_MAX,
            site: settings.replication.as_ref().map_or(0, |replication| replication.site),
            highest_version: 0,
            clock: Box::new(WallClock),
        };
        Self::with_journal(workers, settings, clock, journal)
    }

    /// The same with a journal of another size, or another clock of versions.
    pub fn with_journal(
        workers: usize,
        settings: &StoreSettings,
        clock: Arc<Clock>,
        journal: JournalConfig,
    ) -> Self {
        Self {
            site: journal.site,
            replication: OnceLock::new(),
            journal: Arc::new(Journal::new(journal)),
            store: OnceLock::new(),
            fetches: FetchQueue::default(),
            key_dumps: KeyDumps::default(),
            backups: Backups::new(settings.backup_directory.clone()),
            meters: Arc::new(Meters::new(settings.readers.max(1), workers)),
            disk_quotas: Arc::default(),
            write_budgets: Arc::default(),
            segment_bytes: settings.segment_bytes,
            waiting: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            clock,
        }
    }

    /// Connects a server with its open store, and resumes what the store knows of. Call once, before the first request.
    /// Errors: there is a store already, or none is expected.
    pub fn open(shared: &Shared, store: Arc<dyn Store>) -> io::Result<()> {
        let persistence = Self::of(shared)?;
        // Versions that were given and lost with a crash (`interval`) are not given again, if the clock was set back.
        persistence.journal.raise_versions(store.highest_version().saturating_add(LOST_VERSIONS));
        persistence.journal.raise_replicated_versions(store.highest_version());
        if let Some(table) = shared.namespaces.table() {
            persistence.disk_quotas.set(&table, &*store).map_err(io::Error::other)?;
            let is_kept = |number: &u8| table.policy(*number).keep == Keep::Store;
            let numbers: Vec<_> = table.numbers().filter(is_kept).collect();
            persistence.write_budgets.open(&numbers, persistence.segment_bytes);
        }
        if persistence.store.set(Arc::clone(&store)).is_err() {
            return Err(io::Error::other("the store is open already"));
        }
        resume_flushes(shared, &*store);
        Ok(())
    }

    /// What the committer of a server tells. `wake` wakes a worker, by its number. Errors: no engine handle is left.
    pub fn commit_observer(
        shared: &Arc<Shared>,
        wake: impl Fn(usize) + Send + Sync + 'static,
    ) -> io::Result<Arc<dyn Observer>> {
        Ok(Arc::new(CommitObserver::new(shared, Box::new(wake))?))
    }

    /// The changes on their way to the store.
    pub fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    fn of(shared: &Shared) -> io::Result<&Self> {
        shared.persistence.as_ref().ok_or_else(|| io::Error::other("there is no store"))
    }

    /// What stands behind the engine of a namespace.
    pub fn backing(&self, namespace: &StoredNamespace) -> Arc<dyn Backing> {
        Arc::new(NamespaceBacking {
            journal: Arc::clone(&self.journal),
            clock: Arc::clone(&self.clock),
            disk_quotas: Arc::clone(&self.disk_quotas),
            write_budgets: Arc::clone(&self.write_budgets),
            number: namespace.number,
            prefix: namespace.prefix.as_slice().into(),
            nested: Arc::clone(&namespace.nested),
            is_sync: namespace.durability == Durability::Sync,
            is_replicated: namespace.is_replicated && self.site != 0,
            site: self.site,
        })
    }

    /// Other policies have other quotas of disk. Errors: a sentence for the operator.
    pub(crate) fn set_disk_quotas(&self, table: &Table) -> Result<(), String> {
        let Some(store) = self.store.get() else { return Ok(()) };
        self.disk_quotas.set(table, &**store).map_err(|error| error.to_string())
    }

    /// The store, once it is open.
    pub(crate) fn store(&self) -> Option<&Arc<dyn Store>> {
        self.store.get()
    }

    /// What is known of a key that is not in memory, without I/O.
    pub(crate) fn look_behind(&self, key: &[u8], hash: Hash) -> Behind {
        let position = self.journal.position_of(hash.bits());
        if !self.journal.is_applied(position) {
            Behind::OnItsWay
        } else if self.store.get().is_some_and(|store| store.may_contain(key)) {
            Behind::Unread(position)
        } else {
            Behind::Absent(position)
        }
    }

    /// Looks up a key of the store without waiting for the disk: an item that is found is put into memory.
    /// `WouldBlock`: a reader has to look it up; `Absent`: there is no item, as of this position.
    pub(crate) fn try_fetch(
        &self,
        worker: usize,
        guard: &Guard<'_>,
        key: &[u8],
        hash: Hash,
        position: Position,
        ttl_max_secs: Option<u32>,
    ) -> TryGet {
        let Some(store) = self.store.get() else { return TryGet::WouldBlock };
        let lifetime = Lifetime { clock: &self.clock, lapsed: &self.fetches.lapsed, ttl_max_secs };
        let since = Instant::now();
        let found = fetch::try_fetch(&**store, lifetime, guard, key, hash, position);
        if found != TryGet::WouldBlock
            && let Some(meter) = self.meters.worker(worker)
        {
            meter.look_up(&Ok::<_, Error>(found == TryGet::Found), since);
        }
        found
    }

    /// Reason why this site currently refuses changes of replicated items. `None`: it takes them, or is not one of
    /// several sites.
    #[inline]
    pub(crate) fn site_refusal(&self) -> Option<Error> {
        self.replication.get().and_then(|site| site.refusal())
    }

    /// Looks keys up in the store, however long that takes, and puts what is found into memory.
    pub(crate) fn look_up_now(
        &self,
        wanted: Vec<fetch::Wanted>,
        handles: &mut Handles,
    ) -> Vec<fetch::Finding> {
        self.store
            .get()
            .map_or_else(Vec::new, |store| self.fetches.look_up(wanted, &**store, &self.clock, handles))
    }

    /// Whether a change may be made now. Errors: `None`: once the committer has done something; else what to answer.
    pub(crate) fn admit(&self, only_removes: bool) -> Result<(), Option<Error>> {
        let admitted = if only_removes { self.journal.admit_removal() } else { self.journal.admit() };
        admitted.map_err(|refusal| (refusal != Refusal::Busy).then(|| error_of(refusal)))
    }

    /// Checks whether cleaning keeps up with what this namespace writes. Errors: the time to ask again.
    pub(crate) fn admit_to_write(&self, number: u8) -> Result<(), Instant> {
        let Some(store) = self.store.get() else { return Ok(()) };
        self.write_budgets.admit(number, &**store, self.journal.load().1)
    }

    /// What became of a position.
    #[inline]
    pub fn outcome(&self, position: Position) -> Outcome {
        self.journal.outcome(position)
    }

    /// The error for a client whose change at this position is lost.
    pub(crate) fn loss(&self, position: Position) -> Error {
        error_of(self.journal.loss(position))
    }

    /// A worker has connections that wait for the committer. Whoever calls this looks at them again afterwards.
    pub(crate) fn note_waiting(&self, worker: usize) {
        if let Some(is_waiting) = self.waiting.get(worker) {
            is_waiting.store(true, SeqCst);
        }
        self.journal.hurry();
    }

    /// The workers to be woken since the committer has done something.
    fn take_waiting(&self) -> impl Iterator<Item = usize> {
        let is_taken = |(_, is_waiting): &(usize, &AtomicBool)| is_waiting.swap(false, SeqCst);
        self.waiting.iter().enumerate().filter(is_taken).map(|(worker, _)| worker)
    }
}

fn error_of(refusal: Refusal) -> Error {
    match refusal {
        Refusal::Full => Error::StoreFull,
        Refusal::ReadOnly => Error::StoreReadOnly,
        Refusal::Busy | Refusal::Failed => Error::StoreFailed,
    }
}

/// Delayed flushes from before the restart; those that were due meanwhile are due now.
fn resume_flushes(shared: &Shared, store: &dyn Store) {
    let now = shared.clock.now();
    let mut orphans = Vec::new();
    for pending in store.pending_flushes() {
        // `None`: its time has passed.
        let at = shared.clock.unexpired(pending.at_secs).and_then(|at| shared.clock.secs_of(at));
        match shared.namespaces.stored_engine(&pending.prefix) {
            Some(engine) => drop(engine.flush(now, at)),
            None => orphans.push((pending.prefix, at)),
        }
    }
    if let Err(error) = settle_flushes(shared, store, &orphans) {
        // They stay pending until the next start.
        tracing::error!("the store cannot keep changes: {error}");
    }
}

/// Settles delayed flushes of namespaces that the store does not have any more, or it would take what is stored there
/// by the time that they come back. What is due is flushed, before anybody reads it as part of a shorter prefix.
fn settle_flushes(
    shared: &Shared,
    store: &dyn Store,
    orphans: &[(Vec<u8>, Option<u32>)],
) -> larder_store::Result<()> {
    let Some(table) = shared.namespaces.table().filter(|_| !orphans.is_empty()) else { return Ok(()) };
    for (prefix, at) in orphans {
        let nested = stored_below(&table, prefix);
        let entry = match at {
            None => {
                // Other sites take it as any flush of theirs.
                let journal = shared.persistence.as_ref().map(|persistence| &persistence.journal);
                let below = journal
                    .filter(|_| is_replicated(&table, table.find(prefix)))
                    .and_then(|journal| journal.replicated_flush_version());
                let by = if below.is_some() { FlushBy::Version } else { FlushBy::Sequence };
                Entry::Flush { prefix, except: &nested, version: below.unwrap_or(0), by }
            }
            Some(_) => {
                tracing::warn!(prefix = %prefix.escape_ascii(), "a delayed flush is cancelled: its namespace is gone");
                Entry::CancelFlushAt { prefix }
            }
        };
        store.append(&[entry])?;
    }
    store.sync().map(drop)
}

/// The clock of versions.
struct WallClock;

impl VersionClock for WallClock {
    fn unix_micros(&self) -> u64 {
        unix_micros()
    }
}

/// Maximum number of open files of a store and a backup, apart from segments.
const FILES_OPEN_MAX: usize = 32;
/// A store that has no descriptors for at least this many more segments (64 MiB each: 4 GiB, or with the next constant
/// a terabyte) ...
const SEGMENTS_AHEAD_MIN: usize = 64;
/// ... gets them before connections do: up to this many, if the system allows it.
const SEGMENTS_AHEAD: usize = 16 << 10;
/// As many as a minute has: more than an interval.
const LOST_VERSIONS: u64 = (60 * 8_000) << SITE_BITS;
/// Changes on their way take at most about twice this.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;
const JOURNAL_CHANGES_MAX: usize = 32 << 10;

#[cfg(test)]
pub(crate) mod tests {
    use larder_store::commit::Committer;

    use super::*;
    use crate::namespaces::{self, BackingOf, NamespacesFile, Plan, WarmCaches};
    use crate::startup::settings::Settings;

    /// A server that keeps everything in this store, and its committer, which nobody runs.
    pub(crate) fn kept(store_settings: StoreSettings, store: Arc<dyn Store>) -> (Arc<Shared>, Committer) {
        let clock = Arc::new(Clock::start());
        let persistence = Persistence::new(1, &store_settings, Arc::clone(&clock));
        let settings = Settings { store: Some(store_settings), threads: 1, ..Settings::default() };
        let backing = |namespace: &StoredNamespace| -> Arc<dyn Backing> { persistence.backing(namespace) };
        let file = NamespacesFile::read(&settings).expect("none is named");
        let plan = Plan::new(file, &settings, &settings.engine_config([1, 2])).expect("memory for one");
        let backing = Some(&backing as BackingOf<'_>);
        let namespaces = namespaces::build(plan, &settings, backing, WarmCaches::default());
        let shared = Shared::new(namespaces.expect("there is memory"), settings, clock).expect("descriptors");
        let shared = Arc::new(shared.with_persistence(Some(persistence)));
        Persistence::open(&shared, Arc::clone(&store)).expect("the first");
        let observer = Persistence::commit_observer(&shared, |_| ()).expect("a handle");
        let journal = Arc::clone(shared.persistence.as_ref().expect("it has one").journal());
        (shared, Committer::new(journal, store, observer, None))
    }
}
