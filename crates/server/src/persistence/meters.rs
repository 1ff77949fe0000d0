//! Measurements of the store. Each thread writes to a meter of its own, so nothing is shared on the path of a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use larder_measure::{Histogram, Snapshot};
use larder_store::commit::Destination;
use larder_store::{Entry, KeyState, Result, SequenceRange, Store};

/// All meters of a store.
pub(crate) struct Meters {
    pub(crate) committer: CommitMeter,
    readers: Box<[ReadMeter]>,
    workers: Box<[ReadMeter]>,
}

/// Measurements of the committer. Its threads take turns, and are the only writers.
#[derive(Default)]
pub(crate) struct CommitMeter {
    append: Histogram,
    fsync: Histogram,
    commit: Histogram,
    batches: BatchSizes,
    bytes: AtomicU64,
    errors: AtomicU64,
}

/// What a reader or a worker measures. It is the only writer.
#[derive(Default)]
pub(crate) struct ReadMeter {
    found: Histogram,
    absent: Histogram,
    failed: AtomicU64,
}

/// How many changes the batches had.
#[derive(Default)]
struct BatchSizes {
    counts: [AtomicU64; BATCH_BOUNDS.len()],
    changes: AtomicU64,
}

/// What all meters showed at one moment.
#[derive(Clone, Default)]
pub(crate) struct Measured {
    /// Appending a batch, without its fsync.
    pub(crate) append: Snapshot,
    /// fsync of the log.
    pub(crate) fsync: Snapshot,
    /// Appending a batch and making it durable.
    pub(crate) commit: Snapshot,
    /// Batches of up to so many changes as [`BATCH_BOUNDS`] has at the same place; not cumulative.
    pub(crate) batches: [u64; BATCH_BOUNDS.len()],
    /// Changes in all batches.
    pub(crate) changes: u64,
    /// Keys and values of these changes.
    pub(crate) change_bytes: u64,
    /// Appends and fsyncs that failed.
    pub(crate) errors: u64,
    /// Look-ups that found an item.
    pub(crate) found: Snapshot,
    /// Look-ups that read the disk, or the index, and found none.
    pub(crate) absent: Snapshot,
    /// Look-ups that failed: the disk, or no memory for the item.
    pub(crate) failed: u64,
}

/// Upper bounds of batch sizes, in changes.
pub(crate) const BATCH_BOUNDS: [u64; 13] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

impl Meters {
    /// For so many readers, and so many workers.
    pub(super) fn new(readers: usize, workers: usize) -> Self {
        let meters = |count| (0..count).map(|_| ReadMeter::default()).collect();
        Self { committer: CommitMeter::default(), readers: meters(readers), workers: meters(workers) }
    }

    /// The meter of a reader.
    pub(super) fn reader(&self, number: usize) -> Option<&ReadMeter> {
        self.readers.get(number)
    }

    /// The meter of a worker.
    pub(super) fn worker(&self, number: usize) -> Option<&ReadMeter> {
        self.workers.get(number)
    }

    /// Reads all meters.
    pub(crate) fn read(&self) -> Measured {
        let mut measured = Measured::default();
        let commit = &self.committer;
        commit.append.add_to(&mut measured.append);
        commit.fsync.add_to(&mut measured.fsync);
        commit.commit.add_to(&mut measured.commit);
        measured.batches = std::array::from_fn(|at| commit.batches.counts[at].load(Relaxed));
        measured.changes = commit.batches.changes.load(Relaxed);
        measured.change_bytes = commit.bytes.load(Relaxed);
        measured.errors = commit.errors.load(Relaxed);
        for reader in self.readers.iter().chain(&self.workers) {
            reader.found.add_to(&mut measured.found);
            reader.absent.add_to(&mut measured.absent);
            measured.failed += reader.failed.load(Relaxed);
        }
        measured
    }
}

impl Measured {
    /// Batches.
    pub(crate) fn batches(&self) -> u64 {
        self.batches.iter().sum()
    }
}

impl CommitMeter {
    /// Counts changes that were appended and, if a client waited for it, made durable within `durable_micros`.
    pub(super) fn commit(&self, changes: u64, bytes: u64, durable_micros: Option<u64>) {
        let at = BATCH_BOUNDS.iter().position(|bound| changes <= *bound).unwrap_or(BATCH_BOUNDS.len() - 1);
        add(&self.batches.counts[at], 1);
        add(&self.batches.changes, changes);
        add(&self.bytes, bytes);
        if let Some(micros) = durable_micros {
            self.commit.record(micros.saturating_mul(1_000), 1);
        }
    }

    /// An append or an fsync failed.
    pub(super) fn fail(&self) {
        add(&self.errors, 1);
    }
}

impl ReadMeter {
    /// A look-up has ended: `Ok(true)`, it found the item.
    pub(super) fn look_up<E>(&self, result: &std::result::Result<bool, E>, since: Instant) {
        match result {
            Ok(true) => self.found.record(nanos(since.elapsed()), 1),
            Ok(false) => self.absent.record(nanos(since.elapsed()), 1),
            Err(_) => add(&self.failed, 1),
        }
    }
}

/// The store as the committer sees it: with a clock beside it.
pub(super) struct TimedStore {
    pub(super) store: Arc<dyn Store>,
    pub(super) meters: Arc<Meters>,
}

impl Destination for TimedStore {
    fn append(&self, entries: &[Entry<'_>]) -> Result<SequenceRange> {
        let since = Instant::now();
        let result = self.store.append(entries);
        self.meters.committer.append.record(nanos(since.elapsed()), 1);
        result
    }

    fn sync(&self) -> Result<u64> {
        let since = Instant::now();
        let result = self.store.sync();
        self.meters.committer.fsync.record(nanos(since.elapsed()), 1);
        result
    }

    fn try_write(&self, bytes: u64, entries: usize) -> Result<()> {
        self.store.try_write(bytes, entries)
    }

    fn keep_readable(&self, entries: &[Entry<'_>]) -> Result<()> {
        self.store.keep_readable(entries)
    }

    fn state(&self, key: &[u8]) -> Result<Option<KeyState>> {
        self.store.state(key)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Its only writer need not lock the bus.
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_counted_by_size() {
        let meters = Meters::new(2, 1);
        for changes in [1, 2, 3, 4, 5, 4096, 9999] {
            meters.committer.commit(changes, 10 * changes, (changes > 4).then_some(100));
        }
        let measured = meters.read();
        assert_eq!(measured.batches, [1, 1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!((measured.batches(), measured.changes, measured.change_bytes), (7, 14_110, 141_100));
        assert_eq!(measured.commit.count(), 3, "those that were made durable");
    }

    #[test]
    fn look_ups_of_all_readers_are_added() {
        let meters = Meters::new(2, 1);
        for (reader, result) in [(0, Ok(true)), (1, Ok(true)), (1, Ok(false)), (0, Err(()))] {
            meters.reader(reader).expect("a reader").look_up(&result, Instant::now());
        }
        let measured = meters.read();
        assert_eq!((measured.found.count(), measured.absent.count(), measured.failed), (2, 1, 1));
        meters.worker(0).expect("a worker").look_up(&Ok::<_, ()>(true), Instant::now());
        assert_eq!(meters.read().found.count(), 3);
        assert!(meters.reader(2).is_none());
    }
}
