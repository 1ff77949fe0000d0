//! One run of the server, from its start to its end.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use larder_engine::{Backing, Handle, LargePages};
use larder_server::conn::parked::Parked;
use larder_server::conn::waiter::Waiter;
use larder_server::namespaces::{
    self, BackingOf, Handles, NamespacesFile, Plan, StoredNamespace, WarmCaches,
};
use larder_server::observe::measure::{Measured, Recorder};
use larder_server::persistence::{Persistence, Reader, StoreSettings};
use larder_server::shared::Shared;
use larder_server::startup::settings::Settings;
use larder_store::MemoryStore;
use larder_store::commit::{Committer, JournalConfig, Observer, Step};

use crate::backing::{WitnessBacking, lock};
use crate::clock::SimClock;
use crate::disk::Disk;
use crate::observer::WitnessObserver;
use crate::scenario::{Bug, Scenario};
use crate::witness::Witness;

/// A server without sockets and threads.
pub(crate) struct Site {
    pub(crate) shared: Arc<Shared>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) readers: Vec<SimReader>,
    pub(crate) committer: Committer,
    /// What the committer said last.
    pub(crate) committer_next: Step,
    /// Result of the running sync, once the disk has done it.
    pub(crate) sync_result: Option<larder_store::Result<u64>>,
    /// Connections that were signalled and do not know it.
    pub(crate) signals: Vec<Waiter>,
    pub(crate) disk: Arc<Disk>,
    /// For the background step, and to look into memory.
    pub(crate) handle: Handle,
    /// The disk had faults since the start.
    pub(crate) is_disk_faulty: bool,
    wakes: Arc<[AtomicBool]>,
    is_filling: Arc<AtomicBool>,
}

pub(crate) struct Worker {
    pub(crate) handles: Handles,
    pub(crate) recorder: Recorder,
    pub(crate) parked: Parked,
}

pub(crate) struct SimReader {
    reader: Reader,
    pub(crate) is_busy: bool,
}

impl Site {
    /// Starts it over what is stored.
    pub(crate) fn start(
        scenario: &Scenario,
        memory: MemoryStore,
        clock: &SimClock,
        witness: &Arc<Mutex<Witness>>,
        requests_per_event: u32,
    ) -> io::Result<Self> {
        let settings = settings(scenario, requests_per_event);
        let store_settings = settings.store.clone().unwrap_or_default();
        let server_clock = Arc::new(clock.server_clock());
        let persistence = Persistence::with_journal(
            scenario.workers,
            &store_settings,
            Arc::clone(&server_clock),
            journal_config(clock),
        );
        let journal = Arc::clone(persistence.journal());
        let is_filling = Arc::<AtomicBool>::default();
        let backing = |namespace: &StoredNamespace| -> Arc<dyn Backing> {
            let mut backing = WitnessBacking {
                inner: persistence.backing(namespace),
                journal: Arc::clone(&journal),
                witness: Arc::clone(witness),
                clock: Arc::clone(&server_clock),
                looks_past_journal: false,
                unchecked_fill: None,
            };
            backing.plant(scenario, &is_filling);
            Arc::new(backing)
        };
        let refused = |refusal: larder_server::startup::options::Refusal| io::Error::other(refusal.message);
        let file = NamespacesFile::read(&settings).map_err(refused)?;
        let config = settings.engine_config([scenario.seed, 1]);
        let plan = Plan::new(file, &settings, &config).map_err(refused)?;
        let backing = Some(&backing as BackingOf<'_>);
        let namespaces =
            namespaces::build(plan, &settings, backing, WarmCaches::default()).map_err(refused)?;
        let shared = Shared::new(namespaces, settings, Arc::clone(&server_clock))?;
        let shared = Arc::new(shared.with_persistence(Some(persistence)));
        let disk = Arc::new(Disk::new(memory, scenario));
        lock(witness).set_second(server_clock.wall_secs(server_clock.now().secs));
        Persistence::open(&shared, Arc::clone(&disk) as _)?;

        let wakes: Arc<[AtomicBool]> = (0..scenario.workers).map(|_| AtomicBool::new(false)).collect();
        let wake = {
            let wakes = Arc::clone(&wakes);
            move |worker: usize| wakes[worker].store(true, Relaxed)
        };
        let observer: Arc<dyn Observer> = Arc::new(WitnessObserver {
            inner: Persistence::commit_observer(&shared, wake)?,
            witness: Arc::clone(witness),
            journal: Arc::clone(&journal),
            disk: Arc::clone(&disk),
            is_sync: scenario.is_sync(),
        });
        let committer = Committer::new(journal, Arc::clone(&disk), observer, Some(scenario.interval_micros));
        let no_handle = || io::Error::other("no engine handle left");
        let worker = |index: usize| {
            let handles = shared.namespaces.handles_of(index).ok_or_else(no_handle)?;
            Ok(Worker { handles, recorder: shared.recorder(index), parked: Parked::default() })
        };
        let workers = (0..scenario.workers).map(worker).collect::<io::Result<_>>()?;
        let reader = |number| Ok(SimReader { reader: Reader::new(&shared, number)?, is_busy: false });
        let readers = (0..scenario.readers).map(reader).collect::<io::Result<_>>()?;
        let engine = shared.namespaces.default_engine();
        let handle = engine.handle().ok_or_else(no_handle)?;
        if scenario.has(Bug::DroppedWhenEvicted) {
            disk.watch_tier(engine.handle(), &server_clock);
        }
        Ok(Self {
            shared,
            workers,
            readers,
            committer,
            committer_next: Step::Idle,
            sync_result: None,
            signals: Vec::new(),
            disk,
            handle,
            is_disk_faulty: false,
            wakes,
            is_filling,
        })
    }

    /// The process is gone.
    pub(crate) fn end(self) -> Arc<Disk> {
        self.disk.watch_tier(None, &self.shared.clock);
        self.disk
    }

    pub(crate) fn persistence(&self) -> Option<&Persistence> {
        self.shared.persistence.as_ref()
    }

    /// Changes and bytes on their way to the store.
    pub(crate) fn journal_load(&self) -> (u64, u64) {
        self.persistence().map_or((0, 0), |persistence| persistence.journal().load())
    }

    /// True if the committer has something to do now.
    pub(crate) fn wants_commit(&self, now_micros: u64) -> bool {
        match self.committer_next {
            Step::Again => true,
            // Changes that come meanwhile are appended.
            Step::Sync => self.journal_load().0 > 0 && !self.is_refusing(),
            Step::Idle => self.journal_load().0 > 0 || self.is_sync_wanted() && !self.committer.is_syncing(),
            Step::IdleUntil { micros } => {
                micros <= now_micros || self.journal_load().0 > 0 && !self.is_refusing()
            }
        }
    }

    fn is_sync_wanted(&self) -> bool {
        self.persistence().is_some_and(|persistence| persistence.journal().is_sync_wanted())
    }

    /// True while the store cannot append.
    pub(crate) fn is_refusing(&self) -> bool {
        self.persistence().is_some_and(|persistence| persistence.journal().refusal().is_some())
    }

    /// Wakes a worker, at its next look.
    pub(crate) fn wake(&self, worker: usize) {
        self.wakes[worker].store(true, Relaxed);
    }

    pub(crate) fn is_woken(&self, worker: usize) -> bool {
        self.wakes[worker].load(Relaxed)
    }

    pub(crate) fn take_wake(&self, worker: usize) -> bool {
        self.wakes[worker].swap(false, Relaxed)
    }

    /// A reader takes what waits, or does what it has taken. False: there is nothing.
    pub(crate) fn step_reader(&mut self, number: usize) -> bool {
        let reader = &mut self.readers[number];
        if !reader.is_busy {
            reader.is_busy = reader.reader.begin();
            return reader.is_busy;
        }
        self.is_filling.store(true, Relaxed);
        let waiter = reader.reader.finish();
        self.is_filling.store(false, Relaxed);
        reader.is_busy = false;
        self.signals.extend(waiter);
        true
    }
}

fn settings(scenario: &Scenario, requests_per_event: u32) -> Settings {
    Settings {
        threads: scenario.workers,
        requests_per_event,
        memory_bytes: MEMORY_BYTES,
        item_bytes_max: ITEM_BYTES_MAX,
        measured: Measured::default(),
        large_pages: LargePages::Never,
        store: Some(StoreSettings {
            durability: scenario.durability,
            // One more handle, for a planted bug.
            readers: scenario.readers + 1,
            ..StoreSettings::default()
        }),
        ..Settings::default()
    }
}

fn journal_config(clock: &SimClock) -> JournalConfig {
    JournalConfig {
        bytes_max: JOURNAL_BYTES_MAX,
        changes_max: JOURNAL_CHANGES_MAX,
        site: 0,
        highest_version: 0,
        clock: Box::new(clock.clone()),
    }
}

/// The least that an engine takes: 64 segments of 16 KiB.
const MEMORY_BYTES: u64 = 1 << 20;
const ITEM_BYTES_MAX: u32 = 512 << 10;
/// So little that commands wait for room at times.
const JOURNAL_BYTES_MAX: u64 = 150_000;
const JOURNAL_CHANGES_MAX: usize = 64;
