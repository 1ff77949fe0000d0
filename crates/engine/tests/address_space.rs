//! Addresses are set aside for what may come; what the system counts (`vm.overcommit_memory=2`) follows what is in use.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
// The sanitizer maps memory of its own, and keeps what was freed.
#![cfg(all(target_os = "linux", not(any(miri, asan))))]

use std::io::ErrorKind;
use std::sync::{Mutex, PoisonError};

use larder_engine::{Config, Engine, LargePages, Now, Reservation, Store, Stored};

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

/// One test at a time: they look at the whole process.
static TURN: Mutex<()> = Mutex::new(());

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

/// Bytes that a core dump would have.
fn dumped_bytes() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut bytes, mut dumped_bytes) = (0, 0);
    for line in maps.lines() {
        if let Some(size) = line.strip_prefix("Size:") {
            bytes = size.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
        } else if let Some(flags) = line.strip_prefix("VmFlags:") {
            let is_left_out = flags.split(' ').any(|flag| flag == "dd");
            dumped_bytes += if is_left_out { 0 } else { bytes };
        }
    }
    dumped_bytes
}

#[test]
fn what_is_reserved_and_what_is_counted() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
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
    let engine = Engine::new_within(config(), Reservation::modest(MEMORY_BYTES, left_bytes)).unwrap();
    assert!(mapped_bytes().0 - all_before <= left_bytes);
    assert!(engine.set_memory_limit(MEMORY_BYTES) && !engine.set_memory_limit(2 * MEMORY_BYTES));
    drop(engine);

    let error =
        Engine::new_within(config(), Reservation::modest(MEMORY_BYTES, MEMORY_BYTES)).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert_eq!(error.to_string(), "it needs 176 MiB of addresses, and 64 MiB are left");
}

/// Also where the system counts what can be written to, and with a table of four million segments.
#[test]
fn a_high_limit_costs_addresses_and_no_memory() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    const MAX_BYTES: u64 = 256 << 30;
    let resident_bytes = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    let (resident_before, (all_before, writable_before)) = (resident_bytes(), mapped_bytes());
    let dumped_before = dumped_bytes();
    let reservation = Reservation { memory_bytes_max: MAX_BYTES, address_space_bytes: u64::MAX };
    let engine = Engine::new_within(config(), reservation).unwrap();
    let (all, writable) = mapped_bytes();
    assert!(all - all_before >= 2 * MAX_BYTES, "{} bytes of addresses", all - all_before);
    assert!(resident_bytes() - resident_before < 2 * MIB, "{} bytes", resident_bytes() - resident_before);
    if cfg!(debug_assertions) {
        // The test runner may start a thread meanwhile, with its stack.
        assert!(writable - writable_before < 8 * MIB, "{} bytes count", writable - writable_before);
    }
    let dumped = || dumped_bytes() - dumped_before;
    // The heap may reserve some meanwhile.
    assert!((3 * MEMORY_BYTES..6 * MEMORY_BYTES).contains(&dumped()), "a dump has {} bytes", dumped());
    assert!(engine.set_memory_limit(2 * MEMORY_BYTES));
    assert!((6 * MEMORY_BYTES..9 * MEMORY_BYTES).contains(&dumped()), "a dump has {} bytes", dumped());
    assert_eq!(engine.memory_limit_max(), MAX_BYTES);
    assert!(engine.set_memory_limit(MAX_BYTES) && !engine.set_memory_limit(MAX_BYTES + 1));
    assert_eq!(engine.memory_limit(), MAX_BYTES);
}

/// Page faults of this thread that needed no disk: proc(5), `/proc/pid/stat`.
fn faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    stat.rsplit_once(')').unwrap().1.split(' ').nth(8).unwrap().parse().unwrap()
}

#[test]
fn large_values_take_freed_memory_as_it_is() {
    const AT_ONCE: usize = 8;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Now { secs: 1, micros: 1 };
    for value_bytes in [100_000, 500_000, 1_000_000] {
        let engine = Engine::new(config()).unwrap();
        let mut handle = engine.handle().unwrap();
        // Of so many values a part arrives, then the rest.
        let mut store_some = |round: usize| {
            let key = |number: usize| (round * AT_ONCE + number).to_be_bytes();
            let mut uploads: Vec<_> = (0..AT_ONCE).map(|_| None).collect();
            for arrived_bytes in [16_384, value_bytes / 2, value_bytes] {
                for (number, upload) in uploads.iter_mut().enumerate() {
                    let key = key(number);
                    let is_there = (0..10_000).any(|_| {
                        let guard = handle.pin(now);
                        if upload.is_none() {
                            *upload = guard.reserve(&Store::set(&key, b""), value_bytes as u32).ok();
                        }
                        let Some(upload) = upload else { return false };
                        let left = upload.missing_bytes() as usize - (value_bytes - arrived_bytes);
                        let filled = guard.window(upload).map_or(0, |window| window.len().min(left));
                        if let Ok(window) = guard.window(upload) {
                            window[..filled].fill(7);
                        }
                        upload.advance(filled);
                        filled == left
                    });
                    assert!(is_there, "tried again for ever");
                }
            }
            for (number, upload) in uploads.iter_mut().enumerate() {
                let key = key(number);
                let is_stored = (0..10_000).any(|_| {
                    let guard = handle.pin(now);
                    let stored = guard.commit(guard.prepare(&key), &Store::set(&key, b""), upload);
                    matches!(stored, Stored::Stored { .. })
                });
                assert!(is_stored, "tried again for ever");
            }
        };
        let filling = 3 * MEMORY_BYTES as usize / value_bytes / AT_ONCE;
        (0..filling).for_each(&mut store_some);
        let before = faults();
        (filling..filling + 25).for_each(&mut store_some);
        let faults = faults() - before;
        assert!(faults <= 400, "{faults} page faults for 200 values of {value_bytes} bytes");
    }
}
