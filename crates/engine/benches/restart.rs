//! How long it takes until a cache in a file is ready again: `cargo bench -p larder-engine --bench restart`.
//!
//! A million items in /dev/shm, after an orderly end (`clean`) and after a process that was killed (`killed`: each item
//! is compared with its checksum). The pages are in memory, and in no mapping of this process before.
#![allow(clippy::expect_used, clippy::unwrap_used, missing_docs)]

use std::fs::File;
use std::path::PathBuf;
use std::time::Instant;

use larder_engine::{CacheFile, Config, Engine, LargePages, Now, Opened, Reservation, Start, Store, Stored};

const ITEMS: u64 = 1_000_000;
const ROUNDS: usize = 5;

struct TestFile(PathBuf);

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn open(file: &TestFile) -> Opened {
    let config = Config {
        memory_bytes: 2 << 30,
        item_bytes_max: 1 << 20,
        evict: true,
        handles_max: 3,
        index_power: None,
        large_pages: LargePages::Never,
        hash_key: [1, 2],
    };
    let reservation = Reservation::modest(config.memory_bytes, u64::MAX);
    let options = File::options().read(true).write(true).create(true).truncate(false).open(&file.0);
    let backing =
        CacheFile { file: options.expect("/dev/shm"), unix_secs: 1_800_000_000, first_secs: 2, family: 1 };
    Engine::open(config, reservation, backing).expect("memory")
}

fn main() {
    for value_bytes in [100, 1024] {
        let file = TestFile(PathBuf::from(format!("/dev/shm/larder-restart-{}", std::process::id())));
        let opened = open(&file);
        let mut handle = opened.engine.handle().expect("one");
        let value = vec![b'v'; value_bytes];
        let begun = Instant::now();
        for number in 0..ITEMS {
            let guard = handle.pin(Now { secs: 2, micros: 2 });
            let key = format!("key-{number:020}");
            let stored = guard.store(guard.prepare(key.as_bytes()), &Store::set(key.as_bytes(), &value));
            assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
        }
        let load_millis = begun.elapsed().as_millis();
        drop(handle);
        drop(opened);
        for is_clean in [false, true] {
            let mut millis: Vec<_> = (0..ROUNDS)
                .map(|_| {
                    let begun = Instant::now();
                    let opened = open(&file);
                    let millis = begun.elapsed().as_secs_f64() * 1e3;
                    let Start::Warm(restored) = opened.start else { panic!("{:?}", opened.start) };
                    assert_eq!(restored.items, ITEMS);
                    if is_clean {
                        assert!(opened.engine.keep());
                    }
                    millis
                })
                .collect();
            // The first of the clean rounds follows one that was not.
            if is_clean {
                millis.remove(0);
            }
            millis.sort_by(f64::total_cmp);
            let name = if is_clean { "clean" } else { "killed" };
            println!(
                "{ITEMS} items of {value_bytes} B, {name}: ready in {:.0} ms (median; {:.0} to {:.0}); load {load_millis} ms",
                millis[millis.len() / 2],
                millis[0],
                millis[millis.len() - 1],
            );
        }
    }
}
