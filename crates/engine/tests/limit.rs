//! The memory limit changes while the cache is in use.

#![allow(clippy::unwrap_used)]

use larder_engine::{Config, Engine, Handle, LargePages, Now, Store, Stored};

const MIB: u64 = 1 << 20;

fn fill(handle: &mut Handle, bytes: u64) {
    let value = [7; 1000];
    for number in 0..bytes / 1000 {
        // A turn each, so that memory comes back.
        let guard = handle.pin(Now { secs: 1, micros: 1 });
        let key = number.to_be_bytes();
        assert!(matches!(guard.store(guard.prepare(&key), &Store::set(&key, &value)), Stored::Stored { .. }));
    }
}

#[test]
fn memory_follows_its_limit_down_and_up() {
    let engine = Engine::new(Config {
        memory_bytes: 16 * MIB,
        item_bytes_max: 1 << 20,
        evict: true,
        handles_max: 2,
        index_power: None,
        large_pages: LargePages::Filled,
        hash_key: [1, 2],
    })
    .unwrap();
    let mut handle = engine.handle().unwrap();
    let mut background = engine.handle().unwrap();
    fill(&mut handle, 40 * MIB);
    let full = engine.stats();
    assert!(full.memory_used_bytes <= 16 * MIB + (64 << 10) && full.items > 12_000, "{full:?}");

    assert!(engine.set_memory_limit(8 * MIB));
    for _ in 0..1000 {
        if engine.stats().memory_used_bytes <= 8 * MIB {
            break;
        }
        background.maintain(Now { secs: 1, micros: 1 }, 4096);
    }
    let small = engine.stats();
    assert_eq!(small.memory_bytes, 8 * MIB);
    assert!(small.memory_used_bytes <= 8 * MIB, "{small:?}");
    // Two handles keep segments open; the rest is items.
    assert!((4_000..8_000).contains(&small.items), "{small:?}");

    assert!(engine.set_memory_limit(32 * MIB));
    let evictions = engine.stats().evictions;
    fill(&mut handle, 20 * MIB);
    let large = engine.stats();
    assert!(large.items > 20_000, "{large:?}");
    assert_eq!(large.evictions, evictions);

    // Beyond the address space that was set aside.
    assert!(!engine.set_memory_limit(1000 * MIB));
    assert_eq!(engine.stats().memory_bytes, 32 * MIB);
}
