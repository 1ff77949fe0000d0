//! The format on disk: the bytes in `docs/store-format.md` are those that the code writes, and the files of every
//! version ever released are read.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fmt::Write as _;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_store::files::Files as _;
use larder_store::files::sim::SimDisk;
use larder_store::{
    Budget, Cursor, Entry, Error, FlushBy, ItemState, KeyState, LogOptions, LogRead, LogStore, Marks, Put,
    Retention, Store, VecSink, check,
};

const NOW_SECS: u64 = 1_900_000_000;

fn options() -> LogOptions {
    let secret = std::array::from_fn(|nth| nth as u8);
    LogOptions { segment_bytes: 4096, secret: Some(secret), ..LogOptions::default() }
}

/// As `hexdump -C` prints bytes, `*` for lines of zeros.
fn dump(bytes: &[u8]) -> String {
    let mut out = String::new();
    let mut was_zero = false;
    for (nth, line) in bytes.chunks(16).enumerate() {
        let is_zero = line.iter().all(|&byte| byte == 0) && nth > 0 && line.len() == 16;
        if is_zero && was_zero {
            continue;
        }
        was_zero = is_zero;
        if is_zero {
            out.push_str("*\n");
            continue;
        }
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
        let (left, right) = line.split_at(line.len().min(8));
        let text: String =
            line.iter().map(|&byte| if (32..127).contains(&byte) { byte as char } else { '.' }).collect();
        writeln!(out, "{:08x}  {:<23}  {:<23}  |{text}|", nth * 16, hex(left), hex(right)).expect("a string");
    }
    writeln!(out, "{:08x}", bytes.len()).expect("a string");
    out
}

/// Earlier versions could keep a store with RocksDB: such a directory is recognized, and left as it is.
#[test]
fn a_directory_of_rocksdb_is_refused_and_left_alone() {
    for (name, bytes) in
        [("MANIFEST", &b"LARDRRKS\x01\0\0\0 and more"[..]), ("CURRENT", b"MANIFEST-000004\n")]
    {
        let disk = SimDisk::new();
        disk.create(name).unwrap().write_at(&[IoSlice::new(bytes)], 0).unwrap();
        let error = LogStore::open_files(Arc::new(disk.clone()), options()).err().expect("is refused");
        assert!(matches!((name, &error), ("MANIFEST", Error::OfRocksDb) | ("CURRENT", _)), "{error}");
        for repair in [false, true] {
            assert!(matches!(check(&disk, repair), Err(Error::OfRocksDb)), "{name}");
        }
        assert_eq!(disk.read(name).unwrap(), bytes);
        let others =
            disk.list().unwrap().into_iter().filter(|other| other != name && other != "LOCK").count();
        assert_eq!(others, 0, "nothing else is there");
    }
}

#[test]
fn the_example_in_the_document_is_what_the_code_writes() {
    let disk = SimDisk::new();
    let store = LogStore::open_files(Arc::new(disk.clone()), options()).expect("opens");
    let put = Put {
        key: b"key",
        value: &[b"value"],
        client_flags: 7,
        exptime_secs: 2_000_000_000,
        version: 1,
        marks: Marks::NONE,
        origin: 0,
        base_version: 0,
        expiry_value_version: 0,
        expiry_version: 0,
    };
    store
        .append(&[
            Entry::Put(put),
            Entry::Delete { key: b"old", version: 2, base_version: 1 },
            Entry::Flush {
                prefix: b"page:",
                except: &[b"page:old:".to_vec()],
                version: 3,
                by: FlushBy::Version,
            },
            Entry::Note { name: b"pos", value: b"12" },
        ])
        .expect("appends");
    store.close().expect("closes");
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/store-format.md");
    let document = std::fs::read_to_string(document).expect("reads");
    for name in ["segment-0000000000000001", "MANIFEST"] {
        let dump = dump(&disk.read(name).expect("reads"));
        let is_there = document.contains(&format!("```hexdump\n{dump}```"));
        assert!(is_there, "docs/store-format.md should show {name} as\n{dump}");
    }
}

fn data_dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// What the directories of `tests/data` hold, by rule: items 0 to 59, but multiples of 5, which were deleted.
fn put(store: &LogStore, prefix: &str, nth: u64) {
    let key = format!("{prefix}{nth}");
    let value = vec![nth as u8; nth as usize * 5];
    store
        .append(&[Entry::Put(Put {
            key: key.as_bytes(),
            value: &[&value],
            client_flags: nth as u32,
            exptime_secs: if nth.is_multiple_of(2) { 0 } else { 4_000_000_000 + nth },
            version: 1_000 + nth,
            marks: Marks::from_bits((nth % 8) as u8).expect("three marks"),
            origin: 0,
            base_version: 0,
            expiry_value_version: 0,
            expiry_version: 0,
        })])
        .expect("appends");
}

/// The directories, and their minor versions. Since 1.1 their flush had an exception: what begins with `flushed:5`.
const VERSIONS: [(&str, u16); 6] = [
    ("v1/closed", 0),
    ("v1/killed", 0),
    ("v1.1/closed", 1),
    ("v1.1/killed", 1),
    ("v1.2/closed", 2),
    ("v1.2/killed", 2),
];

const RETENTION: Retention = Retention {
    log_after_sequence: u64::MAX,
    log_bytes_max: 0,
    deletions_above_version: 2_500,
    expired_above_secs: NOW_SECS,
    is_replicated: true,
};

/// What the directories have since 1.2.
fn replicated() -> [Entry<'static>; 6] {
    let put = Put {
        key: b"touched",
        value: &[b"value"],
        client_flags: 9,
        exptime_secs: 4_100_000_000,
        version: 2_600,
        marks: Marks::NONE,
        origin: 1,
        base_version: 2_550,
        expiry_value_version: 0,
        expiry_version: 2_650,
    };
    let (key, except) = (b"early", &[]);
    [
        Entry::Put(put),
        Entry::Touch {
            key,
            expiry_value_version: 2_690,
            expiry_version: 2_700,
            exptime_secs: 5,
            version: 0,
            base_version: 0,
        },
        Entry::Delete { key: b"never there", version: 2_710, base_version: 2_705 },
        Entry::Put(Put { key: b"gone:1", ..put }),
        Entry::Flush { prefix: b"gone:", except, version: 2_900, by: FlushBy::Version },
        Entry::Note { name: b"position", value: b"12" },
    ]
}

/// Its sequence: it is not for others.
const DELAYED_FLUSH: u64 = 3 * 60 + 12 + 2;

fn check_replicated(store: &LogStore) {
    let state = |key: &[u8]| store.state(key).expect("reads").map(|state| KeyState { sequence: 0, ..state });
    let item = Some(ItemState { value_bytes: 5, client_flags: 9, marks: Marks::NONE });
    let touched = KeyState {
        version: 2_600,
        base_version: 2_550,
        item,
        expiry_value_version: 2_600,
        expiry_version: 2_650,
        exptime_secs: 4_100_000_000,
        origin: 1,
        sequence: 0,
    };
    assert_eq!(state(b"touched"), Some(touched));
    let early = KeyState {
        expiry_value_version: 2_690,
        expiry_version: 2_700,
        exptime_secs: 5,
        ..KeyState::default()
    };
    assert_eq!(state(b"early"), Some(early));
    let deleted = KeyState { version: 2_710, base_version: 2_705, ..KeyState::default() };
    assert_eq!(state(b"never there"), Some(deleted));
    assert_eq!(state(b"gone:1"), None);
    assert_eq!((store.newest_flush_version(b"gone:1"), store.newest_flush_version(b"early")), (2_900, 0));
    assert_eq!(store.notes(), [(b"position".to_vec(), b"12".to_vec())]);
    let start = store.stats().log_start_sequence;
    let mut sequences = Vec::new();
    let read = store.read_log(start - 1, usize::MAX, &mut |entry| sequences.push(entry.sequence));
    let last = store.last_sequence();
    assert_eq!(read.expect("reads"), LogRead { through_sequence: last, more: false });
    assert!(
        start > 1
            && sequences.iter().copied().eq((start..=last).filter(|&sequence| sequence != DELAYED_FLUSH)),
        "{start}, {sequences:?}"
    );
}

/// Writes the directories of the current version. For a new version of the format: under its name, once.
#[test]
#[ignore = "writes tests/data"]
fn write_data() {
    for (name, is_closed) in [("v1.2/closed", true), ("v1.2/killed", false)] {
        let dir = data_dir(name);
        let store = LogStore::open(&dir, options()).expect("opens");
        for nth in 0..60 {
            put(&store, "item:", nth % 7);
            put(&store, "item:", nth);
            put(&store, "flushed:", nth);
        }
        for nth in (0..60).step_by(5) {
            let key = format!("item:{nth}");
            store
                .append(&[Entry::Delete { key: key.as_bytes(), version: 2_000 + nth, base_version: 0 }])
                .expect("appends");
        }
        store
            .append(&[
                Entry::Flush {
                    prefix: b"flushed:",
                    except: &[b"flushed:5".to_vec()],
                    version: 3_000,
                    by: FlushBy::Sequence,
                },
                Entry::FlushAt { prefix: b"later:", at_secs: 5_000_000_000 },
            ])
            .expect("appends");
        store.retain(RETENTION).expect("retains");
        store.append(&replicated()).expect("appends");
        while store.maintain(Budget { bytes: 1 << 20 }, NOW_SECS).expect("cleans").more {}
        put(&store, "item:", 59);
        store.sync().expect("syncs");
        if is_closed {
            store.close().expect("closes");
        }
        drop(store);
        for name in ["LOCK", "RESERVE-CLEAN", "RESERVE-DELETE"] {
            std::fs::remove_file(dir.join(name)).expect("removes");
        }
    }
}

#[test]
fn the_files_of_every_version_are_read() {
    for (name, minor) in VERSIONS {
        let has_exception = minor >= 1;
        let disk = SimDisk::new();
        let mut files = 0;
        for entry in std::fs::read_dir(data_dir(name)).expect("lists") {
            let entry = entry.expect("lists");
            disk.put(
                &entry.file_name().into_string().expect("UTF-8"),
                std::fs::read(entry.path()).expect("reads"),
            );
            files += 1;
        }
        assert!(files > 3, "{name}: {files} files");
        let store = LogStore::open_files(Arc::new(disk), LogOptions::default()).expect("opens");
        for nth in 0..60_u64 {
            let mut sink = VecSink::default();
            let found = store.get(format!("item:{nth}").as_bytes(), NOW_SECS, &mut sink).expect("reads");
            if nth % 5 == 0 {
                assert!(found.is_none(), "{name}: item:{nth}");
                continue;
            }
            let meta = found.expect("is there");
            assert_eq!(sink.into_value(), vec![nth as u8; nth as usize * 5], "{name}: item:{nth}");
            let exptime_secs = if nth.is_multiple_of(2) { 0 } else { 4_000_000_000 + nth };
            assert_eq!(
                (meta.client_flags, meta.version, meta.exptime_secs),
                (nth as u32, 1_000 + nth, exptime_secs)
            );
            assert_eq!(u64::from(meta.marks.bits()), nth % 8);
            let key = format!("flushed:{nth}");
            let found = store.get(key.as_bytes(), NOW_SECS, &mut VecSink::default()).expect("reads");
            let is_left = has_exception && key.starts_with("flushed:5");
            assert_eq!(found.is_some(), is_left, "{name}: {key}");
        }
        let (mut keys, mut cursor) = (0, Cursor::new());
        while store.for_each_key(&mut cursor, 1_000, NOW_SECS, &mut |_, _| keys += 1).expect("scans") {}
        let left = if has_exception { 11 } else { 0 };
        let (more_keys, more_entries) = if minor >= 2 { (1, 6) } else { (0, 0) };
        assert_eq!(keys, 48 + left + more_keys, "{name}");
        let last_sequence = 3 * 60 + 12 + 2 + 1 + more_entries;
        assert_eq!((store.last_sequence(), store.highest_version()), (last_sequence, 3_000), "{name}");
        assert_ne!(store.incarnation(), 0);
        if minor >= 2 {
            check_replicated(&store);
        } else {
            let read = store.read_log(0, 1, &mut |_| {});
            assert!(matches!(read, Err(Error::TooFarBehind { .. })), "{name}: what was cleaned is not known");
        }
        let pending = store.pending_flushes();
        assert_eq!((pending.len(), pending[0].at_secs), (1, 5_000_000_000), "{name}");
        put(&store, "item:", 60);
        store.close().expect("closes");
    }
}
