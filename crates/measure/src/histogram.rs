//! Latencies: log-linear buckets with one writer and any number of readers.
//!
//! A bucket is a sixteenth of a power of two wide, so what is read is at most 6.25 % above what was recorded. From
//! [`Histogram::LEAST_NANOS`] to a little over a minute; what is shorter or longer is counted at the ends.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts of durations. One thread records; others may take a [`Snapshot`] at any time.
#[derive(Debug)]
pub struct Histogram {
    counts: [AtomicU64; BUCKETS],
    sum_nanos: AtomicU64,
}

impl Histogram {
    /// Durations below this fall into the first bucket.
    pub const LEAST_NANOS: u64 = 1 << LEAST_BITS;

    /// Nothing recorded.
    pub const fn new() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; BUCKETS], sum_nanos: AtomicU64::new(0) }
    }

    /// Records `n` requests that each took `nanos`. To be called by one thread only: another's counts could be lost.
    pub fn record(&self, nanos: u64, n: u64) {
        add(&self.counts[bucket_of(nanos)], n);
        add(&self.sum_nanos, nanos * n);
    }

    /// True if nothing was recorded. Cheap: what took no time at all is in the first bucket.
    pub fn is_empty(&self) -> bool {
        self.sum_nanos.load(Relaxed) == 0 && self.counts[0].load(Relaxed) == 0
    }

    /// Adds the counts to those of `snapshot`.
    pub fn add_to(&self, snapshot: &mut Snapshot) {
        if self.is_empty() {
            return;
        }
        for (sum, count) in snapshot.counts.iter_mut().zip(&self.counts) {
            *sum += count.load(Relaxed);
        }
        snapshot.sum_nanos += self.sum_nanos.load(Relaxed);
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

/// Its only writer need not lock the bus.
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

/// What one or more histograms held at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    counts: Vec<u64>,
    sum_nanos: u64,
}

impl Snapshot {
    /// Nothing.
    pub fn new() -> Self {
        Self { counts: vec![0; BUCKETS], sum_nanos: 0 }
    }

    /// How many were recorded. Counts of other processes may be of any size: sums end at the largest number.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The sum of all durations.
    pub fn sum_nanos(&self) -> u64 {
        self.sum_nanos
    }

    /// What was recorded between `earlier` and this.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let counts = self.counts.iter().zip(&earlier.counts);
        Self {
            counts: counts.map(|(now, then)| now.saturating_sub(*then)).collect(),
            sum_nanos: self.sum_nanos.saturating_sub(earlier.sum_nanos),
        }
    }

    /// Adds what another holds.
    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum = sum.saturating_add(*count);
        }
        self.sum_nanos = self.sum_nanos.saturating_add(other.sum_nanos);
    }

    /// Adds `n` requests that each took `nanos`, without their sum: for what another process reports.
    pub fn add_count(&mut self, nanos: u64, n: u64) {
        let count = &mut self.counts[bucket_of(nanos)];
        *count = count.saturating_add(n);
    }

    /// Adds to the sum of all durations.
    pub fn add_sum_nanos(&mut self, nanos: u64) {
        self.sum_nanos = self.sum_nanos.saturating_add(nanos);
    }

    /// A duration that `share` (0 to 1) of the requests did not exceed: the upper bound of the bucket where that is
    /// reached. `None`: nothing was recorded.
    pub fn quantile_nanos(&self, share: f64) -> Option<u64> {
        let count = self.count();
        let rank = ((share.clamp(0.0, 1.0) * count as f64).ceil() as u64).max(1);
        let mut reached = 0;
        self.counts
            .iter()
            .position(|n| {
                reached = n.saturating_add(reached);
                reached >= rank
            })
            .filter(|_| count > 0)
            .map(bound_of)
    }

    /// How many took so long: the greatest duration of each bucket that is not empty, in nanoseconds, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.counts.iter().enumerate();
        counts.filter(|(_, count)| **count > 0).map(|(bucket, count)| (bound_of(bucket), *count))
    }

    /// How many took at most `nanos`, as far as the buckets tell: for cumulative histograms with bounds of their own.
    pub fn count_up_to(&self, nanos: u64) -> u64 {
        self.counts
            .iter()
            .enumerate()
            .take_while(|&(bucket, _)| bound_of(bucket) <= nanos)
            .map(|(_, n)| n)
            .sum()
    }
}

impl Default for Snapshot {
    fn default() -> Self {
        Self::new()
    }
}

fn bucket_of(nanos: u64) -> usize {
    let nanos = nanos.clamp(Histogram::LEAST_NANOS, (1 << (LEAST_BITS + OCTAVES)) - 1);
    let octave = nanos.ilog2() - LEAST_BITS;
    let step = (nanos >> (octave + LEAST_BITS - STEP_BITS)) as usize & ((1 << STEP_BITS) - 1);
    ((octave as usize) << STEP_BITS) + step
}

/// The greatest duration of a bucket.
fn bound_of(bucket: usize) -> u64 {
    let (octave, step) = ((bucket >> STEP_BITS) as u32, (bucket & ((1 << STEP_BITS) - 1)) as u64);
    let width_bits = octave + LEAST_BITS - STEP_BITS;
    (((1 << STEP_BITS) + step + 1) << width_bits) - 1
}

/// 256 ns: a request of a batch seldom takes less.
const LEAST_BITS: u32 = 8;
/// Powers of two from the least on: up to 2^36 ns, 68 s.
const OCTAVES: u32 = 28;
/// Sixteen buckets for each power of two.
const STEP_BITS: u32 = 4;
const BUCKETS: usize = (OCTAVES as usize) << STEP_BITS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_falls_into_a_bucket_that_holds_it() {
        let mut nanos = Histogram::LEAST_NANOS;
        while nanos < 60_000_000_000 {
            for nanos in [nanos - 1, nanos, nanos + 1].map(|nanos| nanos.max(Histogram::LEAST_NANOS)) {
                let bound = bound_of(bucket_of(nanos));
                assert!(
                    bound >= nanos && bound as f64 <= nanos as f64 * (1.0 + 1.0 / 16.0),
                    "{nanos}: {bound}"
                );
            }
            nanos += nanos / 7;
        }
        for bucket in 1..BUCKETS {
            assert_eq!(bucket_of(bound_of(bucket)), bucket);
            assert_eq!(bucket_of(bound_of(bucket - 1) + 1), bucket);
        }
        assert_eq!((bucket_of(0), bucket_of(u64::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_durations() {
        let histogram = Histogram::new();
        assert!(histogram.is_empty());
        let mut all: Vec<u64> = (0..10_000).map(|n| 1_000 + n * n).collect();
        for &nanos in &all {
            histogram.record(nanos, 1);
        }
        all.sort_unstable();
        assert!(!histogram.is_empty());
        let mut snapshot = Snapshot::new();
        histogram.add_to(&mut snapshot);
        assert_eq!((snapshot.count(), snapshot.sum_nanos()), (10_000, all.iter().sum()));
        for share in [0.0, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let exact = all[((share * 10_000.0_f64).ceil() as usize).clamp(1, 10_000) - 1];
            let told = snapshot.quantile_nanos(share).expect("it is not empty");
            assert!(told >= exact && told as f64 <= exact as f64 * 1.07, "{share}: {told}, {exact}");
        }
        assert_eq!(snapshot.buckets().map(|(_, count)| count).sum::<u64>(), 10_000);
        assert!(snapshot.buckets().all(|(bound, count)| snapshot.count_up_to(bound) >= count));
        assert_eq!(Snapshot::new().quantile_nanos(0.5), None);
        assert_eq!(snapshot.since(&snapshot).count(), 0);
    }

    #[test]
    fn what_another_process_reports_is_added() {
        let histogram = Histogram::new();
        histogram.record(1_000, 5);
        histogram.record(70_000, 2);
        let mut snapshot = Snapshot::new();
        histogram.add_to(&mut snapshot);
        let mut again = Snapshot::new();
        snapshot.buckets().for_each(|(bound_nanos, count)| again.add_count(bound_nanos, count));
        again.add_sum_nanos(snapshot.sum_nanos());
        assert_eq!(again, snapshot);
        for _ in 0..2 {
            again.add_count(1_000, u64::MAX);
            again.add_count(9_000, u64::MAX);
            again.add_sum_nanos(u64::MAX);
        }
        assert_eq!((again.count(), again.sum_nanos()), (u64::MAX, u64::MAX));
        assert_eq!(again.quantile_nanos(0.5), snapshot.quantile_nanos(0.5));
        again.add(&again.clone());
        assert_eq!(again.count(), u64::MAX);
    }
}
