//! A cache in a file, and processes that are killed while they change it: what the next one finds is exactly what was
//! acknowledged, but for the one change that each thread was at.
//!
//! The test's program starts itself as the process that is killed (`victim`). What each thread does follows from the
//! number of its operation, so the number of the last that was acknowledged tells what must be there.
//! `LARDER_KILLED_ROUNDS` for more rounds than the test's own.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use larder_engine::{
    CacheFile, Config, Deleted, Engine, Expiry, FetchError, Guard, LargePages, Mode, Now, Opened,
    Reservation, Start, Store, Stored,
};

const THREADS: u64 = 2;
const KEYS: u64 = 500;
const NOW: Now = Now { secs: 5, micros: 5 };

/// Where the processes meet.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let shared_memory = Path::new("/dev/shm");
        let parent = if shared_memory.is_dir() { shared_memory.to_owned() } else { std::env::temp_dir() };
        let folder = Self(parent.join(format!("larder-killed-{}-{name}", std::process::id())));
        fs::create_dir_all(&folder.0).unwrap();
        folder
    }

    fn open(&self, file: &str) -> File {
        let path = self.0.join(file);
        File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
    }

    fn opened(&self, evict: bool) -> Opened {
        let config = Config {
            memory_bytes: 16 << 20,
            item_bytes_max: 1 << 20,
            evict,
            handles_max: THREADS as usize + 1,
            index_power: Some(2),
            large_pages: LargePages::Never,
            hash_key: [3, 4],
        };
        let reservation = Reservation::modest(config.memory_bytes, u64::MAX);
        loop {
            let backing = CacheFile {
                file: self.open("cache"),
                unix_secs: 1_800_000_000,
                first_secs: NOW.secs,
                family: 1,
            };
            match Engine::open(config.clone(), reservation, backing) {
                // A process that another test starts has our files until it runs its own program.
                Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                opened => return opened.unwrap(),
            }
        }
    }

    /// A number that a process wrote, which may be dead.
    fn number(&self, file: &str) -> u64 {
        let mut bytes = [0; 8];
        self.open(file).read_exact_at(&mut bytes, 0).map_or(0, |()| u64::from_le_bytes(bytes))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    value: Vec<u8>,
    client_flags: u32,
    expiry: Expiry,
}

type Model = HashMap<u64, Item>;

/// What a thread's operation of this number does.
enum Change {
    Set(Item),
    Append(Vec<u8>),
    Delete,
    Touch(Expiry),
}

fn change(thread: u64, number: u64) -> (u64, Change) {
    let mut random = fastrand::Rng::with_seed(number * THREADS + thread);
    let key = random.u64(..KEYS) * THREADS + thread;
    let expiry = |random: &mut fastrand::Rng| match random.bool() {
        true => Expiry::NEVER,
        false => Expiry::at(1000 + random.u32(0..100_000)),
    };
    let change = match random.u32(0..100) {
        0..10 => Change::Delete,
        10..20 => Change::Touch(Expiry::at(2000 + random.u32(0..100_000))),
        20..25 => Change::Append(format!("+{number}").into_bytes()),
        other => {
            let bytes = match other {
                // A run of its own, and a few keys only.
                25 if key < 6 => random.usize(20_000..300_000),
                26..40 => random.usize(1000..6000),
                _ => random.usize(0..1500),
            };
            let mut value = format!("{number}/").into_bytes();
            value.resize(value.len() + bytes, b'a' + (number % 26) as u8);
            Change::Set(Item { value, client_flags: random.u32(0..3), expiry: expiry(&mut random) })
        }
    };
    (key, change)
}

fn apply(model: &mut Model, key: u64, change: Change) {
    match change {
        Change::Set(item) => drop(model.insert(key, item)),
        Change::Delete => drop(model.remove(&key)),
        Change::Append(more) => {
            if let Some(item) = model.get_mut(&key) {
                item.value.extend(more);
            }
        }
        Change::Touch(expiry) => {
            if let Some(item) = model.get_mut(&key) {
                item.expiry = expiry;
            }
        }
    }
}

/// False: to be tried again.
fn carry_out(guard: &Guard<'_>, key: u64, change: &Change) -> bool {
    let key = key.to_be_bytes();
    let hash = guard.prepare(&key);
    let stored = match change {
        Change::Set(Item { value, client_flags, expiry }) => {
            let store = Store { client_flags: *client_flags, expiry: *expiry, ..Store::set(&key, value) };
            guard.store(hash, &store)
        }
        Change::Append(more) => guard.store(hash, &Store { mode: Mode::Append, ..Store::set(&key, more) }),
        Change::Delete => {
            assert!(matches!(guard.delete(&key, hash, None), Deleted::Deleted | Deleted::NotFound(_)));
            return true;
        }
        Change::Touch(expiry) => {
            return !matches!(guard.touch(&key, hash, *expiry), Err(FetchError::TryAgain));
        }
    };
    match stored {
        Stored::Stored { .. } | Stored::NotStored => true,
        Stored::TryAgain | Stored::NotExtended(_) => false,
        other => panic!("{other:?}"),
    }
}

/// The process that is killed.
#[test]
fn victim() {
    let Some(folder) = std::env::var_os("LARDER_KILLED_FOLDER") else { return };
    let folder = Folder(folder.into());
    let engine = folder.opened(std::env::var_os("LARDER_KILLED_EVICTS").is_some()).engine;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (engine, folder) = (&engine, &folder);
            scope.spawn(move || {
                let mut handle = engine.handle().unwrap();
                let (done, first) =
                    (folder.open(&format!("done-{thread}")), folder.number(&format!("done-{thread}")));
                for number in first + 1.. {
                    let (key, change) = change(thread, number);
                    while !carry_out(&handle.pin(NOW), key, &change) {}
                    done.write_all_at(&number.to_le_bytes(), 0).unwrap();
                }
            });
        }
        let mut handle = engine.handle().unwrap();
        let evictions = folder.open("evictions");
        loop {
            handle.maintain(NOW, 200);
            let counts = engine.stats();
            evictions.write_all_at(&counts.evictions.to_le_bytes(), 0).unwrap();
            evictions.write_all_at(&(counts.refilled + counts.compacted).to_le_bytes(), 8).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

fn found(guard: &Guard<'_>, key: u64) -> Option<Item> {
    let bytes = key.to_be_bytes();
    let item = guard.get(&bytes, guard.prepare(&bytes)).ok()?;
    Some(Item { value: item.value().to_vec(), client_flags: item.client_flags(), expiry: item.expiry() })
}

fn rounds() -> u64 {
    std::env::var("LARDER_KILLED_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(12)
}

fn kill_again_and_again(evict: bool) {
    let folder = Folder::new(if evict { "evicts" } else { "full" });
    let mut models = vec![Model::new(); THREADS as usize];
    let mut done = vec![0; THREADS as usize];
    let mut random = fastrand::Rng::with_seed(7);
    let mut moved = 0;
    for round in 0..rounds() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "victim", "--nocapture"]).env("LARDER_KILLED_FOLDER", &folder.0);
        if evict {
            command.env("LARDER_KILLED_EVICTS", "1");
        }
        let mut victim = command.spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while folder.number("done-0") == done[0] {
            assert!(Instant::now() < deadline && victim.try_wait().unwrap().is_none(), "it does nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(random.u64(0..150_000)));
        assert!(victim.try_wait().unwrap().is_none(), "it runs until it is killed");
        victim.kill().unwrap();
        victim.wait().unwrap();

        let opened = folder.opened(evict);
        let Start::Warm(restored) = opened.start else { panic!("{:?}", opened.start) };
        assert!(!restored.is_clean);
        assert_eq!(restored.torn, 0);
        let has_evicted = folder.number("evictions") > 0;
        let mut counts = [0; 16];
        folder.open("evictions").read_exact_at(&mut counts, 0).unwrap_or_default();
        moved += u64::from_le_bytes(counts[8..].try_into().unwrap());
        let mut handle = opened.engine.handle().unwrap();
        let guard = handle.pin(NOW);
        let mut living = 0;
        for thread in 0..THREADS {
            let (model, done) = (&mut models[thread as usize], &mut done[thread as usize]);
            let acknowledged = folder.number(&format!("done-{thread}"));
            for number in *done + 1..=acknowledged {
                let (key, change) = change(thread, number);
                apply(model, key, change);
            }
            *done = acknowledged;
            // What it was at may have happened.
            let (at_key, at_change) = change(thread, acknowledged + 1);
            let mut next = model.clone();
            apply(&mut next, at_key, at_change);
            let mut has_happened = false;
            for key in (0..KEYS).map(|key| key * THREADS + thread) {
                let found = found(&guard, key);
                living += u64::from(found.is_some());
                if found.is_none() && has_evicted {
                    model.remove(&key);
                    next.remove(&key);
                } else if key == at_key && found.as_ref() != model.get(&key) {
                    assert!(found.as_ref() == next.get(&key), "round {round}: {key}, which it was changing");
                    has_happened = true;
                } else {
                    let brief = |item: Option<&Item>| {
                        item.map(|item| {
                            (
                                String::from_utf8_lossy(&item.value[..item.value.len().min(12)]).into_owned(),
                                item.expiry,
                            )
                        })
                    };
                    assert!(
                        found.as_ref() == model.get(&key),
                        "round {round}: {key}: {:?} instead of {:?}",
                        brief(found.as_ref()),
                        brief(model.get(&key)),
                    );
                }
            }
            if has_happened {
                *model = next;
                *done += 1;
                folder.open(&format!("done-{thread}")).write_all_at(&done.to_le_bytes(), 0).unwrap();
            }
        }
        assert_eq!((opened.engine.stats().items, restored.items), (living, living));
        drop(guard);
        drop(handle);
        // The next one finds an orderly end, or a second kill.
        if random.bool() {
            assert!(opened.engine.keep());
        }
    }
    let operations: u64 = done.iter().sum();
    println!("{operations} operations in {} rounds; {moved} moved or refilled", rounds());
    assert!(moved > 0, "garbage came back");
    let _ = fs::remove_dir_all(&folder.0);
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill() {
    kill_again_and_again(true);
}

#[test]
fn so_it_is_where_nothing_is_evicted() {
    kill_again_and_again(false);
}
