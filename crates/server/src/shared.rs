//! What all workers share. Read-mostly: nothing in here is written while a request is served, but for the rare
//! commands that exist to change it.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_engine::Engine;

use crate::clock::Clock;
use crate::control::Stop;
use crate::counters::{Counters, Totals};
use crate::crawler::Crawler;
use crate::doorkeeper::Doorkeeper;
use crate::forecast::Forecast;
use crate::guard::Guard;
use crate::measure::{Measures, Recorder};
use crate::settings::Settings;
use crate::tls::Tls;
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
    /// Asks for passwords, if anybody does.
    pub guard: Option<Guard>,
    /// The certificates, if TLS is on.
    pub tls: Option<Tls>,
    /// The search for expired items that clients may ask for.
    pub crawler: Crawler,
    /// What is measured beyond counting.
    pub measures: Arc<Measures>,
    /// The hit ratio at other sizes.
    pub forecast: Forecast,
    verbosity: AtomicU8,
    /// [`Stop`], as a number; 0: not asked for.
    stop: AtomicU8,
    /// Rings when the control thread has something to do.
    control_wake: Wake,
    /// What the counters showed at the last `stats reset`.
    baseline: Mutex<Totals>,
}

impl Shared {
    /// Puts the shared part together: one set of counters per worker thread. Errors: no descriptor to be had.
    pub fn new(engine: Arc<Engine>, settings: Settings, clock: Clock) -> io::Result<Self> {
        Ok(Self {
            counters: (0..settings.threads).map(|_| Arc::default()).collect(),
            verbosity: AtomicU8::new(settings.verbosity),
            crawler: Crawler::new(settings.accepted.lru_crawler),
            stop: AtomicU8::new(0),
            control_wake: Wake::new()?,
            baseline: Mutex::default(),
            doorkeeper: Doorkeeper::default(),
            measures: Arc::new(Measures::new(settings.measured, settings.threads)?),
            forecast: Forecast::default(),
            guard: None,
            tls: None,
            engine,
            settings,
            clock,
        })
    }

    /// The same, guarded.
    pub fn with_guard(self, guard: Option<Guard>) -> Self {
        Self { guard, ..self }
    }

    /// The same, with certificates.
    pub fn with_tls(self, tls: Option<Tls>) -> Self {
        Self { tls, ..self }
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
    pub fn request_shutdown(&self, stop: Stop) {
        self.stop.store(stop as u8, Relaxed);
        self.wake_control();
    }

    /// The stop that was asked for.
    pub(crate) fn requested_shutdown(&self) -> Option<Stop> {
        [Stop::Now, Stop::Gracefully].into_iter().find(|stop| *stop as u8 == self.stop.load(Relaxed))
    }

    /// Tells the control thread that there is something to do.
    pub(crate) fn wake_control(&self) {
        self.control_wake.ring();
    }

    /// Rings when there is.
    pub(crate) fn control_wake(&self) -> &Wake {
        &self.control_wake
    }

    /// All workers' counters since the start or the last reset.
    pub fn totals(&self) -> Totals {
        Totals::sum(&self.counters).since(&self.baseline())
    }

    /// The means of a worker, number `index`, to measure.
    pub fn recorder(&self, index: usize) -> Recorder {
        let delimiter = u8::try_from(self.settings.accepted.prefix_delimiter).unwrap_or(b':');
        self.measures.recorder(index, delimiter)
    }

    /// Keys read by all workers since the start, whatever was reset.
    pub(crate) fn reads(&self) -> u64 {
        self.counters.iter().map(|counters| counters.cmd_get.get() + counters.cmd_touch.get()).sum()
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
