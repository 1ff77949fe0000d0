//! The hit ratio at other sizes: the control thread plays what happened to a sample of the keys against caches in
//! miniature.

use std::mem;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use larder_measure::Curve;
use larder_measure::curve::{Point, Size};

use crate::observe::sample_tap::ACCESSES_MAX;
use crate::shared::Shared;
use crate::startup::settings::Settings;

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
    /// Accesses played, in all.
    played: u64,
    /// When the burst began that the workers are at.
    begun: Instant,
    /// Reads of all workers up to then.
    reads: u64,
    /// Workers saw more in it than they were to tell.
    is_cut: bool,
    faded: Instant,
}

impl Forecaster {
    /// `None`: the curve is not measured, or there is no eviction that more memory would spare.
    pub(crate) fn new(shared: &Shared) -> Option<Self> {
        let is_wanted = shared.measures.measured().curve && shared.settings.evict;
        is_wanted.then(|| {
            let curve = Curve::new(&FACTORS.map(|factor| size(&shared.settings, factor)), KEYS_MAX);
            shared.measures.sample_tap.begin(curve.threshold(), ACCESSES_MAX as u32);
            let now = Instant::now();
            Self { curve, played: 0, begun: now, reads: 0, is_cut: false, faded: now }
        })
    }

    /// Plays what has happened since the last step, and asks for more.
    pub(crate) fn step(&mut self, shared: &Shared) {
        let burst = shared.measures.sample_tap.take();
        let now_secs = shared.clock.now().secs;
        self.curve.count_reads(burst.reads);
        self.played += burst.accesses.len() as u64;
        self.is_cut |= burst.is_cut;
        for access in burst.accesses {
            self.curve.play(access, now_secs);
        }

        let now = Instant::now();
        if now - self.faded > FADE_EVERY {
            self.curve.fade();
            self.faded = now;
        }
        if self.played < ACCESSES_AT_FIRST || now - self.begun > BURST_EVERY {
            self.begin_burst(shared, now);
        }
        let told = Told { points: self.curve.points(), share: self.curve.share() };
        *shared.forecast.0.lock().unwrap_or_else(PoisonError::into_inner) = told;
    }

    fn begin_burst(&mut self, shared: &Shared, now: Instant) {
        let reads = shared.reads();
        let secs = (now - self.begun).as_secs_f64().max(1e-3);
        let reads_per_sec = reads.saturating_sub(self.reads) as f64 / secs;
        (self.begun, self.reads) = (now, reads);
        // A new server learns fast; from then on what is played is to be a small part of what is served.
        let is_learning = self.played < ACCESSES_AT_FIRST;
        if mem::take(&mut self.is_cut) && !is_learning && self.curve.followed_keys() > KEYS_MIN {
            self.curve.halve_share();
        }
        let wanted = ACCESSES_PER_BURST + reads_per_sec / READS_PER_ACCESS;
        let accesses_max =
            if is_learning { ACCESSES_MAX as u32 } else { (wanted / shared.settings.threads as f64) as u32 };
        shared.measures.sample_tap.begin(self.curve.threshold(), accesses_max.max(1));
    }
}

/// What a server would have for items: the ghost takes a 64th, and some segments are free or still being filled. The
/// index takes about a tenth of what small items take, which is counted with them.
fn size(settings: &Settings, factor: f64) -> Size {
    let memory_bytes = (settings.memory_bytes as f64 * factor) as u64;
    let segment_bytes = larder_engine::segment_bytes(memory_bytes as usize, settings.threads + 1) as u64;
    let other_bytes = memory_bytes / 64 + FALLOW_SEGMENTS * segment_bytes;
    Size { factor, memory_bytes: memory_bytes.saturating_sub(other_bytes), segment_bytes }
}

/// Times the memory that there is.
pub const FACTORS: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];
const FALLOW_SEGMENTS: u64 = 8;
/// Followed keys, in the largest of the miniatures: a key costs about 100 bytes in each, so all of them are 2 MiB
/// beside the cache.
const KEYS_MAX: usize = 4 << 10;
/// With fewer than these a sample says little: rather than less of the keys, less of the time is looked at.
const KEYS_MIN: usize = KEYS_MAX / 2;
const BURST_EVERY: Duration = Duration::from_millis(900);
/// What is played before it is limited: a fifth of a second of work.
const ACCESSES_AT_FIRST: u64 = 200_000;
/// Then so many in a burst, each of which costs about a microsecond, and one for so many reads of the second before.
const ACCESSES_PER_BURST: f64 = 2_000.0;
const READS_PER_ACCESS: f64 = 256.0;
const FADE_EVERY: Duration = Duration::from_secs(600);
