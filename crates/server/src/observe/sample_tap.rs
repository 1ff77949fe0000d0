//! Passes accesses to sampled keys from the workers to the curve, in bursts.
//!
//! The control thread starts a burst about once a second. Workers report their accesses to sampled keys until one of
//! them has reported its maximum; then the burst is over for all. So the cost of the curve is bounded, however few and
//! busy the keys are. All workers report the same span of time, so a worker with little to do has little weight.
//! Between bursts nothing is counted, reads included.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};

use larder_measure::Access;

use crate::net::wake::Wake;
use crate::observe::measure::lock;

/// The current burst, and the accesses reported and not yet taken.
#[derive(Debug)]
pub(crate) struct SampleTap {
    /// Odd: the number of the current burst. Even: it is over. Each worker reads it once per wake-up; it is written
    /// twice per burst.
    number: AtomicU32,
    /// Keys with a hash below this are sampled.
    threshold: AtomicU64,
    /// Accesses wanted from each worker, at most.
    accesses_max: AtomicU32,
    /// One for each worker.
    reported: Vec<Mutex<Burst>>,
    /// The control thread's; notified when many accesses wait.
    wake: Arc<Wake>,
}

/// Accesses reported by workers.
#[derive(Debug, Default)]
pub(crate) struct Burst {
    /// Accesses to sampled keys.
    pub(crate) accesses: Vec<Access>,
    /// Reads of all keys in the same time.
    pub(crate) reads: u64,
    /// There were more accesses than may be reported.
    pub(crate) is_cut: bool,
}

impl SampleTap {
    pub(crate) fn new(workers: usize, wake: Arc<Wake>) -> Self {
        Self {
            number: AtomicU32::new(0),
            threshold: AtomicU64::new(0),
            accesses_max: AtomicU32::new(0),
            reported: (0..workers).map(|_| Mutex::default()).collect(),
            wake,
        }
    }

    /// Begins another burst: for keys with a hash below `threshold`, and at most `accesses_max` from each worker.
    pub(crate) fn begin(&self, threshold: u64, accesses_max: u32) {
        self.threshold.store(threshold, Relaxed);
        self.accesses_max.store(accesses_max, Relaxed);
        let next = |number: u32| Some((number | 1).wrapping_add(if is_over(number) { 0 } else { 2 }));
        let _ = self.number.fetch_update(Release, Relaxed, next);
    }

    /// Ends a burst, unless another has begun.
    fn end(&self, number: u32) {
        let _ = self.number.compare_exchange(number, number.wrapping_add(1), Relaxed, Relaxed);
    }

    /// Takes the accesses reported since the last call.
    pub(crate) fn take(&self) -> Burst {
        let mut all = Burst::default();
        for reported in &self.reported {
            let Burst { mut accesses, reads, is_cut } = std::mem::take(&mut *lock(reported));
            all.accesses.append(&mut accesses);
            all.reads += reads;
            all.is_cut |= is_cut;
        }
        all
    }
}

fn is_over(number: u32) -> bool {
    number.is_multiple_of(2)
}

/// A worker's end of the tap. It belongs to the worker's thread.
#[derive(Debug)]
pub(crate) struct Tap {
    sample_tap: Arc<SampleTap>,
    worker: usize,
    /// The burst that this worker takes part in.
    number: Cell<u32>,
    /// 0: the burst is over.
    threshold: Cell<u64>,
    /// Accesses that it may still report.
    left: Cell<u32>,
    /// Reads since its last report.
    reads: Cell<u64>,
}

impl Tap {
    pub(crate) fn new(sample_tap: Arc<SampleTap>, worker: usize) -> Self {
        let [threshold, reads] = [Cell::new(0), Cell::new(0)];
        Self { sample_tap, worker, number: Cell::new(0), threshold, left: Cell::new(0), reads }
    }

    /// Checks whether the burst is over, or another has begun.
    #[inline]
    pub(crate) fn keep_up(&self) {
        let number = self.sample_tap.number.load(Acquire);
        if number != self.number.get() {
            self.change_over(number);
        }
    }

    #[cold]
    fn change_over(&self, number: u32) {
        self.number.set(number);
        if self.threshold.get() == 0 {
            // Reads between bursts do not count.
            self.reads.set(0);
        }
        if is_over(number) {
            lock(&self.sample_tap.reported[self.worker]).reads += self.reads.take();
            return self.threshold.set(0);
        }
        self.left.set(self.sample_tap.accesses_max.load(Relaxed));
        self.threshold.set(if self.left.get() > 0 { self.sample_tap.threshold.load(Relaxed) } else { 0 });
    }

    /// True if accesses to the key with this hash are reported.
    #[inline]
    pub(crate) fn follows(&self, key: u64) -> bool {
        key < self.threshold.get()
    }

    /// Counts a read of this key. True if the access is reported.
    #[inline]
    pub(crate) fn follows_read(&self, key: u64) -> bool {
        self.reads.set(self.reads.get() + 1);
        self.follows(key)
    }

    /// Reports an access to a sampled key.
    #[cold]
    pub(crate) fn tell(&self, access: Access) {
        let mut reported = lock(&self.sample_tap.reported[self.worker]);
        reported.reads += self.reads.take();
        if self.sample_tap.number.load(Relaxed) != self.number.get() {
            // Another worker has ended the burst.
            return self.threshold.set(0);
        }
        reported.accesses.push(access);
        self.left.set(self.left.get() - 1);
        let waiting = reported.accesses.len();
        // The buffer stays bounded if nobody takes the accesses.
        if self.left.get() == 0 || waiting == ACCESSES_MAX {
            reported.is_cut = true;
            self.threshold.set(0);
            self.sample_tap.end(self.number.get());
        }
        if waiting == ACCESSES_MAX / 4 {
            self.sample_tap.wake.notify();
        }
    }
}

/// Accesses of a worker that wait to be taken, at most: 64 KiB.
pub(crate) const ACCESSES_MAX: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    fn bursts_of<const WORKERS: usize>() -> (Arc<SampleTap>, [Tap; WORKERS]) {
        let sample_tap = Arc::new(SampleTap::new(WORKERS, Arc::new(Wake::new().expect("a descriptor"))));
        let followers = std::array::from_fn(|worker| Tap::new(Arc::clone(&sample_tap), worker));
        (sample_tap, followers)
    }

    fn sample_tap() -> (Arc<SampleTap>, Tap) {
        let (sample_tap, [tap]) = bursts_of();
        (sample_tap, tap)
    }

    /// Reads keys below and above the threshold in turn, as a worker does between two checks of the burst.
    fn read(tap: &Tap, times: u64) {
        tap.keep_up();
        for time in 0..times {
            let key = if time % 2 == 0 { 1 } else { u64::MAX };
            if tap.follows_read(key) {
                tap.tell(Access::Read { key, found: None });
            }
        }
    }

    #[test]
    fn nothing_is_told_that_was_not_asked_for() {
        let (sample_tap, tap) = sample_tap();
        read(&tap, 100);
        assert!(sample_tap.take().accesses.is_empty());
        sample_tap.begin(10, 0);
        read(&tap, 100);
        assert!(sample_tap.take().accesses.is_empty());
    }

    #[test]
    fn a_burst_ends_with_what_was_wanted_and_counts_the_reads_up_to_there() {
        let (sample_tap, tap) = sample_tap();
        for _ in 0..3 {
            sample_tap.begin(10, 5);
            read(&tap, 1_000);
            let burst = sample_tap.take();
            assert_eq!((burst.accesses.len(), burst.reads, burst.is_cut), (5, 9, true));
            read(&tap, 1_000);
            assert!(sample_tap.take().accesses.is_empty());
        }
    }

    #[test]
    fn a_worker_weighs_as_much_as_it_serves() {
        let (sample_tap, [idle, busy]) = bursts_of();
        let (mut told, mut reads) = ([0; 2], 0);
        for _ in 0..10 {
            sample_tap.begin(10, 500);
            for _ in 0..50 {
                idle.keep_up();
                busy.keep_up();
                for (tap, key, times) in [(&idle, 0, 1), (&busy, 1, 100)] {
                    for _ in 0..times {
                        if tap.follows_read(key) {
                            tap.tell(Access::Read { key, found: None });
                        }
                    }
                }
            }
            let burst = sample_tap.take();
            assert!(burst.is_cut);
            reads += burst.reads;
            for access in burst.accesses {
                let Access::Read { key, .. } = access else { panic!("nothing was written") };
                told[key as usize] += 1;
            }
        }
        // In the time in which the one was asked 500 times, the other was asked 5 times.
        assert_eq!((told, reads), ([50, 5_000], 5_050));
    }

    #[test]
    fn bursts_that_are_not_cut_leave_nothing_out() {
        let (sample_tap, tap) = sample_tap();
        let (mut accesses, mut reads) = (0, 0);
        for _ in 0..10 {
            sample_tap.begin(10, 100);
            read(&tap, 100);
            let burst = sample_tap.take();
            assert!(!burst.is_cut);
            accesses += burst.accesses.len();
            reads += burst.reads;
        }
        // The last key of all is above the threshold: its read waits for the next that is not.
        assert_eq!((accesses, reads), (500, 999));
    }

    #[test]
    fn where_nobody_takes_them_they_do_not_pile_up() {
        let (sample_tap, tap) = sample_tap();
        sample_tap.begin(10, u32::MAX);
        read(&tap, 100_000);
        let burst = sample_tap.take();
        assert_eq!((burst.accesses.len(), burst.is_cut), (ACCESSES_MAX, true));
    }
}
