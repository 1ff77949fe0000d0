//! An engine as the memory tier of a store: random requests against a model, with a memory that is far too small, and a
//! store that applies changes late.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};

use larder_engine::{
    Arith, Backing, Change, Compare, Config, Counted, Deleted, Engine, Expiry, Fetch, FetchError, Filled,
    FirmValue, Guard, Handle, Hash, Invalidate, Kept, LargePages, Mode, Now, Position, Reservation, Store,
    Stored,
};

/// A store in memory. Applies what is submitted when it is told to.
#[derive(Default)]
struct Model {
    next: AtomicU64,
    flushed_at: AtomicU64,
    version: AtomicU64,
    /// Versions come from a clock that stands still.
    is_clock_still: AtomicBool,
    state: Mutex<State>,
    /// What another thread does after the next look at a position.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

#[derive(Default)]
struct State {
    newest: HashMap<u64, Position>,
    /// By position: not applied yet.
    submitted: BTreeMap<Position, Submitted>,
    applied: HashMap<Vec<u8>, Owned>,
    applied_to: Position,
}

/// A key and what it has from now on; `None`: a flush.
type Submitted = Option<(Vec<u8>, Option<Owned>)>;

#[derive(Clone, Debug, PartialEq)]
struct Owned {
    value: Vec<u8>,
    client_flags: u32,
    expiry: Expiry,
    version: u64,
    is_stale: bool,
    is_token_held: bool,
}

impl Model {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics with it")
    }

    /// Applies all that was submitted without a gap.
    fn apply(&self) -> Position {
        let mut state = self.state();
        while let Some(first) = state.submitted.first_entry() {
            if *first.key() != state.applied_to + 1 {
                break;
            }
            state.applied_to += 1;
            let (_, change) = state.submitted.pop_first().expect("it is there");
            match change {
                None => state.applied.clear(),
                Some((key, None)) => drop(state.applied.remove(&key)),
                Some((key, Some(owned))) => drop(state.applied.insert(key, owned)),
            }
        }
        state.applied_to
    }

    fn get(&self, key: &[u8]) -> Option<Owned> {
        self.state().applied.get(key).cloned()
    }
}

impl Backing for Model {
    fn next_position(&self, hash: Hash) -> Position {
        let mut state = self.state();
        let position = self.next.fetch_add(1, SeqCst) + 1;
        state.newest.insert(hash.bits(), position);
        position
    }

    fn submit(&self, position: Position, change: Change<'_>) {
        let change = match change {
            Change::Delete { key, .. } => (key.to_vec(), None),
            Change::Put { kept, pinnable, .. } => {
                // A large value is the same when it is read later.
                if let Some(pinned) = pinnable.pin() {
                    assert_eq!(pinned.as_ref(), kept.value);
                }
                let owned = Owned {
                    value: kept.value.to_vec(),
                    client_flags: kept.client_flags,
                    expiry: kept.expiry,
                    version: kept.version,
                    is_stale: kept.is_stale,
                    is_token_held: kept.is_token_held,
                };
                (kept.key.to_vec(), Some(owned))
            }
        };
        self.state().submitted.insert(position, Some(change));
    }

    fn position_of(&self, hash: Hash) -> Position {
        let newest = self.state().newest.get(&hash.bits()).copied().unwrap_or_default();
        let position = newest.max(self.flushed_at.load(SeqCst));
        let meanwhile = self.meanwhile.lock().expect("no test panics with it").take();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        position
    }

    fn version_above(&self, replaced: u64) -> u64 {
        if self.is_clock_still.load(SeqCst) {
            return replaced.max(self.version.load(SeqCst)) + 1;
        }
        self.version.fetch_max(replaced, SeqCst);
        self.version.fetch_add(1, SeqCst) + 1
    }

    fn retire_version(&self, version: u64) {
        self.version.fetch_max(version, SeqCst);
    }

    fn schedule_flush(&self, _at: Option<u32>) -> Position {
        0
    }

    fn flush(&self) -> Position {
        let mut state = self.state();
        let position = self.next.fetch_add(1, SeqCst) + 1;
        self.flushed_at.store(position, SeqCst);
        state.submitted.insert(position, None);
        position
    }
}

fn backed(memory_bytes: u64, handles_max: usize) -> (Arc<Engine>, Arc<Model>) {
    let model = Arc::new(Model::default());
    let engine = backed_by(memory_bytes, handles_max, Arc::clone(&model) as Arc<dyn Backing>);
    (engine, model)
}

fn backed_by(memory_bytes: u64, handles_max: usize, backing: Arc<dyn Backing>) -> Arc<Engine> {
    let config = Config {
        memory_bytes,
        item_bytes_max: 1 << 20,
        evict: true,
        handles_max,
        index_power: None,
        large_pages: LargePages::Never,
        hash_key: [3, 5],
    };
    let reservation = Reservation::modest(memory_bytes, u64::MAX);
    Engine::new_backed(config, reservation, Some(backing)).expect("addresses are left")
}

/// Repeats a request, as a server does, until its result says something.
fn request<R>(
    handle: &mut Handle,
    model: &Model,
    now: Now,
    key: &[u8],
    mut ask: impl FnMut(&Guard<'_>, Hash) -> (R, bool),
) -> R {
    let mut absent = None;
    let start = std::time::Instant::now();
    while start.elapsed().as_secs() < 60 {
        let guard = handle.pin(now);
        let hash = guard.prepare(key);
        if let Some(position) = absent.take() {
            guard.assume_absent(hash, position);
        }
        let (result, try_again) = ask(&guard, hash);
        if guard.take_unproven() {
            let position = model.position_of(hash);
            if model.apply() < position {
                std::thread::yield_now();
                continue;
            }
            match model.get(key).filter(|owned| !owned.expiry.is_past(now)) {
                None => absent = Some(position),
                Some(owned) => {
                    let kept = Kept {
                        key,
                        value: &owned.value,
                        client_flags: owned.client_flags,
                        expiry: owned.expiry,
                        version: owned.version,
                        is_stale: owned.is_stale,
                        is_token_held: owned.is_token_held,
                        is_binary_key: false,
                    };
                    assert_ne!(guard.fill(hash, &kept, position), Filled::OutOfMemory);
                }
            }
        } else if try_again {
            drop(guard);
            std::thread::yield_now();
        } else {
            return result;
        }
    }
    panic!("a request is answered");
}

fn expected_value(number: u64, seed: u64) -> Vec<u8> {
    // Most are small; some are large items.
    let bytes = if seed.is_multiple_of(50) { 20_000 } else { 10 + seed as usize % 700 };
    let mut value = number.to_string().into_bytes();
    value.resize(value.len() + bytes, b'.');
    value
}

#[test]
fn a_small_memory_before_a_store_is_a_map() {
    let (engine, model) = backed(1 << 20, 1);
    let mut handle = engine.handle().expect("one is free");
    let mut expected: HashMap<Vec<u8>, (Vec<u8>, u32, Expiry, u64)> = HashMap::new();
    let mut rng = fastrand::Rng::with_seed(20);
    let mut now = Now { secs: 100, micros: 1 };
    let mut reads = 0;
    for number in 0..if cfg!(miri) { 150 } else { 60_000u64 } {
        now.micros += 1000;
        if number % 500 == 0 {
            now.secs += 1;
            expected.retain(|_, (_, _, expiry, _)| !expiry.is_past(now));
        }
        if number % 3 == 0 {
            model.apply();
        }
        let key = format!("key{}", rng.u32(..8000)).into_bytes();
        let known = expected.get(&key).cloned();
        let value = expected_value(number, rng.u64(..));
        let expiry = if rng.u8(..4) == 0 { Expiry::at(now.secs + rng.u32(1..40)) } else { Expiry::NEVER };
        let mut store = Store { client_flags: number as u32, expiry, ..Store::set(&key, &value) };
        match rng.u8(..100) {
            0..=39 => {
                reads += 1;
                let found = request(&mut handle, &model, now, &key, |guard, hash| {
                    let item = guard.get(&key, hash);
                    let item = item
                        .map(|item| (item.value().to_vec(), item.client_flags(), item.expiry(), item.cas()));
                    (item.ok(), false)
                });
                assert_eq!(found, known, "{number}");
            }
            kind @ 40..=79 => {
                store.mode = match kind {
                    40..=64 => Mode::Set,
                    65..=69 => Mode::Add,
                    70..=74 => Mode::Replace,
                    _ => Mode::Append,
                };
                if store.mode != Mode::Set {
                    store.value = &value[..10.min(value.len())];
                }
                if kind > 60 && store.mode == Mode::Set {
                    let cas = known.as_ref().map_or(7, |known| known.3);
                    store.compare = Some(Compare::Equal(cas + rng.u64(..2)));
                }
                let stored = request(&mut handle, &model, now, &key, |guard, hash| {
                    let stored = guard.store(hash, &store);
                    (stored, stored == Stored::TryAgain)
                });
                let wanted = match (&known, store.mode, store.compare) {
                    (None, Mode::Set, Some(_)) => Some(Stored::NotFound),
                    (Some(known), Mode::Set, Some(Compare::Equal(cas))) if cas != known.3 => {
                        Some(Stored::Exists)
                    }
                    (Some(_), Mode::Add, _) | (None, Mode::Replace | Mode::Append, _) => {
                        Some(Stored::NotStored)
                    }
                    _ => None,
                };
                match (wanted, stored) {
                    (Some(wanted), _) => assert_eq!(stored, wanted, "{number}"),
                    (None, Stored::Stored { cas, .. }) => {
                        assert!(known.as_ref().is_none_or(|known| known.3 < cas), "versions rise");
                        let new = match (store.mode, known) {
                            (Mode::Append, Some(known)) => {
                                ([&known.0, store.value].concat(), known.1, known.2, cas)
                            }
                            _ => (store.value.to_vec(), store.client_flags, expiry, cas),
                        };
                        expected.insert(key, new);
                    }
                    (None, other) => panic!("{number}: {other:?}"),
                }
            }
            80..=86 => {
                let deleted = request(&mut handle, &model, now, &key, |guard, hash| {
                    (guard.delete(&key, hash, None), false)
                });
                assert_eq!(deleted == Deleted::Deleted, expected.remove(&key).is_some(), "{number}");
            }
            87..=91 => {
                let touched = request(&mut handle, &model, now, &key, |guard, hash| {
                    let touched = guard.touch(&key, hash, expiry).map(drop);
                    (touched, touched == Err(FetchError::TryAgain))
                });
                assert_eq!(touched.is_ok(), known.is_some(), "{number}");
                if let Some(known) = expected.get_mut(&key) {
                    known.2 = expiry;
                }
            }
            92..=95 => {
                let key = b"counter".to_vec();
                let known = expected.get(&key).cloned();
                let how = Arith {
                    delta: 3,
                    decrement: false,
                    compare: None,
                    initial: Some((5, Expiry::NEVER)),
                    expiry: None,
                    cas: None,
                    binary_key: false,
                };
                let counted = request(&mut handle, &model, now, &key, |guard, hash| {
                    let counted = guard.arith(&key, hash, &how);
                    (counted, counted == Counted::TryAgain)
                });
                let Counted::Number { number: result, cas, .. } = counted else { panic!("{counted:?}") };
                let wanted = known.map_or(5, |known| {
                    String::from_utf8(known.0).expect("digits").parse::<u64>().expect("digits") + 3
                });
                assert_eq!(result, wanted);
                expected.insert(key, (wanted.to_string().into_bytes(), 0, Expiry::NEVER, cas));
            }
            96..=98 => {
                let how = Invalidate { stale: true, ..Invalidate::default() };
                let marked = request(&mut handle, &model, now, &key, |guard, hash| {
                    let marked = guard.invalidate(&key, hash, &how);
                    (marked, marked.is_err())
                });
                assert_eq!(marked == Ok(Deleted::Deleted), known.is_some(), "{number}");
                if known.is_none() {
                    continue;
                }
                // The mark, and who has the token, outlive an eviction.
                for wanted in [larder_engine::Token::Won, larder_engine::Token::Held] {
                    for other in 0..if cfg!(miri) { 3 } else { 300 } {
                        let filler = format!("filler{other}").into_bytes();
                        let guard = handle.pin(now);
                        let hash = guard.prepare(&filler);
                        let _ = guard.store(hash, &Store::set(&filler, &[9; 5000]));
                    }
                    let (stale, token, cas) = request(&mut handle, &model, now, &key, |guard, hash| {
                        match guard.fetch(&key, hash, &Fetch::default()) {
                            Ok(fetched) => ((fetched.stale, fetched.token, fetched.item.cas()), false),
                            Err(error) => {
                                ((false, larder_engine::Token::None, 0), error == FetchError::TryAgain)
                            }
                        }
                    });
                    assert_eq!((stale, token), (true, wanted), "{number}");
                    expected.get_mut(&key).expect("it is known").3 = cas;
                }
            }
            _ if rng.u8(..30) == 0 => {
                engine.flush(now, None);
                expected.clear();
            }
            _ => {}
        }
    }
    let stats = engine.stats();
    assert!(cfg!(miri) || reads > 20_000);
    assert!(cfg!(miri) || stats.evictions > 10_000, "the memory is too small for them: {}", stats.evictions);
}

/// What was read from the store is not put into memory if the key has changed since, at the last moment too.
#[test]
fn an_older_value_does_not_return() {
    let (engine, model) = backed(1 << 20, 2);
    let mut handle = engine.handle().expect("one is free");
    let mut other = engine.handle().expect("two are free");
    let now = Now { secs: 100, micros: 1 };
    let kept = Kept { value: b"old", ..KEPT };
    let guard = handle.pin(now);
    let hash = guard.prepare(b"key");
    let position = model.position_of(hash);
    *model.meanwhile.lock().expect("it is free") = Some(Box::new(move || {
        let guard = other.pin(now);
        let stored = guard.store(hash, &Store::set(b"key", b"new"));
        assert!(matches!(stored, Stored::Stored { .. }));
        assert_eq!(guard.delete(b"key", hash, None), Deleted::Deleted);
    }));
    assert_eq!(guard.fill(hash, &kept, position), Filled::Changed);
    assert!(guard.get(b"key", hash).is_err(), "it was deleted");
    // Nor is what was absent then absent now.
    guard.assume_absent(hash, position);
    let add = Store { mode: Mode::Add, ..Store::set(b"key", b"added") };
    assert_eq!(guard.store(hash, &add), Stored::TryAgain);
    assert!(guard.take_unproven());
}

/// A store that keeps the large values that it is told of, as one does that writes them later.
#[derive(Default)]
struct Pinning {
    inner: Model,
    pinned: Mutex<Vec<(u8, FirmValue)>>,
}

impl Pinning {
    fn pinned(&self) -> MutexGuard<'_, Vec<(u8, FirmValue)>> {
        self.pinned.lock().expect("no test panics with it")
    }
}

impl Backing for Pinning {
    fn next_position(&self, hash: Hash) -> Position {
        self.inner.next_position(hash)
    }
    fn submit(&self, _: Position, change: Change<'_>) {
        if let Change::Put { kept, pinnable, .. } = change
            && let Some(value) = pinnable.pin()
        {
            self.pinned().push((kept.value[0], value));
        }
    }
    fn position_of(&self, hash: Hash) -> Position {
        self.inner.position_of(hash)
    }
    fn version_above(&self, replaced: u64) -> u64 {
        self.inner.version_above(replaced)
    }
    fn retire_version(&self, version: u64) {
        self.inner.retire_version(version);
    }
    fn flush(&self) -> Position {
        self.inner.flush()
    }
    fn schedule_flush(&self, at: Option<u32>) -> Position {
        self.inner.schedule_flush(at)
    }
}

const PINNED_BYTES: usize = if cfg!(miri) { 50_000 } else { 200_000 };
const PINNING_BYTES: u64 = if cfg!(miri) { 1 << 20 } else { 4 << 20 };

/// Stores a large item of this byte; another attempt follows where memory is not free yet.
fn set_large(handle: &mut Handle, key: &[u8], byte: u8) -> bool {
    let value = vec![byte; PINNED_BYTES];
    (0..if cfg!(miri) { 3 } else { 100 }).any(|_| {
        let guard = handle.pin(Now { secs: 100, micros: 1 });
        let stored = guard.store(guard.prepare(key), &Store::set(key, &value));
        matches!(stored, Stored::Stored { .. })
    })
}

fn is_whole(byte: u8, value: &FirmValue) -> bool {
    value.as_ref() == vec![byte; PINNED_BYTES]
}

/// Values on their way to the store stay as they were, however many large ones are pinned and whatever replaces them.
#[test]
fn a_firm_pin_is_not_revoked() {
    let backing = Arc::<Pinning>::default();
    let engine = backed_by(PINNING_BYTES, 1, Arc::clone(&backing) as Arc<dyn Backing>);
    let mut handle = engine.handle().expect("one is free");
    for number in 0..40u8 {
        assert!(set_large(&mut handle, b"large", number), "pins leave memory for others: {number}");
        assert!(backing.pinned().iter().all(|(byte, value)| is_whole(*byte, value)));
    }
    let pinned = std::mem::take(&mut *backing.pinned());
    let pinned_bytes = (pinned.len() * PINNED_BYTES) as u64;
    assert!(
        (PINNING_BYTES / 8..=PINNING_BYTES / 4).contains(&pinned_bytes),
        "a quarter, no more: {pinned_bytes}"
    );
    drop(pinned);
    assert!((0..3).any(|_| set_large(&mut handle, b"other", 7)), "it is free again");
    // The engine and what stands behind it hold each other as long as values are pinned.
    backing.pinned().clear();
}

/// A committer reads and gives back values while a worker replaces them, and their runs are used again.
#[test]
fn another_thread_reads_what_is_pinned() {
    const VALUES: u32 = if cfg!(miri) { 40 } else { 4_000 };
    let backing = Arc::<Pinning>::default();
    let engine = backed_by(PINNING_BYTES, 1, Arc::clone(&backing) as Arc<dyn Backing>);
    let is_done = AtomicBool::new(false);
    let mut read = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut handle = engine.handle().expect("one is free");
            for number in 0..VALUES {
                set_large(&mut handle, format!("large {}", number % 3).as_bytes(), number as u8);
            }
            is_done.store(true, SeqCst);
        });
        loop {
            let is_last = is_done.load(SeqCst);
            let pinned = std::mem::take(&mut *backing.pinned());
            for (byte, value) in pinned {
                assert!(is_whole(byte, &value));
                read += 1;
            }
            if is_last {
                break;
            }
            std::thread::yield_now();
        }
    });
    assert!(read > 10, "{read} values");
    // The engine may go before a value that it holds.
    assert!(set_large(&mut engine.handle().expect("one is free"), b"last", 9));
    let pinned = std::mem::take(&mut *backing.pinned());
    drop(engine);
    assert!(!pinned.is_empty() && pinned.iter().all(|(byte, value)| is_whole(*byte, value)));
}

/// An item that has gone leaves its version behind, whether it was deleted, expired or evicted: whoever knows it must
/// not take a later item for the same.
#[test]
fn no_version_comes_again() {
    let (engine, model) = backed(1 << 20, 1);
    model.is_clock_still.store(true, SeqCst);
    let mut handle = engine.handle().expect("one is free");
    let now = Now { secs: 100, micros: 1 };
    let set = |handle: &mut Handle, key: &[u8], value: &[u8], expiry| {
        let guard = handle.pin(now);
        match guard.store(guard.prepare(key), &Store { expiry, ..Store::set(key, value) }) {
            Stored::Stored { cas, .. } => cas,
            _ => 0,
        }
    };
    for (is_expired, is_removed) in [(true, false), (true, true), (false, true)] {
        let key = format!("key {is_expired} {is_removed}").into_bytes();
        let expiry = if is_expired { Expiry::PAST } else { Expiry::NEVER };
        let first = set(&mut handle, &key, b"first", expiry);
        if is_removed {
            let guard = handle.pin(now);
            match is_expired {
                // Who looks it up removes it.
                true => assert!(guard.get(&key, guard.prepare(&key)).is_err()),
                false => guard.drop_from_memory(&key, guard.prepare(&key)),
            }
        }
        let second = set(&mut handle, &key, b"second", Expiry::NEVER);
        assert!(second > first, "{}: {second} after {first}", key.escape_ascii());
    }
}

/// Whether an item that was flushed is gone is for the store to say: the flush may be lost on its way there.
#[test]
fn what_was_flushed_is_asked_of_the_store() {
    let (engine, model) = backed(1 << 20, 1);
    let mut handle = engine.handle().expect("one is free");
    let now = Now { secs: 100, micros: 1 };
    let set = Store::set(b"key", b"value");
    type Ask = fn(&Guard<'_>, Hash);
    let asks: [Ask; 5] = [
        |guard, hash| assert!(guard.get(b"key", hash).is_err()),
        |guard, hash| assert!(matches!(guard.delete(b"key", hash, None), Deleted::NotFound(_))),
        |guard, hash| assert!(guard.touch(b"key", hash, Expiry::at(200)).is_err()),
        |guard, hash| {
            let how = Invalidate { stale: true, ..Invalidate::default() };
            assert!(!matches!(guard.invalidate(b"key", hash, &how), Ok(Deleted::Deleted)));
        },
        |guard, hash| {
            let add = Store { mode: Mode::Add, ..Store::set(b"key", b"added") };
            assert_eq!(guard.store(hash, &add), Stored::TryAgain);
        },
    ];
    for (number, ask) in asks.into_iter().enumerate() {
        let guard = handle.pin(now);
        let hash = guard.prepare(b"key");
        assert!(matches!(guard.store(hash, &set), Stored::Stored { .. }));
        drop(guard);
        engine.flush(now, None);
        let guard = handle.pin(now);
        ask(&guard, hash);
        assert!(guard.take_unproven(), "{number}");
        // The store has it still.
        assert_eq!(guard.fill(hash, &KEPT, model.position_of(hash)), Filled::Filled, "{number}");
        assert!(guard.get(b"key", hash).is_ok(), "{number}");
    }
}

/// What a store has of the key `key`.
const KEPT: Kept<'static> = Kept {
    key: b"key",
    value: b"value",
    client_flags: 0,
    expiry: Expiry::NEVER,
    version: 1,
    is_stale: false,
    is_token_held: false,
    is_binary_key: false,
};

/// An item that was put into memory, and is evicted under the same guard, counts as absent no longer: it is not.
#[test]
fn what_was_filled_and_evicted_is_unproven() {
    let (engine, model) = backed(1 << 20, 1);
    let mut handle = engine.handle().expect("one is free");
    let guard = handle.pin(Now { secs: 100, micros: 1 });
    let hash = guard.prepare(b"key");
    assert_eq!(guard.fill(hash, &KEPT, model.position_of(hash)), Filled::Filled);
    guard.drop_from_memory(b"key", hash);
    assert!(guard.get(b"key", hash).is_err());
    assert!(guard.take_unproven(), "a miss is shown though the store has the item");
}

/// Threads append to the same few keys while others flush memory out of the cache: no append is lost, none is done
/// twice.
#[test]
fn threads_lose_no_change_between_memory_and_store() {
    const THREADS: usize = if cfg!(miri) { 2 } else { 4 };
    const APPENDS: usize = if cfg!(miri) { 12 } else { 1500 };
    let (engine, model) = backed(1 << 20, THREADS);
    let now = Now { secs: 100, micros: 1 };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (engine, model) = (&engine, &model);
            scope.spawn(move || {
                let mut handle = engine.handle().expect("one for each thread");
                let mut rng = fastrand::Rng::with_seed(thread as u64);
                for number in 0..APPENDS {
                    let key = format!("key{}", rng.u32(..20)).into_bytes();
                    let piece = format!("{thread}:{number} ").into_bytes();
                    let store =
                        Store { mode: Mode::Append, vivify: Some(Expiry::NEVER), ..Store::set(&key, &piece) };
                    let stored = request(&mut handle, model, now, &key, |guard, hash| {
                        let stored = guard.store(hash, &store);
                        (stored, stored == Stored::TryAgain)
                    });
                    assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
                    for other in 0..4 {
                        let filler = format!("filler{thread}:{other}:{number}").into_bytes();
                        let store = Store::set(&filler, &[9; 3000]);
                        request(&mut handle, model, now, &filler, |guard, hash| {
                            let stored = guard.store(hash, &store);
                            (stored, stored == Stored::TryAgain)
                        });
                    }
                }
            });
        }
    });
    model.apply();
    let mut seen = Vec::new();
    for key in 0..20 {
        let Some(owned) = model.get(format!("key{key}").as_bytes()) else { continue };
        let text = String::from_utf8(owned.value).expect("text");
        let pieces: Vec<(usize, usize)> = text
            .split_whitespace()
            .map(|piece| {
                let (thread, number) = piece.split_once(':').expect("a pair");
                (thread.parse().expect("a number"), number.parse().expect("a number"))
            })
            .collect();
        for thread in 0..THREADS {
            let of_thread: Vec<_> = pieces.iter().filter(|piece| piece.0 == thread).collect();
            assert!(of_thread.is_sorted(), "each thread's appends are in order");
        }
        seen.extend(pieces);
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), THREADS * APPENDS);
    assert!(cfg!(miri) || engine.stats().evictions > 1000);
}

/// A change that was made elsewhere counts only as long as the key is as it was when the change was looked at.
#[test]
fn a_change_from_elsewhere_overtakes_nothing_that_it_has_not_seen() {
    let model = Arc::new(Model::default());
    let engine = backed_by(1 << 20, 1, Arc::clone(&model) as Arc<dyn Backing>);
    let mut handle = engine.handle().expect("none is out");
    let guard = handle.pin(Now { secs: 1, micros: 1 });
    let hash = guard.prepare(b"key");
    let seen = model.position_of(hash);
    assert!(matches!(guard.store(hash, &Store::set(b"key", b"one")), Stored::Stored { .. }));
    assert_eq!(guard.overtake(b"key", hash, seen, 9), None, "it was changed since");
    assert_eq!(guard.get(b"key", hash).map(|item| item.value()), Ok(&b"one"[..]));
    let seen = model.position_of(hash);
    let position = guard.overtake(b"key", hash, seen, 9).expect("nothing has changed");
    assert_eq!(position, seen + 1);
    assert!(guard.get(b"key", hash).is_err(), "what the store has counts");
    assert!(guard.take_unproven());
    assert_eq!(guard.overtake(b"key", hash, seen, 9), None, "it was changed again");
}
