//! What is asked for, and what is printed.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::clients::Result;

/// 90 % gets of some keys each, 10 % sets, each waited for.
pub(crate) struct Load {
    keys: Vec<String>,
    values: Vec<String>,
    pub(crate) keys_per_get: usize,
    pub(crate) secs: f64,
}

/// An operation.
pub(crate) enum Operation<'l> {
    Set(&'l str, &'l str),
    Get(Vec<&'l str>),
}

impl Load {
    pub(crate) fn new(
        objects: usize,
        min_bytes: usize,
        max_bytes: usize,
        keys_per_get: usize,
        secs: f64,
    ) -> Result<Self> {
        if objects < keys_per_get || keys_per_get == 0 || max_bytes < min_bytes {
            return Err("there must be objects for a get, of at least their least size".into());
        }
        // Text that compresses well, as the objects of 2009 did.
        let value = |number: usize| {
            let bytes = min_bytes + (max_bytes - min_bytes) * number / (VALUES - 1);
            let mut value = "larder ".repeat(bytes / 7 + 1);
            value.truncate(bytes);
            value
        };
        Ok(Self {
            keys: (0..objects).map(|number| format!("key:{number:012}")).collect(),
            values: (0..VALUES).map(value).collect(),
            keys_per_get,
            secs,
        })
    }

    /// Every object once: the part of one of some threads.
    pub(crate) fn objects(&self, thread: usize, threads: usize) -> impl Iterator<Item = (&str, &str)> {
        (thread..self.keys.len()).step_by(threads).map(|number| self.object(number))
    }

    fn object(&self, number: usize) -> (&str, &str) {
        (&self.keys[number], &self.values[number % VALUES])
    }

    /// A random one; a get has its keys once each.
    pub(crate) fn next(&self) -> Operation<'_> {
        if fastrand::u8(..10) == 0 {
            let (key, value) = self.object(fastrand::usize(..self.keys.len()));
            return Operation::Set(key, value);
        }
        if self.keys_per_get == 1 {
            return Operation::Get(vec![&self.keys[fastrand::usize(..self.keys.len())]]);
        }
        // Distinct without a set, whose cost would be taken for the client's.
        let objects = self.keys.len();
        let first = fastrand::usize(..objects);
        let step = fastrand::usize(1..=objects / self.keys_per_get);
        let chosen = (0..self.keys_per_get).map(|n| &*self.keys[(first + n * step) % objects]);
        Operation::Get(chosen.collect())
    }
}

/// Of one thread, or of all.
#[derive(Clone, Copy, Default)]
pub(crate) struct Figures {
    sets: u64,
    set_time: Duration,
    gets: u64,
    get_time: Duration,
    misses: u64,
}

impl Figures {
    pub(crate) fn set(&mut self, time: Duration) {
        self.sets += 1;
        self.set_time += time;
    }

    pub(crate) fn get(&mut self, time: Duration, misses: usize) {
        self.gets += 1;
        self.get_time += time;
        self.misses += misses as u64;
    }

    pub(crate) fn add(self, other: Self) -> Self {
        Self {
            sets: self.sets + other.sets,
            set_time: self.set_time + other.set_time,
            gets: self.gets + other.gets,
            get_time: self.get_time + other.get_time,
            misses: self.misses + other.misses,
        }
    }
}

/// Measures what a number of threads do.
pub(crate) struct Watch {
    start: Instant,
    cpu: Duration,
}

impl Watch {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now(), cpu: cpu() }
    }

    /// Prints the line of so many threads.
    pub(crate) fn print(&self, threads: usize, figures: Figures) {
        let secs = self.start.elapsed().as_secs_f64();
        let mean_millis = |time: Duration, count: u64| time.as_secs_f64() * 1e3 / count.max(1) as f64;
        println!(
            "{threads} {:.1} {:.3} {:.3} {:.3} {}",
            (figures.sets + figures.gets) as f64 / secs,
            mean_millis(figures.set_time, figures.sets),
            mean_millis(figures.get_time, figures.gets),
            (cpu() - self.cpu).as_secs_f64() / secs,
            figures.misses,
        );
    }
}

/// What this process has used of all processors.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

const VALUES: usize = 101;
