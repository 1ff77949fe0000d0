//! How the engine scales: 90 % gets and 10 % sets of a million keys (Zipf 0.99) by one thread, and by two.
//!
//! ```text
//! cargo bench -p larder-engine --bench threads [-- THREADS]
//! ```
//!
//! Each thread has a handle of its own, as a worker of larderd has, and does 32 requests a guard with the memory
//! fetched ahead. One thread and several take guards within each round. Two figures: the rate by the clock, which needs
//! as many idle cores, and by CPU time, which does not: if threads fight over cache lines or locks, an operation costs
//! each of them more than it costs one alone.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use std::{env, thread};

use larder_engine::{Config, Engine, Handle, LargePages, Now, Store};
use rustix::time::{ClockId, clock_gettime};

const KEYS: usize = 1_000_000;
const VALUE_BYTES: usize = 100;
const OPERATIONS: usize = 3_000_000;
const BATCH: usize = 32;
const ROUNDS: usize = 7;
const EXPONENT: f64 = 0.99;

fn main() {
    // Cargo says `--bench`.
    let threads = env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(2);
    let engine = Engine::new(Config {
        memory_bytes: 1 << 30,
        item_bytes_max: 1 << 20,
        evict: true,
        handles_max: threads,
        index_power: None,
        large_pages: LargePages::Filled,
        hash_key: [1, 2],
    })
    .unwrap();
    fill(&engine);
    let requests: Vec<Vec<u32>> = (0..threads).map(|thread| draw(thread as u64 + 1)).collect();

    let (mut by_clock, mut by_cpu) = (Vec::new(), Vec::new());
    println!("{:>6} {:>8} {:>12} {:>14}", "round", "threads", "M ops / s", "CPU ns an op");
    for round in 0..ROUNDS {
        let [one, several] = [1, threads].map(|threads| {
            let figures = race(&engine, &requests[..threads]);
            println!(
                "{round:>6} {threads:>8} {:>12.2} {:>14.1}",
                figures.operations_per_sec / 1e6,
                figures.cpu_nanos
            );
            figures
        });
        by_clock.push(several.operations_per_sec / one.operations_per_sec);
        by_cpu.push(threads as f64 * one.cpu_nanos / several.cpu_nanos);
    }
    println!(
        "{threads} threads do {:.2} times as much by the clock (median of {ROUNDS} rounds)",
        median(by_clock)
    );
    let scaling = median(by_cpu);
    println!("{threads} threads do {scaling:.2} times as much by CPU time");
    println!("figure: {scaling:.3}");
}

struct Figures {
    operations_per_sec: f64,
    cpu_nanos: f64,
}

/// As many threads as there are lists of requests, all at the same time.
fn race(engine: &Arc<Engine>, requests: &[Vec<u32>]) -> Figures {
    let start = Barrier::new(requests.len() + 1);
    thread::scope(|scope| {
        let workers: Vec<_> = requests
            .iter()
            .map(|requests| {
                let mut handle = engine.handle().unwrap();
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    let before = cpu_time();
                    work(&mut handle, requests);
                    cpu_time() - before
                })
            })
            .collect();
        start.wait();
        let begun = Instant::now();
        let cpu: Duration = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        let operations = (requests.len() * OPERATIONS) as f64;
        Figures {
            operations_per_sec: operations / begun.elapsed().as_secs_f64(),
            cpu_nanos: cpu.as_nanos() as f64 / operations,
        }
    })
}

fn work(handle: &mut Handle, requests: &[u32]) {
    let value = [7; VALUE_BYTES];
    let mut found_bytes = 0;
    let mut micros = 1;
    for batch in requests.chunks(BATCH) {
        micros += 10;
        let guard = handle.pin(Now { secs: 1, micros });
        // The last batch may be a short one.
        let keys: [_; BATCH] =
            std::array::from_fn(|at| key(batch.get(at).map_or(0, |request| request & !IS_SET)));
        let hashes = keys.each_ref().map(|key| guard.prepare(key));
        guard.prefetch_gets(&hashes);
        for ((key, hash), &request) in keys.iter().zip(&hashes).zip(batch) {
            if request & IS_SET != 0 {
                let _ = guard.store(*hash, &Store::set(key, &value));
            } else if let Ok(item) = guard.get(key, *hash) {
                found_bytes += item.value().len();
            }
        }
    }
    assert!(found_bytes > 0);
}

fn fill(engine: &Arc<Engine>) {
    let mut handle = engine.handle().unwrap();
    let value = [7; VALUE_BYTES];
    for number in 0..KEYS as u32 {
        let guard = handle.pin(Now { secs: 1, micros: 1 });
        let key = key(number);
        let _ = guard.store(guard.prepare(&key), &Store::set(&key, &value));
    }
    // As larderd does once a second.
    while handle.maintain(Now { secs: 1, micros: 1 }, 1024) {}
}

/// Marks a request as a set.
const IS_SET: u32 = 1 << 31;

/// Numbers of keys, drawn by popularity; one in ten is a set.
fn draw(seed: u64) -> Vec<u32> {
    let mut sums = Vec::with_capacity(KEYS);
    let mut sum = 0.0;
    for rank in 1..=KEYS {
        sum += (rank as f64).powf(-EXPONENT);
        sums.push(sum);
    }
    let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut next = move || {
        // xorshift64* (Vigna, 2016)
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        random.wrapping_mul(0x2545_F491_4F6C_DD1D)
    };
    (0..OPERATIONS)
        .map(|_| {
            let at = (next() >> 11) as f64 / (1u64 << 53) as f64 * sum;
            let rank = sums.partition_point(|&sum| sum < at) as u64;
            // Popular keys are no neighbours.
            let number = (rank.wrapping_mul(7_919_317) % KEYS as u64) as u32;
            if next() % 10 == 0 { number | IS_SET } else { number }
        })
        .collect()
}

/// 24 bytes.
fn key(number: u32) -> [u8; 24] {
    let mut key = *b"key:00000000000000000000";
    let mut rest = number;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// What this thread has used.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
