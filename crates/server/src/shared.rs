//! What all workers share. Read-mostly: nothing in here is written while a request is served, but for the rare
//! commands that exist to change it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use larder_engine::Engine;

use crate::clock::Clock;
use crate::counters::{Counters, Totals};
use crate::settings::Settings;
use crate::wake::Wake;

/// The server as its workers see it.
pub struct Shared {
    /// The cache.
    pub engine: Arc<Engine>,
    /// The command line.
    pub settings: Settings,
    /// One per worker, in the order of the workers.
    pub counters: Vec<Arc<Counters>>,
    /// The time.
    pub clock: Clock,
    /// Open connections, and whether more are accepted.
    pub doorkeeper: Doorkeeper,
    verbosity: AtomicU8,
    shutdown: Shutdown,
    /// What the counters showed at the last `stats reset`.
    baseline: Mutex<Totals>,
}

/// A request to stop, and the bell that tells the control thread of it.
struct Shutdown {
    graceful: AtomicBool,
    wake: Wake,
}

impl Shared {
    /// Puts the shared part together: one set of counters per worker thread. Errors: no descriptor to be had.
    pub fn new(engine: Arc<Engine>, settings: Settings, clock: Clock) -> io::Result<Self> {
        Ok(Self {
            counters: (0..settings.threads).map(|_| Arc::default()).collect(),
            verbosity: AtomicU8::new(settings.verbosity),
            shutdown: Shutdown { graceful: AtomicBool::new(false), wake: Wake::new()? },
            baseline: Mutex::default(),
            doorkeeper: Doorkeeper::default(),
            engine,
            settings,
            clock,
        })
    }

    /// 0 says nothing, 1 warnings (`-v`), 2 connections and commands (`-vv`).
    pub fn verbosity(&self) -> u8 {
        self.verbosity.load(Relaxed)
    }

    /// Sets the verbosity (the `verbosity` command).
    pub fn set_verbosity(&self, level: u8) {
        self.verbosity.store(level, Relaxed);
    }

    /// Asks the server to stop. Returns at once; the process ends within about a second.
    pub fn request_shutdown(&self, graceful: bool) {
        self.shutdown.graceful.store(graceful, Relaxed);
        self.shutdown.wake.ring();
    }

    /// Rings when somebody asked the server to stop.
    pub(crate) fn shutdown_wake(&self) -> &Wake {
        &self.shutdown.wake
    }

    /// Whether the stop that was asked for is a graceful one.
    pub(crate) fn shutdown_is_graceful(&self) -> bool {
        self.shutdown.graceful.load(Relaxed)
    }

    /// All workers' counters since the start or the last reset.
    pub fn totals(&self) -> Totals {
        Totals::sum(&self.counters).since(&self.baseline())
    }

    /// Starts counting anew. The counters have one writer each and so are not zeroed: what they show now becomes
    /// what later readings are counted from.
    pub fn reset_counters(&self) {
        *self.baseline() = Totals::sum(&self.counters);
        self.engine.reset_stats();
        self.doorkeeper.reset();
    }

    fn baseline(&self) -> MutexGuard<'_, Totals> {
        self.baseline.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts open connections and knows whether the server accepts.
#[derive(Default)]
pub struct Doorkeeper {
    open: AtomicUsize,
    /// Since when nobody is accepted (`-o no_maxconns_fast`, or no descriptors left).
    closed_since: Mutex<Option<Instant>>,
    closed_times: AtomicU64,
    closed_micros: AtomicU64,
}

impl Doorkeeper {
    /// Open connections.
    pub fn open_connections(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// Lets one more in, unless `limit` are.
    pub fn admit(&self, limit: usize) -> bool {
        self.open.fetch_update(Relaxed, Relaxed, |open| (open < limit).then_some(open + 1)).is_ok()
    }

    /// One has gone.
    pub fn leave(&self) {
        self.open.fetch_sub(1, Relaxed);
    }

    /// Accepting?
    pub fn is_accepting(&self) -> bool {
        self.closed_since().is_none()
    }

    /// Stops accepting.
    pub fn shut(&self) {
        let mut since = self.closed_since();
        if since.is_none() {
            *since = Some(Instant::now());
            self.closed_times.fetch_add(1, Relaxed);
        }
    }

    /// Accepts again; true if it did not before.
    pub fn reopen(&self) -> bool {
        let Some(since) = self.closed_since().take() else { return false };
        let micros = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.closed_micros.fetch_add(micros, Relaxed);
        true
    }

    /// How often and for how many microseconds the server did not accept.
    pub fn closed(&self) -> (u64, u64) {
        (self.closed_times.load(Relaxed), self.closed_micros.load(Relaxed))
    }

    fn reset(&self) {
        self.closed_times.store(0, Relaxed);
        self.closed_micros.store(0, Relaxed);
    }

    fn closed_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.closed_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
