//! A cache whose callers do what they should not: types that panic, sizes at the limits, closures that wait for each
//! other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use larder_engine::{Buffer, Cache, Decode, Encode, EncodeError, InsertError};

/// A codec whose values cannot be read back, or only by a panic.
enum Broken {}

#[derive(Debug, PartialEq)]
struct Unreadable;

#[derive(Debug)]
struct Panics;

impl Encode<u8> for Broken {
    fn encode<'a>(key: &'a u8, _: &'a mut Buffer) -> Result<&'a [u8], EncodeError> {
        Ok(std::slice::from_ref(key))
    }
}

impl Encode<Unreadable> for Broken {
    fn encode<'a>(_: &'a Unreadable, _: &'a mut Buffer) -> Result<&'a [u8], EncodeError> {
        Ok(b"bytes")
    }
}

impl Decode<Unreadable> for Broken {
    fn decode(_: &[u8]) -> Option<Unreadable> {
        None
    }
}

impl Encode<Panics> for Broken {
    fn encode<'a>(_: &'a Panics, _: &'a mut Buffer) -> Result<&'a [u8], EncodeError> {
        Ok(b"bytes")
    }
}

impl Decode<Panics> for Broken {
    fn decode(_: &[u8]) -> Option<Panics> {
        panic!("a codec panics")
    }
}

#[test]
fn what_cannot_be_decoded_is_computed_each_time() {
    let cache: Cache<u8, Unreadable, Broken> = Cache::with_codec(1 << 20).unwrap();
    let mut computed = 0;
    for _ in 0..3 {
        let value = cache.get_or_insert_with(&1, || {
            computed += 1;
            Unreadable
        });
        assert_eq!(value, Unreadable);
    }
    assert_eq!(computed, 3);
    let stats = cache.stats();
    assert_eq!(stats.hits, 0);
    assert!(stats.decode_errors > 0, "{stats:?}");
}

#[test]
fn a_codec_that_panics_harms_nobody_else() {
    let cache: Cache<u8, Panics, Broken> = Cache::builder(1 << 20).threads(2).codec().build().unwrap();
    cache.insert(&1, &Panics);
    for _ in 0..10 {
        assert!(catch_unwind(AssertUnwindSafe(|| cache.get(&1))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| cache.get_or_insert_with(&1, || Panics))).is_err());
    }
    cache.insert(&2, &Panics);
    assert_eq!(cache.get_with(&2, <[u8]>::to_vec).as_deref(), Some(&b"bytes"[..]));
    assert!(cache.remove(&1) && cache.remove(&2));
}

/// Two threads, each of which computes one key and asks for the other's.
#[test]
fn closures_that_would_wait_for_each_other_panic() {
    let cache: Cache<u8, u8> = Cache::new(1 << 20).unwrap();
    let both_compute = Barrier::new(2);
    let ask = |key: u8, other: u8| {
        catch_unwind(AssertUnwindSafe(|| {
            let mut has_met = false;
            cache.get_or_insert_with(&key, || {
                if !has_met {
                    has_met = true;
                    both_compute.wait();
                }
                cache.get_or_insert_with(&other, || other)
            })
        }))
    };
    let results = thread::scope(|scope| {
        let threads = [(1, 2), (2, 1)].map(|(key, other)| scope.spawn(move || ask(key, other)));
        threads.map(|thread| thread.join().unwrap())
    });
    // One panics; so the other gets its turn, and computes.
    assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1);
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
}

/// Values that count how many of them there are.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

thread_local! {
    static COUNT: Arc<AtomicUsize> = Arc::default();
}

impl Counted {
    fn new() -> Self {
        let count = COUNT.with(Arc::clone);
        count.fetch_add(1, SeqCst);
        Self(count)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Encode<Counted> for Broken {
    fn encode<'a>(_: &'a Counted, _: &'a mut Buffer) -> Result<&'a [u8], EncodeError> {
        Ok(&[])
    }
}

impl Decode<Counted> for Broken {
    fn decode(_: &[u8]) -> Option<Counted> {
        Some(Counted::new())
    }
}

#[test]
fn each_value_is_dropped_once() {
    let cache: Cache<u8, Counted, Broken> = Cache::with_codec(1 << 20).unwrap();
    let (first, second) = (cache.get_or_insert_with(&1, Counted::new), cache.get(&1));
    assert_eq!(COUNT.with(|count| count.load(SeqCst)), 2);
    drop((first, second));
    let _ = catch_unwind(AssertUnwindSafe(|| {
        cache.get_or_insert_with(&2, || {
            let _value = Counted::new();
            panic!("the source is broken")
        })
    }));
    let _ = cache.try_get_or_insert_with(&3, || {
        let _value = Counted::new();
        Err::<Counted, _>(Counted::new())
    });
    cache.insert(&4, &Counted::new());
    drop(cache);
    assert_eq!(COUNT.with(|count| count.load(SeqCst)), 0);
}

/// A value whose drop panics is the caller's: the cache has only its bytes.
#[test]
fn an_error_whose_drop_panics_harms_nobody_else() {
    #[derive(Debug)]
    struct Explodes;
    impl Drop for Explodes {
        fn drop(&mut self) {
            if !thread::panicking() {
                panic!("a drop panics")
            }
        }
    }
    let cache: Cache<u8, u8> = Cache::new(1 << 20).unwrap();
    for _ in 0..3 {
        let ask = || drop(cache.try_get_or_insert_with(&1, || Err::<u8, _>(Explodes)));
        assert!(catch_unwind(AssertUnwindSafe(ask)).is_err());
    }
    assert_eq!(cache.get_or_insert_with(&1, || 7), 7);
    assert_eq!(cache.get(&1), Some(7));
}

#[test]
fn sizes_at_the_limits() {
    for memory_bytes in [0, 1, (1 << 20) - 1, u64::MAX] {
        assert!(Cache::<u8, u8>::new(memory_bytes).is_err(), "{memory_bytes} bytes");
    }
    for threads in [0, 1, usize::MAX] {
        let cache = Cache::<u8, u8>::builder(1 << 20).threads(threads).build().unwrap();
        cache.insert(&1, &1);
        assert_eq!(cache.get(&1), Some(1));
    }
    let cache: Cache<Vec<u8>, Vec<u8>> = Cache::new(4 << 20).unwrap();
    // No bytes at all.
    cache.insert(&[][..], &[][..]);
    assert_eq!(cache.get(&[][..]), Some(vec![]));
    for (value_bytes, is_stored) in [((1 << 20) - 100, true), ((1 << 20) + 1, false), (5 << 20, false)] {
        let stored = cache.try_insert(&b"large"[..], &vec![1; value_bytes][..]);
        assert_eq!(stored, if is_stored { Ok(()) } else { Err(InsertError::TooLarge) }, "{value_bytes}");
        assert_eq!(cache.contains(&b"large"[..]), is_stored, "{value_bytes}");
    }
    let key = vec![2; 5 << 20];
    assert_eq!(cache.try_insert(&key[..], &[][..]), Err(InsertError::TooLarge));
    assert_eq!(cache.get(&key), None);
    assert_eq!(cache.get_or_insert_with(&key, || vec![3]), [3]);
    let lives = |ttl| {
        cache.insert_with_ttl(&b"ttl"[..], &[][..], ttl);
        cache.contains(&b"ttl"[..])
    };
    assert_eq!(
        [Duration::ZERO, Duration::MAX, Duration::from_secs(u64::MAX)].map(lives),
        [false, true, true]
    );
}

/// More threads than handles, values from a byte to a quarter of the memory.
#[test]
fn many_threads_share_few_handles_and_find_whole_values() {
    const THREADS: u8 = 16;
    let (memory_bytes, steps): (u64, usize) = if cfg!(miri) { (1 << 20, 5) } else { (8 << 20, 300) };
    let cache: Cache<u8, Vec<u8>> = Cache::builder(memory_bytes).threads(2).build().unwrap();
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let cache = &cache;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed.into());
                for _ in 0..steps {
                    let key = random.u8(..);
                    let exponent = random.u32(0..memory_bytes.ilog2() - 2);
                    let value_bytes = random.usize(0..1 << exponent);
                    match random.u8(0..4) {
                        0 => cache.insert(&key, &vec![key; value_bytes]),
                        1 => assert!(
                            cache
                                .get_or_insert_with(&key, || vec![key; value_bytes])
                                .iter()
                                .all(|b| *b == key)
                        ),
                        2 => assert!(cache.get(&key).is_none_or(|value| value.iter().all(|b| *b == key))),
                        _ => drop(cache.remove(&key)),
                    }
                }
            });
        }
    });
    let stats = cache.stats();
    assert_eq!(stats.rejected, 0, "{stats:?}");
}

#[test]
fn a_million_keys() {
    const KEYS: u32 = if cfg!(miri) { 1 << 8 } else { 1 << 20 };
    let cache: Cache<u32, u32> = Cache::new(128 << 20).unwrap();
    (0..KEYS).for_each(|key| cache.insert(&key, &!key));
    assert!((0..KEYS).all(|key| cache.get(&key) == Some(!key)));
    assert_eq!((cache.stats().entries, cache.stats().evictions), (KEYS.into(), 0));
}
