//! The threads that do the store's I/O: the committer, the readers, and one that cleans up.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use larder_store::commit::{Change, Committer, Observer, Step};
use larder_store::{Budget, Error, LogOptions, LogStore, MemoryStore, Store};

use super::{Driver, Persistence, StoreSettings};
use crate::namespaces::Handles;
use crate::net::worker_pool::WorkerPool;
use crate::shared::Shared;

/// The threads of an open store.
pub struct Threads {
    shared: Arc<Shared>,
    committer: JoinHandle<Committer>,
    others: Vec<JoinHandle<()>>,
    is_stopping: Arc<AtomicBool>,
}

impl Threads {
    /// Opens the store, and starts its threads. Call once, before the workers. Errors: the store cannot be opened (the
    /// error is a sentence for the operator), or a thread cannot be started.
    pub fn start(shared: &Arc<Shared>, pool: &Arc<WorkerPool>, settings: &StoreSettings) -> io::Result<Self> {
        let persistence = persistence(shared)?;
        let store = open(settings).map_err(io::Error::other)?;
        persistence.journal.raise_versions(store.highest_version());
        if persistence.store.set(Arc::clone(&store)).is_err() {
            return Err(io::Error::other("the store is open already"));
        }
        resume_flushes(shared, &*store);
        let is_stopping = Arc::new(AtomicBool::new(false));
        let observer = Arc::new(CommitObserver {
            shared: Arc::clone(shared),
            pool: Arc::clone(pool),
            handles: Mutex::new(handles(shared)?),
        });
        let interval_micros = u64::try_from(settings.interval.as_micros()).ok();
        let committer =
            Committer::new(Arc::clone(&persistence.journal), Arc::clone(&store), observer, interval_micros);
        let committer = {
            let (shared, is_stopping) = (Arc::clone(shared), Arc::clone(&is_stopping));
            Builder::new()
                .name("larder-commit".into())
                .spawn(move || commit(committer, &shared, &is_stopping))?
        };
        let mut others = Vec::new();
        for number in 0..settings.readers.max(1) {
            let (shared, pool, store) = (Arc::clone(shared), Arc::clone(pool), Arc::clone(&store));
            let mut handles = handles(&shared)?;
            let thread = Builder::new().name(format!("larder-read-{number}"));
            others.push(thread.spawn(move || {
                if let Some(persistence) = &shared.persistence {
                    let signal = |waiter| pool.signal(waiter);
                    persistence.fetches.serve(&*store, &shared.clock, &mut handles, signal);
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

/// Delayed flushes from before the restart; those that were due meanwhile are due now.
fn resume_flushes(shared: &Shared, store: &dyn Store) {
    let now = shared.clock.now();
    for pending in store.pending_flushes() {
        let at = i64::try_from(pending.at_secs).unwrap_or(i64::MAX).saturating_sub(shared.clock.wall_secs(0));
        let at = u32::try_from(at.max(0)).unwrap_or(u32::MAX);
        if let Some(engine) = shared.namespaces.engine_of_prefix(&pending.prefix) {
            engine.flush(now, (at > now.secs).then_some(at));
        }
    }
}

fn open(settings: &StoreSettings) -> Result<Arc<dyn Store>, Error> {
    match settings.driver {
        Driver::Memory => Ok(Arc::new(MemoryStore::new())),
        Driver::Log => {
            let options = LogOptions { segment_bytes: settings.segment_bytes, ..LogOptions::default() };
            Ok(Arc::new(LogStore::open(&settings.directory, options)?))
        }
    }
}

fn persistence(shared: &Shared) -> io::Result<&Persistence> {
    shared.persistence.as_ref().ok_or_else(|| io::Error::other("there is no store"))
}

fn handles(shared: &Shared) -> io::Result<Handles> {
    shared.namespaces.handles().ok_or_else(|| io::Error::other("no engine handle left"))
}

/// Commits until the server stops and nothing is left.
fn commit(mut committer: Committer, shared: &Shared, is_stopping: &AtomicBool) -> Committer {
    let start = Instant::now();
    let Some(persistence) = &shared.persistence else { return committer };
    loop {
        let now_micros = start.elapsed().as_micros() as u64;
        let timeout = match committer.step(now_micros) {
            Step::Again => continue,
            Step::Idle => IDLE_MAX,
            Step::IdleUntil { micros } => Duration::from_micros(micros.saturating_sub(now_micros)),
        };
        if is_stopping.load(SeqCst) {
            return committer;
        }
        persistence.journal.wait(timeout.min(IDLE_MAX));
    }
}

/// Cleans up, in small steps, as long as there is something to do.
fn maintain(store: &dyn Store, shared: &Shared, is_stopping: &AtomicBool) {
    while !is_stopping.load(SeqCst) {
        let now_unix_secs = u64::try_from(shared.clock.wall_secs(shared.clock.now().secs)).unwrap_or(0);
        let pause = match store.maintain(Budget { bytes: CLEANING_STEP_BYTES }, now_unix_secs) {
            Ok(progress) if progress.more => CLEANING_PAUSE,
            Ok(_) => IDLE_MAX,
            Err(error) => {
                tracing::error!("the store cannot be cleaned up: {error}");
                IDLE_MAX
            }
        };
        std::thread::park_timeout(pause);
    }
}

/// Tells the workers what the committer did.
struct CommitObserver {
    shared: Arc<Shared>,
    pool: Arc<WorkerPool>,
    handles: Mutex<Handles>,
}

impl Observer for CommitObserver {
    fn on_progress(&self) {
        if let Some(persistence) = &self.shared.persistence {
            for worker in persistence.take_waiting() {
                self.pool.wake(worker).notify();
            }
        }
    }

    fn on_lost(&self, change: &Change) {
        let number = self.shared.namespaces.number(change.key());
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = handles.handle_mut(number) {
            let guard = handle.pin(self.shared.clock.now());
            guard.drop_from_memory(change.key(), guard.prepare(change.key()));
        }
    }

    fn on_commit(&self, _changes: usize, _bytes: u64, _is_durable: bool) {}

    fn on_error(&self, error: &Error) {
        tracing::error!("the store cannot keep changes: {error}");
    }
}

/// Nothing that has to be noticed sooner comes without a wake-up.
const IDLE_MAX: Duration = Duration::from_secs(1);
const CLEANING_STEP_BYTES: u64 = 1 << 20;
const CLEANING_PAUSE: Duration = Duration::from_millis(5);
