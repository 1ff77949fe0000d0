//! What namespaces of the policy `store` add to a server: the store, the journal of changes on their way to it, and the
//! threads that do its I/O. A worker never waits for the disk: it parks the connection.
//!
//! - A change of an item is submitted to the journal ([`backing`]). Where the policy is `sync`, a reply that depends on
//!   it is held until it is durable: [`crate::conn::waiter::Waiting::Durable`].
//! - A key that is not in memory is looked up in the store by a thread of its own ([`fetch`]), which puts the item into
//!   memory; then the request is executed again.
//! - The committer ([`threads`]) appends and syncs; a second thread cleans up.

mod backing;
pub(crate) mod fetch;
mod threads;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use larder_engine::{Backing, Hash, Position};
use larder_policy::Durability;
use larder_protocol::Error;
use larder_store::commit::{Clock as VersionClock, Journal, JournalConfig, Outcome, Refusal};
use larder_store::{LogOptions, Store};

use crate::clock::Clock;
use crate::persistence::backing::NamespaceBacking;
use crate::persistence::fetch::FetchQueue;
pub use crate::persistence::threads::Threads;

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
    /// Length of a file of the log.
    pub segment_bytes: u64,
}

impl StoreSettings {
    /// Threads that access the engines: the readers and the committer.
    pub fn threads(&self) -> usize {
        self.readers + 1
    }
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            directory: PathBuf::new(),
            driver: Driver::Log,
            durability: Durability::Sync,
            interval: Duration::from_secs(1),
            readers: 4,
            segment_bytes: LogOptions::default().segment_bytes,
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
    pub fn new(workers: usize, clock: Arc<Clock>) -> Self {
        Self {
            journal: Arc::new(Journal::new(JournalConfig {
                bytes_max: JOURNAL_BYTES_MAX,
                changes_max: JOURNAL_CHANGES_MAX,
                site: 0,
                highest_version: 0,
                clock: Box::new(WallClock),
            })),
            store: OnceLock::new(),
            fetches: FetchQueue::default(),
            waiting: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            clock,
        }
    }

    /// What stands behind the engine of a namespace.
    pub(crate) fn backing(&self, prefix: &[u8], durability: Durability) -> Arc<dyn Backing> {
        Arc::new(NamespaceBacking {
            journal: Arc::clone(&self.journal),
            clock: Arc::clone(&self.clock),
            prefix: prefix.into(),
            is_sync: durability == Durability::Sync,
        })
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

    /// Whether a change may be made now. Errors: `None`: once the committer has done something; else what to answer.
    pub(crate) fn admit(&self) -> Result<(), Option<Error>> {
        self.journal.admit().map_err(|refusal| match refusal {
            Refusal::Busy => None,
            Refusal::Full => Some(Error::StoreFull),
            Refusal::ReadOnly => Some(Error::StoreReadOnly),
            Refusal::Failed => Some(Error::StoreFailed),
        })
    }

    /// What became of a position.
    #[inline]
    pub(crate) fn outcome(&self, position: Position) -> Outcome {
        self.journal.outcome(position)
    }

    /// What to tell a client whose change is lost.
    pub(crate) fn loss(&self) -> Error {
        match self.journal.refusal() {
            Some(Refusal::Full) => Error::StoreFull,
            Some(Refusal::ReadOnly) => Error::StoreReadOnly,
            _ => Error::StoreFailed,
        }
    }

    /// A worker has connections that wait for the committer. Whoever calls this looks at them again afterwards.
    pub(crate) fn note_waiting(&self, worker: usize) {
        if let Some(is_waiting) = self.waiting.get(worker) {
            is_waiting.store(true, SeqCst);
        }
    }

    /// The workers to be woken since the committer has done something.
    fn take_waiting(&self) -> impl Iterator<Item = usize> {
        let is_taken = |(_, is_waiting): &(usize, &AtomicBool)| is_waiting.swap(false, SeqCst);
        self.waiting.iter().enumerate().filter(is_taken).map(|(worker, _)| worker)
    }
}

/// The clock of versions.
struct WallClock;

impl VersionClock for WallClock {
    fn unix_micros(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
}

/// Changes on their way take at most about twice this.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;
const JOURNAL_CHANGES_MAX: usize = 32 << 10;
