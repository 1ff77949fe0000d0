//! The cache beside a map with deadlines, with a clock that the tests move; and what only the inside can arrange.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

use super::*;

const STEPS: usize = if cfg!(miri) { 300 } else { 200_000 };

/// A cache whose time stands still until the test moves it.
fn cache_at<K, V>(memory_bytes: u64, micros: u64) -> (Cache<K, V>, Arc<AtomicU64>) {
    let time = Arc::new(AtomicU64::new(micros));
    let mut builder = Cache::builder(memory_bytes).threads(2);
    builder.clock.manual_micros = Some(Arc::clone(&time));
    (builder.build().unwrap(), time)
}

/// Values with their deadlines.
#[derive(Default)]
struct Model(HashMap<String, (Vec<u8>, Option<u64>)>);

impl Model {
    fn get(&self, key: &str, micros: u64) -> Option<&Vec<u8>> {
        let (value, deadline) = self.0.get(key)?;
        deadline.is_none_or(|deadline| micros < deadline).then_some(value)
    }
}

fn random_key(random: &mut fastrand::Rng, keys: u32) -> String {
    let number = random.u32(0..keys);
    match number % 10 {
        // Lengths around those that the engine takes, and none at all.
        0 => "k".repeat([0, 1, 249, 250, 251, 252, 1000][random.usize(0..7)]),
        1 => format!("{number:0>300}"),
        _ => format!("key {number}"),
    }
}

fn random_value(random: &mut fastrand::Rng) -> Vec<u8> {
    let bytes = [0, 1, 10, 100, 3000, 20_000][random.usize(0..6)];
    let mut value = vec![0; random.usize(0..=bytes)];
    random.fill(&mut value);
    value
}

fn random_ttl(random: &mut fastrand::Rng) -> Duration {
    match random.u32(0..8) {
        0 => Duration::ZERO,
        1 => Duration::from_nanos(random.u64(1..5_000)),
        2 => Duration::from_micros(random.u64(1..3_000_000)),
        3 => Duration::from_secs(random.u64(1..100)),
        4 => Duration::MAX,
        _ => Duration::from_millis(random.u64(1..5_000)),
    }
}

/// Plays random operations. Where nothing is evicted every answer equals the model's; else every value that is found.
fn play(seed: u64, memory_bytes: u64, evicts: bool) {
    let keys = if evicts { 2000 } else { 200 };
    let (cache, time) = cache_at::<String, Vec<u8>>(memory_bytes, seed * 333_333);
    let mut model = Model::default();
    let mut random = fastrand::Rng::with_seed(seed);
    let check = |found: Option<&Vec<u8>>, expected: Option<&Vec<u8>>, what: &str| {
        let bytes = |value: Option<&Vec<u8>>| value.map(Vec::len);
        assert!(
            found == expected || evicts && found.is_none(),
            "seed {seed}, {what}: {:?} bytes, {:?} expected",
            bytes(found),
            bytes(expected)
        );
    };
    for _ in 0..STEPS {
        let (key, micros) = (random_key(&mut random, keys), time.load(SeqCst));
        let expected = model.get(&key, micros).cloned();
        match random.u32(0..100) {
            0..30 => check(cache.get(&key).as_ref(), expected.as_ref(), "get"),
            30..35 => {
                let found = cache.get_with(&key, <[u8]>::to_vec);
                check(found.as_ref(), expected.as_ref(), "get_with");
            }
            35..40 => {
                let found = cache.contains(&key);
                assert!(found == expected.is_some() || evicts && !found, "seed {seed}: contains");
            }
            40..60 => {
                let value = random_value(&mut random);
                cache.try_insert(&key, &value).unwrap();
                assert!(cache.contains(&key), "seed {seed}: what was just stored is there");
                model.0.insert(key, (value, None));
            }
            60..80 => {
                let (value, ttl) = (random_value(&mut random), random_ttl(&mut random));
                cache.try_insert_with_ttl(&key, &value, ttl).unwrap();
                let ttl_micros = u64::try_from(ttl.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX);
                model.0.insert(key, (value, Some(micros.saturating_add(ttl_micros))));
            }
            80..85 => {
                let found = cache.remove(&key);
                assert!(found == expected.is_some() || evicts && !found, "seed {seed}: remove");
                model.0.remove(&key);
            }
            85..90 => {
                let value = random_value(&mut random);
                let mut is_computed = false;
                let found = cache.get_or_insert_with(&key, || {
                    is_computed = true;
                    value.clone()
                });
                if is_computed {
                    assert!(expected.is_none() || evicts, "seed {seed}: get_or_insert_with");
                    assert_eq!(found, value);
                    model.0.insert(key, (value, None));
                } else {
                    assert_eq!(Some(&found), expected.as_ref(), "seed {seed}: get_or_insert_with");
                }
            }
            90..97 => drop(time.fetch_add(random.u64(1..400_000), SeqCst)),
            97 => {
                // Up to a deadline, and no further.
                let deadlines = model.0.values().filter_map(|(_, deadline)| *deadline);
                if let Some(next) =
                    deadlines.filter(|deadline| (micros + 1..u64::MAX).contains(deadline)).min()
                {
                    time.store(next - 1, SeqCst);
                    let key = random_key(&mut random, keys);
                    check(cache.get(&key).as_ref(), model.get(&key, next - 1), "just before a deadline");
                    time.store(next, SeqCst);
                }
            }
            98 => cache.maintain(),
            _ if random.u32(0..20) == 0 => {
                cache.clear();
                model.0.clear();
            }
            _ => {}
        }
    }
    let stats = cache.stats();
    assert_eq!((stats.rejected, stats.decode_errors), (0, 0));
    assert_eq!(stats.evictions > 0, evicts && !cfg!(miri), "seed {seed}");
    let micros = time.load(SeqCst);
    for key in model.0.keys() {
        check(cache.get(key).as_ref(), model.get(key, micros), "the end");
    }
}

#[test]
fn it_equals_a_map_with_deadlines() {
    (1..4).for_each(|seed| play(seed, 64 << 20, false));
}

#[test]
fn what_is_found_while_entries_are_evicted_equals_the_map() {
    (4..7).for_each(|seed| play(seed, 1 << 20, true));
}

#[test]
fn an_entry_is_found_until_its_deadline_and_not_after() {
    let (cache, time) = cache_at::<u8, u8>(1 << 20, 999_999);
    cache.insert_with_ttl(&1, &1, Duration::from_nanos(1));
    cache.insert_with_ttl(&2, &2, Duration::from_micros(2));
    cache.insert_with_ttl(&3, &3, Duration::from_secs(3600));
    cache.insert_with_ttl(&4, &4, Duration::MAX);
    cache.insert_with_ttl(&5, &5, Duration::ZERO);
    let found = |micros| {
        time.store(micros, SeqCst);
        (1..=5).filter(|key| cache.get(key).is_some()).collect::<Vec<u8>>()
    };
    // A nanosecond becomes a microsecond: never earlier than asked for.
    assert_eq!(found(999_999), [1, 2, 3, 4]);
    assert_eq!(found(1_000_000), [2, 3, 4]);
    assert_eq!(found(1_000_001), [3, 4]);
    assert_eq!(found(3_600_999_998), [3, 4]);
    assert_eq!(found(3_600_999_999), [4]);
    assert_eq!(found(u64::from(u32::MAX) * 1_000_000), [4]);
}

#[test]
fn a_cache_with_a_time_to_live_gives_it_to_all_entries() {
    let time = Arc::new(AtomicU64::new(0));
    let mut builder = Cache::<u8, u8>::builder(1 << 20).ttl(Duration::from_millis(10));
    builder.clock.manual_micros = Some(Arc::clone(&time));
    let cache = builder.build().unwrap();
    cache.insert(&1, &1);
    assert_eq!(cache.get_or_insert_with(&2, || 2), 2);
    cache.insert_with_ttl(&3, &3, Duration::from_millis(20));
    assert_eq!(cache.get_or_insert_with_ttl(&4, Duration::from_millis(20), || 4), 4);
    time.store(9_999, SeqCst);
    assert!((1..=4).all(|key| cache.contains(&key)));
    time.store(10_000, SeqCst);
    assert_eq!([1, 2, 3, 4].map(|key| cache.get(&key)), [None, None, Some(3), Some(4)]);
}

#[test]
fn memory_of_expired_entries_comes_back_without_a_thread() {
    let (cache, time) = cache_at::<u64, Vec<u8>>(4 << 20, 0);
    for key in 0..1000 {
        cache.insert_with_ttl(&key, &vec![0; 1000], Duration::from_millis(500));
    }
    assert_eq!(cache.stats().entries, 1000);
    // One insert in each second.
    for second in 1..200 {
        time.store(second * 1_000_000, SeqCst);
        cache.insert(&5000, &vec![]);
    }
    let stats = cache.stats();
    // Those are left that lie where the next is written.
    assert!(stats.entries < 64, "{stats:?}");
    assert_eq!((stats.reclaimed + stats.entries, stats.evictions), (1001, 0));
}

#[test]
fn keys_with_one_digest_are_told_apart() {
    let (cache, _) = cache_at::<Vec<u8>, Vec<u8>>(1 << 20, 0);
    let digest = [7; 16];
    let [first, second] = [[1; 300], [2; 300]];
    let first = CacheKey::Long { digest, key: &first };
    let second = CacheKey::Long { digest, key: &second };
    let short = CacheKey::Short(&digest);
    let read = |key| cache.shared.read(key, |bytes| Some(bytes.to_vec())).flatten();
    for (stored, others) in
        [(&first, [&second, &short]), (&second, [&first, &short]), (&short, [&first, &second])]
    {
        cache.shared.store(stored, Ok(b"value"), None).unwrap();
        assert_eq!(read(stored).as_deref(), Some(&b"value"[..]));
        for other in others {
            assert_eq!(read(other), None);
            assert!(!cache.shared.contains(other) && !cache.shared.remove(other));
        }
        assert!(cache.shared.contains(stored));
    }
    assert_eq!((cache.stats().hits, cache.stats().misses), (3, 6));
}

/// Starts a flight whose leader waits until so many others wait for it, and then ends it by `end`.
fn waited_for<R>(cache: &Cache<u8, u64>, waiters: usize, end: impl FnOnce() -> R) -> R {
    let key = [1];
    loop {
        let Part::Waiter(flight) = cache.shared.flights.join(&key) else { unreachable!() };
        // The table, the leader and this function have one each; who waits has two.
        if Arc::strong_count(&flight) == 3 + 2 * waiters {
            return end();
        }
        drop(flight);
        thread::yield_now();
    }
}

/// Runs a leader and so many waiters, which all ask for key 1. Waiters compute `100 + n` if they have to.
fn race<R: Send>(
    cache: &Cache<u8, u64>,
    waiters: u64,
    lead: impl FnOnce() -> R + Send,
    wait: impl Fn(u64) -> R + Sync,
) -> (thread::Result<R>, Vec<R>) {
    thread::scope(|scope| {
        let leader = scope.spawn(lead);
        while cache.shared.flights.is_idle() {
            thread::yield_now();
        }
        let wait = &wait;
        let waiters: Vec<_> = (0..waiters).map(|number| scope.spawn(move || wait(number))).collect();
        let results = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
        (leader.join(), results)
    })
}

#[test]
fn one_thread_computes_and_the_others_get_its_value() {
    let (cache, _) = cache_at::<u8, u64>(1 << 20, 0);
    let computed = AtomicUsize::new(0);
    let (led, waited) = race(
        &cache,
        3,
        || {
            // The flight is this thread's: let another look at it.
            cache.get_or_insert_with(&1, || {
                thread::scope(|scope| {
                    scope.spawn(|| waited_for(&cache, 3, || computed.fetch_add(1, SeqCst))).join().unwrap()
                });
                42
            })
        },
        |_| cache.get_or_insert_with(&1, || computed.fetch_add(1, SeqCst) as u64),
    );
    assert_eq!((led.unwrap(), waited), (42, vec![42; 3]));
    assert_eq!((computed.into_inner(), cache.get(&1)), (1, Some(42)));
    assert!(cache.shared.flights.is_idle());
}

#[test]
fn after_a_panic_one_of_the_waiters_computes() {
    let (cache, _) = cache_at::<u8, u64>(1 << 20, 0);
    let computed = AtomicUsize::new(0);
    let (led, waited) = race(
        &cache,
        3,
        || {
            cache.get_or_insert_with(&1, || {
                thread::scope(|scope| scope.spawn(|| waited_for(&cache, 3, || ())).join().unwrap());
                panic!("the source is broken")
            })
        },
        |number| {
            cache.get_or_insert_with(&1, || {
                computed.fetch_add(1, SeqCst);
                100 + number
            })
        },
    );
    assert!(led.is_err());
    assert_eq!(computed.into_inner(), 1);
    assert!(waited.iter().all(|value| *value == waited[0] && *value >= 100));
    assert!(cache.shared.flights.is_idle());
}

#[test]
fn an_error_goes_to_all_who_wait_and_is_not_kept() {
    let (cache, _) = cache_at::<u8, u64>(1 << 20, 0);
    let (led, waited) = race(
        &cache,
        3,
        || {
            cache.try_get_or_insert_with(&1, || {
                thread::scope(|scope| scope.spawn(|| waited_for(&cache, 3, || ())).join().unwrap());
                Err::<u64, _>("no source".to_owned())
            })
        },
        |number| match number {
            0 => {
                // Its error is of another type, so it cannot take the leader's.
                let result = cache.try_get_or_insert_with(&1, || Err::<u64, _>(5_u8));
                result.map_err(|error| Arc::new(error.to_string()))
            }
            _ => cache.try_get_or_insert_with(&1, || Ok(100)),
        },
    );
    let led = led.unwrap().unwrap_err();
    assert_eq!(*led, "no source");
    assert_eq!(*waited[0].as_ref().unwrap_err().as_str(), *"5");
    assert!(waited[1..].iter().all(|result| result.as_ref().is_err_and(|error| Arc::ptr_eq(error, &led))));
    assert_eq!(cache.get(&1), None);
    assert_eq!(cache.try_get_or_insert_with(&1, || Ok::<_, String>(7)).unwrap(), 7);
}

#[test]
fn what_is_removed_while_it_is_computed_is_not_stored() {
    let (cache, _) = cache_at::<u8, u64>(1 << 20, 0);
    let removed = cache.get_or_insert_with(&1, || {
        cache.remove(&1);
        1
    });
    assert_eq!((removed, cache.get(&1)), (1, None));
    let cleared = cache.get_or_insert_with(&1, || {
        cache.clear();
        2
    });
    assert_eq!((cleared, cache.get(&1)), (2, None));
    let replaced = cache.get_or_insert_with(&1, || {
        cache.insert(&1, &4);
        3
    });
    assert_eq!((replaced, cache.get(&1)), (3, Some(4)));
    assert!(cache.shared.flights.is_idle());
}

thread_local! {
    /// Runs the next time this thread encodes a value.
    static ON_ENCODE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// A codec of numbers with a hook between the parts of an insert before and after the value is encoded.
enum Stepped {}

impl Encode<u8> for Stepped {
    fn encode<'a>(key: &'a u8, buffer: &'a mut Buffer) -> Result<&'a [u8], EncodeError> {
        Plain::encode(key, buffer)
    }
}

impl Encode<u64> for Stepped {
    fn encode<'a>(value: &'a u64, buffer: &'a mut Buffer) -> Result<&'a [u8], EncodeError> {
        if let Some(step) = ON_ENCODE.take() {
            step();
        }
        Plain::encode(value, buffer)
    }
}

impl Decode<u64> for Stepped {
    /// Odd numbers do not decode.
    fn decode(bytes: &[u8]) -> Option<u64> {
        <Plain as Decode<u64>>::decode(bytes).filter(|value| value % 2 == 0)
    }
}

/// The insert checks for computations under way before the other thread begins one, and stores before that one
/// finishes.
#[test]
fn what_is_inserted_while_a_value_is_computed_stays() {
    for there in [None, Some(7)] {
        let cache = Cache::<u8, u64, Stepped>::with_codec(1 << 20).unwrap();
        if let Some(value) = there {
            cache.insert(&1, &value);
        }
        let (begins, computes, stored) = (Barrier::new(2), Barrier::new(2), Barrier::new(2));
        let barriers = Arc::new((begins, computes));
        thread::scope(|scope| {
            let loader = scope.spawn(|| {
                barriers.0.wait();
                cache.get_or_insert_with(&1, || {
                    barriers.1.wait();
                    stored.wait();
                    2
                })
            });
            let step = Arc::clone(&barriers);
            ON_ENCODE.set(Some(Box::new(move || {
                step.0.wait();
                step.1.wait();
            })));
            cache.insert(&1, &4);
            stored.wait();
            assert_eq!(loader.join().unwrap(), 2);
        });
        assert_eq!(cache.get(&1), Some(4), "{there:?} was there");
        assert!(cache.shared.flights.is_idle());
    }
}

#[test]
fn a_computed_value_takes_the_place_of_what_is_none() {
    let cache = Cache::<u8, u64, Stepped>::with_codec(1 << 20).unwrap();
    cache.insert(&1, &7);
    assert_eq!((cache.get(&1), cache.get_or_insert_with(&1, || 2)), (None, 2));
    assert_eq!(cache.get(&1), Some(2));
    // With a time to live of zero nothing is stored, and nothing is removed.
    let value = cache.get_or_insert_with_ttl(&2, Duration::ZERO, || 6);
    assert_eq!((value, cache.get(&2), cache.get(&1)), (6, None, Some(2)));
}

#[test]
fn who_asks_after_a_removal_gets_no_older_value() {
    let (cache, _) = cache_at::<u8, u64>(1 << 20, 0);
    let computing = Barrier::new(2);
    let removed = Barrier::new(2);
    thread::scope(|scope| {
        let old = scope.spawn(|| {
            cache.get_or_insert_with(&1, || {
                computing.wait();
                removed.wait();
                1
            })
        });
        computing.wait();
        cache.remove(&1);
        assert_eq!(cache.get_or_insert_with(&1, || 2), 2);
        removed.wait();
        assert_eq!(old.join().unwrap(), 1);
    });
    assert_eq!(cache.get(&1), Some(2));
    assert!(cache.shared.flights.is_idle());
}

#[test]
#[should_panic(expected = "asks the cache for a value of the same key")]
fn a_closure_that_would_wait_for_itself_panics() {
    let (cache, _) = cache_at::<u8, u64>(1 << 20, 0);
    cache.get_or_insert_with(&1, || cache.get_or_insert_with(&1, || 1));
}

/// A handle is lent to one thread at a time, and a thread that finds none waits until one comes back.
#[test]
fn more_threads_than_handles_share_them() {
    let rounds = if cfg!(miri) { 20 } else { 2_000 };
    let (cache, _) = cache_at::<u64, u64>(1 << 20, 1);
    thread::scope(|scope| {
        for thread in 0..4 {
            let cache = &cache;
            scope.spawn(move || {
                for round in 0..rounds {
                    cache.insert(&thread, &(thread << 32 | round));
                    assert_eq!(cache.get(&thread), Some(thread << 32 | round));
                    if round % 10 == 0 {
                        cache.maintain();
                    }
                }
            });
        }
    });
    assert_eq!((cache.stats().inserts, cache.stats().hits), (4 * rounds, 4 * rounds), "no count is lost");
    let waits = cache.get_with(&0, |_| {
        cache.get_with(&1, |_| {
            let (cache, asks) = (cache.clone(), Arc::new(Barrier::new(2)));
            let other = thread::spawn({
                let asks = Arc::clone(&asks);
                move || {
                    asks.wait();
                    cache.get(&2)
                }
            });
            asks.wait();
            (0..200).for_each(|_| thread::yield_now());
            assert!(!other.is_finished(), "both handles are taken");
            other
        })
    });
    let found = waits.flatten().expect("both are there").join().expect("it does not panic");
    assert_eq!(found, Some(2 << 32 | (rounds - 1)));
}
