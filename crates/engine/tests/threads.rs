//! Several threads on one engine: what is found is whole and belongs to its key, counters lose nothing, and memory comes back.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use larder_engine::{
    Arith, Config, Counted, Engine, Expiry, Fail, Fetch, Handle, LargePages, Mode, Now, Store, Stored, Token,
};

const THREADS: usize = if cfg!(miri) { 2 } else { 4 };

fn engine(memory_bytes: u64, evict: bool) -> Arc<Engine> {
    Engine::new(Config {
        memory_bytes,
        item_bytes_max: 1 << 20,
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
                work(thread, &mut handle);
                running.fetch_sub(1, Relaxed);
            });
        }
        let mut background = engine.handle().unwrap();
        while running.load(Relaxed) != 0 {
            background.maintain(now(1), 50);
            std::thread::yield_now();
        }
    });
}

fn now(at: u64) -> Now {
    Now { secs: 2 + (at >> 14) as u32, micros: at }
}

fn value(key: &[u8], version: u64, bytes: usize) -> Vec<u8> {
    let head = format!("{}/{version}/", key.escape_ascii());
    head.bytes().cycle().take(bytes.max(head.len())).collect()
}

fn assert_whole(key: &[u8], found: &[u8]) {
    let version = found.splitn(3, |&byte| byte == b'/').nth(1).expect("a value names its version");
    let version = std::str::from_utf8(version).unwrap().parse().unwrap();
    assert!(found == value(key, version, found.len()), "a torn or foreign value for {}", key.escape_ascii());
}

#[test]
fn values_are_whole_under_eviction_and_growth() {
    let engine = engine(2 << 20, true);
    let (keys, rounds) = if cfg!(miri) { (20, 60) } else { (5000, 150_000) };
    race(&engine, |thread, handle| {
        let mut random = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(thread + 1);
        let mut waits = false;
        for round in 0..rounds {
            if std::mem::take(&mut waits) {
                // For a thread that lost its core in a turn.
                std::thread::yield_now();
            }
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = format!("key:{}", (random >> 33) % keys).into_bytes();
            let turn = handle.enter(now(round));
            let hash = turn.prepare(&key);
            turn.prefetch_gets(&[hash]);
            match (random >> 20) % 10 {
                0..5 => {
                    if let Ok(item) = turn.get(&key, hash) {
                        assert_eq!(item.key(), key);
                        let before = item.value();
                        assert_whole(&key, before);
                        // Whatever is stored and evicted meanwhile, what was found stays.
                        let large = value(&key, round, if round % 100 == 0 { 40_000 } else { 300 });
                        waits = turn.store(hash, &Store::set(&key, &large)) == Stored::TryAgain;
                        assert_whole(&key, before);
                        if let Some(pin) = item.pin() {
                            drop(turn);
                            assert_whole(&key, pin.value());
                        }
                    }
                }
                5..8 => {
                    let bytes = (random >> 40) as usize % if round % 64 == 0 { 60_000 } else { 400 };
                    let value = value(&key, round, bytes);
                    let dies = if round % 3 == 0 { Expiry::at(turn.now().secs + 2) } else { Expiry::NEVER };
                    let store = Store { expiry: dies, ..Store::set(&key, &value) };
                    waits = turn.store(hash, &store) == Stored::TryAgain;
                }
                8 => drop(turn.delete(&key, hash, None)),
                _ => drop(turn.touch(&key, hash, Expiry::at(turn.now().secs + 100))),
            }
        }
    });
    let stats = engine.stats();
    assert!(cfg!(miri) || stats.evictions > 0, "{stats:?}");
    assert!(stats.memory_used_bytes <= stats.memory_bytes + (64 << 10), "{stats:?}");
}

#[test]
fn no_increment_and_no_append_is_lost() {
    let engine = engine(64 << 20, true);
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    race(&engine, |thread, handle| {
        for round in 0..rounds {
            let turn = handle.enter(now(round));
            let counter = turn.prepare(b"counter");
            let how = Arith {
                delta: 1,
                decrement: false,
                compare: None,
                initial: Some((1, Expiry::NEVER)),
                expiry: None,
                cas: None,
                binary_key: false,
            };
            assert!(matches!(turn.arith(b"counter", counter, &how), Counted::Number { .. }));
            // Neighbours come and go, so that chains change and buckets split meanwhile.
            let key = format!("{thread}:{round}").into_bytes();
            let hash = turn.prepare(&key);
            assert!(matches!(turn.store(hash, &Store::set(&key, b"x")), Stored::Stored { .. }));
            assert!(turn.get(&key, hash).is_ok(), "just stored");
            if round % 16 == 0 {
                let log = turn.prepare(b"log");
                let append =
                    Store { mode: Mode::Append, vivify: Some(Expiry::NEVER), ..Store::set(b"log", b".") };
                assert!(matches!(turn.store(log, &append), Stored::Stored { .. }));
            }
            if round > 100 {
                let old = format!("{thread}:{}", round - 100).into_bytes();
                let hash = turn.prepare(&old);
                assert!(turn.get(&old, hash).is_ok(), "stored a while ago");
                turn.delete(&old, hash, None);
                assert!(turn.get(&old, hash).is_err(), "just deleted");
            }
        }
    });
    let mut handle = engine.handle().unwrap();
    let turn = handle.enter(now(rounds));
    let total = rounds * THREADS as u64;
    let counter = turn.get(b"counter", turn.prepare(b"counter")).unwrap();
    assert_eq!(counter.value(), total.to_string().as_bytes());
    let log = turn.get(b"log", turn.prepare(b"log")).unwrap();
    assert_eq!(log.value().len() as u64, rounds.div_ceil(16) * THREADS as u64);
}

#[test]
fn one_creator_wins_the_token() {
    let engine = engine(4 << 20, true);
    let winners: Vec<AtomicU64> =
        (0..if cfg!(miri) { 10 } else { 5000 }).map(|_| AtomicU64::new(0)).collect();
    race(&engine, |_, handle| {
        for (at, winners) in winners.iter().enumerate() {
            let turn = handle.enter(now(1));
            let key = format!("stub:{at}").into_bytes();
            let how = Fetch { vivify: Some(Expiry::NEVER), ..Fetch::default() };
            match turn.fetch(&key, turn.prepare(&key), &how) {
                Ok(fetched) if fetched.token == Token::Won => drop(winners.fetch_add(1, Relaxed)),
                Ok(fetched) => assert_eq!(fetched.token, Token::Held),
                Err(Fail::Miss(_) | Fail::OutOfMemory | Fail::TryAgain) => {
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
                let turn = handle.enter(now(1));
                let _ = turn.touch(b"key", turn.prepare(b"key"), later);
            }
            return;
        }
        for _ in 0..rounds {
            let turn = handle.enter(now(1));
            let hash = turn.prepare(b"key");
            // It may have to be tried again, while memory is coming back.
            turn.store(hash, &Store { expiry: later, ..Store::set(b"key", b"value") });
            if turn.touch(b"key", hash, Expiry::PAST).is_ok() {
                // Time for another that waited for the lock.
                std::thread::yield_now();
                brought_back.fetch_add(turn.get(b"key", hash).is_ok().into(), Relaxed);
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
            let turn = handle.enter(now(1));
            let hash = turn.prepare(&key);
            turn.store(hash, &Store::set(&key, &value(&key, round, 100_000)));
            drop(turn.reserve(&Store::set(&key, b""), 500_000));
            turn.delete(&key, hash, None);
        }
    });
    let mut handle = engine.handle().unwrap();
    handle.maintain(now(1), 1000);
    let stats = engine.stats();
    assert_eq!((stats.items, stats.bytes), (0, 0));
    assert_eq!(stats.queues[2].memory_bytes, 0, "{stats:?}");
}
