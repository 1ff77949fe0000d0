//! A process that is killed between any two steps of a change: what its file has then is what was before that change,
//! or after it.

#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{SeekFrom, seek};

use crate::crash_points::with_crashes;
use crate::{
    CacheFile, Config, Deleted, Engine, Expiry, FetchError, Guard, LargePages, Mode, Now, Opened,
    Reservation, Start, Store, Stored,
};

const NOW: Now = Now { secs: 5, micros: 5 };
const CHANGES: u32 = 20_000;
const KEYS: u32 = 900;

struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str) -> Self {
        let shared_memory = Path::new("/dev/shm");
        let folder = if shared_memory.is_dir() { shared_memory.to_owned() } else { std::env::temp_dir() };
        Self(folder.join(format!("larder-crash-{}-{name}", std::process::id())))
    }

    fn open(&self) -> File {
        File::options().read(true).write(true).create(true).truncate(false).open(&self.0).unwrap()
    }

    /// What is found by the process that comes after one that is killed now.
    fn copy_to(&self, copy: &Self) {
        let (from, to) = (self.open(), copy.open());
        to.set_len(0).unwrap();
        to.set_len(from.metadata().unwrap().len()).unwrap();
        let mut at = 0;
        while let Ok(start) = seek(&from, SeekFrom::Data(at)) {
            at = seek(&from, SeekFrom::Hole(start)).unwrap();
            let mut piece = vec![0; (at - start) as usize];
            from.read_exact_at(&mut piece, start).unwrap();
            to.write_all_at(&piece, start).unwrap();
        }
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn open(file: &TestFile, evict: bool) -> Opened {
    let config = Config {
        memory_bytes: 1 << 20,
        item_bytes_max: 256 << 10,
        evict,
        handles_max: 2,
        index_power: Some(0),
        large_pages: LargePages::Never,
        hash_key: [7, 9],
    };
    let reservation = Reservation::modest(config.memory_bytes, u64::MAX);
    let backing = CacheFile { file: file.open(), unix_secs: 1_800_000_000, first_secs: NOW.secs, family: 1 };
    Engine::open(config, reservation, backing).unwrap()
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    value: Vec<u8>,
    client_flags: u32,
    expiry: Expiry,
    cas: Option<u64>,
}

type Model = HashMap<u32, Item>;

/// What may be found: the items before a change and after it.
#[derive(Default)]
struct Expected {
    before: Model,
    after: Model,
    /// Items may be missing.
    has_evicted: bool,
}

impl Expected {
    /// True if a reader of the live cache finds what the change has made. A look-up would wait for the bucket where it
    /// finds nothing alive, and we may have it.
    fn is_shown(&self, guard: &Guard<'_>) -> bool {
        let changed = (0..KEYS).find(|key| self.before.get(key) != self.after.get(key));
        let Some(key) = changed.filter(|_| !self.has_evicted) else { return false };
        let bytes = key.to_be_bytes();
        let Some(shown) = guard.look_up(&bytes, guard.prepare(&bytes)) else { return false };
        let is_alive = guard.engine().liveness(shown.offset, shown.raw, NOW).is_ok();
        let shown = Some(Item {
            value: shown.raw.value().to_vec(),
            client_flags: shown.raw.client_flags(),
            expiry: shown.raw.expiry(),
            cas: Some(shown.raw.cas()),
        });
        let is = |model: &Model| is_like(shown.as_ref(), model.get(&key));
        is_alive && is(&self.after) && !is(&self.before)
    }
}

fn found(guard: &Guard<'_>, key: u32) -> Option<Item> {
    let bytes = key.to_be_bytes();
    let item = guard.peek(&bytes, guard.prepare(&bytes)).ok()?.item;
    let (value, client_flags) = (item.value().to_vec(), item.client_flags());
    Some(Item { value, client_flags, expiry: item.expiry(), cas: Some(item.cas()) })
}

/// Equal but for a CAS value that the engine chose.
fn is_like(found: Option<&Item>, expected: Option<&Item>) -> bool {
    let comparable = |item: &Item, cas| Item { cas, ..item.clone() };
    match (found, expected) {
        (Some(found), Some(expected)) => {
            let cas = expected.cas.and(found.cas);
            comparable(found, cas) == *expected
        }
        (found, expected) => found.is_none() && expected.is_none(),
    }
}

impl Expected {
    /// With `is_shown`, a reader has seen what the change made.
    fn check(&self, file: &TestFile, evict: bool, is_shown: bool) {
        let opened = open(file, evict);
        let Start::Warm(restored) = opened.start else { panic!("{:?}", opened.start) };
        assert_eq!(restored.torn, 0);
        let mut handle = opened.engine.handle().unwrap();
        let guard = handle.pin(NOW);
        let mut living = 0;
        let (mut is_before, mut is_after) = (!is_shown, true);
        for key in 0..KEYS {
            let found = found(&guard, key);
            living += u64::from(found.is_some());
            if found.is_none() && self.has_evicted {
                continue;
            }
            is_before &= is_like(found.as_ref(), self.before.get(&key));
            is_after &= is_like(found.as_ref(), self.after.get(&key));
            assert!(is_before || is_after, "{key}: {found:?}");
        }
        assert_eq!((opened.engine.stats().items, restored.items), (living, living));
    }
}

/// Carries out a random change. `announce` gets the items that there will be.
fn change(
    random: &mut fastrand::Rng,
    engine: &Engine,
    guard: &Guard<'_>,
    model: &Model,
    announce: impl FnOnce(&Model),
) -> Model {
    let mut after = model.clone();
    let number = random.u32(..KEYS);
    let key = number.to_be_bytes();
    let hash = guard.prepare(&key);
    let value = |random: &mut fastrand::Rng| {
        let bytes = match random.u32(0..200) {
            0 => random.usize(10_000..60_000),
            1..20 => random.usize(1000..4000),
            _ => random.usize(0..900),
        };
        vec![random.u8(b'a'..=b'z'); bytes]
    };
    let expiry = |random: &mut fastrand::Rng| {
        if random.bool() { Expiry::NEVER } else { Expiry::at(100 + random.u32(..9)) }
    };
    match random.u32(0..100) {
        0..15 => {
            after.remove(&number);
            announce(&after);
            assert!(matches!(guard.delete(&key, hash, None), Deleted::Deleted | Deleted::NotFound(_)));
        }
        15..30 => {
            let until = Expiry::at(200 + random.u32(..100));
            // The item may get a field for it, and so a new place; its CAS value stays.
            if let Some(item) = after.get_mut(&number) {
                item.expiry = until;
                item.cas = found(guard, number).and_then(|item| item.cas);
            }
            announce(&after);
            if guard.touch(&key, hash, until).err() == Some(FetchError::TryAgain) {
                return model.clone();
            }
            if let Some(item) = after.get_mut(&number) {
                item.cas = None;
            }
        }
        30 if random.u32(..20) == 0 => {
            after.clear();
            announce(&after);
            engine.flush(NOW, None);
        }
        31..40 => {
            if let Some(item) = after.get_mut(&number) {
                item.value.extend(b"more");
            }
            announce(&after);
            match guard.store(hash, &Store { mode: Mode::Append, ..Store::set(&key, b"more") }) {
                Stored::Stored { .. } | Stored::NotStored => {}
                _ => return model.clone(),
            }
        }
        other => {
            // A client's CAS value says nothing of the order.
            let cas = (other < 50).then(|| random.u64(1..1 << 60));
            let item =
                Item { value: value(random), client_flags: random.u32(..3), expiry: expiry(random), cas };
            after.insert(number, item.clone());
            announce(&after);
            let Item { value, client_flags, expiry, cas } = item;
            let store = Store { client_flags, expiry, cas, ..Store::set(&key, &value) };
            match guard.store(hash, &store) {
                Stored::Stored { .. } => {}
                Stored::TryAgain => return model.clone(),
                other => panic!("{other:?}"),
            }
            if let Some(item) = after.get_mut(&number) {
                item.cas = None;
            }
        }
    }
    after
}

/// One in so many of the moments between two steps is looked at; there are some eight in a change.
/// `LARDER_CRASHES_ONE_IN=1` looks at all of them, which takes an hour.
const ONE_IN: u64 = 600;

fn crash_everywhere(evict: bool) {
    let one_in =
        std::env::var("LARDER_CRASHES_ONE_IN").ok().and_then(|one_in| one_in.parse().ok()).unwrap_or(ONE_IN);
    let name = if evict { "evicts" } else { "full" };
    let (file, copy) = (Rc::new(TestFile::new(name)), TestFile::new(&format!("{name}-copy")));
    let mut random = fastrand::Rng::with_seed(if evict { 1 } else { 2 });
    let engine = open(&file, evict).engine;
    let mut handle = engine.handle().unwrap();
    let expected = Rc::new(RefCell::new(Expected::default()));
    let crashes = Rc::new(Cell::new(0));
    let crash = {
        let (file, expected, crashes) = (Rc::clone(&file), Rc::clone(&expected), Rc::clone(&crashes));
        let mut random = fastrand::Rng::with_seed(3);
        let mut reader = engine.handle().unwrap();
        move || {
            if random.u64(..one_in) == 0 {
                let is_shown = expected.borrow().is_shown(&reader.pin(NOW));
                file.copy_to(&copy);
                expected.borrow().check(&copy, evict, is_shown);
                crashes.set(crashes.get() + 1);
            }
        }
    };
    with_crashes(crash, || {
        let mut model = Model::new();
        for number in 0..CHANGES {
            expected.borrow_mut().before = model.clone();
            expected.borrow_mut().after = model.clone();
            expected.borrow_mut().has_evicted = engine.stats().evictions > 0;
            let announce = |after: &Model| expected.borrow_mut().after = after.clone();
            model = change(&mut random, &engine, &handle.pin(NOW), &model, announce);
            expected.borrow_mut().before = model.clone();
            expected.borrow_mut().after = model.clone();
            if number % 50 == 0 {
                handle.maintain(NOW, 100);
            }
        }
    });
    let stats = engine.stats();
    println!(
        "{} crashes; {} compacted, {} refilled, {} evicted",
        crashes.get(),
        stats.compacted,
        stats.refilled,
        stats.evictions
    );
    assert!(crashes.get() > 100 && stats.compacted > 0);
    assert!(stats.refilled > 0 || !evict);
}

#[test]
fn a_crash_between_any_two_steps_leaves_what_was_before_or_after() {
    crash_everywhere(true);
}

#[test]
fn so_it_does_where_nothing_is_evicted() {
    crash_everywhere(false);
}
