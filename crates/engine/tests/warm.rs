//! A cache in a file: what another process finds there, after an orderly end and at any other moment.
//!
//! A copy of the file is what a process that is killed at that moment leaves: `killed.rs` kills real ones.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_engine::{
    CacheFile, ColdReason, Config, Deleted, Engine, Expiry, Fetch, Guard, LargePages, Miss, Now, Opened,
    Owner, Reservation, Restored, Start, Store, Stored, Unusable,
};

const MIB: u64 = 1 << 20;
/// Unix time of second 100.
const ZERO_UNIX_SECS: u64 = 1_800_000_000;

/// A file of its own in memory, removed at the end.
struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str) -> Self {
        let shared_memory = Path::new("/dev/shm");
        let folder = if shared_memory.is_dir() { shared_memory.to_owned() } else { std::env::temp_dir() };
        Self(folder.join(format!("larder-warm-{}-{name}", std::process::id())))
    }

    fn open(&self) -> File {
        File::options().read(true).write(true).create(true).truncate(false).open(&self.0).unwrap()
    }

    /// What a process leaves that is killed now.
    fn copy(&self, name: &str) -> Self {
        let copy = Self::new(name);
        // It keeps the holes, which `fs::copy` would fill.
        let (from, to) = (self.open(), copy.open());
        to.set_len(0).unwrap();
        to.set_len(from.metadata().unwrap().len()).unwrap();
        let mut at = 0;
        let mut piece = vec![0; 1 << 20];
        while let Ok(start) = rustix::fs::seek(&from, rustix::fs::SeekFrom::Data(at)) {
            let end = rustix::fs::seek(&from, rustix::fs::SeekFrom::Hole(start)).unwrap();
            let mut done = start;
            while done < end {
                let bytes = from.read_at(&mut piece[..(end - done).min(1 << 20) as usize], done).unwrap();
                to.write_all_at(&piece[..bytes], done).unwrap();
                done += bytes as u64;
            }
            at = end;
        }
        copy
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn config(memory_bytes: u64) -> Config {
    Config {
        memory_bytes,
        item_bytes_max: 4 << 20,
        evict: true,
        handles_max: 3,
        index_power: Some(4),
        large_pages: LargePages::Filled,
        hash_key: [5, 6],
    }
}

fn open_with(file: File, config: Config, unix_secs: u64) -> std::io::Result<Opened> {
    let reservation = Reservation { memory_bytes_max: 256 * MIB, address_space_bytes: u64::MAX };
    Engine::open(config, reservation, CacheFile { file, unix_secs, first_secs: 100, family: 1 })
}

fn open(file: &TestFile, unix_secs: u64) -> Opened {
    open_with(file.open(), config(32 * MIB), unix_secs).unwrap()
}

fn at(secs: u32) -> Now {
    Now { secs, micros: u64::from(secs) * 1_000_000 }
}

fn set(guard: &Guard<'_>, key: &[u8], value: &[u8], expiry: Expiry) -> u64 {
    let store = Store { expiry, client_flags: key.len() as u32, ..Store::set(key, value) };
    match guard.store(guard.prepare(key), &store) {
        Stored::Stored { cas, .. } => cas,
        other => panic!("{other:?}"),
    }
}

fn get(guard: &Guard<'_>, key: &[u8]) -> Option<Vec<u8>> {
    guard.get(key, guard.prepare(key)).ok().map(|item| item.value().to_vec())
}

fn warm(items: u64, is_clean: bool) -> Start {
    Start::Warm(Restored { items, is_clean, ..Restored::default() })
}

#[test]
fn everything_is_there_after_an_orderly_end_and_after_a_kill() {
    for is_clean in [true, false] {
        let file = TestFile::new(&format!("basic-{is_clean}"));
        let opened = open(&file, ZERO_UNIX_SECS);
        assert_eq!((opened.start, opened.now_secs), (Start::New, 100));
        let engine = opened.engine;
        let mut handle = engine.handle().unwrap();
        let guard = handle.pin(at(100));
        let large = vec![b'l'; 3_000_000];
        let mut last_cas = 0;
        for number in 0..1000u32 {
            set(&guard, &number.to_be_bytes(), b"old", Expiry::NEVER);
            last_cas = set(
                &guard,
                &number.to_be_bytes(),
                format!("value {number}").as_bytes(),
                Expiry::at(100 + number),
            );
        }
        set(&guard, b"large", &large, Expiry::NEVER);
        set(&guard, b"large and gone", &large, Expiry::NEVER);
        set(&guard, b"empty", b"", Expiry::NEVER);
        let deleted = guard.delete(b"large and gone", guard.prepare(b"large and gone"), None);
        assert_eq!(deleted, Deleted::Deleted);
        assert_eq!(
            guard.delete(&7u32.to_be_bytes(), guard.prepare(&7u32.to_be_bytes()), None),
            Deleted::Deleted
        );
        let invalid = larder_engine::Invalidate { stale: true, ..Default::default() };
        guard.invalidate(&8u32.to_be_bytes(), guard.prepare(&8u32.to_be_bytes()), &invalid).unwrap();
        guard.touch(&9u32.to_be_bytes(), guard.prepare(&9u32.to_be_bytes()), Expiry::at(5000)).unwrap();
        drop(guard);
        let before = engine.stats();
        let left = if is_clean {
            drop(handle);
            assert!(engine.keep());
            assert!(engine.handle().is_none(), "it is over");
            drop(engine);
            file
        } else {
            assert!(!engine.keep(), "a handle is out");
            file.copy("basic-killed")
        };
        // Fifty seconds later.
        let opened = open(&left, ZERO_UNIX_SECS + 50);
        assert_eq!(opened.now_secs, 150);
        // Numbers up to 50 have expired, but for two that were deleted or touched.
        let Start::Warm(restored) = opened.start else { panic!("{:?}", opened.start) };
        assert_eq!((restored.items, restored.expired, restored.torn), (952, 49, 0));
        assert_eq!(restored.is_clean, is_clean);
        let engine = opened.engine;
        let stats = engine.stats();
        assert_eq!(stats.items, 952);
        assert!(stats.bytes < before.bytes && stats.bytes > before.bytes * 9 / 10, "{stats:?}");
        let mut handle = engine.handle().unwrap();
        let guard = handle.pin(at(150));
        for number in 0..1000u32 {
            let is_there = number > 50 || number == 9;
            let expected = is_there.then(|| format!("value {number}").into_bytes());
            assert_eq!(get(&guard, &number.to_be_bytes()), expected, "{number}");
        }
        assert_eq!(get(&guard, b"large"), Some(large));
        assert_eq!(get(&guard, b"large and gone"), None);
        assert_eq!(get(&guard, b"empty"), Some(Vec::new()));
        let item = guard.get(b"large", guard.prepare(b"large")).unwrap();
        assert_eq!((item.client_flags(), item.expiry()), (5, Expiry::NEVER));
        assert!(set(&guard, b"new", b"new", Expiry::NEVER) > last_cas, "CAS values go on");
        assert_eq!(
            guard.get(&100u32.to_be_bytes(), guard.prepare(&100u32.to_be_bytes())).unwrap().expiry(),
            Expiry::at(200)
        );
        drop(guard);
        // What has expired is not found later either.
        let guard = handle.pin(at(200));
        assert_eq!(get(&guard, &100u32.to_be_bytes()), None);
        assert!(get(&guard, &101u32.to_be_bytes()).is_some());
    }
}

#[test]
fn marks_of_items_stay() {
    let file = TestFile::new("marks");
    let opened = open(&file, ZERO_UNIX_SECS);
    let mut handle = opened.engine.handle().unwrap();
    let guard = handle.pin(at(100));
    for key in [&b"stale"[..], b"won", b"read"] {
        set(&guard, key, b"value", Expiry::NEVER);
    }
    let invalid = larder_engine::Invalidate { stale: true, ..Default::default() };
    guard.invalidate(b"stale", guard.prepare(b"stale"), &invalid).unwrap();
    let vivify = Fetch { vivify: Some(Expiry::at(1000)), ..Fetch::default() };
    guard.fetch(b"vivified", guard.prepare(b"vivified"), &vivify).unwrap();
    get(&guard, b"read");
    let cas = guard.peek(b"stale", guard.prepare(b"stale")).unwrap().item.cas();
    drop(guard);
    let left = file.copy("marks-left");
    let opened = open(&left, ZERO_UNIX_SECS + 5);
    let mut handle = opened.engine.handle().unwrap();
    let guard = handle.pin(at(105));
    let stale = guard.peek(b"stale", guard.prepare(b"stale")).unwrap();
    assert!(stale.stale && stale.item.cas() == cas && !stale.hit_before);
    let read = guard.peek(b"read", guard.prepare(b"read")).unwrap();
    assert!(read.hit_before && !read.stale && read.idle_secs == 5);
    assert_eq!(
        guard.fetch(b"vivified", guard.prepare(b"vivified"), &vivify).unwrap().token,
        larder_engine::Token::Held
    );
}

#[test]
fn a_flush_stays_and_a_pending_one_comes() {
    let file = TestFile::new("flush");
    let opened = open(&file, ZERO_UNIX_SECS);
    let mut handle = opened.engine.handle().unwrap();
    set(&handle.pin(at(100)), b"flushed", b"value", Expiry::NEVER);
    opened.engine.flush(at(100), None);
    set(&handle.pin(at(100)), b"there", b"value", Expiry::NEVER);
    opened.engine.flush(at(100), Some(110));
    let (before, after) = (file.copy("flush-before"), file.copy("flush-after"));
    opened.engine.cancel_flush();
    let cancelled = file.copy("flush-cancelled");
    let found = |file: &TestFile, elapsed_secs: u32| {
        let opened = open(file, ZERO_UNIX_SECS + u64::from(elapsed_secs));
        let mut handle = opened.engine.handle().unwrap();
        let found = |secs, key: &[u8]| {
            let guard = handle.pin(at(secs));
            guard.get(key, guard.prepare(key)).map(|_| ())
        };
        let mut found = found;
        [found(100 + elapsed_secs, b"flushed"), found(100 + elapsed_secs, b"there"), found(111, b"there")]
    };
    let absent = Err(Miss::Absent);
    assert_eq!(found(&before, 5), [absent, Ok(()), Err(Miss::Flushed)]);
    assert_eq!(found(&after, 11), [absent; 3]);
    assert_eq!(found(&cancelled, 11), [absent, Ok(()), Ok(())]);
}

#[test]
fn a_clock_that_was_set_back_does_not_run_backwards() {
    let file = TestFile::new("clock");
    let opened = open(&file, ZERO_UNIX_SECS);
    let mut handle = opened.engine.handle().unwrap();
    set(&handle.pin(at(180)), b"key", b"value", Expiry::at(200));
    handle.maintain(at(180), 1);
    let opened = open(&file.copy("clock-left"), ZERO_UNIX_SECS - 1000);
    assert_eq!((opened.now_secs, opened.start), (180, warm(1, false)));
    // From there on it counts by the clock that was set back.
    let mut handle = opened.engine.handle().unwrap();
    assert!(get(&handle.pin(at(180)), b"key").is_some());
    drop(handle);
    assert!(opened.engine.keep());
}

/// Random operations; now and then the cache is opened again, by a copy or after an orderly end, with another number of
/// handles, another limit or another size of items.
#[test]
fn it_equals_a_map_through_restarts() {
    for seed in 1..=4 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut model: HashMap<u32, (Vec<u8>, u32)> = HashMap::new();
        let mut file = TestFile::new(&format!("model-{seed}"));
        let mut now_secs = 100;
        let mut last_cas = 0;
        for round in 0..30 {
            let mut config = config(random.u64(24..48) * MIB);
            (config.handles_max, config.item_bytes_max) = (random.usize(2..6), random.u32(3 << 20..6 << 20));
            config.evict = seed % 2 == 0;
            let unix_secs = ZERO_UNIX_SECS + u64::from(now_secs - 100);
            let opened = open_with(file.open(), config, unix_secs).unwrap();
            assert_eq!(opened.now_secs, now_secs);
            if round > 0 {
                let expected =
                    model.values().filter(|(_, expiry)| *expiry == 0 || *expiry > now_secs).count();
                assert!(matches!(opened.start, Start::Warm(_)), "{:?}", opened.start);
                assert_eq!(opened.engine.stats().items, expected as u64, "seed {seed}, round {round}");
            }
            let engine = opened.engine;
            let mut handle = engine.handle().unwrap();
            for key in 0..2000u32 {
                let found = get(&handle.pin(at(now_secs)), &key.to_be_bytes());
                let expected = model.get(&key).filter(|(_, expiry)| *expiry == 0 || *expiry > now_secs);
                assert!(
                    found.as_ref() == expected.map(|(value, _)| value),
                    "seed {seed}, round {round}: {key}"
                );
            }
            for _ in 0..random.u32(0..20_000) {
                let key = random.u32(0..2000);
                let bytes = match random.u32(0..1000) {
                    0 => random.usize(100_000..2_000_000),
                    1..100 => random.usize(1000..20_000),
                    _ => random.usize(0..500),
                };
                let guard = handle.pin(at(now_secs));
                let (key, hash) = (key.to_be_bytes(), guard.prepare(&key.to_be_bytes()));
                match random.u32(0..10) {
                    0 => {
                        let _ = guard.delete(&key, hash, None);
                        model.remove(&u32::from_be_bytes(key));
                    }
                    1 => {
                        let until = now_secs + random.u32(1..20);
                        if guard.touch(&key, hash, Expiry::at(until)).is_ok() {
                            model.get_mut(&u32::from_be_bytes(key)).unwrap().1 = until;
                        }
                    }
                    _ => {
                        let value = vec![random.u8(..); bytes];
                        let until = if random.bool() { 0 } else { now_secs + random.u32(1..20) };
                        let expiry = if until == 0 { Expiry::NEVER } else { Expiry::at(until) };
                        match guard.store(hash, &Store { expiry, ..Store::set(&key, &value) }) {
                            Stored::Stored { cas, .. } => {
                                last_cas = cas.max(last_cas);
                                model.insert(u32::from_be_bytes(key), (value, until));
                            }
                            Stored::TryAgain => {}
                            other => panic!("{other:?}"),
                        }
                    }
                }
                drop(guard);
                if random.u32(0..2000) == 0 {
                    now_secs += 1;
                    handle.maintain(at(now_secs), 100);
                }
            }
            assert_eq!(engine.stats().evictions, 0, "there is room for all");
            handle.maintain(at(now_secs), 100);
            if random.bool() {
                drop(handle);
                assert!(engine.keep());
            } else {
                file = file.copy(&format!("model-{seed}-{round}"));
            }
            drop(engine);
            now_secs += random.u32(0..5);
        }
    }
}

/// Each damage of the first page, or of the file as a whole, is named and costs the contents, or refuses the file.
#[test]
fn what_cannot_be_kept_is_named() {
    let file = TestFile::new("damage");
    let opened = open(&file, ZERO_UNIX_SECS);
    let mut handle = opened.engine.handle().unwrap();
    set(&handle.pin(at(100)), b"key", b"value", Expiry::NEVER);
    let start = |damage: &dyn Fn(&File)| {
        let copy = file.copy("damaged");
        damage(&copy.open());
        let opened = open(&copy, ZERO_UNIX_SECS + 1);
        let mut handle = opened.engine.handle().unwrap();
        let guard = handle.pin(at(101));
        if !matches!(opened.start, Start::Warm(_)) {
            assert_eq!(get(&guard, b"key"), None);
            // And it is of use from then on.
            set(&guard, b"key", b"other", Expiry::NEVER);
            assert_eq!(get(&guard, b"key"), Some(b"other".to_vec()));
        } else {
            assert_eq!(get(&guard, b"key"), Some(b"value".to_vec()));
        }
        opened.start
    };
    assert_eq!(start(&|_| ()), warm(1, false));
    let unusable = |unusable| Start::Cold(ColdReason::Unusable(unusable));
    // Those before, and the next one.
    for version in [1, 2, 4u32] {
        let other = |file: &File| file.write_all_at(&version.to_ne_bytes(), 12).unwrap();
        assert_eq!(start(&other), unusable(Unusable::Version(version)));
    }
    for byte in [16, 24, 33, 40, 50, 60, 120] {
        let flip = |file: &File| {
            let mut here = [0];
            file.read_exact_at(&mut here, byte).unwrap();
            file.write_all_at(&[here[0] ^ 0x40], byte).unwrap();
        };
        assert_eq!(start(&flip), unusable(Unusable::Corrupt), "byte {byte}");
    }
    let truncate = |file: &File| file.set_len(file.metadata().unwrap().len() - 1).unwrap();
    assert_eq!(start(&truncate), unusable(Unusable::Truncated));
    assert_eq!(start(&|file| file.set_len(4096).unwrap()), unusable(Unusable::Truncated));
    assert_eq!(start(&|file| file.set_len(8).unwrap()), unusable(Unusable::Truncated));
    assert_eq!(start(&|file| file.write_all_at(&[0; 4088], 8).unwrap()), unusable(Unusable::Unfinished));
    assert_eq!(start(&|file| file.set_len(0).unwrap()), Start::New);
    // An item that has changed is lost, and no other.
    let flip_value = |file: &File| {
        let (mut at, mut page) = (0, [0; 4096]);
        loop {
            at = rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)).unwrap();
            file.read_exact_at(&mut page, at).unwrap();
            if let Some(found) = page.windows(8).position(|bytes| bytes == b"keyvalue") {
                return file.write_all_at(b"w", at + found as u64 + 3).unwrap();
            }
            at += 4096;
        }
    };
    let copy = file.copy("flipped");
    flip_value(&copy.open());
    let torn = Restored { torn: 1, ..Restored::default() };
    assert_eq!(open(&copy, ZERO_UNIX_SECS).start, Start::Warm(torn));
    // More than it has addresses for.
    let more = open_with(file.copy("more").open(), config(300 * MIB), ZERO_UNIX_SECS).unwrap();
    assert_eq!(more.start, Start::Cold(ColdReason::Limit(256 * MIB)));
    // In use.
    let error = open_with(file.open(), config(32 * MIB), ZERO_UNIX_SECS).unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (std::io::ErrorKind::ResourceBusy, "another process is using it")
    );
}

/// What a file says is never trusted: whatever bytes it has, nothing is read outside of it, and nothing panics.
#[test]
fn a_file_of_any_bytes_does_no_harm() {
    let file = TestFile::new("bytes");
    let opened = open(&file, ZERO_UNIX_SECS);
    let mut handle = opened.engine.handle().unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    for number in 0..3000u32 {
        let value = vec![number as u8; if number % 500 == 0 { 300_000 } else { random.usize(0..3000) }];
        set(&handle.pin(at(100)), &number.to_be_bytes(), &value, Expiry::NEVER);
    }
    for _ in 0..20 {
        let copy = file.copy("any-bytes");
        let damaged = copy.open();
        let mut at = 4096;
        while let Ok(data) = rustix::fs::seek(&damaged, rustix::fs::SeekFrom::Data(at)) {
            let end = rustix::fs::seek(&damaged, rustix::fs::SeekFrom::Hole(data)).unwrap();
            for _ in 0..(end - data) / 2048 {
                let junk: Vec<u8> = (0..random.usize(1..9)).map(|_| random.u8(..)).collect();
                damaged.write_all_at(&junk, random.u64(data..end - 8)).unwrap();
            }
            at = end;
        }
        // The words that change, too.
        for word in 16..32 {
            if random.bool() {
                damaged.write_all_at(&random.u64(..).to_ne_bytes(), word * 8).unwrap();
            }
        }
        let opened = open(&copy, ZERO_UNIX_SECS + 1);
        let now = at_least(opened.now_secs);
        let mut handle = opened.engine.handle().unwrap();
        for number in 0..3000u32 {
            let guard = handle.pin(now);
            if let Some(value) = get(&guard, &number.to_be_bytes()) {
                assert!(value.iter().all(|&byte| byte == number as u8), "{number}");
            }
        }
        for number in 0..30_000u32 {
            let guard = handle.pin(now);
            let key = number.to_be_bytes();
            let _ = guard.store(guard.prepare(&key), &Store::set(&key, &[7; 1000]));
            drop(guard);
            if number % 100 == 0 {
                handle.maintain(now, 100);
            }
        }
    }
}

fn at_least(secs: u32) -> Now {
    Now { secs, micros: 1 }
}

/// What a cache does not own any more is gone from its file for good: its values would be old.
#[test]
fn items_of_others_are_dropped_and_do_not_come_back() {
    for is_clean in [true, false] {
        let file = TestFile::new(&format!("foreign-{is_clean}"));
        let leave = |engine: Arc<Engine>| {
            assert!(!is_clean || engine.keep());
        };
        let engine = open(&file, ZERO_UNIX_SECS).engine;
        let mut handle = engine.handle().unwrap();
        let guard = handle.pin(at(100));
        let large = vec![b'l'; 3_000_000];
        for number in 0..1000 {
            set(&guard, format!("a:{number}").as_bytes(), b"old", Expiry::NEVER);
            set(&guard, format!("b:{number}").as_bytes(), b"own", Expiry::NEVER);
        }
        set(&guard, b"a:large", &large, Expiry::NEVER);
        set(&guard, b"b:large", &large, Expiry::NEVER);
        drop(guard);
        drop(handle);
        leave(engine);
        let reservation = Reservation { memory_bytes_max: 256 * MIB, address_space_bytes: u64::MAX };
        let backing = CacheFile { file: file.open(), unix_secs: ZERO_UNIX_SECS, first_secs: 100, family: 1 };
        let owns = |key: &[u8]| !key.starts_with(b"a:");
        let opened = Engine::open_for(config(32 * MIB), reservation, backing, &owns).unwrap();
        let expected = Restored { items: 1001, is_clean, foreign: 1001, ..Restored::default() };
        assert_eq!(opened.start, Start::Warm(expected));
        assert_eq!(opened.engine.stats().items, 1001);
        leave(opened.engine);
        let opened = open(&file, ZERO_UNIX_SECS);
        assert_eq!(opened.start, warm(1001, is_clean));
        let mut handle = opened.engine.handle().unwrap();
        let guard = handle.pin(at(100));
        for number in 0..1000 {
            assert_eq!(get(&guard, format!("a:{number}").as_bytes()), None);
            assert_eq!(get(&guard, format!("b:{number}").as_bytes()).as_deref(), Some(&b"own"[..]));
        }
        assert_eq!((get(&guard, b"a:large"), get(&guard, b"b:large")), (None, Some(large)));
    }
}

/// A cache beside others that are ahead: its time goes on from theirs, also after a kill.
#[test]
fn a_cache_goes_on_in_a_later_second() {
    let file = TestFile::new("later");
    let opened = open(&file, ZERO_UNIX_SECS);
    assert_eq!(opened.now_secs, 100);
    opened.engine.resume_at(5000, ZERO_UNIX_SECS);
    let mut handle = opened.engine.handle().unwrap();
    set(&handle.pin(at(5000)), b"brief", b"value", Expiry::at(5010));
    set(&handle.pin(at(5000)), b"long", b"value", Expiry::at(5020));
    drop(handle);
    drop(opened);
    let opened = open(&file, ZERO_UNIX_SECS + 15);
    assert_eq!(opened.now_secs, 5015);
    assert_eq!(opened.start, Start::Warm(Restored { items: 1, expired: 1, ..Restored::default() }));
}

#[test]
fn a_file_says_whose_it_is() {
    let file = TestFile::new("owner");
    let owner = || CacheFile::owner(&file.open()).unwrap();
    let open_for = |family: u64| {
        let reservation = Reservation { memory_bytes_max: 256 * MIB, address_space_bytes: u64::MAX };
        let backing = CacheFile { file: file.open(), unix_secs: ZERO_UNIX_SECS, first_secs: 100, family };
        Engine::open(config(32 * MIB), reservation, backing).unwrap()
    };
    assert_eq!(owner(), Owner::Nobody);
    let opened = open_for(7);
    assert_eq!(owner(), Owner::Larder { family: 7 }, "while it is in use");
    assert!(opened.engine.keep());
    drop(opened);
    assert_eq!(owner(), Owner::Larder { family: 7 });
    let opened = open_for(8);
    assert_eq!(opened.start, warm(0, true), "of another family, it is kept");
    drop(opened);
    assert_eq!(owner(), Owner::Larder { family: 8 });
    file.open().set_len(5000).unwrap();
    assert_eq!(owner(), Owner::Larder { family: 8 }, "truncated");
    file.open().set_len(100).unwrap();
    assert_eq!(owner(), Owner::Larder { family: 0 }, "truncated before that");
    fs::write(&file.0, [7; 5000]).unwrap();
    assert_eq!(owner(), Owner::Other);
    fs::write(&file.0, b"brief").unwrap();
    assert_eq!(owner(), Owner::Other);
    assert_eq!(CacheFile::owner(&File::open("/dev/zero").unwrap()).unwrap(), Owner::Other);
}
