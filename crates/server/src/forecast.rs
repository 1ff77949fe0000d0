//! The hit ratio at other sizes: the control thread plays what happened to a sample of the keys against caches in miniature.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use larder_measure::Curve;
use larder_measure::curve::{Point, Size};

use crate::measure::Measures;
use crate::settings::Settings;
use crate::shared::Shared;

/// The curve as it is told to others.
#[derive(Debug, Default)]
pub struct Forecast(Mutex<Told>);

/// A curve at a moment.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// A point for each of [`FACTORS`].
    pub points: Vec<Point>,
    /// The share of the keys that is followed, 0 to 1.
    pub share: f64,
}

impl Forecast {
    /// The curve. Without points: it is not measured.
    pub fn told(&self) -> Told {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Makes the curve. It belongs to the control thread.
pub(crate) struct Forecaster {
    curve: Curve,
    /// Reads of all workers up to the last step.
    reads: u64,
    /// Accesses played, in all.
    played: u64,
    /// When the accesses were last taken.
    taken: Instant,
    faded: Instant,
}

impl Forecaster {
    /// `None`: the curve is not measured, or there is no eviction that more memory would spare.
    pub(crate) fn new(shared: &Shared) -> Option<Self> {
        let is_wanted = shared.measures.measured().curve && shared.settings.evict;
        is_wanted.then(|| {
            let curve = Curve::new(&FACTORS.map(|factor| size(&shared.settings, factor)), KEYS_MAX);
            shared.measures.follow(curve.threshold());
            let now = Instant::now();
            Self { curve, reads: 0, played: 0, taken: now, faded: now }
        })
    }

    /// Plays what has happened since the last step.
    pub(crate) fn step(&mut self, shared: &Shared) {
        let measures: &Measures = &shared.measures;
        let accesses = measures.take_accesses();
        let now = Instant::now();
        let secs = (now - self.taken).as_secs_f64().max(1e-3);
        let mut rate = accesses.len() as f64 / secs;
        self.taken = now;

        let reads = shared.reads();
        let new_reads = reads.saturating_sub(self.reads);
        let reads_per_sec = new_reads as f64 / secs;
        self.curve.count_reads(new_reads);
        self.reads = reads;
        self.played += accesses.len() as u64;
        let now_secs = shared.clock.now().secs;
        for access in accesses {
            self.curve.play(access, now_secs);
        }
        // A new server learns fast; from then on what is played is to be a small part of what is served.
        let rate_max = (reads_per_sec / READS_PER_ACCESS).max(ACCESSES_PER_SEC);
        if self.played > ACCESSES_AT_FIRST {
            while rate > rate_max && self.curve.followed_keys() > KEYS_MIN {
                self.curve.halve_share();
                rate /= 2.0;
            }
        }
        if now - self.faded > FADE_EVERY {
            self.curve.fade();
            self.faded = now;
        }
        measures.follow(self.curve.threshold());
        let told = Told { points: self.curve.points(), share: self.curve.share() };
        *shared.forecast.0.lock().unwrap_or_else(PoisonError::into_inner) = told;
    }
}

/// What a server would have for items: the ghost takes a 64th, and some segments are free or still being filled. The index takes about
/// a tenth of what small items take, which is counted with them.
fn size(settings: &Settings, factor: f64) -> Size {
    let memory_bytes = (settings.memory_bytes as f64 * factor) as u64;
    let segment_bytes = larder_engine::segment_bytes(memory_bytes as usize, settings.threads + 1) as u64;
    let other_bytes = memory_bytes / 64 + FALLOW_SEGMENTS * segment_bytes;
    Size { factor, memory_bytes: memory_bytes.saturating_sub(other_bytes), segment_bytes }
}

/// Times the memory that there is.
pub const FACTORS: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];
const FALLOW_SEGMENTS: u64 = 8;
/// Followed keys, in the largest of the miniatures: a key costs about 100 bytes in each, so all of them are 2 MiB beside the cache.
const KEYS_MAX: usize = 4 << 10;
/// As few as that the curve is not thinned out below it, however busy the server.
const KEYS_MIN: usize = KEYS_MAX / 2;
/// What is played before it is limited: a fifth of a second of work.
const ACCESSES_AT_FIRST: u64 = 200_000;
/// Then so many a second, each of which costs about a microsecond, or one for so many reads.
const ACCESSES_PER_SEC: f64 = 200.0;
const READS_PER_ACCESS: f64 = 256.0;
const FADE_EVERY: std::time::Duration = std::time::Duration::from_secs(600);
