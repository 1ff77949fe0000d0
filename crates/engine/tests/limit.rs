//! The memory limit changes while the cache is in use.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;

use fastrand::Rng;
use larder_engine::{Config, Engine, Guard, Handle, LargePages, Now, Reservation, Stats, Store, Stored};

const MIB: u64 = 1 << 20;
const NOW: Now = Now { secs: 1, micros: 1 };

fn fill(handle: &mut Handle, bytes: u64) {
    for number in 0..bytes / 1000 {
        set(handle, &number.to_be_bytes(), &[7; 1000]);
    }
}

/// Stores, and tries again as a worker does.
fn set(handle: &mut Handle, key: &[u8], value: &[u8]) {
    let stored = (0..10_000).any(|_| {
        // A guard each, so that memory comes back.
        let guard = handle.pin(NOW);
        let stored = guard.store(guard.prepare(key), &Store::set(key, value));
        drop(guard);
        if handle.is_holding() {
            handle.release();
        }
        assert!(!matches!(stored, Stored::OutOfMemory), "refused");
        matches!(stored, Stored::Stored { .. })
    });
    assert!(stored, "tried again for ever");
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
        background.maintain(NOW, 4096);
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

/// A cache of 16 MiB under changing limits, beside a map of what was stored.
struct Modelled {
    engine: Arc<Engine>,
    handle: Handle,
    model: HashMap<u64, (u8, usize)>,
    random: Rng,
}

impl Modelled {
    fn new(evict: bool) -> Self {
        let config = Config {
            memory_bytes: 16 * MIB,
            item_bytes_max: 1 << 20,
            evict,
            handles_max: 2,
            index_power: None,
            large_pages: LargePages::Filled,
            hash_key: [1, 2],
        };
        let reservation = Reservation { memory_bytes_max: 512 * MIB, address_space_bytes: u64::MAX };
        let engine = Engine::new_within(config, reservation).unwrap();
        let handle = engine.handle().unwrap();
        Self { engine, handle, model: HashMap::new(), random: Rng::with_seed(1) }
    }

    /// Stores, overwrites and deletes, items of all sizes, until they hold so many bytes.
    fn fill(&mut self, bytes: usize) {
        let mut stored_bytes: usize = self.model.values().map(|(_, value_bytes)| value_bytes).sum();
        while stored_bytes < bytes {
            let number = self.random.u64(..20_000);
            let value_bytes = match self.random.u8(..10) {
                0 => self.random.usize(100_000..500_000),
                1..4 => self.random.usize(10_000..40_000),
                _ => self.random.usize(..2_000),
            };
            let value = (self.random.u8(..), value_bytes);
            let key = number.to_be_bytes();
            let is_deleted = self.random.u8(..10) == 0;
            self.turn(|guard| {
                let hash = guard.prepare(&key);
                if is_deleted {
                    guard.delete(&key, hash, None);
                    return true;
                }
                match guard.store(hash, &Store::set(&key, &vec![value.0; value_bytes])) {
                    Stored::TryAgain => false,
                    stored => matches!(stored, Stored::Stored { .. }) || panic!("{stored:?}"),
                }
            });
            let before =
                if is_deleted { self.model.remove(&number) } else { self.model.insert(number, value) };
            stored_bytes -= before.map_or(0, |(_, value_bytes)| value_bytes);
            stored_bytes += if is_deleted { 0 } else { value_bytes };
        }
    }

    fn turn(&mut self, work: impl Fn(&Guard<'_>) -> bool) {
        while !work(&self.handle.pin(NOW)) {}
    }

    /// Checks every item that is found. Returns their number and bytes.
    fn found(&mut self) -> (usize, usize) {
        let guard = self.handle.pin(NOW);
        let mut found = (0, 0);
        for (number, &(byte, value_bytes)) in &self.model {
            let key = number.to_be_bytes();
            if let Ok(item) = guard.get(&key, guard.prepare(&key)) {
                assert!(item.value() == vec![byte; value_bytes], "key {number}");
                found = (found.0 + 1, found.1 + value_bytes);
            }
        }
        assert_eq!(self.engine.stats().items, found.0 as u64, "nothing else is there");
        found
    }
}

#[test]
fn a_limit_far_above_the_first_is_used_and_lowered_again() {
    let mut cache = Modelled::new(true);
    for (limit_mib, filled_mib) in [(64, 40), (300, 220), (512, 400)] {
        assert!(cache.engine.set_memory_limit(limit_mib * MIB));
        cache.fill(filled_mib << 20);
        assert_eq!(cache.engine.stats().evictions, 0);
        assert_eq!(cache.found().0, cache.model.len());
    }
    assert!(!cache.engine.set_memory_limit(513 * MIB));

    let mut background = cache.engine.handle().unwrap();
    for limit_mib in [100, 16] {
        assert!(cache.engine.set_memory_limit(limit_mib * MIB));
        for _ in 0..10_000 {
            if cache.engine.stats().memory_used_bytes <= limit_mib * MIB {
                break;
            }
            background.maintain(NOW, 4096);
        }
        assert!(cache.engine.stats().memory_used_bytes <= limit_mib * MIB, "{:?}", cache.engine.stats());
        let (items, bytes) = cache.found();
        assert!(items > 0 && bytes > (limit_mib as usize) << 19, "{items} items of {bytes} bytes are left");
    }
}

#[test]
fn without_eviction_a_raised_limit_holds_more() {
    let mut cache = Modelled::new(false);
    assert!(cache.engine.set_memory_limit(400 * MIB));
    cache.fill(200 << 20);
    assert_eq!(cache.found().0, cache.model.len());
}

/// No segment of the log proper was ever in use.
#[test]
fn large_items_alone_are_maintained() {
    let mut cache = Modelled::new(true);
    let mut background = cache.engine.handle().unwrap();
    background.maintain(NOW, 4096);
    cache.turn(|guard| {
        let stored = guard.store(guard.prepare(b"large"), &Store::set(b"large", &[7; 500_000]));
        matches!(stored, Stored::Stored { .. })
    });
    background.maintain(NOW, 4096);
    assert_eq!(cache.engine.segment_report().pieces.len(), 1);
}

/// Segments keep the size that the first limit gave them, so there are few under a much lower one.
#[test]
fn handles_share_the_few_segments_of_a_much_lower_limit() {
    let engine = Engine::new(Config {
        memory_bytes: 512 * MIB,
        item_bytes_max: 1 << 20,
        evict: true,
        handles_max: 4,
        index_power: None,
        large_pages: LargePages::Never,
        hash_key: [1, 2],
    })
    .unwrap();
    assert!(engine.set_memory_limit(16 * MIB));
    let store = |seed| {
        let mut handle = engine.handle().unwrap();
        let mut random = Rng::with_seed(seed);
        for _ in 0..1000 {
            for _ in 0..50 {
                let key = random.u32(..600_000).to_be_bytes();
                let store = Store::set(&key, &[7; 1000]);
                loop {
                    let guard = handle.pin(NOW);
                    match guard.store(guard.prepare(&key), &store) {
                        Stored::Stored { .. } => break,
                        Stored::TryAgain => {}
                        refused => return Err(refused),
                    }
                    drop(guard);
                    if handle.is_holding() {
                        handle.release();
                    }
                    thread::yield_now();
                }
            }
            if handle.is_holding() {
                handle.release();
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let handles: Vec<_> = (0..4)
            .map(|seed| {
                scope.spawn({
                    let store = &store;
                    move || store(seed)
                })
            })
            .collect();
        for handle in handles {
            assert_eq!(handle.join().unwrap(), Ok(()));
        }
    });
}

/// The ghost and the index keep the size that the first limit gave them.
#[test]
fn a_limit_below_what_index_and_ghost_take_still_stores() {
    for (memory_mib, limit_mib, value_bytes) in
        [(512, 8, 900_000), (1024, 16, 100_000), (1024, 16, 100), (4096, 8, 1), (4096, 64, 300_000)]
    {
        let engine = Engine::new(Config {
            memory_bytes: memory_mib * MIB,
            item_bytes_max: 1 << 20,
            evict: true,
            handles_max: 4,
            index_power: None,
            large_pages: LargePages::Never,
            hash_key: [1, 2],
        })
        .unwrap();
        let mut handle = engine.handle().unwrap();
        let mut store = |keys: u32, value_bytes: usize| {
            let value = vec![7; value_bytes];
            for key in 0..keys {
                set(&mut handle, &key.to_be_bytes(), &value);
            }
        };
        store(200, value_bytes);
        assert!(engine.set_memory_limit(limit_mib * MIB));
        assert_eq!(engine.memory_limit(), limit_mib * MIB);
        for value_bytes in [1, 1000, 100_000, 1] {
            store(300, value_bytes);
        }
        assert!(engine.stats().memory_bytes < (memory_mib / 64 + limit_mib + 32) * MIB);
    }
}

#[test]
fn the_largest_limit_can_be_asked_for() {
    let config = |memory_bytes| Config {
        memory_bytes,
        item_bytes_max: 1 << 20,
        evict: true,
        handles_max: 2,
        index_power: None,
        large_pages: LargePages::Never,
        hash_key: [1, 2],
    };
    assert!(Engine::new(config(1 << 41)).is_ok());
    assert!(Engine::new(config((1 << 41) + 1)).is_err());
}

fn crowd(memory_mib: u64, handles_max: usize, evict: bool) -> Arc<Engine> {
    let config = Config {
        memory_bytes: memory_mib * MIB,
        item_bytes_max: 1 << 20,
        evict,
        handles_max,
        index_power: None,
        large_pages: LargePages::Never,
        hash_key: [1, 2],
    };
    Engine::new(config).unwrap()
}

#[test]
fn without_eviction_a_low_limit_leaves_room_for_stores_beside_the_reserve() {
    for (memory_mib, handles_max, limit_mib) in [(1024, 17, 8), (1024, 65, 8), (1024, 65, 32), (512, 65, 8)] {
        let engine = crowd(memory_mib, handles_max, false);
        let mut handle = engine.handle().unwrap();
        assert!(engine.set_memory_limit(limit_mib * MIB));
        fill(&mut handle, 100_000);
        assert_eq!(engine.stats().items, 100, "{memory_mib} MiB to {limit_mib}, {handles_max} handles");
    }
}

#[test]
fn under_a_low_limit_for_many_handles_most_of_the_memory_is_items() {
    for (memory_mib, handles_max) in [(512, 65), (1024, 65), (1024, 129)] {
        let engine = crowd(memory_mib, handles_max, true);
        let mut handle = engine.handle().unwrap();
        let mut background = engine.handle().unwrap();
        assert!(engine.set_memory_limit(8 * MIB));
        fill(&mut handle, 16 * MIB);
        for secs in 1..200 {
            background.maintain(Now { secs, micros: 1 }, 4096);
        }
        // There is room for eight segments beside index and ghost.
        let room_bytes = 8 * engine.large_value_bytes() as u64 * 2;
        let items = engine.stats().items;
        assert!(
            items * 1000 > room_bytes / 2,
            "{memory_mib} MiB, {handles_max} handles: {items} of {room_bytes} B"
        );
    }
}

fn small_engine(item_bytes_max: u32) -> Arc<Engine> {
    Engine::new(Config {
        memory_bytes: 16 * MIB,
        item_bytes_max,
        evict: true,
        handles_max: 1,
        index_power: None,
        large_pages: LargePages::Never,
        hash_key: [1, 2],
    })
    .unwrap()
}

#[test]
fn the_largest_item_changes_in_use() {
    let engine = small_engine(1 << 20);
    let mut handle = engine.handle().unwrap();
    let mut store = |value_bytes: usize| {
        let guard = handle.pin(NOW);
        guard.store(guard.prepare(b"k"), &Store::set(b"k", &vec![7; value_bytes]))
    };
    // By memcached's formula: key + value + 59 bytes.
    engine.set_item_bytes_max(1_000);
    assert!(matches!(store(940), Stored::Stored { .. }));
    assert_eq!(store(941), Stored::TooLarge);
    engine.set_item_bytes_max(2_000_000);
    assert!(matches!(store(1_500_000), Stored::Stored { .. }));
    engine.set_item_bytes_max(u32::MAX);
    assert_eq!(engine.item_bytes_max(), 1 << 30);
}

#[test]
fn engines_with_one_hash_key_hash_alike_and_their_counters_add_up() {
    let engines = [small_engine(1 << 20), small_engine(1 << 20)];
    let mut handles = engines.each_ref().map(|engine| engine.handle().unwrap());
    let mut sum = Stats::default();
    for (number, handle) in handles.iter_mut().enumerate() {
        let guard = handle.pin(NOW);
        for key in 0..=number as u64 {
            let key = key.to_be_bytes();
            let _ = guard.store(guard.prepare(&key), &Store::set(&key, b"value"));
        }
    }
    let [one, other] = handles.each_mut().map(|handle| handle.pin(NOW));
    assert_eq!(one.prepare(b"key"), other.prepare(b"key"));
    engines.iter().for_each(|engine| sum.merge(&engine.stats()));
    let each = engines.each_ref().map(|engine| engine.stats());
    // 8 bytes of key, 5 of value, and 59.
    assert_eq!((sum.items, sum.items_total, sum.bytes), (3, 3, 3 * 72));
    assert_eq!(sum.memory_bytes, each[0].memory_bytes + each[1].memory_bytes);
    assert_eq!(sum.free_bytes, each[0].free_bytes + each[1].free_bytes);
    assert_eq!(sum.queues[0].items, 3);
    assert_eq!(sum.index_power, each[0].index_power);
}

/// Values of 0 B to 8 MB, of sizes that shift, beside a map; readers keep some beyond their guards; the limit falls and
/// rises. What is charged keeps to it, and most of it is of use.
#[test]
fn memory_is_bounded_while_sizes_and_limit_shift() {
    let config = Config {
        memory_bytes: 64 * MIB,
        item_bytes_max: 9 << 20,
        evict: true,
        handles_max: 2,
        index_power: None,
        large_pages: LargePages::Never,
        hash_key: [1, 2],
    };
    let engine = Engine::new(config).unwrap();
    let (mut handle, mut background) = (engine.handle().unwrap(), engine.handle().unwrap());
    let mut random = Rng::with_seed(3);
    let mut model: HashMap<u64, (u8, usize)> = HashMap::new();
    let mut kept = Vec::new();
    let spans = [(0, 2_000), (60_000, 130_000), (5_000, 40_000), (200_000, 1_200_000), (0, 8_000_000)];
    let phases = if cfg!(miri) { 0 } else { 24 };
    for phase in 0..phases {
        let limit_mib = [64, 40, 24, 96][phase / 3 % 4];
        assert!(engine.set_memory_limit(limit_mib * MIB));
        let (least, most) = spans[phase % spans.len()];
        let mut left_bytes = 40_000_000;
        while left_bytes > 0 {
            let number = random.u64(..3_000);
            let (key, byte) = (number.to_be_bytes(), random.u8(..));
            let value_bytes = random.usize(least..most);
            left_bytes -= value_bytes as i64 + 1_000;
            model.remove(&number);
            let value = vec![byte; value_bytes];
            let is_stored = (0..10_000).any(|_| {
                let guard = handle.pin(NOW);
                match guard.store(guard.prepare(&key), &Store::set(&key, &value)) {
                    Stored::TryAgain => false,
                    // Readers may hold what a large value needs.
                    Stored::OutOfMemory => true,
                    stored => matches!(stored, Stored::Stored { .. }) || panic!("{stored:?}"),
                }
            });
            assert!(is_stored, "tried again for ever");
            let guard = handle.pin(NOW);
            if let Ok(item) = guard.get(&key, guard.prepare(&key))
                && item.value().len() == value_bytes
            {
                assert!(item.value().iter().all(|found| *found == byte));
                model.insert(number, (byte, value_bytes));
                if random.u8(..4) == 0 {
                    kept.extend(item.value_ref().map(|value| (value, byte)));
                }
            }
            while kept.len() > 6 {
                let (value, byte) = kept.swap_remove(random.usize(..kept.len()));
                let found = value.value(&guard);
                assert!(found.is_none_or(|found| found.iter().all(|found| *found == byte)));
            }
        }
        kept.clear();
        for _ in 0..10_000 {
            if engine.stats().memory_used_bytes <= limit_mib * MIB {
                break;
            }
            background.maintain(NOW, 4096);
        }
        let stats = engine.stats();
        assert!(stats.memory_used_bytes <= limit_mib * MIB, "{stats:?}");
        let guard = handle.pin(NOW);
        let mut found_bytes = 0;
        for (number, &(byte, value_bytes)) in &model {
            let key = number.to_be_bytes();
            if let Ok(item) = guard.get(&key, guard.prepare(&key)) {
                assert!(item.value().len() == value_bytes && item.value().iter().all(|found| *found == byte));
                found_bytes += value_bytes as u64;
            }
        }
        let stored_bytes = model.values().map(|(_, value_bytes)| *value_bytes as u64).sum::<u64>();
        let wanted_bytes = stored_bytes.min(limit_mib * MIB) / 3;
        assert!(found_bytes >= wanted_bytes, "{found_bytes} bytes are left in phase {phase}: {stats:?}");
    }
}
