//! Which items go, and that some always can.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use larder_engine::{Config, Engine, Expiry, Handle, LargePages, Now, Store, Stored};

const MIB: u64 = 1 << 20;
const NOW: Now = Now { secs: 1, micros: 1 };

fn engine(memory_bytes: u64) -> Arc<Engine> {
    engine_that(true, memory_bytes)
}

fn engine_that(evict: bool, memory_bytes: u64) -> Arc<Engine> {
    let config = Config {
        memory_bytes,
        item_bytes_max: 1 << 20,
        evict,
        handles_max: 1,
        index_power: None,
        large_pages: LargePages::Filled,
        hash_key: [1, 2],
    };
    Engine::new(config).unwrap()
}

/// Stores under a guard of its own, as often as it is told to try again.
fn store(handle: &mut Handle, key: u64, value: &[u8]) {
    let key = key.to_be_bytes();
    for _ in 0..1_000 {
        let guard = handle.pin(NOW);
        match guard.store(guard.prepare(&key), &Store::set(&key, value)) {
            Stored::TryAgain => {}
            stored => {
                assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
                return;
            }
        }
    }
    panic!("{} bytes are always to be had in the next guard", value.len());
}

fn is_there(handle: &mut Handle, key: u64) -> bool {
    let key = key.to_be_bytes();
    let guard = handle.pin(NOW);
    guard.get(&key, guard.prepare(&key)).is_ok()
}

#[test]
fn of_two_items_that_are_read_alike_the_smaller_stays() {
    let engine = engine(16 * MIB);
    let mut handle = engine.handle().unwrap();
    let (small, large) = ([1; 200], [2; 10_000]);
    // Twice the memory in large values, and small ones of a fortieth of it.
    for key in 0..4_000 {
        store(&mut handle, key, if key % 2 == 0 { &small } else { &large });
    }
    let found = |handle: &mut Handle, odd: u64| {
        (0..2_000).filter(|number| is_there(handle, 2 * number + odd)).count()
    };
    let (small, large) = (found(&mut handle, 0), found(&mut handle, 1));
    // By their worth a small one stays while fifty times as much is stored: all of them.
    assert_eq!(small, 2_000);
    assert!((1_200..1_600).contains(&large), "{large} of 2000 large ones in 16 MiB");
}

#[test]
fn what_is_read_survives_what_is_only_written() {
    let engine = engine(16 * MIB);
    let mut handle = engine.handle().unwrap();
    let value = [3; 1_000];
    let hot = 4_000;
    for key in 0..hot {
        store(&mut handle, key, &value);
    }
    // Five times the memory goes by, and each hot key is read again within half of it.
    for (at, key) in (hot..hot + 80_000).enumerate() {
        store(&mut handle, key, &value);
        is_there(&mut handle, at as u64 % hot);
    }
    let left = (0..hot).filter(|&key| is_there(&mut handle, key)).count() as u64;
    assert!(left > hot * 95 / 100, "{left} of {hot}");
}

/// A segment that is open is half empty on average: with lines for every lifetime and size, four threads could keep a
/// quarter of the memory so.
#[test]
fn few_segments_are_open_whatever_is_stored() {
    const HANDLES: usize = 4;
    let config = Config {
        memory_bytes: 64 * MIB,
        item_bytes_max: 1 << 20,
        evict: true,
        handles_max: HANDLES,
        index_power: None,
        large_pages: LargePages::Filled,
        hash_key: [1, 2],
    };
    let engine = Engine::new(config).unwrap();
    let mut handles: Vec<Handle> = (0..HANDLES).map(|_| engine.handle().unwrap()).collect();
    for (number, handle) in handles.iter_mut().enumerate() {
        for ttl_secs in [None, Some(30), Some(300), Some(3_000), Some(20_000), Some(1_000_000)] {
            for value_bytes in [10, 200, 1_000, 4_000, 16_000, 60_000] {
                let key = format!("{number}:{ttl_secs:?}:{value_bytes}");
                let value = vec![7; value_bytes];
                let guard = handle.pin(NOW);
                let mut item = Store::set(key.as_bytes(), &value);
                item.expiry = ttl_secs.map_or(Expiry::NEVER, |ttl_secs| Expiry::at(NOW.secs + ttl_secs));
                assert!(matches!(guard.store(guard.prepare(key.as_bytes()), &item), Stored::Stored { .. }));
            }
        }
    }
    let stats = engine.stats();
    assert_eq!(stats.items, 4 * 6 * 6);
    let segments_bytes = stats.queues[0].memory_bytes + stats.queues[1].memory_bytes;
    assert!(segments_bytes <= 64 * MIB / 8, "{segments_bytes} of 64 MiB for {} bytes of items", stats.bytes);
}

#[test]
fn what_fits_stays_however_often_it_is_overwritten() {
    let engine = engine(16 * MIB);
    let mut handle = engine.handle().unwrap();
    let value = [7; 1000];
    // Four fifths of what there is for items of a kilobyte and a little. Overwritten at random, a log that is cleaned
    // from its oldest end has then segments of which 63 % live: u = (f - 1) / ln f (Rosenblum and Ousterhout, "The
    // Design and Implementation of a Log-Structured File System", 1992).
    let keys = (16 * MIB - engine.stats().memory_used_bytes) * 4 / 5 / 1040;
    let mut random = 1_u64;
    (0..keys).for_each(|key| store(&mut handle, key, &value));
    for _ in 0..20 * keys {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        store(&mut handle, (random >> 33) % keys, &value);
    }
    let lost = (0..keys).filter(|&key| !is_there(&mut handle, key)).count();
    assert_eq!(lost, 0, "of {keys}");
}

#[test]
fn what_is_overwritten_is_used_again_before_more_memory_is() {
    for evict in [true, false] {
        let engine = engine_that(evict, 64 * MIB);
        let mut handle = engine.handle().unwrap();
        let empty_bytes = engine.stats().memory_used_bytes;
        let (keys, value) = (4_000, [7; 1000]);
        let mut random = 1_u64;
        (0..keys).for_each(|key| store(&mut handle, key, &value));
        let filled_bytes = engine.stats().memory_used_bytes - empty_bytes;
        for _ in 0..40 * keys {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            store(&mut handle, (random >> 33) % keys, &value);
        }
        // With segments of which a quarter lives when they are cleaned, 54 % of all lives (the formula above): 1.85
        // times what was there at first.
        let used_bytes = engine.stats().memory_used_bytes - empty_bytes;
        assert!(
            used_bytes < filled_bytes * 22 / 10,
            "evict {evict}: {filled_bytes} bytes became {used_bytes}"
        );
        let lost = (0..keys).filter(|&key| !is_there(&mut handle, key)).count();
        assert_eq!(lost, 0, "evict {evict}");
    }
}

#[test]
fn what_lives_stays_where_it_is_while_others_are_overwritten() {
    for (evict, bytes) in [(true, 1000), (true, 60), (false, 1000)] {
        let engine = engine_that(evict, 16 * MIB);
        let mut handle = engine.handle().unwrap();
        let (keys, mut random) = (11 * MIB / (bytes + 24), 1_u64);
        let mut versions = vec![0_u64; keys as usize];
        let value = |key: u64, version: u64| (key << 20 | version).to_be_bytes().repeat(bytes as usize / 8);
        (0..keys).for_each(|key| store(&mut handle, key, &value(key, 0)));
        let (mut before, mut stored) = (engine.stats(), 0);
        for round in 0..10 * keys {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = (random >> 33) % keys;
            versions[key as usize] += 1;
            store(&mut handle, key, &value(key, versions[key as usize]));
            stored += 1;
            if round == 4 * keys {
                // The cache has settled.
                (before, stored) = (engine.stats(), 0);
            }
        }
        let after = engine.stats();
        let (moved, refilled) = (after.compacted - before.compacted, after.refilled - before.refilled);
        // Two thirds of the memory live: where segments are emptied, two items are moved for three that are stored.
        assert_eq!(
            moved < stored / 50,
            evict,
            "{bytes} bytes: {moved} items were moved while {stored} were stored"
        );
        assert_eq!(refilled > 0, evict);
        assert_eq!(after.evictions, 0, "all fit");
        let guard = handle.pin(NOW);
        for (key, &version) in (0..).zip(&versions) {
            let name = u64::to_be_bytes(key);
            let item = guard.get(&name, guard.prepare(&name)).unwrap();
            assert_eq!(item.value(), value(key, version), "{key}");
        }
    }
}

#[test]
fn holes_are_given_up_where_nothing_else_is_left() {
    for extra in 0..10 {
        let engine = engine(16 * MIB);
        let mut handle = engine.handle().unwrap();
        let (keys, mut random) = (10_000, 1_u64);
        for _ in 0..5 * keys + 7 * extra {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            store(&mut handle, (random >> 33) % keys, &[7; 1000]);
        }
        assert!(engine.stats().refilled > 0);
        // Less than what the index takes: all has to go.
        assert!(engine.set_memory_limit(MIB / 4));
        for number in 0..2 * keys {
            let key = number.to_be_bytes();
            let answers = (0..1_000).any(|_| {
                let guard = handle.pin(NOW);
                guard.store(guard.prepare(&key), &Store::set(&key, &[7; 1000])) != Stored::TryAgain
            });
            assert!(
                answers,
                "{extra}: {number} of {keys} is told to try again for ever: {:?}",
                engine.stats()
            );
        }
    }
}

#[test]
fn segments_that_their_items_cannot_fill_are_not_compacted() {
    let engine = engine(16 * MIB);
    let mut handle = engine.handle().unwrap();
    // A third of a segment of 32 KiB and a little: two lie in each, the rest stays empty, and nothing is ever dead but
    // what was evicted.
    let value = [7; 11_500];
    let keys = 16 * MIB / 11_500;
    (0..10 * keys).for_each(|key| store(&mut handle, key, &value));
    assert_eq!(engine.stats().compacted, 0);
}

#[test]
fn without_eviction_what_is_dead_makes_room() {
    let engine = engine_that(false, 16 * MIB);
    let mut handle = engine.handle().unwrap();
    let mut random = 1_u64;
    let mut below = |n: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % n
    };
    let mut bytes_when_refused_min = u64::MAX;
    for _ in 0..120_000 {
        // A half more than fits. A client whose store is refused does not want the old value (as `set` of the
        // protocol).
        let (key, value) = (below(15_000).to_be_bytes(), &[7; 3_000][..100 + below(2_900) as usize]);
        let stored = (0..1_000).find_map(|_| {
            let guard = handle.pin(NOW);
            let stored = guard.store(guard.prepare(&key), &Store::set(&key, value));
            (stored != Stored::TryAgain).then_some(stored)
        });
        if stored == Some(Stored::OutOfMemory) {
            bytes_when_refused_min = bytes_when_refused_min.min(engine.stats().bytes);
            let guard = handle.pin(NOW);
            guard.delete(&key, guard.prepare(&key), None);
        }
    }
    assert!(bytes_when_refused_min < u64::MAX, "more was stored than fits");
    assert!(
        bytes_when_refused_min > 16 * MIB * 3 / 4,
        "refused when {bytes_when_refused_min} bytes were alive"
    );
}

/// `-m 1 -t 200`: fewer segments than handles, each of which leaves its own to the others when it has nothing to do.
#[test]
fn more_handles_than_segments_refuse_nothing() {
    const HANDLES: usize = 200;
    let engine = Engine::new(Config {
        memory_bytes: 1 << 20,
        item_bytes_max: 1 << 19,
        evict: true,
        handles_max: HANDLES + 1,
        index_power: None,
        large_pages: LargePages::Never,
        hash_key: [1, 2],
    })
    .unwrap();
    let mut handles: Vec<_> = (0..HANDLES).map(|_| engine.handle().unwrap()).collect();
    for round in 0..if cfg!(miri) { 1 } else { 20 } {
        for (number, handle) in handles.iter_mut().enumerate() {
            let key = format!("{number}:{round}").into_bytes();
            let tries = (0..100).find(|_| {
                let guard = handle.pin(NOW);
                let stored = guard.store(guard.prepare(&key), &Store::set(&key, &[b'x'; 300]));
                assert!(matches!(stored, Stored::Stored { .. } | Stored::TryAgain), "{stored:?}");
                stored != Stored::TryAgain
            });
            assert!(tries.is_some(), "the answer is always to try again");
            assert!(handle.is_holding());
            handle.release();
        }
    }
    // What they share they fill: as much as if there were one of them, not an item a segment.
    let items = engine.stats().items;
    assert!(items > 1000, "{items} items of 340 bytes in 1 MiB");
}

/// Bytes of the values that are found.
fn held_bytes(handle: &mut Handle, keys: u64) -> usize {
    let guard = handle.pin(NOW);
    let value_bytes = |key: u64| {
        let key = key.to_be_bytes();
        guard.get(&key, guard.prepare(&key)).map_or(0, |item| item.value().len())
    };
    (0..keys).map(value_bytes).sum()
}

/// Sizes of 30 % more or less; one and a half times what fits, then the newest 60 % again, twice over. Nine tenths of
/// the memory hold values (memcached 1.6: 0.75 to 0.87).
#[test]
fn overwritten_large_values_leave_little_garbage() {
    for value_bytes in [100_000, 300_000, 900_000] {
        let engine = engine(256 * MIB);
        engine.set_item_bytes_max(2 << 20);
        let mut handle = engine.handle().unwrap();
        let mut random = fastrand::Rng::with_seed(7);
        let value = vec![7; 2 * value_bytes];
        let mut put = |handle: &mut Handle, key| {
            let bytes = random.usize(value_bytes * 7 / 10..value_bytes * 13 / 10);
            store(handle, key, &value[..bytes]);
            random.u64(..)
        };
        let keys = 384 * MIB / value_bytes as u64;
        for key in 0..keys {
            put(&mut handle, key);
        }
        let newest = keys * 6 / 10;
        let mut next = 0;
        for _ in 0..2 * newest {
            next = put(&mut handle, keys - newest + next % newest);
        }
        let held_mib = held_bytes(&mut handle, keys) >> 20;
        assert!(held_mib >= 228, "{held_mib} MiB of {value_bytes} bytes, {:?}", engine.stats());
    }
}

/// A tenth of the values is overwritten again and again, far below the limit.
#[test]
fn overwritten_large_values_are_reused_before_fresh_memory() {
    let engine = engine(1024 * MIB);
    let mut handle = engine.handle().unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let value = vec![7; 100_000];
    (0..1_000).for_each(|key| store(&mut handle, key, &value));
    let before = engine.stats().memory_used_bytes;
    (0..2_000).for_each(|_| store(&mut handle, 10 * random.u64(..100), &value));
    let more_bytes = engine.stats().memory_used_bytes - before;
    assert!(more_bytes <= 1_000_000, "{more_bytes} bytes more");
}
