//! The threads that do the store's I/O: the committer, its stand-in, the readers, those that list keys, the backup
//! thread, and one that cleans up.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use larder_store::commit::{Committer, Journal, Refusal, Step};
use larder_store::{Budget, Store};

use super::meters::TimedStore;
use super::{Persistence, Reader, StoreSettings, key_dumps};
use crate::namespaces::Handles;
use crate::net::worker_pool::WorkerPool;
use crate::observe::journal::Rarely;
use crate::shared::Shared;

/// The threads of an open store.
pub struct Threads {
    shared: Arc<Shared>,
    commits: Arc<Commits>,
    committers: [JoinHandle<()>; 2],
    others: Vec<JoinHandle<()>>,
    is_stopping: Arc<AtomicBool>,
}

impl Threads {
    /// Starts the threads of a store that [`StoreSettings::open`] has opened. Call once, before the workers. Errors: a
    /// thread cannot be started.
    pub fn start(
        shared: &Arc<Shared>,
        pool: &Arc<WorkerPool>,
        settings: &StoreSettings,
        store: Arc<dyn Store>,
    ) -> io::Result<Self> {
        let persistence = Persistence::of(shared)?;
        Persistence::open(shared, Arc::clone(&store))?;
        // It prepares the log's next file, for which the first change would wait otherwise.
        if let Err(error) = store.maintain(Budget { bytes: 0 }, shared.clock.unix_secs()) {
            tracing::error!("the store cannot be cleaned up: {error}");
        }
        let is_stopping = Arc::new(AtomicBool::new(false));
        let wake = {
            let pool = Arc::clone(pool);
            move |worker| pool.wake(worker).notify()
        };
        let observer = Persistence::commit_observer(shared, wake)?;
        let interval_micros = u64::try_from(settings.interval.as_micros()).ok();
        let timed = TimedStore { store: Arc::clone(&store), meters: Arc::clone(&persistence.meters) };
        let committer = Committer::new(Arc::clone(&persistence.journal), timed, observer, interval_micros);
        let commits = Arc::new(Commits {
            committer: Mutex::new(committer),
            journal: Arc::clone(&persistence.journal),
            start: Instant::now(),
            is_stopping: Arc::clone(&is_stopping),
        });
        let spawn = |name: &str, run: fn(&Commits)| {
            let commits = Arc::clone(&commits);
            Builder::new().name(name.into()).spawn(move || run(&commits))
        };
        let committers = [spawn("larder-commit", Commits::run)?, spawn("larder-append", Commits::stand_in)?];
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
        Ok(Self { shared: Arc::clone(shared), commits, committers, others, is_stopping })
    }

    /// Makes durable all that was changed, and closes the store. Call once the workers have ended.
    pub fn stop(self) {
        let Self { shared, commits, committers, others, is_stopping } = self;
        is_stopping.store(true, SeqCst);
        let Some(persistence) = &shared.persistence else { return };
        persistence.fetches.stop();
        persistence.key_dumps.stop();
        persistence.backups.stop();
        persistence.journal.wake();
        if committers.map(JoinHandle::join).iter().all(Result::is_ok) {
            commits.committer().sync();
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

fn handles(shared: &Shared) -> io::Result<Handles> {
    shared.namespaces.handles().ok_or_else(|| io::Error::other("no engine handle left"))
}

/// State shared by the two threads that commit.
struct Commits {
    committer: Mutex<Committer>,
    journal: Arc<Journal>,
    start: Instant,
    is_stopping: Arc<AtomicBool>,
}

impl Commits {
    fn committer(&self) -> MutexGuard<'_, Committer> {
        self.committer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_micros(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    /// Commits until the server stops and nothing is left.
    fn run(&self) {
        let journal = &self.journal;
        loop {
            let now_micros = self.now_micros();
            let (step, store) = {
                let mut committer = self.committer();
                (committer.step(now_micros), committer.store())
            };
            let timeout = match step {
                Step::Again | Step::Sync => {
                    if step == Step::Sync {
                        let result = journal.beside_sync(|| store.sync());
                        self.committer().synced(result, self.now_micros());
                    }
                    let gather_micros = self.committer().gather_micros(self.now_micros());
                    if gather_micros > 0 {
                        journal.gather(Duration::from_micros(gather_micros));
                    }
                    continue;
                }
                Step::Idle => IDLE_MAX,
                Step::IdleUntil { micros } => Duration::from_micros(micros.saturating_sub(now_micros)),
            };
            if self.is_stopping.load(SeqCst) {
                return;
            }
            if journal.refusal().is_some_and(|refusal| refusal != Refusal::Full) {
                // New changes have to wait for the next attempt.
                std::thread::sleep(timeout.min(RETRY_MAX));
            } else {
                let linger = || Duration::from_micros(self.committer().linger_micros(self.now_micros()));
                journal.wait(timeout.min(IDLE_MAX), linger);
            }
        }
    }

    /// Appends while the other thread waits for a disk sync, until the server stops.
    fn stand_in(&self) {
        while !self.is_stopping.load(SeqCst) {
            if !self.journal.stand_by(IDLE_MAX, LINGER) {
                continue;
            }
            loop {
                let mut committer = self.committer();
                if !committer.is_syncing() || committer.step(self.now_micros()) != Step::Again {
                    break;
                }
                drop(committer);
                if self.journal.load().0 == 0 {
                    break;
                }
            }
        }
    }
}

/// Cleans up, in small steps, as long as there is something to do.
fn maintain(store: &dyn Store, shared: &Shared, is_stopping: &AtomicBool) {
    let failures = Rarely::default();
    let Some(budgets) = shared.persistence.as_ref().map(|persistence| &persistence.write_budgets) else {
        return;
    };
    budgets.set_cleaner();
    while !is_stopping.load(SeqCst) {
        let now_unix_secs = shared.clock.unix_secs();
        if let Some(persistence) = &shared.persistence {
            persistence.fetches.lapsed.note(now_unix_secs, store.last_sequence());
        }
        let pause = match store.maintain(Budget { bytes: CLEANING_STEP_BYTES }, now_unix_secs) {
            Ok(progress) if progress.more || progress.bytes > 0 => {
                budgets.note_cleaning();
                if progress.more { CLEANING_PAUSE } else { IDLE_MAX }
            }
            Ok(_) => {
                budgets.note_idle(store);
                IDLE_MAX
            }
            Err(error) => {
                budgets.note_idle(store);
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
/// Time to gather changes that are appended while a sync runs.
const LINGER: Duration = Duration::from_micros(300);
/// Longest wait of a stopping server for the next attempt.
const RETRY_MAX: Duration = Duration::from_millis(200);
const CLEANING_STEP_BYTES: u64 = 1 << 20;
const CLEANING_PAUSE: Duration = Duration::from_millis(5);
