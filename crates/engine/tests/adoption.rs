//! A cache in a file that one process after another takes over, small enough for Miri, which sees what `warm.rs` and
//! `killed.rs` cannot: accesses of memory that is not initialised, races, and broken rules of aliasing. There the file
//! is a stand-in (`mem/file_miri.rs`).
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::HashMap;
use std::fs::File;

use larder_engine::{
    CacheFile, Config, Engine, Expiry, Guard, Handle, LargePages, Mode, Now, Opened, Reservation, Start,
    Store, Stored,
};

/// Memory that is found again in another map.
struct TestFile(File);

impl TestFile {
    #[cfg(miri)]
    fn new() -> Self {
        let (reader, _) = std::io::pipe().expect("Miri has some");
        Self(std::os::fd::OwnedFd::from(reader).into())
    }

    #[cfg(not(miri))]
    fn new() -> Self {
        let shared_memory = std::path::Path::new("/dev/shm");
        let folder = if shared_memory.is_dir() { shared_memory.to_owned() } else { std::env::temp_dir() };
        let path = folder.join(format!("larder-adoption-{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        Self(file)
    }

    fn open(&self, now_secs: u32, owns: &larder_engine::Owns<'_>) -> Opened {
        let config = Config {
            memory_bytes: MEMORY_BYTES,
            item_bytes_max: 1 << 17,
            evict: true,
            handles_max: 2,
            index_power: Some(4),
            large_pages: LargePages::Never,
            hash_key: [5, 6],
        };
        let reservation = Reservation { memory_bytes_max: MEMORY_BYTES, address_space_bytes: u64::MAX };
        let file = self.0.try_clone().unwrap();
        let backing =
            CacheFile { file, unix_secs: 1_800_000_000 + u64::from(now_secs), first_secs: 100, family: 1 };
        Engine::open_for(config, reservation, backing, owns).unwrap()
    }
}

const MEMORY_BYTES: u64 = if cfg!(miri) { 1 << 20 } else { 16 << 20 };
const STEPS: u32 = if cfg!(miri) { 60 } else { 20_000 };
const KEYS: u32 = if cfg!(miri) { 20 } else { 2_000 };

fn get(guard: &Guard<'_>, key: &[u8]) -> Option<Vec<u8>> {
    guard.get(key, guard.prepare(key)).ok().map(|item| item.value().to_vec())
}

fn key(number: u32) -> Vec<u8> {
    format!("{}:{number}", ["a", "b"][number as usize % 2]).into_bytes()
}

/// Changes items, and a model with them. What is evicted is known by nobody, so nothing is: the memory is large enough.
fn change(handle: &mut Handle, now: Now, random: &mut fastrand::Rng, model: &mut HashMap<u32, Vec<u8>>) {
    let number = random.u32(..KEYS);
    let key = key(number);
    let guard = handle.pin(now);
    let hash = guard.prepare(&key);
    match random.u32(..8) {
        0 => {
            let _ = guard.delete(&key, hash, None);
            model.remove(&number);
        }
        1 => {
            let _ = guard.touch(&key, hash, Expiry::at(now.secs + 1_000_000));
        }
        2 => {
            let append = Store { mode: Mode::Append, ..Store::set(&key, b"and") };
            if let Stored::Stored { .. } = guard.store(hash, &append) {
                model.get_mut(&number).expect("it is there").extend(b"and");
            }
        }
        _ => {
            // Some have a run of pages of their own.
            let bytes = if random.u32(..20) == 0 { 70_000 } else { random.usize(..300) };
            let value = vec![random.u8(..); bytes];
            match guard.store(hash, &Store::set(&key, &value)) {
                Stored::Stored { .. } => drop(model.insert(number, value)),
                Stored::TryAgain => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn one_process_after_another_has_what_the_last_one_left() {
    let file = TestFile::new();
    let mut random = fastrand::Rng::with_seed(8);
    let mut model = HashMap::new();
    let rounds = if cfg!(miri) { 4 } else { 20 };
    for round in 0..rounds {
        let now = Now { secs: 100 + round, micros: 1 };
        // In the last rounds it has no others but these.
        let is_last = round >= rounds - 2;
        if is_last {
            model.retain(|number, _| key(*number).starts_with(b"a"));
        }
        let opened = file.open(now.secs - 100, &|key| !is_last || key.starts_with(b"a"));
        match opened.start {
            Start::Warm(restored) => assert_eq!(restored.items as usize, model.len(), "round {round}"),
            other => assert!(round == 0 && other == Start::New, "{other:?}"),
        }
        let engine = opened.engine;
        let mut handle = engine.handle().unwrap();
        for number in 0..KEYS {
            let found = get(&handle.pin(now), &key(number));
            assert!(found.as_ref() == model.get(&number), "round {round}: {number}");
        }
        if !is_last {
            for _ in 0..STEPS {
                change(&mut handle, now, &mut random, &mut model);
            }
        }
        assert_eq!(engine.stats().evictions, 0);
        handle.maintain(now, 100);
        drop(handle);
        assert!(round % 2 == 0 || engine.keep());
    }
}
