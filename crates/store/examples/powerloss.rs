//! A writer and a checker, to try power loss on a real directory with a recorder of system calls.
//!
//!     powerloss write DIR ACKNOWLEDGEMENTS COUNT    appends COUNT versions, and notes each that is durable
//!     powerloss check DIR VERSION                   fails if not all up to VERSION is there, or something is wrong
//!
//! A version is a put of one of 40 keys, or, if it is a multiple of 7, a deletion.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::Write;
use std::path::Path;

use larder_store::{Budget, Entry, LogOptions, LogStore, Marks, Put, Store, VecSink};

const NOW_SECS: u64 = 1_900_000_000;
const KEYS: u64 = 40;

fn open(dir: &str) -> LogStore {
    let options = LogOptions { segment_bytes: 16 << 10, ..LogOptions::default() };
    LogStore::open(Path::new(dir), options).unwrap_or_else(|error| panic!("{error}"))
}

fn value(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat((version % 60) as usize + 1)
}

fn write(dir: &str, acknowledgements: &str, count: u64) {
    let store = open(dir);
    let mut acknowledged = std::fs::File::create(acknowledgements).expect("creates");
    for version in 1..=count {
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
        let entry = match version % 7 {
            0 => Entry::Delete { key: key.as_bytes(), version, base_version: 0 },
            _ => Entry::Put(put),
        };
        store.append(&[entry]).expect("appends");
        if version % 3 == 0 {
            store.sync().expect("syncs");
            writeln!(acknowledged, "{version}").expect("writes");
        }
        store.maintain(Budget { bytes: 20_000 }, NOW_SECS).expect("cleans");
    }
    if count.is_multiple_of(2) {
        store.close().expect("closes");
    }
}

fn check(dir: &str, acknowledged: u64) {
    let store = open(dir);
    let last = store.last_sequence();
    assert!(last >= acknowledged, "{last} is there, {acknowledged} was acknowledged");
    for key in 0..KEYS {
        let newest = last.saturating_sub((last + KEYS - key) % KEYS);
        let expected = (newest > 0 && !newest.is_multiple_of(7)).then(|| value(newest));
        let mut sink = VecSink::default();
        let found = store.get(format!("key-{key}").as_bytes(), NOW_SECS, &mut sink).expect("reads");
        assert_eq!(found.map(|meta| meta.version), expected.as_ref().map(|_| newest), "key-{key} of {last}");
        assert!(sink.into_value() == expected.unwrap_or_default(), "key-{key} of {last}");
    }
    while store.maintain(Budget { bytes: 1 << 20 }, NOW_SECS).expect("cleans").more {}
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", dir, acknowledgements, count] => {
            write(dir, acknowledgements, count.parse().expect("a number"))
        }
        ["check", dir, acknowledged] => check(dir, acknowledged.parse().unwrap_or(0)),
        _ => panic!("see the head of powerloss.rs"),
    }
}
