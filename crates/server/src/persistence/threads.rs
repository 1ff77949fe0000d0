//! The threads that do the store's I/O: the committer, the readers, those of lists of keys, that of backups, and one
//! that cleans up.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use larder_store::commit::{Committer, Step};
use larder_store::{Budget, Error, LogOptions, LogStore, MemoryStore, Store, StoreLock};
#[cfg(feature = "rocksdb")]
use larder_store::{RocksOptions, RocksStore};

use super::meters::TimedStore;
use super::{Driver, Persistence, Reader, StoreSettings, key_dumps};
use crate::namespaces::Handles;
use crate::net::worker_pool::WorkerPool;
use crate::observe::journal::Rarely;
use crate::shared::Shared;

/// The threads of an open store.
pub struct Threads {
    shared: Arc<Shared>,
    committer: JoinHandle<Committer>,
    others: Vec<JoinHandle<()>>,
    is_stopping: Arc<AtomicBool>,
}

impl Threads {
    /// Opens the store, whose lock is `lock`, and starts its threads. Call once, before the workers. Errors: the store
    /// cannot be opened (the error is a sentence for the operator), or a thread cannot be started.
    pub fn start(
        shared: &Arc<Shared>,
        pool: &Arc<WorkerPool>,
        settings: &StoreSettings,
        lock: Option<StoreLock>,
    ) -> io::Result<Self> {
        let persistence = Persistence::of(shared)?;
        let store = open(settings, lock).map_err(io::Error::other)?;
        Persistence::open(shared, Arc::clone(&store))?;
        let is_stopping = Arc::new(AtomicBool::new(false));
        let wake = {
            let pool = Arc::clone(pool);
            move |worker| pool.wake(worker).notify()
        };
        let observer = Persistence::commit_observer(shared, wake)?;
        let interval_micros = u64::try_from(settings.interval.as_micros()).ok();
        let timed = TimedStore { store: Arc::clone(&store), meters: Arc::clone(&persistence.meters) };
        let committer = Committer::new(Arc::clone(&persistence.journal), timed, observer, interval_micros);
        let committer = {
            let (shared, is_stopping) = (Arc::clone(shared), Arc::clone(&is_stopping));
            Builder::new()
                .name("larder-commit".into())
                .spawn(move || commit(committer, &shared, &is_stopping))?
        };
        let mut others = Vec::new();
        for number in 0..settings.readers.max(1) {
            let (reader, pool) = (Reader::new(shared, number)?, Arc::clone(pool));
            let thread = Builder::new().name(format!("larder-read-{number}"));
            others.push(thread.spawn(move || reader.run(|waiter| pool.signal(waiter)))?);
        }
        for number in 0..key_dumps::THREADS {
            let (shared, pool, store) = (Arc::clone(shared), Arc::clone(pool), Arc::clone(&store));
            let mut handles = handles(&shared)?;
            let thread = Builder::new().name(format!("larder-dump-{number}"));
            others.push(thread.spawn(move || {
                if let Some(persistence) = &shared.persistence {
                    let signal = |waiter| pool.signal(waiter);
                    persistence.key_dumps.serve(&*store, &shared, &mut handles, signal);
                }
            })?);
        }
        {
            let (shared, store) = (Arc::clone(shared), Arc::clone(&store));
            let thread = Builder::new().name("larder-backup".into());
            others.push(thread.spawn(move || {
                if let Some(persistence) = &shared.persistence {
                    let unix_secs = || shared.clock.wall_secs(shared.clock.now().secs);
                    persistence.backups.serve(&*store, &persistence.journal, unix_secs);
                }
            })?);
        }
        {
            let (shared, is_stopping) = (Arc::clone(shared), Arc::clone(&is_stopping));
            let thread = Builder::new().name("larder-clean".into());
            others.push(thread.spawn(move || maintain(&*store, &shared, &is_stopping))?);
        }
        Ok(Self { shared: Arc::clone(shared), committer, others, is_stopping })
    }

    /// Makes durable all that was changed, and closes the store. Call once the workers have ended.
    pub fn stop(self) {
        let Self { shared, committer, others, is_stopping } = self;
        is_stopping.store(true, SeqCst);
        let Some(persistence) = &shared.persistence else { return };
        persistence.fetches.stop();
        persistence.key_dumps.stop();
        persistence.backups.stop();
        persistence.journal.wake();
        if let Ok(mut committer) = committer.join() {
            committer.sync();
        }
        for thread in others {
            thread.thread().unpark();
            let _ = thread.join();
        }
        if let Some(Err(error)) = persistence.store().map(|store| store.close()) {
            tracing::error!("the store cannot be closed: {error}");
        }
    }
}

fn open(settings: &StoreSettings, lock: Option<StoreLock>) -> Result<Arc<dyn Store>, Error> {
    let lock = || lock.map_or_else(|| StoreLock::take(&settings.directory), Ok);
    match settings.driver {
        Driver::Memory => Ok(Arc::new(MemoryStore::new())),
        Driver::Log => {
            let options = LogOptions { segment_bytes: settings.segment_bytes, ..LogOptions::default() };
            let store = LogStore::open_locked(&settings.directory, options, lock()?)?;
            if !store.removed_files().is_empty() {
                let names = store.removed_files().join(", ");
                tracing::warn!("removed files that the store's MANIFEST does not name: {names}");
            }
            Ok(Arc::new(store))
        }
        #[cfg(feature = "rocksdb")]
        Driver::RocksDb => {
            let options = RocksOptions { file_bytes: settings.segment_bytes, ..RocksOptions::default() };
            Ok(Arc::new(RocksStore::open_locked(&settings.directory, options, lock()?)?))
        }
        // The options have refused it.
        #[cfg(not(feature = "rocksdb"))]
        Driver::RocksDb => Err(Error::Unsupported { what: "RocksDB" }),
    }
}

fn handles(shared: &Shared) -> io::Result<Handles> {
    shared.namespaces.handles().ok_or_else(|| io::Error::other("no engine handle left"))
}

/// Commits until the server stops and nothing is left.
fn commit(mut committer: Committer, shared: &Shared, is_stopping: &AtomicBool) -> Committer {
    let start = Instant::now();
    let elapsed_micros = || start.elapsed().as_micros() as u64;
    let Some(persistence) = &shared.persistence else { return committer };
    loop {
        let now_micros = elapsed_micros();
        let timeout = match committer.step(now_micros) {
            Step::Again => {
                let gather = Duration::from_micros(committer.gather_micros(elapsed_micros()));
                if !gather.is_zero() {
                    persistence.journal.gather(gather);
                }
                continue;
            }
            Step::Idle => IDLE_MAX,
            Step::IdleUntil { micros } => Duration::from_micros(micros.saturating_sub(now_micros)),
        };
        if is_stopping.load(SeqCst) {
            return committer;
        }
        if persistence.journal.refusal().is_some() {
            // What has come must wait for the next attempt.
            std::thread::sleep(timeout.min(RETRY_MAX));
        } else {
            let linger = || Duration::from_micros(committer.linger_micros(elapsed_micros()));
            persistence.journal.wait(timeout.min(IDLE_MAX), linger);
        }
    }
}

/// Cleans up, in small steps, as long as there is something to do.
fn maintain(store: &dyn Store, shared: &Shared, is_stopping: &AtomicBool) {
    let failures = Rarely::default();
    while !is_stopping.load(SeqCst) {
        let now_unix_secs = u64::try_from(shared.clock.wall_secs(shared.clock.now().secs)).unwrap_or(0);
        let pause = match store.maintain(Budget { bytes: CLEANING_STEP_BYTES }, now_unix_secs) {
            Ok(progress) if progress.more => CLEANING_PAUSE,
            Ok(_) => IDLE_MAX,
            Err(error) => {
                if let Some(times) = failures.happened(shared.clock.now().secs) {
                    tracing::error!(times, "the store cannot be cleaned up: {error}");
                }
                IDLE_MAX
            }
        };
        std::thread::park_timeout(pause);
    }
}

/// Nothing that has to be noticed sooner comes without a wake-up.
const IDLE_MAX: Duration = Duration::from_secs(1);
/// A stop does not wait longer for the next attempt.
const RETRY_MAX: Duration = Duration::from_millis(200);
const CLEANING_STEP_BYTES: u64 = 1 << 20;
const CLEANING_PAUSE: Duration = Duration::from_millis(5);
