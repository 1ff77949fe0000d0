//! `/api/memory`: the use of memory, as a map and as sums; `/api/curve`: the hit ratio with more memory. Of the default
//! namespace: each has an engine of its own.

use larder_engine::{Queue, QueueStats, SegmentInfo, SegmentReport, TtlGroup};
use serde::Serialize;

use crate::web::state::State;

#[derive(Serialize)]
pub(super) struct Memory {
    limit_bytes: u64,
    used_bytes: u64,
    /// The index.
    index_bytes: u64,
    /// Fingerprints of evicted keys.
    ghost_bytes: u64,
    /// Free segments.
    free_bytes: u64,
    segment_bytes: u64,
    /// The small queue, the main queue, and large values.
    queues: [Place; 3],
    /// By time to live when stored.
    lifetimes: Vec<Group>,
    /// The map: the memory of a cell; a large value may have more.
    cell_bytes: u64,
    cells: Vec<Cell>,
}

/// A queue.
#[derive(Serialize)]
struct Place {
    items: u64,
    memory_bytes: u64,
    live_bytes: u64,
    segments: u64,
    /// Of the oldest segment.
    age_secs: u32,
    hits: u64,
    evictions: u64,
}

#[derive(Serialize)]
struct Group {
    /// Upper bound in seconds; null: no bound. The items of the first group never expire.
    ttl_max_secs: Option<u32>,
    expires: bool,
    memory_bytes: u64,
    live_bytes: u64,
}

/// Adjacent pieces of a queue.
#[derive(Clone, Copy, Default, Serialize)]
struct Cell {
    /// An index of `queues`.
    queue: u8,
    /// An index of `lifetimes`.
    group: u8,
    /// Being filled.
    is_open: bool,
    memory_bytes: u64,
    live_bytes: u64,
    age_secs: u32,
}

pub(super) fn memory(state: &State) -> Memory {
    let shared = &*state.shared;
    let engine = shared.namespaces.default_engine();
    let (stats, survey) = (engine.stats(), engine.segment_report());
    let held: u64 = survey.pieces.iter().map(|piece| piece.memory_bytes).sum();
    let cell_bytes = survey.segment_bytes.max(held.div_ceil(CELLS_MAX));
    Memory {
        limit_bytes: stats.memory_bytes,
        used_bytes: stats.memory_used_bytes,
        index_bytes: stats.index_bytes,
        ghost_bytes: stats.ghost_bytes,
        free_bytes: survey.segments_free * survey.segment_bytes,
        segment_bytes: survey.segment_bytes,
        queues: stats.queues.each_ref().map(Place::of),
        lifetimes: groups(&survey),
        cells: cells(&survey, cell_bytes, shared.clock.now().secs),
        cell_bytes,
    }
}

impl Place {
    fn of(stats: &QueueStats) -> Self {
        Self {
            items: stats.items,
            memory_bytes: stats.memory_bytes,
            live_bytes: stats.live_bytes,
            segments: stats.segments,
            age_secs: stats.age_secs,
            hits: stats.hits,
            evictions: stats.evictions,
        }
    }
}

fn groups(survey: &SegmentReport) -> Vec<Group> {
    let group = |(index, lifetime): (u8, &TtlGroup)| {
        let of_group = || survey.pieces.iter().filter(move |piece| piece.group == index);
        Group {
            ttl_max_secs: match lifetime {
                TtlGroup::UpTo(secs) => Some(*secs),
                TtlGroup::Endless | TtlGroup::Longer => None,
            },
            expires: *lifetime != TtlGroup::Endless,
            memory_bytes: of_group().map(|piece| piece.memory_bytes).sum(),
            live_bytes: of_group().map(|piece| piece.live_bytes).sum(),
        }
    };
    (0..).zip(&survey.groups).map(group).collect()
}

/// The pieces in the order of their queues, oldest first; adjacent small ones share a cell.
fn cells(survey: &SegmentReport, cell_bytes: u64, now_secs: u32) -> Vec<Cell> {
    let queue = |piece: &SegmentInfo| match piece.queue {
        _ if piece.is_large => 2,
        Queue::Small => 0,
        Queue::Main => 1,
    };
    let mut pieces: Vec<_> = survey.pieces.iter().collect();
    pieces.sort_by_key(|piece| (queue(piece), piece.is_open, piece.opened_secs));
    let mut cells: Vec<Cell> = Vec::new();
    for piece in pieces {
        let (queue, age_secs) = (queue(piece), now_secs.saturating_sub(piece.opened_secs));
        let neighbour = cells.last_mut().filter(|cell| {
            cell.queue == queue
                && cell.is_open == piece.is_open
                && cell.memory_bytes + piece.memory_bytes <= cell_bytes
        });
        match neighbour {
            Some(cell) => {
                cell.memory_bytes += piece.memory_bytes;
                cell.live_bytes += piece.live_bytes;
            }
            None => cells.push(Cell {
                queue,
                group: piece.group,
                is_open: piece.is_open,
                memory_bytes: piece.memory_bytes,
                live_bytes: piece.live_bytes,
                age_secs,
            }),
        }
    }
    cells
}

#[derive(Serialize)]
pub(super) struct Curve {
    is_measured: bool,
    memory_bytes: u64,
    /// Fraction of the keys that is sampled.
    sampled_share: f64,
    /// The hit ratio since the start, or the last `stats reset`.
    hit_ratio: Option<f64>,
    /// The hit ratio with older reads weighed as in the points: half for each ten minutes.
    measured_hit_ratio: Option<f64>,
    points: Vec<Point>,
}

#[derive(Serialize)]
struct Point {
    /// Multiple of the server's memory.
    factor: f64,
    /// null: too few accesses.
    hit_ratio: Option<f64>,
}

pub(super) fn curve(state: &State) -> Curve {
    let shared = &*state.shared;
    let prediction = shared.forecast.prediction();
    let (hits, misses) = shared.default_reads();
    let reads = hits + misses;
    Curve {
        is_measured: shared.measures.measured().curve && shared.settings.evict,
        memory_bytes: shared.namespaces.default_engine().stats().memory_bytes,
        sampled_share: prediction.share,
        hit_ratio: (reads > 0).then(|| hits as f64 / reads as f64),
        measured_hit_ratio: prediction.measured,
        points: prediction
            .points
            .iter()
            .map(|point| Point { factor: point.factor, hit_ratio: point.hit_ratio })
            .collect(),
    }
}

/// Approximate number of cells in the map, enough for a screen.
const CELLS_MAX: u64 = 2048;
