//! The last day in bounded memory: a point each second for a quarter of an hour, a point each minute for a day.

use std::collections::VecDeque;
use std::time::Duration;

use larder_measure::Snapshot;
use serde::Serialize;

use super::state::Reading;

/// Points, and the readings that the next points are computed from.
pub(super) struct History {
    pub(super) seconds: Ring,
    pub(super) minutes: Ring,
    /// Two readings, at most [`WINDOW`] apart, for current figures.
    window: [Reading; 2],
    latest: Reading,
}

/// The latest points, in a bounded number.
pub(super) struct Ring {
    points: VecDeque<Point>,
    points_max: usize,
    /// The reading that the next point is computed from.
    since: Reading,
}

/// The changes from one reading to the next.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Point {
    /// The end, in Unix time.
    at_secs: i64,
    // Per second:
    hits: f32,
    misses: f32,
    stores: f32,
    /// Deletes, touches, incr and decr, flushes.
    others: f32,
    bytes_in: f32,
    bytes_out: f32,
    accepted: f32,
    /// Stores that failed because memory was full.
    refused: f32,
    /// Live items that were evicted.
    evicted: f32,
    /// Expired and flushed items that were removed.
    expired: f32,
    // Service times; null: no requests, or not measured.
    p50_micros: Option<f32>,
    p90_micros: Option<f32>,
    p99_micros: Option<f32>,
    p999_micros: Option<f32>,
    /// How long readable sockets waited for their worker.
    wait_p99_micros: Option<f32>,
    /// Processor time of all threads, in cores: 1.5 is one and a half; null: unknown.
    cpu_cores: Option<f32>,
    // At the end:
    connections: usize,
    items: u64,
    used_bytes: u64,
    /// Of the process; null: unknown.
    resident_bytes: Option<u64>,
}

/// The changes of the last seconds.
#[derive(Serialize)]
pub(super) struct Recent {
    window_secs: u64,
    #[serde(flatten)]
    figures: Point,
}

impl History {
    pub(super) fn new(first: Reading) -> Self {
        Self {
            seconds: Ring::new(SECONDS_MAX, first.clone()),
            minutes: Ring::new(MINUTES_MAX, first.clone()),
            window: [first.clone(), first.clone()],
            latest: first,
        }
    }

    /// Adds the reading of a second.
    pub(super) fn add(&mut self, reading: Reading) {
        self.seconds.add(&reading);
        if reading.taken - self.minutes.since.taken >= MINUTE {
            self.minutes.add(&reading);
        }
        if reading.taken - self.window[1].taken >= WINDOW / 2 {
            self.window.swap(0, 1);
            self.window[1] = reading.clone();
        }
        self.latest = reading;
    }

    /// The latest reading, and one from up to [`WINDOW`] before.
    pub(super) fn window(&self) -> (&Reading, &Reading) {
        (&self.latest, &self.window[0])
    }

    /// The changes in the window: what the server does now.
    pub(super) fn recent(&self) -> Recent {
        let (latest, earlier) = self.window();
        Recent {
            window_secs: (latest.taken - earlier.taken).as_secs(),
            figures: Point::between(earlier, latest),
        }
    }
}

impl Ring {
    fn new(points_max: usize, since: Reading) -> Self {
        Self { points: VecDeque::new(), points_max, since }
    }

    fn add(&mut self, reading: &Reading) {
        if self.points.len() == self.points_max {
            self.points.pop_front();
        }
        self.points.push_back(Point::between(&self.since, reading));
        self.since = reading.clone();
    }

    /// Points that end after this Unix time.
    pub(super) fn after(&self, at_secs: i64) -> Vec<Point> {
        self.points.iter().filter(|point| point.at_secs > at_secs).copied().collect()
    }
}

impl Point {
    fn between(earlier: &Reading, later: &Reading) -> Self {
        let secs = (later.taken - earlier.taken).as_secs_f64().max(1e-3);
        // Counters may have been reset in between.
        let rate = |now: u64, then: u64| rounded(now.saturating_sub(then) as f64 / secs);
        let (now, then) = (&later.totals, &earlier.totals);
        let (engine, before) = (&later.engine, &earlier.engine);
        let service = later.service_since(earlier).fold(Snapshot::new(), |mut sum, (.., service)| {
            sum.add(&service);
            sum
        });
        let micros = |of: &Snapshot, share| of.quantile_nanos(share).map(|nanos| rounded(nanos as f64 / 1e3));
        Self {
            at_secs: later.at_secs,
            hits: rate(now.get_hits, then.get_hits),
            misses: rate(now.get_misses, then.get_misses),
            stores: rate(now.cmd_set, then.cmd_set),
            others: rate(others(later), others(earlier)),
            bytes_in: rate(now.bytes_read, then.bytes_read),
            bytes_out: rate(now.bytes_written, then.bytes_written),
            accepted: rate(now.total_connections, then.total_connections),
            refused: rate(now.store_no_memory, then.store_no_memory),
            evicted: rate(engine.evictions, before.evictions),
            expired: rate(engine.reclaimed, before.reclaimed),
            p50_micros: micros(&service, 0.5),
            p90_micros: micros(&service, 0.9),
            p99_micros: micros(&service, 0.99),
            p999_micros: micros(&service, 0.999),
            wait_p99_micros: micros(&later.wait.since(&earlier.wait), 0.99),
            cpu_cores: later.cpu_secs.zip(earlier.cpu_secs).map(|(now, then)| rounded((now - then) / secs)),
            connections: later.connections,
            items: engine.items,
            used_bytes: engine.memory_used_bytes,
            resident_bytes: later.resident_bytes,
        }
    }
}

fn others(reading: &Reading) -> u64 {
    let totals = &reading.totals;
    totals.delete_hits
        + totals.delete_misses
        + totals.incr_hits
        + totals.incr_misses
        + totals.decr_hits
        + totals.decr_misses
        + totals.cmd_touch
        + totals.cmd_flush
        + totals.cmd_meta
}

/// Rounds to two decimal places, to keep the JSON short.
fn rounded(number: f64) -> f32 {
    ((number * 100.0).round() / 100.0) as f32
}

const SECONDS_MAX: usize = 15 * 60;
const MINUTES_MAX: usize = 24 * 60;
const MINUTE: Duration = Duration::from_secs(60);
/// Current figures are those of the last 5 to 10 seconds.
const WINDOW: Duration = Duration::from_secs(10);
