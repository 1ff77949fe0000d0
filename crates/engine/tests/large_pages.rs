//! What is full is moved to large pages in the background: nothing changes but where it lies.

#![allow(clippy::unwrap_used)]

use std::fs;

use larder_engine::{Config, Engine, LargePages, Now, Store, Stored};

const ITEMS: u32 = 200_000;

#[test]
fn what_is_moved_stays_as_it_was_and_takes_no_more_memory() {
    let config = Config {
        memory_bytes: 64 << 20,
        item_bytes_max: 1 << 20,
        evict: true,
        handles_max: 2,
        index_power: None,
        large_pages: LargePages::Filled,
        hash_key: [5, 6],
    };
    let engine = Engine::new(config).unwrap();
    let (mut worker, mut background) = (engine.handle().unwrap(), engine.handle().unwrap());
    let now = |secs: u32| Now { secs, micros: u64::from(secs) * 1_000_000 };
    let item = |number: u32| (format!("key:{number}").into_bytes(), format!("{number:>100}").into_bytes());
    for number in 0..ITEMS {
        let (key, value) = item(number);
        let guard = worker.pin(now(1));
        let stored = guard.store(guard.prepare(&key), &Store::set(&key, &value));
        assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
    }
    let (large_before, resident_before) = (smaps_bytes("AnonHugePages:"), smaps_bytes("Rss:"));
    // The first look finds that the cache has just grown, and leaves it alone.
    background.maintain(now(2), 1024);
    for secs in 3..10 {
        while background.maintain(now(secs), 1024) {}
    }
    // Other machines may have none to give: then that is all right, too.
    let mode = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let moved_bytes = smaps_bytes("AnonHugePages:").saturating_sub(large_before);
    eprintln!("{} MiB lie on large pages ({})", moved_bytes >> 20, mode.trim());
    // The bounds of what was full are not those of large pages.
    assert!(smaps_bytes("Rss:") < resident_before + (4 << 20));
    for number in 0..ITEMS {
        let (key, value) = item(number);
        let guard = worker.pin(now(10));
        assert_eq!(guard.get(&key, guard.prepare(&key)).unwrap().value(), value);
    }
}

/// The sum of a field of `/proc/self/smaps_rollup`.
fn smaps_bytes(field: &str) -> u64 {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}
