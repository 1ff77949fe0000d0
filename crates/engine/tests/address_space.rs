//! Addresses are set aside for what may come; what the system counts (`vm.overcommit_memory=2`) follows what is in use.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
// The sanitizer maps memory of its own, and keeps what was freed.
#![cfg(all(target_os = "linux", not(any(miri, asan))))]

use std::io::ErrorKind;

use larder_engine::{Config, Engine, LargePages, Now, Store, Stored};

const MIB: u64 = 1 << 20;
const MEMORY_BYTES: u64 = 64 * MIB;

fn config() -> Config {
    Config {
        memory_bytes: MEMORY_BYTES,
        item_bytes_max: 1 << 20,
        evict: true,
        handles_max: 5,
        index_power: None,
        large_pages: LargePages::Never,
        hash_key: [1, 2],
    }
}

/// Bytes of address space, and those of them that can be written to.
fn mapped_bytes() -> (u64, u64) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let regions = maps.lines().map(|line| {
        let (range, rest) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
        (end - start, rest.as_bytes()[1] == b'w')
    });
    regions.fold((0, 0), |(all, writable), (bytes, is_writable)| {
        (all + bytes, if is_writable { writable + bytes } else { writable })
    })
}

#[test]
fn what_is_reserved_and_what_is_counted() {
    let (all_before, writable_before) = mapped_bytes();
    let engine = Engine::new(config()).unwrap();
    let (all, writable) = mapped_bytes();
    assert!(all - all_before >= 8 * MEMORY_BYTES, "the limit may be raised to four times the memory");
    // As under overcommit_memory=2; else all of it may be written to, and does not count.
    if cfg!(debug_assertions) {
        assert!(writable - writable_before < 8 * MIB, "{} bytes count", writable - writable_before);
    }
    let mut handle = engine.handle().unwrap();
    for bytes in [10_000, 700_000] {
        for number in 0..10 * MEMORY_BYTES / bytes {
            let guard = handle.pin(Now { secs: 1, micros: 1 });
            let key = number.to_string();
            let hash = guard.prepare(key.as_bytes());
            let stored = guard.store(hash, &Store::set(key.as_bytes(), &vec![0; bytes as usize]));
            assert!(matches!(stored, Stored::Stored { .. } | Stored::TryAgain), "{stored:?}");
        }
    }
    if cfg!(debug_assertions) {
        let counted = mapped_bytes().1 - writable_before;
        assert!((MEMORY_BYTES / 2..MEMORY_BYTES + 16 * MIB).contains(&counted), "{counted} bytes count");
    }
    assert!(engine.set_memory_limit(4 * MEMORY_BYTES));
    drop((handle, engine));

    // Little is left: the limit can be raised by less.
    let left_bytes = 4 * MEMORY_BYTES;
    let (all_before, _) = mapped_bytes();
    let engine = Engine::new_within(config(), left_bytes).unwrap();
    assert!(mapped_bytes().0 - all_before <= left_bytes);
    assert!(engine.set_memory_limit(MEMORY_BYTES) && !engine.set_memory_limit(2 * MEMORY_BYTES));
    drop(engine);

    let error = Engine::new_within(config(), MEMORY_BYTES).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert_eq!(error.to_string(), "it needs 176 MiB of addresses, and 64 MiB are left");
}
