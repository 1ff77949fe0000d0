//! The engine inside a program of your own: four threads share a cache, each through a handle.
//!
//! `cargo run --release -p larder-engine --example embedded`

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::time::Instant;

use larder_engine::{Config, Engine, Expiry, Handle, LargePages, Now, Store};

const THREADS: usize = 4;
const LOOKUPS: u64 = 1_000_000;
/// How long a result is worth keeping.
const TTL_SECS: u32 = 60;

fn main() -> std::io::Result<()> {
    let random = RandomState::new();
    let engine = Engine::new(Config {
        memory_bytes: 32 << 20,
        item_bytes_max: 1 << 20,
        evict: true,
        handles_max: THREADS,
        index_power: None,
        large_pages: LargePages::Filled,
        hash_key: [random.hash_one(1), random.hash_one(2)],
    })?;
    let start = Instant::now();
    let hits: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS as u64)
            .filter_map(|seed| {
                engine.handle().map(|handle| scope.spawn(move || look_up_squares(handle, start, seed)))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(0)).sum()
    });
    let stats = engine.stats();
    println!("{hits} of {} look-ups were answered from the cache", LOOKUPS * THREADS as u64);
    println!("{} items in {} KiB, {} evicted", stats.items, stats.memory_used_bytes >> 10, stats.evictions);
    Ok(())
}

/// Looks results up, and computes those that are not there. Returns how many were.
fn look_up_squares(mut handle: Handle, start: Instant, seed: u64) -> u64 {
    let mut number = seed;
    let mut hits = 0;
    for _ in 0..LOOKUPS / 100 {
        // The engine never reads a clock: tell it the time, once for many requests.
        let elapsed = start.elapsed();
        let now = Now { secs: 1 + elapsed.as_secs() as u32, micros: elapsed.as_micros() as u64 };
        let guard = handle.pin(now);
        for _ in 0..100 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let operand = (number >> 40) % 100_000;
            let key = operand.to_be_bytes();
            let hash = guard.prepare(&key);
            match guard.get(&key, hash) {
                Ok(item) => {
                    assert_eq!(item.value(), (operand * operand).to_be_bytes());
                    hits += 1;
                }
                Err(_) => {
                    let square = (operand * operand).to_be_bytes();
                    let expiry = Expiry::at(now.secs + TTL_SECS);
                    guard.store(hash, &Store { expiry, ..Store::set(&key, &square) });
                }
            }
        }
    }
    hits
}
