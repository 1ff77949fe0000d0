//! A directory belongs to the engine that made it.

use std::fs;
use std::path::Path;

use super::driver::{Driver, Rocks};
use super::model::{Change, append};
use super::script::START_SECS;
use crate::files::{DiskFiles, Files};
use crate::{Error, LogOptions, LogStore, Marks, RocksOptions, RocksStore, Store, VecSink, check};

fn put(value: &[u8]) -> [Change; 1] {
    let (key, value) = (b"key".to_vec(), value.to_vec());
    [Change::Put { key, value, client_flags: 0, exptime_secs: 0, version: 1, marks: Marks::NONE }]
}

fn open_log(directory: &Path) -> crate::Result<LogStore> {
    LogStore::open(directory, LogOptions { segment_bytes: 4096, ..LogOptions::default() })
}

fn files_of(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let files = DiskFiles::open(directory).expect("opens");
    let read = |name: String| {
        let bytes = fs::read(directory.join(&name)).expect("reads");
        (name, bytes)
    };
    files.list().expect("lists").into_iter().map(read).collect()
}

#[test]
fn the_log_refuses_a_directory_of_rocksdb() {
    let place = Rocks::new();
    let store = place.open().expect("opens");
    append(&store, &put(b"value")).expect("appends");
    let error = open_log(&place.directory).err().expect("it is open");
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    drop(store);
    let before = files_of(&place.directory);
    let error = open_log(&place.directory).err().expect("it is RocksDB's");
    assert!(matches!(error, Error::OtherEngine { found: "rocksdb", wanted: "log" }), "{error}");
    assert!(error.to_string().contains("--store-engine rocksdb"), "{error}");
    let files = DiskFiles::open(&place.directory).expect("opens");
    for repair in [false, true] {
        assert!(matches!(check(&files, repair), Err(Error::OtherEngine { found: "rocksdb", .. })));
    }
    assert_eq!(files_of(&place.directory), before, "nobody has touched it");
    // Not even if the file is lost that says so.
    fs::remove_file(place.directory.join("MANIFEST")).expect("removes");
    assert!(open_log(&place.directory).is_err());
    assert!(check(&files, true).is_err());
    assert!(place.open().is_err(), "nor does RocksDB take it for a new one");
}

#[test]
fn rocksdb_refuses_a_directory_of_the_log() {
    let place = Rocks::new();
    let store = open_log(&place.directory).expect("opens");
    append(&store, &put(b"value")).expect("appends");
    let error = place.open().err().expect("it is open");
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    drop(store);
    let before = files_of(&place.directory);
    let error = place.open().err().expect("it is the log's");
    assert!(matches!(error, Error::OtherEngine { found: "log", wanted: "rocksdb" }), "{error}");
    assert!(error.to_string().contains("--store-engine log"), "{error}");
    assert_eq!(files_of(&place.directory), before, "nobody has touched it");
    fs::remove_file(place.directory.join("MANIFEST")).expect("removes");
    assert!(place.open().is_err(), "segments without their manifest");
}

#[test]
fn what_is_missing_or_newer_is_refused() {
    let place = Rocks::new();
    let store = place.open().expect("opens");
    append(&store, &put(b"value")).expect("appends");
    store.close().expect("closes");
    place.end(store);
    let current = fs::read(place.directory.join("CURRENT")).expect("reads");
    fs::remove_file(place.directory.join("CURRENT")).expect("removes");
    let error = place.open().err().expect("a file is missing");
    assert!(error.to_string().contains("CURRENT"), "{error}");
    fs::write(place.directory.join("CURRENT"), current).expect("writes");
    let store = place.open().expect("opens");
    let mut sink = VecSink::default();
    assert!(store.get(b"key", START_SECS, &mut sink).expect("reads").is_some());
    place.end(store);

    let manifest = fs::read(place.directory.join("MANIFEST")).expect("reads");
    for (at, is_newer) in [(10, true), (20, false)] {
        let mut other = manifest.clone();
        other[at] ^= 1;
        if is_newer {
            let body = other.len() - 4;
            let checksum = crc32c::crc32c(&other[..body]).to_le_bytes();
            other[body..].copy_from_slice(&checksum);
        }
        fs::write(place.directory.join("MANIFEST"), other).expect("writes");
        let error = place.open().err().expect("is refused");
        assert_eq!(matches!(error, Error::NewerFormat { .. }), is_newer, "{error}");
    }
}

/// A table that is not as RocksDB has written it: its items are errors, or the store is refused.
#[test]
fn a_damaged_table_is_not_read_as_data() {
    let place = Rocks::new();
    let store = place.open().expect("opens");
    append(&store, &put(&[7; 5_000])).expect("appends");
    store.close().expect("closes");
    place.end(store);
    let names = DiskFiles::open(&place.directory).expect("opens").list().expect("lists");
    let table = names.iter().find(|name| name.ends_with(".sst")).expect("closing has written a table");
    let bytes = fs::read(place.directory.join(table)).expect("reads");
    let mut random = fastrand::Rng::with_seed(1);
    let mut refused = 0;
    for _ in 0..50 {
        let mut other = bytes.clone();
        other[random.usize(0..5_000)] ^= 1 << random.u32(0..8);
        fs::write(place.directory.join(table), other).expect("writes");
        match RocksStore::open(&place.directory, RocksOptions::default()) {
            Err(_) => refused += 1,
            Ok(store) => {
                let mut sink = VecSink::default();
                match store.get(b"key", START_SECS, &mut sink) {
                    Err(_) => refused += 1,
                    Ok(found) => assert!(found.is_some() && sink.into_value() == [7; 5_000]),
                }
            }
        }
    }
    assert!(refused > 40, "{refused}");
}
