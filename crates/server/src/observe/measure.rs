//! Measurements of the server: latencies, the busiest keys, and accesses to a sample of the keys.
//!
//! Each worker writes only its own [`Meter`]; readers read all of them. A measurement that is switched off costs a
//! branch.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larder_measure::top::Hot;
use larder_measure::{Histogram, Sampler, Snapshot, Top};
use larder_protocol::command::Command;

use crate::clock::Moment;
use crate::conn::batch::single_key;
use crate::net::wake::Wake;
use crate::observe::sample_tap::{SampleTap, Tap};

/// Which measurements are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Latencies, and slow requests.
    pub latency: bool,
    /// The busiest keys and prefixes.
    pub keys: bool,
    /// The hit ratio at other sizes.
    pub curve: bool,
}

impl Measured {
    /// All measurements.
    pub const ALL: Self = Self { latency: true, keys: true, curve: true };
}

/// Classes of commands with separate latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// get, gets, gat, mg, me.
    Get,
    /// set and other stores, ms.
    Store,
    /// delete, md.
    Delete,
    /// touch.
    Touch,
    /// incr, decr, ma.
    Arith,
    /// Everything else.
    Other,
}

impl Class {
    /// All, in numeric order.
    pub const ALL: [Self; 6] = [Self::Get, Self::Store, Self::Delete, Self::Touch, Self::Arith, Self::Other];

    /// Its name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Store => "store",
            Self::Delete => "delete",
            Self::Touch => "touch",
            Self::Arith => "arith",
            Self::Other => "other",
        }
    }

    /// The class of a command.
    #[inline]
    pub fn of(command: &Command<'_>) -> Self {
        match command {
            Command::Get(_) | Command::Fetch(_) | Command::Peek(_) => Self::Get,
            Command::Store(_) => Self::Store,
            Command::Delete(_) | Command::Invalidate(_) => Self::Delete,
            Command::Touch(_) => Self::Touch,
            Command::Arith(_) => Self::Arith,
            _ => Self::Other,
        }
    }
}

/// Transports with separate latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Plain TCP.
    Tcp,
    /// A Unix socket.
    Unix,
    /// TCP with TLS.
    Tls,
    /// UDP.
    Udp,
}

impl Transport {
    /// All, in numeric order.
    pub const ALL: [Self; 4] = [Self::Tcp, Self::Unix, Self::Tls, Self::Udp];

    /// Its name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Unix => "unix",
            Self::Tls => "tls",
            Self::Udp => "udp",
        }
    }
}

/// All measurements of all workers.
#[derive(Debug)]
pub struct Measures {
    measured: Measured,
    meters: Vec<Arc<Meter>>,
    /// Sampled accesses on their way to the curve.
    pub(crate) sample_tap: Arc<SampleTap>,
}

/// Measurements of one worker.
#[derive(Debug)]
struct Meter {
    service: [[Histogram; Class::ALL.len()]; Transport::ALL.len()],
    wait: Histogram,
    tops: Mutex<Tops>,
    slow: Mutex<SlowRing>,
}

/// The busiest keys, and the busiest prefixes.
#[derive(Debug)]
struct Tops {
    keys: Top,
    prefixes: Top,
}

/// A slow batch of requests.
#[derive(Clone, Copy, Debug)]
pub struct Slow {
    /// The end, in seconds of the server's clock.
    pub at_secs: u32,
    /// The most frequent class in the batch.
    pub class: Class,
    /// The transport.
    pub transport: Transport,
    /// Requests in the batch.
    pub requests: u32,
    /// The duration of the whole batch.
    pub took: Duration,
}

#[derive(Debug, Default)]
struct SlowRing {
    entries: Vec<Slow>,
    next: usize,
}

impl Measures {
    /// For so many workers. `wake` is notified when many accesses wait for the curve.
    pub(crate) fn new(measured: Measured, workers: usize, wake: Arc<Wake>) -> Self {
        let meter = |_| {
            Arc::new(Meter {
                service: std::array::from_fn(|_| std::array::from_fn(|_| Histogram::new())),
                wait: Histogram::new(),
                tops: Mutex::new(Tops { keys: Top::new(TOP_COUNTERS), prefixes: Top::new(TOP_COUNTERS) }),
                slow: Mutex::default(),
            })
        };
        let sample_tap = Arc::new(SampleTap::new(workers, wake));
        Self { measured, meters: (0..workers).map(meter).collect(), sample_tap }
    }

    /// Which measurements are on.
    pub fn measured(&self) -> Measured {
        self.measured
    }

    /// The recorder of a worker. `prefix_delimiter` ends the prefix of a key.
    pub(crate) fn recorder(self: &Arc<Self>, worker: usize, prefix_delimiter: u8) -> Recorder {
        Recorder {
            measures: Arc::clone(self),
            meter: Arc::clone(&self.meters[worker]),
            counts: Default::default(),
            sampler: RefCell::new(Sampler::new(1, worker as u64 + 1)),
            tap: Tap::new(Arc::clone(&self.sample_tap), worker),
            picked: Cell::new(0),
            adapted: Cell::new(Moment::now()),
            prefix_delimiter,
        }
    }

    /// Service times of a class over a transport, since the start: from when a worker had the bytes until the reply was
    /// ready to be sent.
    pub fn service(&self, transport: Transport, class: Class) -> Snapshot {
        self.sum(|meter| &meter.service[transport as usize][class as usize])
    }

    /// True if nothing of the kind was measured. Much cheaper than [`Measures::service`].
    pub(crate) fn is_unmeasured(&self, transport: Transport, class: Class) -> bool {
        self.meters.iter().all(|meter| meter.service[transport as usize][class as usize].is_empty())
    }

    /// How long readable sockets waited for their worker, since the start.
    pub fn wait(&self) -> Snapshot {
        self.sum(|meter| &meter.wait)
    }

    fn sum(&self, of: impl Fn(&Meter) -> &Histogram) -> Snapshot {
        let mut sum = Snapshot::new();
        self.meters.iter().for_each(|meter| of(meter).add_to(&mut sum));
        sum
    }

    /// The busiest keys and prefixes, with estimated numbers of requests. A request counts half after half a minute.
    pub fn busiest(&self, max: usize) -> (Vec<Hot>, Vec<Hot>) {
        let tops: Vec<_> = self.meters.iter().map(|meter| lock(&meter.tops)).collect();
        (
            Top::merged(tops.iter().map(|tops| &tops.keys), max),
            Top::merged(tops.iter().map(|tops| &tops.prefixes), max),
        )
    }

    /// The latest slow batches, newest first.
    pub fn slow(&self) -> Vec<Slow> {
        let mut slow: Vec<_> =
            self.meters.iter().flat_map(|meter| lock(&meter.slow).entries.clone()).collect();
        slow.sort_by_key(|slow| std::cmp::Reverse(slow.at_secs));
        slow
    }

    /// Decays the counts of the busiest keys.
    pub(crate) fn fade(&self) {
        for meter in &self.meters {
            let mut tops = lock(&meter.tops);
            tops.keys.fade();
            tops.prefixes.fade();
        }
    }
}

/// Records the measurements of a worker. It belongs to the worker's thread.
#[derive(Debug)]
pub struct Recorder {
    measures: Arc<Measures>,
    meter: Arc<Meter>,
    /// Requests of each class since the last [`Recorder::finish`].
    counts: [Cell<u32>; Class::ALL.len()],
    /// Reports sampled accesses to the curve.
    pub(crate) tap: Tap,
    sampler: RefCell<Sampler>,
    /// Keys sampled since the sampler last adapted to the time, and when that was.
    picked: Cell<u32>,
    adapted: Cell<Moment>,
    prefix_delimiter: u8,
}

impl Recorder {
    pub(crate) fn measured(&self) -> Measured {
        self.measures.measured
    }

    /// Counts an answered request. A request that has to be tried again is counted only once it is answered. For a list
    /// of keys, [`Recorder::key`] is called for each key as well.
    #[inline]
    pub(crate) fn answered(&self, command: &Command<'_>) {
        self.count(Class::of(command), 1);
        if self.picks()
            && let Some(key) = single_key(command)
        {
            self.sample(key);
        }
    }

    /// Counts answered requests.
    #[inline]
    pub(crate) fn count(&self, class: Class, requests: u32) {
        if self.measures.measured.latency {
            let count = &self.counts[class as usize];
            count.set(count.get() + requests);
        }
    }

    /// Records the duration of all requests counted since the last call, from their bytes to their replies.
    pub(crate) fn finish(&self, transport: Transport, took_nanos: u64, now_secs: u32) {
        let mut most = (0, Class::Other);
        let mut requests = 0;
        for class in Class::ALL {
            let count = self.counts[class as usize].take();
            if count > 0 {
                self.meter.service[transport as usize][class as usize].record(took_nanos, count.into());
                requests += count;
                most = if count > most.0 { (count, class) } else { most };
            }
        }
        if took_nanos >= SLOW_NANOS && requests > 0 {
            let took = Duration::from_nanos(took_nanos);
            let slow = Slow { at_secs: now_secs, class: most.1, transport, requests, took };
            lock(&self.meter.slow).push(slow);
        }
    }

    /// Records how long a readable socket waited for its worker.
    pub(crate) fn waited(&self, waited_nanos: u64) {
        self.meter.wait.record(waited_nanos, 1);
    }

    /// Records a requested key.
    #[inline]
    pub(crate) fn key(&self, key: &[u8]) {
        if self.picks() {
            self.sample(key);
        }
    }

    #[inline]
    fn picks(&self) -> bool {
        self.measures.measured.keys && self.sampler.borrow_mut().pick()
    }

    #[cold]
    fn sample(&self, key: &[u8]) {
        let times = self.sampler.borrow().interval().into();
        self.picked.set(self.picked.get() + 1);
        if self.picked.get() == ADAPT_EVERY {
            let now = Moment::now();
            let nanos = now.nanos_since(self.adapted.replace(now));
            self.sampler.borrow_mut().adapt(self.picked.take(), nanos, SAMPLES_PER_SEC);
        }
        // If a reader holds the lock, one sample is lost.
        let Ok(mut tops) = self.meter.tops.try_lock() else { return };
        tops.keys.record(key, times);
        if let Some(end) = memchr::memchr(self.prefix_delimiter, key) {
            tops.prefixes.record(&key[..end], times);
        }
    }
}

impl SlowRing {
    fn push(&mut self, slow: Slow) {
        if self.entries.len() < SLOW_MAX {
            self.entries.push(slow);
        } else {
            self.entries[self.next] = slow;
            self.next = (self.next + 1) % SLOW_MAX;
        }
    }
}

/// Ignores poison: nothing in here panics half-way.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counters of a worker for keys, and for prefixes: about 60 KiB each with short keys, 180 KiB with the longest.
const TOP_COUNTERS: usize = 512;
/// Keys that a worker samples in a second. Each costs half a microsecond, together a five-hundredth of its core.
const SAMPLES_PER_SEC: u32 = 4_000;
/// Samples after which the sampling rate is adapted.
const ADAPT_EVERY: u32 = 256;
/// A batch that takes longer is kept as slow.
const SLOW_NANOS: u64 = 1_000_000;
/// Slow batches that each worker keeps.
const SLOW_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn wake() -> Arc<Wake> {
        Arc::new(Wake::new().expect("a descriptor"))
    }

    #[test]
    fn a_batch_is_recorded_by_class_and_road() {
        let measures = Arc::new(Measures::new(Measured::ALL, 2, wake()));
        let recorder = measures.recorder(1, b':');
        recorder.count(Class::of(&Command::Noop), 2);
        recorder.count(Class::Touch, 1);
        recorder.finish(Transport::Tls, 2_000_000, 7);
        recorder.finish(Transport::Tls, 2_000_000, 8);
        assert_eq!(measures.service(Transport::Tls, Class::Other).count(), 2);
        assert_eq!(measures.service(Transport::Tls, Class::Touch).count(), 1);
        assert_eq!(measures.service(Transport::Tcp, Class::Touch).count(), 0);
        let slow = measures.slow();
        assert_eq!((slow.len(), slow[0].requests, slow[0].class), (1, 3, Class::Other));
    }

    #[test]
    fn keys_and_their_prefixes_are_sampled() {
        let measures = Arc::new(Measures::new(Measured::ALL, 1, wake()));
        let recorder = measures.recorder(0, b':');
        for n in 0..20_000 {
            recorder.key(b"user:1");
            recorder.key(format!("session:{n}").as_bytes());
        }
        let (keys, prefixes) = measures.busiest(2);
        assert_eq!(&keys[0].key[..], b"user:1");
        let mut names: Vec<_> = prefixes.iter().map(|hot| &hot.key[..]).collect();
        names.sort_unstable();
        assert_eq!(names, [&b"session"[..], b"user"]);
    }
}
