//! Several threads on one engine: what is found is whole and belongs to its key, counters lose nothing, and memory
//! comes back.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use larder_engine::{
    Arith, Compare, Config, Counted, Engine, Expiry, Fetch, FetchError, Guard, Handle, LargePages, Mode, Now,
    Store, Stored, Token,
};

/// Address space is set aside for some of this size.
const ITEM_BYTES_MAX: u32 = if cfg!(miri) { 64 << 10 } else { 1 << 20 };
const THREADS: usize = if cfg!(miri) { 2 } else { 4 };

fn engine(memory_bytes: u64, evict: bool) -> Arc<Engine> {
    Engine::new(Config {
        // Miri looks at all of it again and again.
        memory_bytes: if cfg!(miri) { 1 << 20 } else { memory_bytes },
        item_bytes_max: ITEM_BYTES_MAX,
        evict,
        handles_max: THREADS + 1,
        index_power: Some(4),
        large_pages: LargePages::Filled,
        hash_key: [5, 6],
    })
    .unwrap()
}

/// Runs `work(thread, handle)` on all threads at once, with the background step going on beside.
fn race(engine: &Arc<Engine>, work: impl Fn(u64, &mut Handle) + Sync) {
    let running = AtomicU64::new(THREADS as u64);
    std::thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let (work, running) = (&work, &running);
            let mut handle = engine.handle().unwrap();
            scope.spawn(move || {
                let _ended = Ended(running);
                work(thread, &mut handle);
            });
        }
        let mut background = engine.handle().unwrap();
        while running.load(Relaxed) != 0 {
            background.maintain(now(1), 50);
            std::thread::yield_now();
        }
    });
}

/// Counts a thread off, also when it panics: else the others would wait for it.
struct Ended<'r>(&'r AtomicU64);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

fn now(at: u64) -> Now {
    Now { secs: 2 + (at >> 14) as u32, micros: at }
}

fn value(key: &[u8], version: u64, bytes: usize) -> Vec<u8> {
    let head = format!("{}/{version}/", key.escape_ascii());
    let bytes = bytes.max(head.len());
    let mut value = head.repeat(bytes.div_ceil(head.len())).into_bytes();
    value.truncate(bytes);
    value
}

fn assert_whole(key: &[u8], found: &[u8]) {
    let version = found.splitn(3, |&byte| byte == b'/').nth(1).expect("a value names its version");
    let version = std::str::from_utf8(version).unwrap().parse().unwrap();
    assert!(found == value(key, version, found.len()), "a torn or foreign value for {}", key.escape_ascii());
}

#[test]
fn values_are_whole_under_eviction_and_growth() {
    let engine = engine(2 << 20, true);
    let (keys, rounds) = if cfg!(miri) { (4, 16) } else { (8000, 150_000) };
    // Of these lengths an item is in a run.
    let [often, seldom] = if cfg!(miri) { [5, 4] } else { [100, 64] };
    race(&engine, |thread, handle| {
        let mut random = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(thread + 1);
        let mut waits = false;
        for round in 0..rounds {
            if std::mem::take(&mut waits) {
                // For a thread that lost its core under a guard.
                std::thread::yield_now();
            }
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = format!("key:{}", (random >> 33) % keys).into_bytes();
            let guard = handle.pin(now(round));
            let hash = guard.prepare(&key);
            guard.prefetch_gets(&[hash]);
            match (random >> 20) % 10 {
                0..5 => {
                    if let Ok(item) = guard.get(&key, hash) {
                        assert_eq!(item.key(), key);
                        let before = item.value();
                        assert_whole(&key, before);
                        // Whatever is stored and evicted meanwhile, what was found stays.
                        let large = value(&key, round, if round % often == 0 { 40_000 } else { 300 });
                        waits = guard.store(hash, &Store::set(&key, &large)) == Stored::TryAgain;
                        assert_whole(&key, before);
                        if let Some(pin) = item.value_ref() {
                            drop(guard);
                            let guard = handle.pin(now(round));
                            let value = pin.value(&guard);
                            value.into_iter().for_each(|value| assert_whole(&key, value));
                        }
                    }
                }
                5..8 => {
                    let bytes = (random >> 40) as usize % if round % seldom == 0 { 60_000 } else { 400 };
                    let value = value(&key, round, bytes);
                    let dies = if round % 3 == 0 { Expiry::at(guard.now().secs + 2) } else { Expiry::NEVER };
                    let store = Store { expiry: dies, ..Store::set(&key, &value) };
                    waits = guard.store(hash, &store) == Stored::TryAgain;
                }
                8 => drop(guard.delete(&key, hash, None)),
                _ => drop(guard.touch(&key, hash, Expiry::at(guard.now().secs + 100))),
            }
        }
    });
    let stats = engine.stats();
    assert!(cfg!(miri) || stats.evictions > 0, "{stats:?}");
    assert!(stats.memory_used_bytes <= stats.memory_bytes + (64 << 10), "{stats:?}");
}

/// Items of all lengths, replaced and deleted while others read them: memory is full, and many of them are written
/// between what lives.
#[test]
fn values_are_whole_where_others_were_before() {
    let engine = engine(8 << 20, true);
    let (keys, rounds) = if cfg!(miri) { (20, 24) } else { (14_000, 400_000) };
    race(&engine, |thread, handle| {
        let mut random = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(thread + 1);
        for round in 0..rounds {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = format!("key:{}", (random >> 33) % keys).into_bytes();
            // Each key's value is mostly of one length.
            let bytes = 100
                + (random >> 33) as usize % keys as usize % 5 * 150
                + if round % 50 == 0 { 77 } else { 0 };
            let guard = handle.pin(now(1));
            let hash = guard.prepare(&key);
            let found = guard.get(&key, hash);
            let stored = match round % 16 {
                15 => {
                    guard.delete(&key, hash, None);
                    None
                }
                _ => Some(guard.store(hash, &Store::set(&key, &value(&key, round, bytes)))),
            };
            if let Ok(item) = found {
                assert_eq!(item.key(), key);
                assert_whole(&key, item.value());
            }
            drop(guard);
            if stored == Some(Stored::TryAgain) {
                std::thread::yield_now();
            }
        }
    });
    let mut handle = engine.handle().unwrap();
    let guard = handle.pin(now(1));
    let found = (0..keys).filter(|number| {
        let key = format!("key:{number}").into_bytes();
        let found = guard.get(&key, guard.prepare(&key));
        found.inspect(|item| assert_whole(&key, item.value())).is_ok()
    });
    let (found, stats) = (found.count() as u64, engine.stats());
    assert_eq!(found, stats.items);
    assert!(cfg!(miri) || stats.refilled > 100, "{stats:?}");
}

/// What memcached does with `-M` when memory is full: what is there stays, can be touched and counted up, and gives way
/// to as much.
#[test]
fn a_full_cache_without_eviction_loses_nothing_and_serves_what_is_there() {
    const FIRST: u64 = 100_000;
    let engine = engine(4 << 20, false);
    let (keys, rounds) = if cfg!(miri) { (20, 60) } else { (8000, 60_000) };
    let refused = AtomicU64::new(0);
    race(&engine, |thread, handle| {
        // Of keys that are this thread's alone: the version, and how long the value is.
        let mut there = HashMap::new();
        let (counter, mut count) = (format!("counter:{thread}").into_bytes(), None);
        let mut random = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(thread + 1);
        let how = Arith {
            delta: 1,
            decrement: false,
            compare: None,
            // Never a digit more, which would take another place.
            initial: Some((FIRST, Expiry::NEVER)),
            expiry: None,
            cas: None,
            binary_key: false,
        };
        for round in 0..rounds {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = (random >> 33) % keys;
            let key = format!("{thread}:{number}").into_bytes();
            let known = there.get(&number).copied();
            match (random >> 20) % 10 {
                0..3 => {
                    let (version, bytes) = known.unwrap_or((0, 0));
                    let guard = handle.pin(now(round));
                    let found = guard.get(&key, guard.prepare(&key));
                    assert_eq!(found.is_ok(), known.is_some());
                    assert!(
                        found.is_ok_and(|item| item.value() == value(&key, version, bytes))
                            || known.is_none()
                    );
                }
                3..5 => {
                    let touched = until_done(handle, round, |guard| {
                        match guard.touch(&key, guard.prepare(&key), Expiry::at(1_000_000)) {
                            Err(FetchError::TryAgain) => None,
                            touched => Some(touched.map(|_| ())),
                        }
                    });
                    assert!(touched.is_ok() == known.is_some() && touched != Err(FetchError::OutOfMemory));
                }
                5 => {
                    let counted = until_done(handle, round, |guard| {
                        let counted = guard.arith(&counter, guard.prepare(&counter), &how);
                        (counted != Counted::TryAgain).then_some(counted)
                    });
                    match counted {
                        Counted::Number { number, .. } => {
                            assert_eq!(number, count.map_or(FIRST, |count| count + 1));
                            count = Some(number);
                        }
                        counted => assert_eq!((counted, count), (Counted::OutOfMemory, None)),
                    }
                }
                choice => {
                    let bytes =
                        if random.is_multiple_of(50) { 12_000 } else { (random >> 40) as usize % 800 };
                    let bytes = match known {
                        // Another for the same: that has room however full it is.
                        Some((_, bytes)) if choice < 9 => bytes,
                        Some(_) => {
                            let guard = handle.pin(now(round));
                            guard.delete(&key, guard.prepare(&key), None);
                            there.remove(&number);
                            bytes
                        }
                        None => bytes,
                    };
                    let value = value(&key, round, bytes);
                    let stored = until_done(handle, round, |guard| {
                        let stored = guard.store(guard.prepare(&key), &Store::set(&key, &value));
                        (stored != Stored::TryAgain).then_some(stored)
                    });
                    if stored == Stored::OutOfMemory {
                        refused.fetch_add(1, Relaxed);
                        assert!(!there.contains_key(&number), "another value of {bytes} bytes was refused");
                    } else {
                        there.insert(number, (round, value.len()));
                    }
                }
            }
        }
        for (number, (version, bytes)) in there {
            let key = format!("{thread}:{number}").into_bytes();
            let guard = handle.pin(now(rounds));
            let found = guard.get(&key, guard.prepare(&key)).map(|item| item.value());
            assert!(found == Ok(&value(&key, version, bytes)[..]), "{number} of {thread}");
        }
        let guard = handle.pin(now(rounds));
        let counted = guard.get(&counter, guard.prepare(&counter)).map(|item| item.value().to_vec());
        assert_eq!(counted.ok(), count.map(|count: u64| count.to_string().into_bytes()));
    });
    let stats = engine.stats();
    assert!(cfg!(miri) || refused.into_inner() > 100 && stats.compacted > 0, "{stats:?}");
    assert!(stats.memory_used_bytes <= stats.memory_bytes + (64 << 10), "{stats:?}");
}

/// In a guard each, as often as it takes.
fn until_done<R>(handle: &mut Handle, round: u64, mut work: impl FnMut(&Guard<'_>) -> Option<R>) -> R {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let guard = handle.pin(now(round));
        if let Some(result) = work(&guard) {
            return result;
        }
        drop(guard);
        assert!(Instant::now() < end, "the answer is always to try again");
        std::thread::yield_now();
    }
}

#[test]
fn no_increment_and_no_append_is_lost() {
    let engine = engine(64 << 20, true);
    let rounds = if cfg!(miri) { 8 } else { 20_000 };
    race(&engine, |thread, handle| {
        for round in 0..rounds {
            let guard = handle.pin(now(round));
            let counter = guard.prepare(b"counter");
            let how = Arith {
                delta: 1,
                decrement: false,
                compare: None,
                initial: Some((1, Expiry::NEVER)),
                expiry: None,
                cas: None,
                binary_key: false,
            };
            assert!(matches!(guard.arith(b"counter", counter, &how), Counted::Number { .. }));
            // Neighbours come and go, so that chains change and buckets split meanwhile.
            let key = format!("{thread}:{round}").into_bytes();
            let hash = guard.prepare(&key);
            assert!(matches!(guard.store(hash, &Store::set(&key, b"x")), Stored::Stored { .. }));
            assert!(guard.get(&key, hash).is_ok(), "just stored");
            if round % 16 == 0 {
                let log = guard.prepare(b"log");
                let append =
                    Store { mode: Mode::Append, vivify: Some(Expiry::NEVER), ..Store::set(b"log", b".") };
                assert!(matches!(guard.store(log, &append), Stored::Stored { .. }));
            }
            if round > 100 {
                let old = format!("{thread}:{}", round - 100).into_bytes();
                let hash = guard.prepare(&old);
                assert!(guard.get(&old, hash).is_ok(), "stored a while ago");
                guard.delete(&old, hash, None);
                assert!(guard.get(&old, hash).is_err(), "just deleted");
            }
        }
    });
    let mut handle = engine.handle().unwrap();
    let guard = handle.pin(now(rounds));
    let total = rounds * THREADS as u64;
    let counter = guard.get(b"counter", guard.prepare(b"counter")).unwrap();
    assert_eq!(counter.value(), total.to_string().as_bytes());
    let log = guard.get(b"log", guard.prepare(b"log")).unwrap();
    assert_eq!(log.value().len() as u64, rounds.div_ceil(16) * THREADS as u64);
}

/// More handles than four bits can tell apart, at one moment, and a client that installs values of its own: of all that
/// the engine gives no two are equal, each is above the one of the engine's that it replaces, and none is large. Also
/// of handles that were given back.
#[test]
fn no_cas_value_is_given_twice() {
    const HANDLES: u64 = if cfg!(miri) { 3 } else { 64 };
    const KEYS: u64 = 4;
    let rounds = if cfg!(miri) { 8 } else { 1_000 };
    let engine = Engine::new(Config {
        memory_bytes: if cfg!(miri) { 1 << 20 } else { 64 << 20 },
        item_bytes_max: ITEM_BYTES_MAX,
        evict: true,
        handles_max: HANDLES as usize + 1,
        index_power: Some(4),
        large_pages: LargePages::Filled,
        hash_key: [5, 6],
    })
    .unwrap();
    let work = |thread: u64| {
        let mut given = Vec::new();
        for half in 0..2 {
            let mut handle = engine.handle().unwrap();
            for round in 0..rounds / 2 {
                let key = format!("key:{}", (thread + round) % KEYS).into_bytes();
                let installed = (thread == 0).then_some(match round % 3 {
                    0 => u64::MAX,
                    1 => 1 << 40 | round,
                    _ => 0,
                });
                let store = Store { cas: installed, ..Store::set(&key, b"value") };
                let before =
                    |guard: &Guard<'_>, hash| guard.peek(&key, hash).map_or(0, |lookup| lookup.item.cas());
                let (before, cas) = until_done(&mut handle, half, |guard| {
                    let hash = guard.prepare(&key);
                    let before = before(guard, hash);
                    // In place of that value alone: a client may install another one meanwhile.
                    let condition = match before {
                        0 => Store { mode: Mode::Add, ..store },
                        _ => Store { compare: Some(Compare::Equal(before)), ..store },
                    };
                    match guard.store(hash, &condition) {
                        Stored::Stored { cas, .. } => Some((before, cas)),
                        other => {
                            use Stored::{Exists, NotStored, TryAgain};
                            assert!(matches!(other, Exists | NotStored | TryAgain), "{other:?}");
                            None
                        }
                    }
                });
                if installed.unwrap_or(0) == 0 {
                    assert!(before >= 1 << 40 || cas > before, "{cas} in place of {before} or a later one");
                    given.push(cas);
                } else {
                    assert_eq!(Some(cas), installed);
                }
            }
        }
        given
    };
    let mut given: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..HANDLES)
            .map(|thread| {
                scope.spawn({
                    let work = &work;
                    move || work(thread)
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let count = given.len() as u64;
    given.sort_unstable();
    assert!(given[0] >= 1 && given[given.len() - 1] <= 2 * (HANDLES + 1) * count, "{:?}", given.last());
    given.dedup();
    assert_eq!(given.len() as u64, count, "some were given twice");
}

#[test]
fn one_creator_wins_the_token() {
    let engine = engine(4 << 20, true);
    let winners: Vec<AtomicU64> = (0..if cfg!(miri) { 5 } else { 5000 }).map(|_| AtomicU64::new(0)).collect();
    race(&engine, |_, handle| {
        for (at, winners) in winners.iter().enumerate() {
            let guard = handle.pin(now(1));
            let key = format!("stub:{at}").into_bytes();
            let how = Fetch { vivify: Some(Expiry::NEVER), ..Fetch::default() };
            match guard.fetch(&key, guard.prepare(&key), &how) {
                Ok(fetched) if fetched.token == Token::Won => drop(winners.fetch_add(1, Relaxed)),
                Ok(fetched) => assert_eq!(fetched.token, Token::Held),
                Err(FetchError::Miss(_) | FetchError::OutOfMemory | FetchError::TryAgain) => {
                    panic!("a vivifying fetch always finds")
                }
            }
        }
    });
    assert!(winners.iter().all(|winners| winners.load(Relaxed) == 1));
}

/// Once a touch has made it expire, no other touch that saw it alive brings it back.
#[test]
fn what_a_touch_made_expire_stays_away() {
    let engine = engine(4 << 20, true);
    let rounds = if cfg!(miri) { 20 } else { 3_000 };
    let brought_back = AtomicU64::new(0);
    let is_done = AtomicBool::new(false);
    race(&engine, |thread, handle| {
        let later = Expiry::at(1000);
        if thread != 0 {
            while !is_done.load(Relaxed) {
                let guard = handle.pin(now(1));
                let _ = guard.touch(b"key", guard.prepare(b"key"), later);
            }
            return;
        }
        for _ in 0..rounds {
            let guard = handle.pin(now(1));
            let hash = guard.prepare(b"key");
            // It may have to be tried again, while memory is coming back.
            guard.store(hash, &Store { expiry: later, ..Store::set(b"key", b"value") });
            if guard.touch(b"key", hash, Expiry::PAST).is_ok() {
                // Time for another that waited for the lock.
                std::thread::yield_now();
                brought_back.fetch_add(guard.get(b"key", hash).is_ok().into(), Relaxed);
            }
        }
        is_done.store(true, Relaxed);
    });
    assert_eq!(brought_back.into_inner(), 0);
}

#[test]
fn all_memory_comes_back() {
    let engine = engine(8 << 20, true);
    race(&engine, |thread, handle| {
        for round in 0..if cfg!(miri) { 5 } else { 200 } {
            let key = format!("{thread}:{}", round % 10).into_bytes();
            let guard = handle.pin(now(1));
            let hash = guard.prepare(&key);
            guard.store(hash, &Store::set(&key, &value(&key, round, 100_000)));
            drop(guard.reserve(&Store::set(&key, b""), 500_000));
            guard.delete(&key, hash, None);
        }
    });
    let mut handle = engine.handle().unwrap();
    handle.maintain(now(1), 1000);
    let stats = engine.stats();
    assert_eq!((stats.items, stats.bytes), (0, 0));
    assert_eq!(stats.queues[2].memory_bytes, 0, "{stats:?}");
}
