//! State that all workers share. Mostly read: only rare commands, made for that, write to it.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_engine::{Now, Position};
use larder_protocol::admin::Streams;
use larder_replication::told::FlushTime;

use crate::access::TokenFile;
use crate::clock::Clock;
use crate::conn::authenticator::Authenticator;
use crate::conn::buffer_budget::BufferBudget;
use crate::control::Stop;
use crate::exec::crawler::Crawler;
use crate::namespaces::{Handles, Namespaces, is_replicated};
use crate::net::connection_limiter::ConnectionLimiter;
use crate::net::connection_table::ConnectionTable;
use crate::net::tls::Tls;
use crate::net::wake::Wake;
use crate::observe::counters::{Counters, Totals};
use crate::observe::forecast::Forecast;
use crate::observe::journal::{self, Rarely};
use crate::observe::measure::{Measures, Recorder};
use crate::observe::observer_flags::ObserverFlags;
use crate::observe::prefixes::Prefixes;
use crate::observe::watch::{Event, Log};
use crate::persistence::Persistence;
use crate::replication::home::Homes;
use crate::replication::ring::Ring;
use crate::startup::settings::Settings;

/// The server as its workers see it.
pub struct Shared {
    /// The caches, one for each namespace.
    pub namespaces: Namespaces,
    /// The command line.
    pub settings: Settings,
    /// One per worker, in the order of the workers.
    pub counters: Vec<Arc<Counters>>,
    /// The time.
    pub clock: Arc<Clock>,
    /// The store, if there is one (`--store`).
    pub persistence: Option<Persistence>,
    /// What other sites are told of the caches, if they are.
    pub(crate) ring: Option<Arc<Ring>>,
    /// Sites that run commands of this one's clients, if there are any.
    pub(crate) homes: Option<Arc<Homes>>,
    /// The budget of connections' buffers.
    pub buffers: Arc<BufferBudget>,
    /// Open connections, and whether more are accepted.
    pub connection_limiter: ConnectionLimiter,
    /// Checks logins, if they are required.
    pub authenticator: Option<Authenticator>,
    /// The certificates, if TLS is on.
    pub tls: Option<Tls>,
    /// The token of operators' HTTP requests, if one is required.
    pub(crate) admin_token: Option<TokenFile>,
    /// The token of requests for a backup, without which there are none over HTTP.
    pub(crate) backup_token: Option<TokenFile>,
    /// The token of requests for items over HTTP, if one is required.
    pub(crate) http_token: Option<TokenFile>,
    /// The search for expired items that clients may start.
    pub crawler: Crawler,
    /// Measurements beyond counters.
    pub measures: Arc<Measures>,
    /// The hit ratio at other sizes.
    pub forecast: Forecast,
    /// The observers of requests.
    pub observers: ObserverFlags,
    /// Lines for watchers.
    pub log: Log,
    /// Statistics by prefix of keys.
    pub prefixes: Prefixes,
    /// The open connections.
    pub connection_table: ConnectionTable,
    /// Connections that could not be accepted, for the log.
    pub(crate) turned_away: Rarely,
    /// Failed logins, for the log.
    pub(crate) failed_logins: Rarely,
    verbosity: AtomicU8,
    /// [`Stop`], as a number; 0: not requested.
    stop: AtomicU8,
    /// Notified when the control thread has work.
    control_wake: Arc<Wake>,
    /// The counters at the last `stats reset`.
    baseline: Mutex<Totals>,
}

impl Shared {
    /// Creates the shared state, with one set of counters for each worker. Errors: no descriptor left.
    pub fn new(namespaces: Namespaces, settings: Settings, clock: impl Into<Arc<Clock>>) -> io::Result<Self> {
        let control_wake = Arc::new(Wake::new()?);
        let observers = ObserverFlags::default();
        observers.set_verbose(settings.journal.is_verbose(settings.verbosity));
        observers.set_counts_prefixes(settings.detail);
        observers.set_read_only(settings.read_only);
        let (site, table) = (settings.site(), namespaces.table());
        let clock = clock.into();
        namespaces.set_wall_ahead(clock.observe_wall());
        Ok(Self {
            observers,
            counters: (0..settings.threads).map(|_| Arc::default()).collect(),
            // The control thread writes lines, too, and the threads of replication.
            log: Log::new(settings.threads + 2, settings.worker_logbuf_bytes as usize),
            prefixes: Prefixes::new(settings.threads, settings.prefix_delimiter),
            connection_table: ConnectionTable::default(),
            turned_away: Rarely::default(),
            failed_logins: Rarely::default(),
            verbosity: AtomicU8::new(settings.verbosity),
            crawler: Crawler::new(settings.accepted.lru_crawler),
            stop: AtomicU8::new(0),
            baseline: Mutex::default(),
            buffers: Arc::new(BufferBudget::new(settings.accepted.read_buf_bytes_max, settings.memory_bytes)),
            connection_limiter: ConnectionLimiter::default(),
            measures: Arc::new(Measures::new(settings.measured, settings.threads, Arc::clone(&control_wake))),
            control_wake,
            forecast: Forecast::default(),
            authenticator: None,
            tls: None,
            persistence: None,
            ring: Ring::of(table.as_deref(), site).map(Arc::new),
            homes: Homes::of(table.as_deref(), site).map(Arc::new),
            admin_token: None,
            backup_token: None,
            http_token: None,
            namespaces,
            settings,
            clock,
        })
    }

    /// Adds an authenticator.
    pub fn with_authenticator(self, authenticator: Option<Authenticator>) -> Self {
        Self { authenticator, ..self }
    }

    /// True if other sites are told of the items of the namespace with this number.
    #[cold]
    pub(crate) fn is_replicated(&self, number: u8) -> bool {
        let is_site = self.persistence.as_ref().is_some_and(|persistence| persistence.site != 0);
        is_site && self.namespaces.table().is_some_and(|table| is_replicated(&table, number))
    }

    /// Adds a store.
    pub fn with_persistence(self, persistence: Option<Persistence>) -> Self {
        Self { persistence, ..self }
    }

    /// Adds certificates.
    pub fn with_tls(self, tls: Option<Tls>) -> Self {
        Self { tls, ..self }
    }

    /// Adds a token for operators.
    pub fn with_admin_token(self, admin_token: Option<TokenFile>) -> Self {
        Self { admin_token, ..self }
    }

    /// Adds the token of requests for a backup.
    pub fn with_backup_token(self, backup_token: Option<TokenFile>) -> Self {
        Self { backup_token, ..self }
    }

    /// Adds the token of requests for items over HTTP.
    pub fn with_http_token(self, http_token: Option<TokenFile>) -> Self {
        Self { http_token, ..self }
    }

    /// The verbosity: 1 logs what happens to the server (`-v`), 2 also connections and commands (`-vv`).
    pub fn verbosity(&self) -> u8 {
        self.verbosity.load(Relaxed)
    }

    /// Sets the verbosity (the `verbosity` command).
    pub fn set_verbosity(&self, level: u8) {
        self.verbosity.store(level, Relaxed);
        journal::set_verbosity(&self.settings.journal, level);
        self.observers.set_verbose(self.settings.journal.is_verbose(level));
    }

    /// True if clients' changes are refused, for maintenance.
    pub(crate) fn is_read_only(&self) -> bool {
        self.observers.is_read_only()
    }

    /// Refuses clients' changes from now on, or takes them again. Those of other sites are applied all the same.
    pub(crate) fn set_read_only(&self, is_on: bool) {
        match (self.is_read_only(), is_on) {
            (false, true) => tracing::warn!("changes are refused from now on, for maintenance"),
            (true, false) => tracing::warn!("changes are taken again"),
            _ => {}
        }
        self.observers.set_read_only(is_on);
    }

    /// Requests a stop. Returns at once; the process ends within about a second.
    pub fn request_shutdown(&self, stop: Stop) {
        self.stop.store(stop as u8, Relaxed);
        self.wake_control();
    }

    /// The requested stop.
    pub(crate) fn requested_shutdown(&self) -> Option<Stop> {
        [Stop::Now, Stop::Gracefully].into_iter().find(|stop| *stop as u8 == self.stop.load(Relaxed))
    }

    /// Reports an event of a thread to the watchers, if there are any. `thread` is a worker's number, or one more for
    /// the control thread.
    pub(crate) fn tell(&self, thread: usize, event: &Event<'_>) {
        if self.observers.wants(event.stream()) {
            let namespace = event.key().map(|key| self.namespaces.number(key));
            self.log.tell(thread, event, namespace, &self.control_wake);
        }
    }

    /// Reports what happened between sites to the watchers, if there are any.
    pub(crate) fn tell_of_sites(&self, event: &Event<'_>) {
        self.tell(self.settings.threads + 1, event);
    }

    /// Reports the evictions of a thread's handles to the watchers, if there are any, and sets whether the handles
    /// record further evictions.
    pub(crate) fn tell_evictions(&self, thread: usize, handles: &mut Handles) {
        if !self.observers.any() && !handles.record_evictions() {
            return;
        }
        let now_secs = self.clock.now().secs;
        for evicted in handles.iter_mut().flat_map(|handle| handle.take_evicted()) {
            self.tell(
                thread,
                &Event::Eviction {
                    key: &evicted.key,
                    is_fetched: evicted.is_fetched,
                    ttl_secs: self.clock.secs_of(evicted.expiry).map(|secs| secs.saturating_sub(now_secs)),
                    idle_secs: evicted.idle_secs,
                    class: evicted.queue + 1,
                    value_bytes: evicted.value_bytes,
                },
            );
        }
        let are_wanted = self.observers.wants(Streams::EVICTIONS);
        handles.iter_mut().for_each(|handle| handle.record_evictions(are_wanted));
    }

    /// Finds out whether the wall clock was set, for items that expire at a Unix time. Call it once a second.
    pub fn observe_wall(&self) {
        self.namespaces.set_wall_ahead(self.clock.observe_wall());
    }

    /// Wakes the control thread.
    pub(crate) fn wake_control(&self) {
        self.control_wake.notify();
    }

    /// The wake-up of the control thread.
    pub(crate) fn control_wake(&self) -> &Wake {
        &self.control_wake
    }

    /// All workers' counters since the start or the last reset.
    pub fn totals(&self) -> Totals {
        Totals::sum(&self.counters).since(&self.baseline())
    }

    /// Flushes a namespace, now or at the time of this exptime. One before the start cancels a pending flush, as in
    /// memcached.
    /// Returns the position for which a reply has to wait, where there is a store.
    pub(crate) fn flush(&self, number: u8, exptime: i64, now: Now) -> Option<Position> {
        let mut when = self.flush_time(exptime, now);
        if let (FlushTime::Now(version), Some(ring)) = (&mut when, &self.ring) {
            *version = ring.flush_version(number);
        }
        let position = self.flush_untold(number, when, now);
        if let Some(ring) = &self.ring {
            ring.note_flush(number, when);
        }
        position
    }

    /// When a flush of this exptime is due: 0 is now; a past time is, too.
    fn flush_time(&self, exptime: i64, now: Now) -> FlushTime {
        let at = self.clock.expiry(exptime, now);
        match self.clock.secs_of(at) {
            _ if self.clock.is_before_start(exptime) => FlushTime::Cancelled,
            Some(secs) if secs > now.secs => FlushTime::At(self.clock.exptime_secs(at)),
            _ => FlushTime::Now(0),
        }
    }

    /// The same, of which other sites are not told: one of them has told it, or they need not do it.
    pub(crate) fn flush_untold(&self, number: u8, when: FlushTime, now: Now) -> Option<Position> {
        let engine = self.namespaces.engine(number);
        let due = match when {
            FlushTime::Cancelled => {
                self.put_off_flush(number, 0);
                return engine.cancel_flush();
            }
            FlushTime::Now(_) => None,
            // `None`: that has passed.
            FlushTime::At(secs) => {
                self.put_off_flush(number, secs);
                self.clock.unexpired(secs).and_then(|at| self.clock.secs_of(at))
            }
        };
        if let Some(ring) = self.ring.as_ref().filter(|_| due.is_none()) {
            let version = match when {
                FlushTime::Now(version) if version != 0 => version,
                _ => ring.flush_version(number),
            };
            ring.refuse_flushed(number, version);
        }
        engine.flush(now, due)
    }

    fn put_off_flush(&self, number: u8, due_secs: u64) {
        if let Some(ring) = &self.ring {
            ring.put_off_flush(number, due_secs);
        }
    }

    /// Look-ups of keys of the default namespace that hit and missed, since the start or the last reset.
    pub(crate) fn default_reads(&self) -> (u64, u64) {
        self.namespaces.default_reads().unwrap_or_else(|| {
            let totals = self.totals();
            (totals.get_hits, totals.get_misses)
        })
    }

    /// The recorder of worker number `index`.
    pub fn recorder(&self, index: usize) -> Recorder {
        self.measures.recorder(index, self.settings.prefix_delimiter)
    }

    /// Keys read by all workers since the start; not reset.
    pub(crate) fn reads(&self) -> u64 {
        self.counters.iter().map(|counters| counters.cmd_get.get() + counters.cmd_touch.get()).sum()
    }

    /// Resets the counters. Each has one writer, so they are not zeroed: their current values become the base of later
    /// readings.
    pub fn reset_counters(&self) {
        *self.baseline() = Totals::sum(&self.counters);
        self.namespaces.reset_stats();
        self.connection_limiter.reset();
        self.prefixes.reset();
        self.log.counts().reset();
    }

    fn baseline(&self) -> MutexGuard<'_, Totals> {
        self.baseline.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
