//! A process that appends and syncs is killed at a random moment, again and again: what it acknowledged is there.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use larder_store::{Budget, Entry, LogOptions, LogStore, Marks, Put, Store, VecSink};

const NOW_SECS: u64 = 1_900_000_000;
const KEYS: u64 = 40;
const DIR: &str = "LARDER_STORE_KILL_DIR";

fn options() -> LogOptions {
    LogOptions { segment_bytes: 16 << 10, ..LogOptions::default() }
}

/// The value of a version: its number again and again.
fn value(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat((version % 60) as usize + 1)
}

/// The process that is killed: each version is a put, or, if it is a multiple of 7, a deletion. It prints each version
/// that is durable.
#[test]
#[ignore = "is started by the other test"]
fn child() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let store = LogStore::open(Path::new(&dir), options()).expect("opens");
    for version in store.highest_version() + 1.. {
        let key = format!("key-{}", version % KEYS);
        let value = value(version);
        let put = Put {
            key: key.as_bytes(),
            value: &[&value],
            client_flags: version as u32,
            exptime_secs: 0,
            version,
            marks: Marks::NONE,
            origin: 0,
            base_version: 0,
            expiry_value_version: 0,
            expiry_version: 0,
        };
        let entry = if version.is_multiple_of(7) {
            Entry::Delete { key: key.as_bytes(), version, base_version: 0 }
        } else {
            Entry::Put(put)
        };
        store.append(&[entry]).expect("appends");
        store.sync().expect("syncs");
        println!("durable {version}");
        std::io::stdout().flush().expect("prints");
        store.maintain(Budget { bytes: 20_000 }, NOW_SECS).expect("cleans");
    }
}

/// Removes the directory at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_a_killed_process_acknowledged_is_there() {
    let dir = Scratch(std::env::temp_dir().join(format!("larder-store-kill-{}", std::process::id())));
    let mut random = fastrand::Rng::with_seed(1);
    let mut durable = 0;
    for round in 0..20 {
        let mut child = Command::new(std::env::current_exe().expect("a path"))
            .args(["child", "--exact", "--ignored", "--nocapture"])
            .env(DIR, &dir.0)
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut left = random.u32(1..200);
        for line in lines {
            let line = line.expect("reads");
            let Some(version) = line.split("durable ").nth(1) else { continue };
            durable = version.parse().expect("a number");
            left = left.saturating_sub(1);
            if left == 0 {
                let _ = child.kill();
            }
        }
        child.wait().expect("ends");
        assert_eq!(left, 0, "round {round}: the child ended by itself");

        let store = LogStore::open(&dir.0, options()).expect("opens");
        let last = store.last_sequence();
        assert!(last >= durable, "round {round}: {last} of {durable}");
        for key in 0..KEYS {
            let newest = last.saturating_sub((last + KEYS - key) % KEYS);
            let expected = (newest > 0 && !newest.is_multiple_of(7)).then(|| value(newest));
            let mut sink = VecSink::default();
            let found = store.get(format!("key-{key}").as_bytes(), NOW_SECS, &mut sink).expect("reads");
            assert_eq!(
                found.map(|meta| meta.version),
                expected.as_ref().map(|_| newest),
                "round {round}, key-{key}"
            );
            assert_eq!(sink.into_value(), expected.unwrap_or_default());
        }
        if round % 5 == 4 {
            store.close().expect("closes");
        }
    }
    assert!(durable > 500);
}
