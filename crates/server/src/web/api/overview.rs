//! `/api/overview`: the server at a glance.

use larder_measure::Snapshot;
use serde::Serialize;

use crate::web::history::Recent;
use crate::web::state::State;

/// Counters count from the start, or from the last `stats reset`.
#[derive(Serialize)]
pub(super) struct Overview {
    version: &'static str,
    pid: u32,
    /// Another one after each start.
    process_id: String,
    uptime_secs: u32,
    /// Unix time.
    now_secs: i64,
    workers: usize,
    is_ready: bool,
    /// `/api/store` has more (`--store`).
    has_store: bool,
    /// It is one of several sites.
    has_site: bool,
    /// Changes are refused, for maintenance.
    is_read_only: bool,
    /// Evicts when memory is full; otherwise stores fail (`-M`).
    evicts: bool,
    items: u64,
    items_stored: u64,
    memory: Memory,
    requests: Requests,
    evictions: Evictions,
    /// The last 5 to 10 seconds.
    recent: Recent,
    /// Service times of the same seconds, for classes with requests.
    latency: Vec<Latency>,
    /// How long readable sockets waited for their worker, in the same time.
    wait: Option<Quantiles>,
    is_latency_measured: bool,
}

#[derive(Serialize)]
struct Memory {
    limit_bytes: u64,
    used_bytes: u64,
}

#[derive(Serialize)]
struct Requests {
    get_hits: u64,
    get_misses: u64,
    stores: u64,
    deletes: u64,
    touches: u64,
    arithmetic: u64,
    stores_too_large: u64,
    stores_without_memory: u64,
}

#[derive(Serialize)]
struct Evictions {
    evicted: u64,
    /// Never read after they were stored.
    evicted_unread: u64,
    expired: u64,
    expired_unread: u64,
    moved_to_main: u64,
    compacted: u64,
}

#[derive(Serialize)]
struct Latency {
    command: &'static str,
    transport: &'static str,
    #[serde(flatten)]
    quantiles: Quantiles,
}

#[derive(Serialize)]
struct Quantiles {
    requests: u64,
    p50_micros: f64,
    p90_micros: f64,
    p99_micros: f64,
    p999_micros: f64,
}

pub(super) fn overview(state: &State) -> Overview {
    let shared = &*state.shared;
    let now_secs = shared.clock.now().secs;
    let (totals, engine) = (shared.totals(), shared.namespaces.stats());
    let history = state.history();
    let (latest, earlier) = history.window();
    let latency = latest.service_since(earlier).filter_map(|(transport, class, service)| {
        let quantiles = Quantiles::of(&service)?;
        Some(Latency { command: class.name(), transport: transport.name(), quantiles })
    });
    Overview {
        version: crate::LARDER_VERSION,
        pid: std::process::id(),
        process_id: state.process_id.clone(),
        uptime_secs: now_secs.saturating_sub(crate::clock::FIRST_SEC),
        now_secs: shared.clock.wall_secs(now_secs),
        workers: shared.settings.threads,
        is_ready: state.is_ready(),
        has_store: shared.persistence.is_some(),
        has_site: shared.settings.has_site(),
        is_read_only: shared.is_read_only(),
        evicts: shared.settings.evict,
        items: engine.items,
        items_stored: engine.items_total,
        memory: Memory { limit_bytes: engine.memory_bytes, used_bytes: engine.memory_used_bytes },
        requests: Requests {
            get_hits: totals.get_hits,
            get_misses: totals.get_misses,
            stores: totals.cmd_set,
            deletes: totals.delete_hits + totals.delete_misses,
            touches: totals.cmd_touch,
            arithmetic: totals.incr_hits + totals.incr_misses + totals.decr_hits + totals.decr_misses,
            stores_too_large: totals.store_too_large,
            stores_without_memory: totals.store_no_memory,
        },
        evictions: Evictions {
            evicted: engine.evictions,
            evicted_unread: engine.evicted_unfetched,
            expired: engine.reclaimed,
            expired_unread: engine.expired_unfetched,
            moved_to_main: engine.moves_to_main,
            compacted: engine.compacted,
        },
        recent: history.recent(),
        latency: latency.collect(),
        wait: Quantiles::of(&latest.wait.since(&earlier.wait)),
        is_latency_measured: shared.measures.measured().latency,
    }
}

impl Quantiles {
    /// `None`: nothing was recorded.
    fn of(durations: &Snapshot) -> Option<Self> {
        let micros = |share| durations.quantile_nanos(share).map(|nanos| nanos as f64 / 1e3);
        Some(Self {
            requests: durations.count(),
            p50_micros: micros(0.5)?,
            p90_micros: micros(0.9)?,
            p99_micros: micros(0.99)?,
            p999_micros: micros(0.999)?,
        })
    }
}
