//! Corner cases, each of which was wrong once or looked as if it might be.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use larder_engine::{
    Arith, Compare, Config, Counted, Deleted, Engine, Expiry, Fetch, FetchError, Guard, Handle, Invalidate,
    LargePages, Now, Queue, Store, Stored, Token, WriteError,
};

const ONE_MORE: Arith = Arith {
    delta: 1,
    decrement: false,
    compare: None,
    initial: None,
    expiry: None,
    cas: None,
    binary_key: false,
};

fn config(memory_bytes: u64, evict: bool) -> Config {
    Config {
        memory_bytes,
        item_bytes_max: 1 << 20,
        evict,
        handles_max: 4,
        index_power: None,
        large_pages: LargePages::Filled,
        hash_key: [7, 8],
    }
}

fn engine(memory_bytes: u64, evict: bool) -> Arc<Engine> {
    Engine::new(config(memory_bytes, evict)).unwrap()
}

fn at(secs: u32) -> Now {
    Now { secs, micros: u64::from(secs) * 1_000_000 }
}

/// Stores, leaving and entering guards as asked.
fn put(handle: &mut Handle, now: Now, store: &Store<'_>) -> Stored {
    // Not a number of tries: how many it takes depends on what else the machine does while another thread's turn lasts.
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let guard = handle.pin(now);
        let stored = guard.store(guard.prepare(store.key), store);
        if stored != Stored::TryAgain || Instant::now() > end {
            return stored;
        }
        drop(guard);
        std::thread::yield_now();
    }
}

fn is_stored(stored: Stored) -> bool {
    matches!(stored, Stored::Stored { .. })
}

fn has(guard: &Guard<'_>, key: &[u8]) -> bool {
    guard.peek(key, guard.prepare(key)).is_ok()
}

fn delete(handle: &mut Handle, now: Now, key: &[u8]) {
    let guard = handle.pin(now);
    assert_eq!(guard.delete(key, guard.prepare(key), None), Deleted::Deleted);
}

/// Fills the cache with items of one size until it refuses; returns how many there are.
fn fill(handle: &mut Handle, value: &[u8]) -> usize {
    let name = |at: usize| format!("fill:{at}").into_bytes();
    (0..).find(|&at| !is_stored(put(handle, crate::at(2), &Store::set(&name(at), value)))).unwrap()
}

#[test]
fn a_large_item_that_was_read_outlives_those_that_were_not() {
    let engine = engine(64 << 20, true);
    let mut handle = engine.handle().unwrap();
    let value = vec![1; 200_000];
    assert!(is_stored(put(&mut handle, at(2), &Store::set(b"hot", &value))));
    for _ in 0..3 {
        let guard = handle.pin(at(2));
        assert!(guard.get(b"hot", guard.prepare(b"hot")).is_ok());
    }
    for number in 0..600 {
        let key = format!("cold:{number}").into_bytes();
        assert!(is_stored(put(&mut handle, at(2), &Store::set(&key, &value))));
    }
    assert!(engine.stats().evictions > 100);
    assert!(has(&handle.pin(at(2)), b"hot"), "read thrice, then evicted before what nobody read");
}

#[test]
fn overwriting_one_key_evicts_nothing() {
    let engine = engine(64 << 20, true);
    let mut handle = engine.handle().unwrap();
    for number in 0..50_000 {
        let key = format!("still:{number}").into_bytes();
        assert!(is_stored(put(&mut handle, at(2), &Store::set(&key, &[2; 500]))));
    }
    for _ in 0..600_000 {
        assert!(is_stored(put(&mut handle, at(2), &Store::set(b"busy", &[3; 500]))));
    }
    let stats = engine.stats();
    assert_eq!((stats.evictions, stats.items), (0, 50_001), "half the memory holds dead items only");
}

#[test]
fn without_eviction_deleted_items_make_room_wherever_they_lay() {
    for step in [2, 3, 8] {
        let engine = engine(4 << 20, false);
        let mut handle = engine.handle().unwrap();
        let count = fill(&mut handle, &[4; 1000]);
        (0..count)
            .step_by(step)
            .for_each(|at| delete(&mut handle, crate::at(2), format!("fill:{at}").as_bytes()));
        let again = (0..count)
            .take_while(|at| {
                is_stored(put(
                    &mut handle,
                    crate::at(2),
                    &Store::set(format!("again:{at}").as_bytes(), &[5; 1000]),
                ))
            })
            .count();
        assert!(again * 10 >= count / step * 8, "{again} of {} after deleting one in {step}", count / step);
        let guard = handle.pin(at(2));
        let kept = (0..count).filter(|at| at % step != 0);
        assert!(kept.clone().all(|at| has(&guard, format!("fill:{at}").as_bytes())));
    }
}

#[test]
fn without_eviction_a_nearly_full_cache_takes_what_replaces_the_deleted() {
    for bytes in [100, 1000, 100_000] {
        let engine = engine(4 << 20, false);
        let mut handle = engine.handle().unwrap();
        let value = vec![6; bytes];
        let count = fill(&mut handle, &value);
        let name = |at: usize| format!("fill:{}", at % count).into_bytes();
        let ahead = count / 8;
        (0..ahead).for_each(|at| delete(&mut handle, crate::at(2), &name(at)));
        for round in 0..4 * count {
            delete(&mut handle, at(2), &name(round + ahead));
            let stored = put(&mut handle, at(2), &Store::set(&name(round), &value));
            assert!(is_stored(stored), "{stored:?} in round {round} of {count} values of {bytes} bytes");
        }
    }
}

/// What memcached 1.6.18 does (`-M -m 64`, items of one size until one is refused) it does to any item that is there.
#[test]
fn without_eviction_what_is_there_can_be_touched_and_counted() {
    let engine = engine(8 << 20, false);
    let mut handle = engine.handle().unwrap();
    let count = fill(&mut handle, b"12345678");
    let name = |at: usize| format!("fill:{at}").into_bytes();
    for at in 0..count {
        let (key, dies) = (name(at), Expiry::at(1000));
        let guard = handle.pin(crate::at(2));
        let hash = guard.prepare(&key);
        let result = match at % 3 {
            0 => guard.touch(&key, hash, dies).map(|item| item.expiry()),
            1 => {
                let how = Fetch { touch: Some(dies), ..Fetch::default() };
                guard.fetch(&key, hash, &how).map(|fetched| fetched.item.expiry())
            }
            _ => {
                let how = Invalidate { stale: true, expiry: Some(dies), ..Invalidate::default() };
                assert_eq!(guard.invalidate(&key, hash, &how), Ok(Deleted::Deleted), "{at} of {count}");
                guard.peek(&key, hash).map(|fetched| fetched.item.expiry()).map_err(FetchError::Miss)
            }
        };
        assert_eq!(result, Ok(dies), "{at} of {count}");
    }
    for at in (0..3 * count).map(|at| at * 7919 % count) {
        let key = name(at);
        let counted = (0..100_000).find_map(|_| {
            let guard = handle.pin(crate::at(2));
            let counted = guard.arith(&key, guard.prepare(&key), &ONE_MORE);
            (counted != Counted::TryAgain).then_some(counted)
        });
        assert!(matches!(counted, Some(Counted::Number { .. })), "{counted:?} of {at} of {count}");
    }
}

/// memcached does so for ever, as long as the size is alike.
#[test]
fn without_eviction_one_delete_makes_room_for_one_store() {
    for bytes in [8, 100, 1000, 10_000, 100_000] {
        let engine = engine(8 << 20, false);
        let mut handle = engine.handle().unwrap();
        let value = vec![6; bytes];
        let count = fill(&mut handle, &value);
        let name = |at: usize| format!("fill:{at}").into_bytes();
        let mut more = 0;
        for round in 0..count.clamp(2000, 40_000) {
            // Those who want more than there is must not take the room of those who replace.
            let new = format!("more:{round}").into_bytes();
            if is_stored(put(&mut handle, at(2), &Store::set(&new, &value))) {
                more += 1;
                delete(&mut handle, at(2), &new);
                assert!(is_stored(put(&mut handle, at(2), &Store::set(&new, &value))), "{new:?} was there");
            }
            let key = name(round * 7919 % count);
            delete(&mut handle, at(2), &key);
            let stored = put(&mut handle, at(2), &Store::set(&key, &value));
            assert!(is_stored(stored), "{stored:?} in round {round} of {count} values of {bytes} bytes");
        }
        assert_eq!(engine.stats().items, (count + more) as u64);
        assert!(more <= count / 100, "{more} more than {count}");
    }
}

/// Whatever was let through, when memory was how full: it can be stored again where it was deleted.
#[test]
fn without_eviction_what_was_stored_can_be_stored_again() {
    let engine = engine(2 << 20, false);
    let mut handle = engine.handle().unwrap();
    let value = |number: usize| vec![6; 50 + number * 7919 % 1900];
    for number in 0..60_000 {
        let (key, value) = ((number % 6000).to_string().into_bytes(), value(number));
        if is_stored(put(&mut handle, at(2), &Store::set(&key, &value))) {
            delete(&mut handle, at(2), &key);
            let again = put(&mut handle, at(2), &Store::set(&key, &value));
            assert!(is_stored(again), "{again:?} for number {number}");
        }
    }
}

/// memcached refuses this once, for it needs a second place for the first of them; the refused `set` then leaves one.
#[test]
fn without_eviction_a_full_cache_takes_new_values_for_old_ones() {
    for bytes in [8, 100, 1000, 10_000] {
        let engine = engine(8 << 20, false);
        let mut handle = engine.handle().unwrap();
        let value = vec![6; bytes];
        let count = fill(&mut handle, &value);
        for round in 0..(2 * count).clamp(5000, 200_000) {
            let key = format!("fill:{}", round * 7919 % count).into_bytes();
            let stored = put(&mut handle, at(2), &Store::set(&key, &value));
            assert!(is_stored(stored), "{stored:?} in round {round} of {count} values of {bytes} bytes");
        }
        assert_eq!(engine.stats().items, count as u64);
    }
}

/// What is refused costs a look at some counters, not at every segment, and moves nothing.
#[test]
fn without_eviction_a_refused_store_moves_nothing() {
    let engine = engine(16 << 20, false);
    let mut handle = engine.handle().unwrap();
    let count = fill(&mut handle, &[6; 100]);
    // Too little for one more, in every segment.
    for at in (0..count).step_by(300) {
        let key = format!("fill:{at}").into_bytes();
        assert!(is_stored(put(&mut handle, crate::at(2), &Store::set(&key, &[6; 50]))));
    }
    while is_stored(put(&mut handle, at(2), &Store::set(&engine.stats().items.to_be_bytes(), &[6; 100]))) {}
    let compacted = engine.stats().compacted;
    for number in 0..10_000_u32 {
        let key = number.to_be_bytes();
        assert_eq!(put(&mut handle, at(2), &Store::set(&key, &[6; 100])), Stored::OutOfMemory);
    }
    assert_eq!(engine.stats().compacted, compacted);
}

/// Half of a full cache expires, spread over all of it; memcached 1.6.18 then takes as much anew as soon as its crawler
/// has come by.
fn expect_room_for_half(handle: &mut Handle, count: usize, now: Now) {
    let stored = (0..count / 2)
        .take_while(|number| {
            is_stored(put(handle, now, &Store::set(format!("new:{number}").as_bytes(), b"12345678")))
        })
        .count();
    assert!(stored > count * 4 / 10, "{stored} for the half of {count}");
}

#[test]
fn without_eviction_what_was_touched_makes_room_once_it_has_expired() {
    let engine = engine(8 << 20, false);
    let (mut handle, mut background) = (engine.handle().unwrap(), engine.handle().unwrap());
    let count = fill(&mut handle, b"12345678");
    for number in (0..count).step_by(2) {
        let key = format!("fill:{number}").into_bytes();
        let guard = handle.pin(at(2));
        assert!(guard.touch(&key, guard.prepare(&key), Expiry::at(10)).is_ok());
    }
    // Nobody knows of them, until somebody wants the room.
    assert!(!is_stored(put(&mut handle, at(20), &Store::set(b"first", b"12345678"))));
    while background.maintain(at(20), 1000) {}
    expect_room_for_half(&mut handle, count, at(20));
}

#[test]
fn without_eviction_what_expires_does_not_stand_among_what_does_not() {
    let engine = engine(8 << 20, false);
    let mut handle = engine.handle().unwrap();
    let count = fill(&mut handle, b"12345678");
    for number in (0..2 * count).map(|number| number % count) {
        let key = format!("fill:{number}").into_bytes();
        let expiry = if number % 2 == 0 { Expiry::at(10) } else { Expiry::NEVER };
        assert!(is_stored(put(&mut handle, at(2), &Store { expiry, ..Store::set(&key, b"12345678") })));
    }
    expect_room_for_half(&mut handle, count, at(20));
}

#[test]
fn moments_of_the_wall_clock_come_sooner_or_later_when_it_is_set() {
    let engine = engine(8 << 20, true);
    let (mut handle, mut background) = (engine.handle().unwrap(), engine.handle().unwrap());
    for (key, expiry) in [
        (&b"counted"[..], Expiry::at(100)),
        (b"wall", Expiry::at_wall(100)),
        (b"long", Expiry::at_wall(10_000)),
    ] {
        assert!(is_stored(put(&mut handle, at(50), &Store { expiry, ..Store::set(key, b"") })));
    }
    let mut found = |secs: u32, wall_ahead_secs: i32| {
        engine.set_wall_ahead(wall_ahead_secs);
        background.maintain(at(secs), 1000);
        let guard = handle.pin(at(secs));
        [&b"counted"[..], b"wall", b"long"].map(|key| guard.get(key, guard.prepare(key)).is_ok())
    };
    assert_eq!(found(99, 0), [true, true, true]);
    assert_eq!(found(99, -9), [true, true, true]);
    assert_eq!(found(99, 1), [true, false, true]);
    // An item that a client was told is gone does not come back.
    assert_eq!(found(99, -50), [true, false, true]);
    assert_eq!(found(100, -50), [false, false, true]);
    assert_eq!(found(1_000, 8_999), [false, false, true]);
    assert_eq!(found(1_000, i32::MIN), [false, false, true]);
    assert_eq!(found(1_000, i32::MAX), [false, false, false]);
}

#[test]
fn without_eviction_expired_large_items_make_room_behind_one_that_lives() {
    let engine = engine(8 << 20, false);
    let (mut handle, mut background) = (engine.handle().unwrap(), engine.handle().unwrap());
    let value = vec![7; 200_000];
    let hour = 3600;
    assert!(is_stored(put(
        &mut handle,
        at(2),
        &Store { expiry: Expiry::at(10_000 * hour), ..Store::set(b"long", &value) }
    )));
    let count = (0..)
        .find(|at| {
            let key = format!("short:{at}").into_bytes();
            !is_stored(put(
                &mut handle,
                crate::at(2),
                &Store { expiry: Expiry::at(9 * hour), ..Store::set(&key, &value) },
            ))
        })
        .unwrap();
    for second in 0..20 {
        background.maintain(at(10 * hour + second), 1000);
    }
    assert_eq!(engine.stats().items, 1, "of {count}");
    assert!(is_stored(put(&mut handle, at(11 * hour), &Store::set(b"new", &value))));
}

/// Large items that are gone leave their memory to the next ones, but no more of it than the limit allows.
#[test]
fn memory_of_large_items_that_are_gone_is_given_back_when_the_limit_is_lowered() {
    for evict in [true, false] {
        let engine = engine(32 << 20, evict);
        let mut handle = engine.handle().unwrap();
        let value = vec![b'v'; 1_000_000];
        for key in 0..16_u8 {
            assert!(is_stored(put(&mut handle, at(1), &Store::set(&[key], &value))));
        }
        (0..16_u8).for_each(|key| delete(&mut handle, at(1), &[key]));
        while handle.maintain(at(1), 1000) {}
        assert!(engine.set_memory_limit(4 << 20));
        while handle.maintain(at(2), 1000) {}
        let stats = engine.stats();
        assert_eq!(stats.items, 0);
        assert!(stats.memory_used_bytes <= 4 << 20, "{stats:?}");
    }
}

#[test]
fn an_item_larger_than_the_memory_is_refused_before_it_evicts_everything() {
    let engine = Engine::new(Config { item_bytes_max: 1 << 30, ..config(16 << 20, true) }).unwrap();
    let mut handle = engine.handle().unwrap();
    let guard = handle.pin(at(2));
    let refused = guard.reserve(&Store::set(b"huge", b""), 900 << 20).err();
    assert_eq!(refused, Some(WriteError::OutOfMemory));
}

#[test]
fn an_expired_item_that_is_replaced_counts_as_what_it_was() {
    let engine = engine(4 << 20, true);
    let mut handle = engine.handle().unwrap();
    put(&mut handle, at(2), &Store { expiry: Expiry::at(5), ..Store::set(b"key", b"value") });
    {
        let guard = handle.pin(at(3));
        assert!(guard.get(b"key", guard.prepare(b"key")).is_ok());
    }
    put(&mut handle, at(9), &Store::set(b"key", b"value"));
    let stats = engine.stats();
    assert_eq!((stats.reclaimed, stats.expired_unfetched), (1, 0), "it was fetched");
}

#[test]
fn an_invalidation_is_not_lost_to_a_store_with_the_old_cas_value() {
    let engine = engine(64 << 20, true);
    let value = vec![8; 20_000];
    let (start, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let rounds = 3000;
    std::thread::scope(|scope| {
        let mut other = engine.handle().unwrap();
        let (start, done) = (&start, &done);
        scope.spawn(move || {
            for round in 1..=rounds {
                while start.load(SeqCst) != round {
                    std::hint::spin_loop();
                }
                (0..round % 97 * 20).for_each(|_| std::hint::spin_loop());
                let guard = other.pin(at(2));
                let how = Invalidate { stale: true, ..Invalidate::default() };
                assert_eq!(guard.invalidate(b"key", guard.prepare(b"key"), &how), Ok(Deleted::Deleted));
                done.store(round, SeqCst);
            }
        });
        let mut handle = engine.handle().unwrap();
        let mut lost = 0;
        for round in 1..=rounds {
            let Stored::Stored { cas, .. } = put(&mut handle, at(2), &Store::set(b"key", &value)) else {
                panic!()
            };
            start.store(round, SeqCst);
            let stored = put(
                &mut handle,
                at(2),
                &Store { compare: Some(Compare::Equal(cas)), ..Store::set(b"key", &value) },
            );
            while done.load(SeqCst) != round {
                std::hint::spin_loop();
            }
            let guard = handle.pin(at(2));
            let is_stale = guard.peek(b"key", guard.prepare(b"key")).unwrap().stale;
            lost += u64::from(!is_stale && stored != Stored::Exists);
        }
        assert_eq!(lost, 0, "invalidations lost, of {rounds}");
    });
}

#[test]
#[should_panic(expected = "250")]
fn a_key_that_is_too_long_is_not_written() {
    let engine = engine(4 << 20, true);
    let mut handle = engine.handle().unwrap();
    put(&mut handle, at(2), &Store::set(&[b'k'; 300], b"value"));
}

#[test]
fn whoever_won_the_token_is_told_so_even_if_the_item_had_to_move() {
    let engine = engine(1 << 20, false);
    let mut handle = engine.handle().unwrap();
    let count = fill(&mut handle, &[4; 100]);
    let name = |at: usize| format!("fill:{at}").into_bytes();
    // Dead bytes in every segment, so that an expiry field for an item needs others to be moved, and itself at times.
    (0..count).step_by(4).for_each(|at| delete(&mut handle, crate::at(2), &name(at)));
    for at in (0..count).filter(|at| at % 4 != 0) {
        let key = name(at);
        let how = Fetch {
            touch: Some(Expiry::at(100)),
            recache_below_secs: Some(1000),
            recache_after_touch: true,
            ..Fetch::default()
        };
        let fetched = (0..1000).find_map(|_| {
            let guard = handle.pin(crate::at(2));
            match guard.fetch(&key, guard.prepare(&key), &how) {
                Ok(fetched) => Some((fetched.token, fetched.hit_before)),
                Err(FetchError::TryAgain) => None,
                Err(fail) => panic!("{fail:?}"),
            }
        });
        assert_eq!(fetched, Some((Token::Won, false)), "item {at} of {count}");
    }
}

#[test]
fn a_number_is_a_number_however_much_follows_it() {
    // As memcached 1.6.18 answers: a number up to 512 KiB, none beyond.
    for (bytes, is_number) in [(10_000, true), (500_000, true), (600_000, false)] {
        let engine = engine(8 << 20, true);
        let mut handle = engine.handle().unwrap();
        let value = [b"5 ".to_vec(), vec![b'x'; bytes]].concat();
        put(&mut handle, at(2), &Store::set(b"key", &value));
        let guard = handle.pin(at(2));
        let counted = guard.arith(b"key", guard.prepare(b"key"), &ONE_MORE);
        assert_eq!(matches!(counted, Counted::Number { number: 6, .. }), is_number, "{counted:?}");
        assert!(is_number || counted == Counted::NonNumeric);
    }
}

#[test]
fn with_eviction_there_is_always_room() {
    let engine = engine(1 << 20, true);
    let refused = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (mut handle, refused) = (engine.handle().unwrap(), &refused);
            scope.spawn(move || {
                for round in 0..50_000u64 {
                    let key = format!("{thread}:{round}").into_bytes();
                    let value = vec![9; (round * 37 % 700) as usize];
                    let stored = put(&mut handle, at(2), &Store::set(&key, &value));
                    refused.fetch_add(u64::from(!is_stored(stored)), SeqCst);
                }
            });
        }
    });
    assert_eq!(refused.load(SeqCst), 0);
}

#[test]
fn what_is_dead_but_still_in_sight_is_waited_for() {
    let engine = engine(64 << 20, true);
    let mut handle = engine.handle().unwrap();
    let large = vec![1; 1_000_000];
    for key in [b"a", b"b", b"c"] {
        assert!(is_stored(put(&mut handle, at(2), &Store::set(key, &large))));
    }
    // 300 MB are overwritten, and only what the guard at hand has overwritten is ever dead for long.
    let mut round = 0;
    while round < 300 {
        let guard = handle.pin(at(2));
        let is_done = |round: u32| {
            let key = format!("small:{}", round % 100).into_bytes();
            let (store, small) = (Store::set(b"busy", &large), Store::set(&key, &[2; 100]));
            is_stored(guard.store(guard.prepare(store.key), &store))
                && is_stored(guard.store(guard.prepare(small.key), &small))
        };
        while round < 300 && is_done(round) {
            round += 1;
        }
    }
    assert_eq!(engine.stats().evictions, 0, "104 items of 4 MB live in 64 MiB");
}

#[test]
fn what_lives_in_a_sparse_segment_is_not_evicted_for_want_of_a_place_that_is_to_come() {
    let engine = engine(64 << 20, true);
    let mut handle = engine.handle().unwrap();
    for number in 0..50_000 {
        let key = format!("still:{number}").into_bytes();
        assert!(is_stored(put(&mut handle, at(2), &Store::set(&key, &[2; 500]))));
    }
    let mut round = 0;
    while round < 600_000 {
        let guard = handle.pin(at(2));
        // Two of three are dead in any segment, one lives.
        let is_done = |round: u32| {
            let key = match round % 3 {
                0 => format!("still:{}", round / 3 % 50_000),
                _ => "busy".to_owned(),
            };
            is_stored(guard.store(guard.prepare(key.as_bytes()), &Store::set(key.as_bytes(), &[3; 500])))
        };
        while round < 600_000 && is_done(round) {
            round += 1;
        }
    }
    let stats = engine.stats();
    assert_eq!((stats.evictions, stats.items), (0, 50_001));
}

#[test]
fn the_background_step_waits_for_what_is_dead_but_still_in_sight() {
    let engine = engine(64 << 20, true);
    let (mut handle, mut background) = (engine.handle().unwrap(), engine.handle().unwrap());
    let large = vec![1; 1_000_000];
    for key in [b"a", b"b", b"c"] {
        assert!(is_stored(put(&mut handle, at(2), &Store::set(key, &large))));
    }
    let guard = handle.pin(at(2));
    let store = Store::set(b"busy", &large);
    while is_stored(guard.store(guard.prepare(store.key), &store)) {}
    background.maintain(at(2), 100_000);
    assert_eq!(engine.stats().evictions, 0);
}

#[test]
fn what_is_overwritten_again_and_again_takes_no_memory_that_was_never_used() {
    let engine = engine(64 << 20, true);
    let mut handle = engine.handle().unwrap();
    for round in 0..10_000 {
        let key = format!("busy:{}", round % 10).into_bytes();
        assert!(is_stored(put(&mut handle, at(2), &Store::set(&key, &[3; 50_000]))));
    }
    let used_bytes = engine.stats().memory_used_bytes;
    assert!(used_bytes < 8 << 20, "{used_bytes} for ten items of 50 kB, overwritten a thousand times");
}

#[test]
fn handles_that_rest_leave_the_memory_to_others() {
    let engine = Engine::new(Config { handles_max: 66, ..config(2 << 20, true) }).unwrap();
    let mut idle: Vec<Handle> = (0..65).map(|_| engine.handle().unwrap()).collect();
    for (number, handle) in idle.iter_mut().enumerate() {
        for expiry in [Expiry::NEVER, Expiry::at(1000)] {
            let key = format!("{number}:{expiry:?}").into_bytes();
            // Who finds no segment takes none.
            let guard = handle.pin(at(2));
            guard.store(guard.prepare(&key), &Store { expiry, ..Store::set(&key, &[1; 100]) });
        }
    }
    let mut handle = engine.handle().unwrap();
    let attempt = |handle: &mut Handle| {
        let guard = handle.pin(at(2));
        guard.store(guard.prepare(b"key"), &Store::set(b"key", b"value"))
    };
    let is_refused = |_| matches!(attempt(&mut handle), Stored::TryAgain | Stored::OutOfMemory);
    assert!((0..1000).all(is_refused), "else this shows little");
    for handle in idle.iter_mut().filter(|handle| handle.is_holding()) {
        handle.release();
    }
    for round in 0..10_000 {
        let key = format!("key:{round}").into_bytes();
        assert!(is_stored(put(&mut handle, at(2), &Store::set(&key, &[2; 500]))));
    }
}

#[test]
fn address_space_in_pieces_is_made_whole_by_eviction() {
    let engine = Engine::new(Config { item_bytes_max: 2 << 20, ..config(4 << 20, true) }).unwrap();
    let mut handle = engine.handle().unwrap();
    // Segments of 16 KiB; run space for 1024 of them. Nine times 1.8 MB, with an item of one segment behind each.
    let uploads: Vec<_> = (0..9)
        .map(|number| {
            let key = format!("piece:{number}").into_bytes();
            let upload = handle.pin(at(2)).reserve(&Store::set(b"arriving", b""), 1_800_000).unwrap();
            assert!(is_stored(put(&mut handle, at(2), &Store::set(&key, &[1; 12_000]))));
            upload
        })
        .collect();
    drop(uploads);
    assert!(is_stored(put(&mut handle, at(2), &Store::set(b"whole", &[2; 2_000_000]))));
}

#[test]
#[should_panic(expected = "its own hash")]
fn a_key_with_the_hash_of_another_is_not_stored() {
    let engine = engine(4 << 20, true);
    let mut handle = engine.handle().unwrap();
    let guard = handle.pin(at(2));
    guard.store(guard.prepare(b"another"), &Store::set(b"key", b"value"));
}

#[test]
#[should_panic(expected = "reserved here")]
fn an_upload_of_another_engine_is_not_linked() {
    let (engine, another) = (engine(4 << 20, true), engine(4 << 20, true));
    let (mut handle, mut elsewhere) = (engine.handle().unwrap(), another.handle().unwrap());
    let (guard, elsewhere) = (handle.pin(at(2)), elsewhere.pin(at(2)));
    let store = Store::set(b"key", b"");
    let mut upload = elsewhere.reserve(&store, 20_000).unwrap();
    while upload.missing_bytes() > 0 {
        let filled = elsewhere.window(&mut upload).unwrap().len();
        upload.advance(filled);
    }
    guard.commit(guard.prepare(b"key"), &store, &mut Some(upload));
}

/// Segments by queue (the small one, the main one, large items), their memory, and the age of the oldest, counted one
/// by one.
fn counted_by_survey(engine: &Engine, now: Now) -> [(u64, u64, u32); 3] {
    let mut queues = [(0, 0, 0); 3];
    for piece in engine.segment_report().pieces {
        let place = match piece.queue {
            _ if piece.is_large => 2,
            Queue::Small => 0,
            Queue::Main => 1,
        };
        let (segments, memory_bytes, age_secs) = &mut queues[place];
        *segments += 1;
        *memory_bytes += piece.memory_bytes;
        *age_secs = (now.secs - piece.opened_secs).max(*age_secs);
    }
    queues
}

#[test]
fn sums_are_what_a_look_at_each_segment_finds() {
    for evict in [true, false] {
        let engine = engine(8 << 20, evict);
        let (mut handle, mut background) = (engine.handle().unwrap(), engine.handle().unwrap());
        let mut random = 1u64;
        for round in 0..60_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let now = at(2 + round as u32 / 1000);
            let key = format!("key:{}", (random >> 40) % 3000).into_bytes();
            let bytes = if random >> 33 & 127 == 0 { 60_000 } else { (random >> 45) as usize % 3000 };
            let expiry = if random >> 60 == 0 { Expiry::at(now.secs + 3) } else { Expiry::NEVER };
            match random >> 20 & 15 {
                0..9 => drop(put(&mut handle, now, &Store { expiry, ..Store::set(&key, &vec![7; bytes]) })),
                9..14 => drop(has(&handle.pin(now), &key)),
                _ => {
                    let guard = handle.pin(now);
                    guard.delete(&key, guard.prepare(&key), None);
                }
            }
            if round % 500 == 0 {
                background.maintain(now, 100);
                let stats = engine.stats();
                let summed = stats.queues.map(|queue| (queue.segments, queue.memory_bytes, queue.age_secs));
                assert_eq!(summed, counted_by_survey(&engine, now), "round {round}, evicts: {evict}");
            }
            if round == 30_000 {
                engine.flush(now, None);
            }
        }
    }
}

/// Page faults tell what memory was looked at that nobody had touched before.
#[cfg(not(miri))]
#[test]
fn what_was_never_used_is_not_looked_at() {
    fn faults() -> i64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        stat.rsplit(") ").next().unwrap().split(' ').nth(7).unwrap().parse().unwrap()
    }
    for evict in [true, false] {
        // 262,144 segments, and as many more for large items.
        let engine = engine(64 << 30, evict);
        let mut handle = engine.handle().unwrap();
        put(&mut handle, at(2), &Store::set(b"key", &[7; 1000]));
        put(&mut handle, at(2), &Store::set(b"large", &[7; 600_000]));
        let before = faults();
        let stats = engine.stats();
        assert_eq!((stats.queues[0].segments, stats.queues[2].segments), (1, 1));
        assert_eq!(engine.segment_report().pieces.len(), 2);
        handle.maintain(at(3), 1000);
        let faults = faults() - before;
        assert!(faults < 200, "{faults} pages were looked at for the first time");
    }
}

#[test]
fn a_cas_value_of_an_item_that_is_gone_is_older_than_that_of_its_successor() {
    let engine = engine(64 << 20, true);
    let (mut first, mut second) = (engine.handle().unwrap(), engine.handle().unwrap());
    let now = at(10);
    for _ in 0..9 {
        put(&mut second, now, &Store::set(b"k", b"gone"));
    }
    let gone = cas(&mut second, now, b"k");
    delete(&mut second, now, b"k");
    put(&mut first, now, &Store::set(b"k", b"successor"));
    assert!(cas(&mut first, now, b"k") < gone, "another handle's count");
    let compared = |compare| Store { compare: Some(compare), ..Store::set(b"k", b"late") };
    for never_given in [0, 1 << 40] {
        assert_eq!(put(&mut first, now, &compared(Compare::EqualOrStale(never_given))), Stored::Exists);
    }
    assert_eq!(put(&mut first, now, &compared(Compare::Equal(gone))), Stored::Exists);
    assert!(is_stored(put(&mut first, now, &compared(Compare::EqualOrStale(gone)))));
    let guard = first.pin(now);
    let fetched = guard.fetch(b"k", guard.prepare(b"k"), &Fetch::default());
    assert!(fetched.is_ok_and(|fetched| fetched.stale));
}

fn cas(handle: &mut Handle, now: Now, key: &[u8]) -> u64 {
    let guard = handle.pin(now);
    guard.peek(key, guard.prepare(key)).map_or(0, |lookup| lookup.item.cas())
}
