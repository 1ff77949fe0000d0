//! `/api/store`: what the store holds, and how fast its disk is. `null` without `--store`.

use larder_measure::Snapshot;
use serde::Serialize;

use crate::persistence::figures::Figures;
use crate::web::state::State;

#[derive(Serialize)]
pub(super) struct Store {
    /// `writable`, `full`, `failing` or `read_only`.
    state: &'static str,
    records: u64,
    live_bytes: u64,
    disk_bytes: u64,
    /// Of the file system.
    disk_free_bytes: Option<u64>,
    cleaning_debt_bytes: u64,
    index_bytes: u64,
    memory_items: u64,
    memory_used_bytes: u64,
    memory_limit_bytes: u64,
    /// Of the keys that were found, since the start.
    memory_hit_ratio: Option<f64>,
    write_amplification: Option<f64>,
    /// Changes on their way to the log.
    journal_changes: u64,
    lookups_waiting: u64,
    /// Changes of a batch, on average.
    batch_changes: Option<f64>,
    /// Since the start.
    times: [Times; 4],
}

#[derive(Serialize)]
struct Times {
    what: &'static str,
    count: u64,
    p50_micros: Option<f64>,
    p99_micros: Option<f64>,
    p999_micros: Option<f64>,
}

pub(super) fn store(state: &State) -> Option<Store> {
    let figures = Figures::read(&state.shared)?;
    let (store, memory, measured) = (&figures.store, &figures.memory, &figures.measured);
    let batches = measured.batches();
    Some(Store {
        state: figures.state.name(),
        records: store.records,
        live_bytes: store.live_bytes,
        disk_bytes: store.disk_bytes,
        disk_free_bytes: figures.free_bytes,
        cleaning_debt_bytes: store.cleaning_debt_bytes,
        index_bytes: store.index_bytes,
        memory_items: memory.items,
        memory_used_bytes: memory.used_bytes,
        memory_limit_bytes: memory.limit_bytes,
        memory_hit_ratio: figures.memory_hit_ratio(),
        write_amplification: figures.write_amplification(),
        journal_changes: figures.journal_changes,
        lookups_waiting: figures.lookups_waiting,
        batch_changes: (batches > 0).then(|| measured.changes as f64 / batches as f64),
        times: [
            Times::of("commit", &measured.commit),
            Times::of("fsync", &measured.fsync),
            Times::of("found", &measured.found),
            Times::of("absent", &measured.absent),
        ],
    })
}

impl Times {
    fn of(what: &'static str, durations: &Snapshot) -> Self {
        let micros = |share| durations.quantile_nanos(share).map(|nanos| nanos as f64 / 1e3);
        Self {
            what,
            count: durations.count(),
            p50_micros: micros(0.5),
            p99_micros: micros(0.99),
            p999_micros: micros(0.999),
        }
    }
}
