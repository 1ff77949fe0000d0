//! The hit ratio at other sizes, of the default namespace. The control thread replays accesses to a sample of the keys
//! against miniature caches.

use std::mem;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use larder_measure::Curve;
use larder_measure::curve::{Point, Size};

use crate::observe::sample_tap::ACCESSES_MAX;
use crate::shared::Shared;

/// The curve, as others read it.
#[derive(Debug, Default)]
pub struct Forecast(Mutex<Prediction>);

/// A curve at a moment.
#[derive(Clone, Debug, Default)]
pub struct Prediction {
    /// A point for each of [`FACTORS`].
    pub points: Vec<Point>,
    /// The fraction of the keys that is sampled, 0 to 1.
    pub share: f64,
    /// The server's hit ratio, with older reads weighed as the curve weighs them. `None`: no reads.
    pub measured: Option<f64>,
}

impl Forecast {
    /// The curve. Without points if it is not measured.
    pub fn prediction(&self) -> Prediction {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Computes the curve. Belongs to the control thread.
pub(crate) struct Forecaster {
    curve: Curve,
    /// Accesses replayed so far.
    played: u64,
    /// When the workers' current burst began.
    begun: Instant,
    /// Reads of all workers until then.
    reads: u64,
    /// Workers had more accesses in it than they may report.
    is_cut: bool,
    faded: Instant,
    measured: Measured,
}

/// The reads of the server, older ones with less weight.
#[derive(Default)]
struct Measured {
    /// The counters when they were last read.
    seen: (u64, u64),
    hits: f64,
    misses: f64,
}

impl Forecaster {
    /// `None`: the curve is not measured, or there is no eviction that more memory would avoid.
    pub(crate) fn new(shared: &Shared) -> Option<Self> {
        let is_wanted = shared.measures.measured().curve && shared.settings.evict;
        is_wanted.then(|| {
            let curve = Curve::new(&FACTORS.map(|factor| size(shared, factor)), KEYS_MAX);
            shared.measures.sample_tap.begin(curve.threshold(), ACCESSES_MAX as u32);
            let now = Instant::now();
            Self {
                curve,
                played: 0,
                begun: now,
                reads: 0,
                is_cut: false,
                faded: now,
                measured: Measured::default(),
            }
        })
    }

    /// Replays the accesses since the last step, and requests more.
    pub(crate) fn step(&mut self, shared: &Shared) {
        let burst = shared.measures.sample_tap.take();
        let now_secs = shared.clock.now().secs;
        self.curve.count_reads(burst.reads);
        self.played += burst.accesses.len() as u64;
        self.is_cut |= burst.is_cut;
        for access in burst.accesses {
            self.curve.play(access, now_secs);
        }

        self.measured.count(shared.default_reads());
        let now = Instant::now();
        if now - self.faded > FADE_EVERY {
            self.curve.fade();
            self.measured.fade();
            self.faded = now;
        }
        if self.played < ACCESSES_AT_FIRST || now - self.begun > BURST_EVERY {
            self.begin_burst(shared, now);
        }
        let prediction = Prediction {
            points: self.curve.points(),
            share: self.curve.share(),
            measured: self.measured.hit_ratio(),
        };
        *shared.forecast.0.lock().unwrap_or_else(PoisonError::into_inner) = prediction;
    }

    fn begin_burst(&mut self, shared: &Shared, now: Instant) {
        let reads = shared.reads();
        let secs = (now - self.begun).as_secs_f64().max(1e-3);
        let reads_per_sec = reads.saturating_sub(self.reads) as f64 / secs;
        (self.begun, self.reads) = (now, reads);
        // A new server samples fast; later, replaying must cost little beside serving.
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

impl Measured {
    /// Adds the reads since the last call. Counters may have been reset in between.
    fn count(&mut self, reads: (u64, u64)) {
        self.hits += reads.0.saturating_sub(self.seen.0) as f64;
        self.misses += reads.1.saturating_sub(self.seen.1) as f64;
        self.seen = reads;
    }

    /// As [`Curve::fade`].
    fn fade(&mut self) {
        self.hits /= 2.0;
        self.misses /= 2.0;
    }

    fn hit_ratio(&self) -> Option<f64> {
        let reads = self.hits + self.misses;
        (reads > 0.0).then(|| self.hits / reads)
    }
}

/// Memory for items in a server of that size: the ghost takes a 64th, and some segments are free or being filled. The
/// index takes about a tenth of small items' memory, which is counted with the items.
fn size(shared: &Shared, factor: f64) -> Size {
    let memory_bytes = (shared.namespaces.default_engine().memory_limit() as f64 * factor) as u64;
    let handles = shared.settings.threads + 1;
    let segment_bytes = larder_engine::segment_bytes(memory_bytes as usize, handles) as u64;
    let other_bytes = memory_bytes / 64 + FALLOW_SEGMENTS * segment_bytes;
    Size { factor, memory_bytes: memory_bytes.saturating_sub(other_bytes), segment_bytes }
}

/// Multiples of the server's memory.
pub const FACTORS: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];
const FALLOW_SEGMENTS: u64 = 8;
/// Sampled keys in the largest miniature: a key takes about 100 bytes in each, so all of them take 2 MiB beside the
/// cache.
const KEYS_MAX: usize = 4 << 10;
/// A sample of fewer keys is inaccurate. So at this number the sample gets shorter bursts instead of fewer keys.
const KEYS_MIN: usize = KEYS_MAX / 2;
const BURST_EVERY: Duration = Duration::from_millis(900);
/// Accesses replayed before their number is limited: a fifth of a second of work.
const ACCESSES_AT_FIRST: u64 = 200_000;
/// Later limit for a burst: each access costs about a microsecond, and one more is allowed for so many reads of the
/// second before.
const ACCESSES_PER_BURST: f64 = 2_000.0;
const READS_PER_ACCESS: f64 = 256.0;
const FADE_EVERY: Duration = Duration::from_secs(600);
