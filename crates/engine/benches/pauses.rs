//! The longest operation while the engine is at something large: growth of the index, eviction, compaction, a flush, a
//! million items that expire at once, a smaller memory limit.
//!
//! ```text
//! cargo bench -p larder-engine --bench pauses [-- EVENT...]
//! ```
//!
//! One thread asks as a worker of larderd does, one request a guard, and each operation is timed by the thread's own
//! CPU clock: what else the system runs is not in it. What CPU time cannot show, waiting for a lock, shows as a
//! voluntary context switch; they are counted. A second thread gives the engine its background step once a second, as
//! larderd's main thread does; its longest turn is told too, since memory waits for the end of guards. Where the host
//! of a virtual machine takes a core away, the CPU clock may run on: how much was stolen of all cores meanwhile, to 10
//! ms, is told last, so that a pause of that kind is known for one.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use larder_engine::{
    Config, Engine, Expiry, Guard, Handle, LargePages, Now, Store, Stored, Upload, WriteError,
};
use rustix::time::{ClockId, clock_gettime};

const MIB: u64 = 1 << 20;
/// What the engine does recurs in every round; what the machine does to a thread that CPU time does not tell apart (a
/// host that takes the core away) does not. The round with the shortest longest operation counts.
const ROUNDS: usize = 3;

/// The event in which nothing happens. What is long there, the engine is not to blame for, and the figure leaves it
/// out.
const CONTROL: &str = "nothing";

/// Sets the scene, and returns the longest operation, in nanoseconds of CPU time.
type Event = fn() -> u32;

const EVENTS: [(&str, Event); 13] = [
    (CONTROL, nothing),
    ("idle", idle),
    ("growth", growth),
    ("eviction-small", eviction_small),
    ("eviction-mixed", eviction_mixed),
    ("compaction", compaction),
    ("compaction-full", compaction_full),
    ("flush", flush),
    ("expiry", expiry),
    ("limit", limit),
    ("limit-empty", limit_empty),
    ("full", full),
    ("full-replaced", full_replaced),
];

fn main() {
    // Cargo says `--bench`.
    let chosen: Vec<String> = env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    if let Some(unknown) = chosen.iter().find(|name| EVENTS.iter().all(|(event, _)| event != name)) {
        eprintln!("no event is called {unknown:?}");
        std::process::exit(2);
    }
    println!(
        "{:<16} {:>10} {:>8} {:>8} {:>9} {:>9} {:>8} {:>8} {:>8} {:>9} {:>11}",
        "CPU time, us",
        "operations",
        "p50",
        "p99.9",
        "p99.99",
        "longest",
        "> 1 ms",
        "tries",
        "waits",
        "backgr.",
        "stolen, ms"
    );
    let mut longest_nanos = 0;
    for (name, event) in EVENTS {
        if chosen.is_empty() || chosen.iter().any(|word| word == name) {
            let nanos = (0..ROUNDS).map(|_| event()).min().unwrap_or(0);
            longest_nanos = longest_nanos.max(if name == CONTROL { 0 } else { nanos });
        }
    }
    println!("figure: {:.1}", f64::from(longest_nanos) / 1e3);
}

/// Two readings of the clock, again and again for as long as the longest event takes: what the machine costs.
fn nothing() -> u32 {
    let mut probe = Probe::new(MIB, true);
    probe.begin(CONTROL);
    let end = Instant::now() + Duration::from_secs(14);
    while Instant::now() < end {
        for _ in 0..1000 {
            probe.time(|_| ());
        }
    }
    probe.end()
}

/// Gets of keys that are there, and nothing else.
fn idle() -> u32 {
    let mut probe = Probe::new(512 * MIB, true);
    probe.fill(0..1_000_000, 32);
    probe.begin("idle");
    for number in numbers(2_000_000, 1_000_000) {
        probe.get(number);
    }
    probe.end()
}

fn growth() -> u32 {
    let mut probe = Probe::new(2048 * MIB, true);
    probe.begin("growth");
    for number in 0..10_000_000 {
        probe.set(number, 32, Expiry::NEVER);
    }
    probe.end()
}

fn eviction_small() -> u32 {
    let mut probe = Probe::new(512 * MIB, true);
    probe.fill(0..6_000_000, 32);
    probe.begin("eviction-small");
    for number in 6_000_000..10_000_000 {
        probe.set(number, 32, Expiry::NEVER);
        probe.get(number - 500_000);
    }
    probe.end()
}

/// Small items fill the memory; then come values of all sizes, up to 1 MiB.
fn eviction_mixed() -> u32 {
    let mut probe = Probe::new(512 * MIB, true);
    probe.fill(0..6_000_000, 32);
    probe.begin("eviction-mixed");
    for number in 0..100_000u64 {
        let value_bytes = match number % 100 {
            0 => 1_000_000,
            1..5 => 300_000,
            5..30 => 10_000,
            _ => 32,
        };
        probe.set(10_000_000 + number, value_bytes, Expiry::NEVER);
        probe.get(10_000_000 + number / 2);
        // And small ones again, so that the next large one finds small ones to evict.
        for small in 0..20 {
            probe.set(20_000_000 + number * 20 + small, 32, Expiry::NEVER);
        }
    }
    probe.end()
}

/// The same keys again and again, with room to spare: segments that lost half their bytes are compacted.
fn compaction() -> u32 {
    let mut probe = Probe::new(512 * MIB, true);
    probe.fill(0..2_000_000, 100);
    probe.begin("compaction");
    for number in numbers(6_000_000, 2_000_000) {
        probe.set(number, 100, Expiry::NEVER);
    }
    probe.end()
}

/// The same without eviction and with little room: all room comes from compaction.
fn compaction_full() -> u32 {
    let mut probe = Probe::new(512 * MIB, false);
    probe.fill(0..3_000_000, 100);
    probe.begin("compaction-full");
    for number in numbers(3_000_000, 3_000_000) {
        probe.set(number, 100, Expiry::NEVER);
    }
    probe.end()
}

fn flush() -> u32 {
    let mut probe = Probe::new(1024 * MIB, true);
    probe.fill(0..5_000_000, 32);
    probe.begin("flush");
    probe.flush();
    probe.ask_for(Duration::from_secs(8), 5_000_000);
    probe.end()
}

fn expiry() -> u32 {
    let mut probe = Probe::new(1024 * MIB, true);
    probe.fill(0..4_000_000, 32);
    let at = Expiry::at(probe.now().secs + 8);
    for number in 0..1_000_000 {
        probe.set(number * 4, 32, at);
    }
    probe.begin("expiry");
    probe.ask_for(Duration::from_secs(14), 4_000_000);
    probe.end()
}

/// `cache_memlimit` with a full cache.
fn limit() -> u32 {
    let mut probe = Probe::new(1024 * MIB, true);
    probe.fill(0..12_000_000, 32);
    probe.begin("limit");
    probe.set_memory_limit(256 * MIB);
    for number in 12_000_000..15_000_000 {
        probe.set(number, 32, Expiry::NEVER);
        probe.get(number - 200_000);
    }
    probe.ask_for(Duration::from_secs(3), 15_000_000);
    probe.end()
}

/// `cache_memlimit` after a flush has freed everything: nothing to evict, all to give back.
fn limit_empty() -> u32 {
    let mut probe = Probe::new(1024 * MIB, true);
    probe.fill(0..900_000, 1000);
    probe.flush();
    probe.ask_for(Duration::from_secs(10), 900_000);
    probe.begin("limit-empty");
    probe.set_memory_limit(64 * MIB);
    for number in 0..1_000_000 {
        probe.set(number, 32, Expiry::NEVER);
    }
    probe.end()
}

/// Stores that find no room, without eviction.
fn full() -> u32 {
    let mut probe = Probe::new(1024 * MIB, false);
    probe.fill(0..14_000_000, 32);
    probe.begin("full");
    for number in 14_000_000..14_300_000 {
        probe.set(number, 32, Expiry::NEVER);
    }
    probe.end()
}

/// Without eviction and with memory full: one is deleted, and another stored in its place.
fn full_replaced() -> u32 {
    let mut probe = Probe::new(512 * MIB, false);
    let mut stored = 0;
    while probe.set(stored, 32, Expiry::NEVER) {
        stored += 1;
    }
    probe.begin("full-replaced");
    for number in numbers(3_000_000, stored) {
        probe.delete(number);
        assert!(probe.set(number, 32, Expiry::NEVER), "there is as much room as before");
    }
    probe.end()
}

/// A worker of larderd, and the thread that does the background work beside it.
struct Probe {
    handle: Handle,
    background: Arc<Background>,
    keeper: Option<thread::JoinHandle<()>>,
    started: Instant,
    value: Vec<u8>,
    name: &'static str,
    cpu_nanos: Vec<u32>,
    waits: u64,
    stolen_millis: u64,
    /// The most tries that one request needed.
    tries_max: u64,
}

#[derive(Default)]
struct Background {
    is_over: AtomicBool,
    longest_nanos: AtomicU64,
}

impl Probe {
    fn new(memory_bytes: u64, evict: bool) -> Self {
        let engine = Engine::new(Config {
            memory_bytes,
            item_bytes_max: 2 << 20,
            evict,
            handles_max: 5, // larderd with four workers
            index_power: None,
            large_pages: LargePages::Filled,
            hash_key: [1, 2],
        })
        .unwrap();
        let started = Instant::now();
        let background = Arc::new(Background::default());
        let mut keeper = engine.handle().unwrap();
        let shared = Arc::clone(&background);
        let keeper = thread::spawn(move || {
            while !shared.is_over.load(Relaxed) {
                thread::sleep(Duration::from_secs(1));
                for _ in 0..256 {
                    let before = cpu_time();
                    let is_more = keeper.maintain(now(started), 1024);
                    shared.longest_nanos.fetch_max(nanos(cpu_time() - before).into(), Relaxed);
                    if !is_more {
                        break;
                    }
                }
            }
        });
        Self {
            handle: engine.handle().unwrap(),
            background,
            keeper: Some(keeper),
            started,
            value: vec![7; 1 << 20],
            name: "",
            cpu_nanos: Vec::new(),
            waits: 0,
            stolen_millis: 0,
            tries_max: 0,
        }
    }

    fn now(&self) -> Now {
        now(self.started)
    }

    /// Not measured.
    fn fill(&mut self, keys: std::ops::Range<u64>, value_bytes: usize) {
        for number in keys {
            self.set(number, value_bytes, Expiry::NEVER);
        }
    }

    fn begin(&mut self, name: &'static str) {
        self.name = name;
        self.cpu_nanos.clear();
        self.tries_max = 0;
        self.cpu_nanos.reserve(40_000_000);
        self.waits = voluntary_switches();
        self.stolen_millis = stolen_millis();
        self.background.longest_nanos.store(0, Relaxed);
    }

    /// Prints the line. Returns the longest.
    fn end(mut self) -> u32 {
        let waits = voluntary_switches() - self.waits;
        let stolen_millis = stolen_millis() - self.stolen_millis;
        let background = self.background.longest_nanos.load(Relaxed);
        self.cpu_nanos.sort_unstable();
        let all = &self.cpu_nanos;
        let micros = |nanos: u32| f64::from(nanos) / 1e3;
        let at = |share: f64| micros(all[((all.len() as f64 * share) as usize).min(all.len() - 1)]);
        println!(
            "{:<16} {:>10} {:>8.2} {:>8.1} {:>9.1} {:>9.1} {:>8} {:>8} {waits:>8} {:>9.0} {stolen_millis:>11}",
            self.name,
            all.len(),
            at(0.5),
            at(0.999),
            at(0.9999),
            at(1.0),
            all.len() - all.partition_point(|&nanos| nanos <= 1_000_000),
            self.tries_max,
            background as f64 / 1e3,
        );
        self.background.is_over.store(true, Relaxed);
        if let Some(keeper) = self.keeper.take() {
            keeper.join().unwrap();
        }
        self.cpu_nanos[self.cpu_nanos.len() - 1]
    }

    /// One operation under a guard of its own, timed.
    fn operation<R>(&mut self, work: impl FnOnce(&Guard<'_>) -> R) -> R {
        let now = self.now();
        self.time(|handle| work(&handle.pin(now)))
    }

    fn time<R>(&mut self, work: impl FnOnce(&mut Handle) -> R) -> R {
        let before = cpu_time();
        let result = work(&mut self.handle);
        self.cpu_nanos.push(nanos(cpu_time() - before));
        result
    }

    fn flush(&mut self) {
        let engine = Arc::clone(self.handle.engine());
        self.operation(|guard| engine.flush(guard.now(), None));
    }

    fn set_memory_limit(&mut self, memory_bytes: u64) {
        let engine = Arc::clone(self.handle.engine());
        self.operation(|_| assert!(engine.set_memory_limit(memory_bytes)));
    }

    fn get(&mut self, number: u64) {
        let key = key(number);
        self.operation(|guard| {
            let hash = guard.prepare(&key);
            guard.prefetch_gets(&[hash]);
            guard.get(&key, hash).is_ok()
        });
    }

    fn delete(&mut self, number: u64) {
        let key = key(number);
        self.operation(|guard| guard.delete(&key, guard.prepare(&key), None));
    }

    /// A large value comes in pieces, as it does from a socket; between them, and after each `TryAgain`, others have
    /// their turn. False: there is no room.
    fn set(&mut self, number: u64, value_bytes: usize, expiry: Expiry) -> bool {
        let key = key(number);
        let value = std::mem::take(&mut self.value);
        let store = Store { expiry, ..Store::set(&key, &value[..value_bytes]) };
        let is_stored = if value_bytes < self.handle.engine().large_value_bytes() as usize {
            self.retry(|guard| no_room(guard.store(guard.prepare(&key), &store))).is_some()
        } else {
            let upload = self.retry(|guard| guard.reserve(&store, value_bytes as u32));
            upload.is_some_and(|upload| self.upload(&store, upload, &value))
        };
        self.value = value;
        is_stored
    }

    fn upload(&mut self, store: &Store<'_>, mut upload: Upload, value: &[u8]) -> bool {
        while upload.missing_bytes() > 0 {
            let is_filled = self.retry(|guard| {
                let window = guard.window(&mut upload)?;
                let count = window.len().min(READ_BYTES);
                window[..count].copy_from_slice(&value[..count]);
                upload.advance(count);
                Ok(())
            });
            if is_filled.is_none() {
                return false;
            }
        }
        let mut upload = Some(upload);
        self.retry(|guard| no_room(guard.commit(guard.prepare(store.key), store, &mut upload))).is_some()
    }

    /// Until it is more than "try again"; `None`: there is no room.
    fn retry<R>(&mut self, mut work: impl FnMut(&Guard<'_>) -> Result<R, WriteError>) -> Option<R> {
        for tries in 1..100_000 {
            self.tries_max = self.tries_max.max(tries);
            match self.operation(&mut work) {
                Ok(result) => return Some(result),
                Err(WriteError::TryAgain) => thread::yield_now(),
                Err(_) => return None,
            }
        }
        None
    }

    /// Gets of random keys, and one set in ten.
    fn ask_for(&mut self, duration: Duration, keys: u64) {
        let end = Instant::now() + duration;
        let mut numbers = numbers(u64::MAX, keys);
        while Instant::now() < end {
            for _ in 0..1000 {
                self.get(numbers.next().unwrap());
            }
            for _ in 0..100 {
                self.set(numbers.next().unwrap(), 32, Expiry::NEVER);
            }
        }
    }
}

fn no_room(stored: Stored) -> Result<(), WriteError> {
    match stored {
        Stored::TryAgain => Err(WriteError::TryAgain),
        Stored::OutOfMemory => Err(WriteError::OutOfMemory),
        _ => Ok(()),
    }
}

/// What larderd reads at once.
const READ_BYTES: usize = 64 << 10;

/// So many numbers below `below`, in an order without order (Knuth's multiplier).
fn numbers(count: u64, below: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |n| ((n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) % below)
}

/// 24 bytes.
fn key(number: u64) -> [u8; 24] {
    let mut key = *b"key:00000000000000000000";
    let mut rest = number;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

fn now(started: Instant) -> Now {
    let elapsed = started.elapsed();
    Now { secs: 1 + elapsed.as_secs() as u32, micros: 1 + elapsed.as_micros() as u64 }
}

/// What this thread has used.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn nanos(duration: Duration) -> u32 {
    duration.as_nanos().try_into().unwrap_or(u32::MAX)
}

/// How often this thread has waited.
fn voluntary_switches() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    line.trim().parse().unwrap()
}

/// What the host took of all cores since the machine began. Zero where the system does not tell.
fn stolen_millis() -> u64 {
    const STOLEN_FIELD: usize = 8; // proc_stat(5)
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let ticks = stat.split_whitespace().nth(STOLEN_FIELD).map_or(0, |ticks| ticks.parse::<u64>().unwrap());
    ticks * 1000 / rustix::param::clock_ticks_per_second()
}
