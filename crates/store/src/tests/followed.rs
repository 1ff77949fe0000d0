//! The log as a site reads it that follows.

use std::sync::Arc;

use super::driver::{open_log, small_segments};
use crate::files::sim::SimDisk;
use crate::{Entry, Error, LogOptions, LogStore, Marks, Put, Retention, Store};

fn set(store: &LogStore, key: &[u8], value: &[u8], version: u64) {
    let put = Put {
        key,
        value: &[value],
        client_flags: 0,
        exptime_secs: 0,
        version,
        marks: Marks::NONE,
        origin: 1,
        base_version: 0,
        expiry_value_version: 0,
        expiry_version: 0,
    };
    store.append(&[Entry::Put(put)]).expect("there is room");
    store.sync().expect("it is durable");
}

/// The sequences after this one, and whether their values are damaged.
fn read(store: &LogStore, after: u64) -> crate::Result<Vec<(u64, bool)>> {
    let mut seen = Vec::new();
    store.read_log(after, 1 << 20, &mut |entry| seen.push((entry.sequence, entry.is_damaged)))?;
    Ok(seen)
}

fn flip(disk: &SimDisk, wanted: &[u8]) {
    for name in crate::files::Files::list(disk).expect("lists") {
        let bytes = disk.read(&name).expect("reads");
        let found = bytes.windows(wanted.len()).position(|window| window == wanted);
        if let Some(at) = found.filter(|_| name.starts_with("segment-")) {
            return disk.flip_bit(&name, at as u64, 0).expect("flips");
        }
    }
    panic!("no segment has it");
}

/// The bytes are those of the records, each of which is written once, and a few of their neighbours.
#[test]
fn who_is_up_to_date_reads_nothing_twice() {
    let disk = SimDisk::new();
    let options = LogOptions { segment_bytes: 4 << 20, ..small_segments() };
    let store = LogStore::open_files(Arc::new(disk.clone()), options).expect("opens");
    store
        .retain(Retention { log_after_sequence: 0, log_bytes_max: u64::MAX, ..Retention::NONE })
        .expect("keeps");
    let value = [b'v'; 1000];
    for version in 1..=1000 {
        let (written, read_before) = (disk.counts().written_bytes, disk.counts().read_bytes);
        set(&store, b"key", &value, version);
        let written = disk.counts().written_bytes - written;
        assert_eq!(read(&store, version - 1).expect("reads"), [(version, false)]);
        let read_bytes = disk.counts().read_bytes - read_before;
        assert!(read_bytes <= written, "{read_bytes} bytes were read of {written} at {version}");
    }
    let read_before = disk.counts().read_bytes;
    assert_eq!(read(&store, 1000).expect("reads"), []);
    assert_eq!(disk.counts().read_bytes, read_before, "there was nothing new");
}

#[test]
fn a_damaged_value_is_told_and_passed_over() {
    for is_unreadable in [false, true] {
        let disk = SimDisk::new();
        let store = open_log(&disk).expect("opens");
        let values: Vec<_> = (1..=9).map(|n| format!("value{n}").repeat(40)).collect();
        (1..).zip(&values).for_each(|(version, value)| set(&store, b"key", value.as_bytes(), version));
        if is_unreadable {
            let name = "segment-0000000000000001";
            let bytes = disk.read(name).expect("reads");
            let at = bytes.windows(6).position(|window| window == b"value5").expect("it is there");
            disk.spoil(name, at as u64 + 9).expect("it is there");
        } else {
            flip(&disk, b"value5");
        }
        let expected: Vec<_> = (1..=9).map(|sequence| (sequence, sequence == 5)).collect();
        assert_eq!(read(&store, 0).expect("reads"), expected);
    }
}

/// Nobody knows how long the record is, and what it says; who needs it is told, and who does not reads on.
#[test]
fn before_and_behind_a_damaged_header_all_is_read() {
    for (length, is_unreadable) in [(5, false), (500, false), (5000, false), (5000, true)] {
        let disk = SimDisk::new();
        let store = LogStore::open_files(
            Arc::new(disk.clone()),
            LogOptions { segment_bytes: 1 << 20, ..small_segments() },
        )
        .expect("opens");
        // What looks like headers, but for the checksum.
        let mut looks = [0; 48];
        (looks[4], looks[40], looks[42]) = (255, 100, 1);
        let value: Vec<u8> = looks.iter().copied().cycle().take(length).collect();
        (1..=9).for_each(|version| set(&store, format!("key{version}").as_bytes(), &value, version));
        store.append(&[Entry::Note { name: b"note", value: b"" }]).expect("there is room");
        store.sync().expect("it is durable");
        for (damaged, key) in [(5, "key5"), (9, "key9")] {
            let name = "segment-0000000000000001";
            let bytes = disk.read(name).expect("reads");
            let at =
                bytes.windows(4).position(|window| window == key.as_bytes()).expect("it is there") as u64;
            if is_unreadable { disk.spoil(name, at) } else { disk.flip_bit(name, at, 0) }
                .expect("it is there");
            let before = read(&store, damaged - 3).expect("reads");
            assert_eq!(before.last(), Some(&(damaged - 1, false)), "{length} {is_unreadable}");
            for _ in 0..2 {
                let told = read(&store, damaged - 1).expect_err("it is damaged");
                let is_named = matches!(&told, Error::Corrupt { offset, .. } if (at - 48) == *offset);
                assert!(is_named || (is_unreadable && matches!(told, Error::Io { .. })), "{told}");
            }
            let behind: Vec<_> = (damaged + 1..=10).map(|sequence| (sequence, false)).collect();
            let found = read(&store, damaged).map(|mut seen| {
                seen.truncate(behind.len());
                seen
            });
            assert_eq!(found.expect("reads"), behind, "{length} {is_unreadable}");
        }
    }
}

/// What a client can put into a value looks at every second step like a header with the longest key. The bytes that are
/// read tell how many of them were verified, since the budget lets nothing be read ahead.
#[test]
fn a_value_full_of_headers_behind_a_damaged_one_costs_little() {
    let disk = SimDisk::new();
    let store = LogStore::open_files(
        Arc::new(disk.clone()),
        LogOptions { segment_bytes: 4 << 20, ..small_segments() },
    )
    .expect("opens");
    let length = [0, 0, 0, 0, 0, 0, 3, 0];
    let long_put = [255, 255, 1, 0, 1, 0, 0, 0];
    let value = [[length; 5], [long_put; 5]].concat().concat().repeat(4 << 10);
    set(&store, b"8 octets", &value, 1);
    (2..=9).for_each(|version| set(&store, format!("key{version}").as_bytes(), b"value", version));
    let name = "segment-0000000000000001";
    disk.flip_bit(name, 64 + 48, 0).expect("flips");
    let read_before = disk.counts().read_bytes;
    let mut seen = Vec::new();
    store.read_log(1, 1, &mut |entry| seen.push(entry.sequence)).expect("reads");
    assert_eq!(seen, [2]);
    let read_bytes = disk.counts().read_bytes - read_before;
    let most = 16 << 20;
    assert!(read_bytes <= most, "{read_bytes} bytes were read of a value of {}", value.len());
}

/// Whatever byte is damaged, at most the record that has it is lost, or its value, and nothing is made up.
#[test]
fn a_damaged_byte_costs_one_record() {
    let disk = SimDisk::new();
    let store = open_log(&disk).expect("opens");
    let value = |version: u64| format!("{version}").repeat(20);
    (1..=9).for_each(|version| {
        let key = format!("key{version}");
        set(&store, key.as_bytes(), value(version).as_bytes(), version);
    });
    // Sealed, with a footer.
    (10..=60).for_each(|version| set(&store, b"later", &[0; 200], version));
    let name = "segment-0000000000000001";
    let bytes = disk.read(name).expect("reads");
    let (mut lost, mut flagged) = (0, 0);
    for offset in 64..bytes.len() as u64 {
        disk.flip_bit(name, offset, 3).expect("flips");
        let (mut after, mut missing) = (0, 0);
        while after < 60 {
            let from = after;
            let mut seen = |entry: crate::LogEntry<'_>| {
                let Entry::Put(put) = entry.entry else { panic!("there are puts only") };
                assert_eq!((entry.sequence, put.version), (after + 1, after + 1), "{offset}");
                let is_right = after >= 9 || put.value.concat() == value(put.version).as_bytes();
                assert!(is_right != entry.is_damaged || after >= 9, "{offset}");
                missing += u64::from(entry.is_damaged);
                flagged += u64::from(entry.is_damaged);
                after += 1;
            };
            if store.read_log(from, 1 << 20, &mut seen).is_err() {
                (after, missing, lost) = (after + 1, missing + 1, lost + 1);
            }
        }
        assert!(missing <= 1, "{missing} are missing for byte {offset}");
        disk.flip_bit(name, offset, 3).expect("flips back");
    }
    assert!(lost > 500 && flagged > 500, "{lost} records and {flagged} values");
}
