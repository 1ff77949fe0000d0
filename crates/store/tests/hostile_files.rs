//! What lies in the directory of a store may be anything: opening ends, with an error.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

use larder_store::{Entry, LogOptions, LogStore, Marks, Put, Store};
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// A directory that goes with the test.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("larder-store-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("makes a directory");
        Self(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A closed store of one item.
fn store_in(dir: &Path) {
    let store = LogStore::open(dir, LogOptions::default()).expect("opens");
    let put = Put {
        key: b"key",
        value: &[b"value"],
        client_flags: 0,
        exptime_secs: 0,
        version: 1,
        marks: Marks::NONE,
        origin: 0,
        base_version: 0,
        expiry_value_version: 0,
        expiry_version: 0,
    };
    store.append(&[Entry::Put(put)]).expect("appends");
    store.close().expect("closes");
}

/// What opening says, within a minute. `None`: it succeeds.
fn error_of_opening(dir: &Path) -> Option<String> {
    let (sender, receiver) = mpsc::channel();
    let dir = dir.to_owned();
    std::thread::spawn(move || {
        let opened = LogStore::open(&dir, LogOptions::default());
        let _ = sender.send(opened.err().map(|error| error.to_string()));
    });
    receiver.recv_timeout(Duration::from_secs(60)).expect("it neither waits nor panics")
}

fn names(dir: &Path, prefix: &str) -> Vec<String> {
    let names = fs::read_dir(dir).expect("lists").map(|entry| entry.expect("lists").file_name());
    names.filter_map(|name| name.into_string().ok()).filter(|name| name.starts_with(prefix)).collect()
}

#[test]
fn what_is_no_regular_file_is_not_opened() {
    for prefix in ["MANIFEST", "segment-", "index-", "LOCK"] {
        for is_fifo in [true, false] {
            let dir = Dir::new();
            store_in(&dir.0);
            for name in names(&dir.0, prefix) {
                let path = dir.0.join(name);
                fs::remove_file(&path).expect("removes");
                if is_fifo {
                    mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).expect("makes a FIFO");
                } else {
                    symlink("/dev/zero", &path).expect("makes a link");
                }
            }
            let error = error_of_opening(&dir.0);
            if prefix == "index-" {
                // It only saves time.
                assert_eq!(error, None);
            } else {
                let error = error.expect("it is refused");
                assert!(error.contains("not a regular file"), "{prefix}: {error}");
            }
        }
    }
}

/// Sparse files pretend to be longer than the memory.
#[test]
fn a_length_is_not_believed() {
    for prefix in ["MANIFEST", "segment-", "index-"] {
        let dir = Dir::new();
        store_in(&dir.0);
        for name in names(&dir.0, prefix) {
            let file = fs::File::options().write(true).open(dir.0.join(name)).expect("opens");
            file.set_len(8 << 40).expect("the file system has sparse files");
        }
        // An index only saves time, and what lies behind the end of a segment was never written.
        assert_eq!(error_of_opening(&dir.0).is_some(), prefix == "MANIFEST", "{prefix}");
    }
}
