//! Which items go, and that some always can.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use larder_engine::{Config, Engine, Handle, Now, Store, Stored};

const MIB: u64 = 1 << 20;
const NOW: Now = Now { secs: 1, micros: 1 };

fn engine(memory_bytes: u64) -> Arc<Engine> {
    let config = Config {
        memory_bytes,
        item_bytes_max: 1 << 20,
        evict: true,
        handles_max: 1,
        index_power: None,
        large_pages: false,
        hash_key: [1, 2],
    };
    Engine::new(config).unwrap()
}

/// Stores in a turn of its own, as often as it is told to try again.
fn store(handle: &mut Handle, key: u64, value: &[u8]) {
    let key = key.to_be_bytes();
    for _ in 0..1_000 {
        let turn = handle.enter(NOW);
        match turn.store(turn.prepare(&key), &Store::set(&key, value)) {
            Stored::TryAgain => {}
            stored => {
                assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
                return;
            }
        }
    }
    panic!("{} bytes are always to be had in the next turn", value.len());
}

fn is_there(handle: &mut Handle, key: u64) -> bool {
    let key = key.to_be_bytes();
    let turn = handle.enter(NOW);
    turn.get(&key, turn.prepare(&key)).is_ok()
}

#[test]
fn room_that_lacks_part_of_a_page_is_not_waited_for() {
    let engine = engine(8 * MIB);
    let mut handle = engine.handle().unwrap();
    // A large value takes whole pages: this one fits by its bytes, and not by its five pages.
    assert!(engine.set_memory_limit(engine.stats().memory_used_bytes + 5 * 4096 - 100));
    let turn = handle.enter(NOW);
    let stored = turn.store(turn.prepare(b"key"), &Store::set(b"key", &[7; 5 * 4096 - 200]));
    assert_eq!(stored, Stored::OutOfMemory, "there is nothing to evict, and nothing on its way");
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
