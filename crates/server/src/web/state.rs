//! The data behind all paths.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use larder_engine::Stats;
use larder_measure::Snapshot;
use larder_store::commit::Refusal;

use super::history::History;
use super::peers::Peers;
use super::renderer::Renderer;
use crate::net::worker_pool::WorkerPool;
use crate::observe::counters::Totals;
use crate::observe::measure::{Class, Transport};
use crate::observe::process::{self, ProcessFiles};
use crate::shared::Shared;
use crate::startup::random;

/// The state that all requests share.
pub(super) struct State {
    pub(super) shared: Arc<Shared>,
    pub(super) pool: Arc<WorkerPool>,
    pub(super) renderer: Renderer,
    pub(super) process_files: ProcessFiles,
    /// The other servers.
    pub(super) peers: Peers,
    /// Random; tells one process from another at the same address.
    pub(super) process_id: String,
    history: Mutex<History>,
}

/// All counters at one moment.
#[derive(Clone)]
pub(super) struct Reading {
    pub(super) taken: Instant,
    /// Unix time.
    pub(super) at_secs: i64,
    pub(super) totals: Totals,
    pub(super) engine: Stats,
    pub(super) connections: usize,
    /// By transport and class.
    pub(super) service: Vec<Snapshot>,
    pub(super) wait: Snapshot,
    /// Processor time of all threads.
    pub(super) cpu_secs: Option<f64>,
    pub(super) resident_bytes: Option<u64>,
}

impl State {
    /// Errors: the system gives no random numbers.
    pub(super) fn new(
        shared: Arc<Shared>,
        pool: Arc<WorkerPool>,
        process_files: ProcessFiles,
    ) -> io::Result<Self> {
        let history = Mutex::new(History::new(Reading::take(&shared, &process_files)));
        let peers = Peers::new(&shared.settings);
        let process_id = format!("{:016x}", u64::from_ne_bytes(random::bytes()?));
        Ok(Self { shared, pool, renderer: Renderer::default(), process_files, peers, process_id, history })
    }

    /// Takes a reading, once a second.
    pub(super) fn take_reading(&self) {
        let reading = Reading::take(&self.shared, &self.process_files);
        self.history().add(reading);
    }

    pub(super) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the server accepts clients.
    pub(super) fn is_ready(&self) -> bool {
        self.shared.connection_limiter.is_accepting() && !self.pool.is_stopping()
    }

    /// True if changes are refused, for maintenance.
    pub(super) fn is_read_only(&self) -> bool {
        self.shared.is_read_only()
    }

    /// True if there is a store, and a failed fsync has ended writing.
    pub(super) fn is_store_read_only(&self) -> bool {
        let persistence = self.shared.persistence.as_ref();
        persistence.is_some_and(|persistence| persistence.journal.refusal() == Some(Refusal::ReadOnly))
    }
}

impl Reading {
    fn take(shared: &Shared, process_files: &ProcessFiles) -> Self {
        let measures = &shared.measures;
        Self {
            taken: Instant::now(),
            at_secs: shared.clock.wall_secs(shared.clock.now().secs),
            totals: shared.totals(),
            engine: shared.namespaces.stats(),
            connections: shared.connection_limiter.open_connections(),
            service: transports_and_classes()
                .map(|(transport, class)| measures.service(transport, class))
                .collect(),
            wait: measures.wait(),
            cpu_secs: process::cpu_secs(),
            resident_bytes: process_files.status().map(|status| status.resident_bytes),
        }
    }

    /// Service times by transport and class since an earlier reading.
    pub(super) fn service_since<'r>(
        &'r self,
        earlier: &'r Self,
    ) -> impl Iterator<Item = (Transport, Class, Snapshot)> + 'r {
        let both = self.service.iter().zip(&earlier.service);
        transports_and_classes()
            .zip(both)
            .map(|((transport, class), (now, then))| (transport, class, now.since(then)))
    }
}

/// All pairs, in the order of [`Reading::service`].
fn transports_and_classes() -> impl Iterator<Item = (Transport, Class)> {
    Transport::ALL
        .into_iter()
        .flat_map(|transport| Class::ALL.into_iter().map(move |class| (transport, class)))
}
