//! Files whose checksums all match may say anything: a store of them opens or is refused, and nothing panics, overflows
//! or asks for more memory than the files have bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use larder_store::files::sim::{PowerLoss, SimDisk};
use larder_store::{
    Budget, Cursor, Entry, Error, FlushBy, LogOptions, LogRead, LogStore, Marks, NoValue, Put, Retention,
    Store, check, restore,
};

const NOW_SECS: u64 = 1_900_000_000;
const SECRET: [u8; 16] = [7; 16];

fn options() -> LogOptions {
    LogOptions { segment_bytes: 4096, secret: Some(SECRET), ..LogOptions::default() }
}

fn put<'a>(key: &'a [u8], value: &'a [&'a [u8]], exptime_secs: u64) -> Entry<'a> {
    Entry::Put(Put {
        key,
        value,
        client_flags: 0,
        exptime_secs,
        version: 1,
        marks: Marks::NONE,
        origin: 0,
        base_version: 0,
        expiry_value_version: 0,
        expiry_version: 0,
    })
}

const RETENTION: Retention = Retention {
    log_after_sequence: u64::MAX,
    log_bytes_max: 0,
    deletions_above_version: 8,
    expired_above_secs: NOW_SECS,
    is_replicated: true,
};

/// A store with a bit of everything, closed or not.
fn store_on(disk: &SimDisk, is_closed: bool) {
    let store = LogStore::open_files(Arc::new(disk.clone()), options()).expect("opens");
    store.retain(RETENTION).expect("retains");
    store.count_prefixes(&[b"", b"a:", b"a:1"]).expect("counts");
    for nth in 0..40_u64 {
        let key = format!("a:{}", nth % 30);
        let exptime_secs = if nth % 3 == 0 { NOW_SECS + 10 } else { 0 };
        store.append(&[put(key.as_bytes(), &[&[1; 150]], exptime_secs)]).expect("appends");
    }
    let except = [b"a:1".to_vec()];
    store
        .append(&[
            Entry::Delete { key: b"a:2", version: 2, base_version: 0 },
            Entry::Flush { prefix: b"a:", except: &except, version: 3, by: FlushBy::Sequence },
            Entry::FlushAt { prefix: b"b:", at_secs: NOW_SECS + 5 },
            put(b"a:3", &[b"value"], 0),
            Entry::Touch {
                key: b"c:1",
                expiry_value_version: 9,
                expiry_version: 10,
                exptime_secs: 5,
                version: 8,
                base_version: 7,
            },
            Entry::Put(Put {
                key: b"c:2",
                value: &[b"value"],
                client_flags: 0,
                exptime_secs: NOW_SECS + 5,
                version: 8,
                marks: Marks::NONE,
                origin: 1,
                base_version: 7,
                expiry_value_version: 8,
                expiry_version: 9,
            }),
            Entry::Flush { prefix: b"c:3", except: &[], version: 9, by: FlushBy::Version },
            Entry::Note { name: b"note", value: b"value" },
        ])
        .expect("appends");
    store.sync().expect("syncs");
    store.maintain(Budget { bytes: 1 << 20 }, NOW_SECS).expect("cleans");
    if is_closed {
        store.close().expect("closes");
    }
}

/// Does everything with the store of these files that one can do.
fn live_with(disk: &SimDisk) {
    let copy = || disk.power_loss(PowerLoss::Nothing, 0);
    let _ = check(&copy(), false);
    if check(&copy(), true).is_ok_and(|report| report.is_repaired) {
        let repaired = copy();
        let _ = check(&repaired, true);
        let _ = LogStore::open_files(Arc::new(repaired), options());
    }
    let Ok(store) = LogStore::open_files(Arc::new(copy()), options()) else { return };
    let usage = store.count_prefixes(&[b"", b"a:", b"a:1"]).expect("counts");
    usage.ask_for_room(1);
    for nth in 0..30 {
        let key = format!("a:{nth}");
        let _ = store.get(key.as_bytes(), NOW_SECS, &mut NoValue);
        let _ = store.append(&[put(key.as_bytes(), &[&[2; 200]], 0)]);
    }
    let _ = store.append(&[Entry::Flush { prefix: b"a:2", except: &[], version: 4, by: FlushBy::Sequence }]);
    let _ = store.sync();
    for _ in 0..20 {
        let _ = store.maintain(Budget { bytes: 1 << 20 }, NOW_SECS + 20);
    }
    let mut cursor = Cursor::new();
    while let Ok(true) = store.for_each_key(&mut cursor, 1_000, NOW_SECS, &mut |_, _| {}) {}
    let mut cursor = Cursor::new();
    while let Ok(true) = store.for_each_state(&mut cursor, 10_000, None, &mut |_, _, _| {}) {}
    let (stats, _, _) = (store.stats(), store.pending_flushes(), store.notes());
    let _ = (store.state(b"c:1"), store.state(b"a:1"), store.note(b"note"), store.version_flushes());
    let mut after = stats.log_start_sequence.saturating_sub(1);
    while let Ok(LogRead { through_sequence, more: true }) = store.read_log(after, 2_000, &mut |_| {}) {
        assert!(through_sequence > after, "a read of the log stands still");
        after = through_sequence;
    }
    let _ = store.read_log(u64::MAX, 1, &mut |_| {});
    let _ = store.retain(Retention { deletions_above_version: u64::MAX, ..RETENTION });
    let _ = store.retain(Retention::NONE);
    let target = SimDisk::new();
    if store.backup(&target, None).is_ok() {
        let restored = SimDisk::new();
        let _ = restore(&[&target], &restored);
    }
    let _ = store.close();
}

/// Where a record lies in a segment: all of it, its key with its extension, its value.
struct Record {
    start: usize,
    key: Range<usize>,
    value: Range<usize>,
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
}

fn records(segment: &[u8]) -> Vec<Record> {
    let (mut records, mut start) = (Vec::new(), 64);
    while start + 48 <= segment.len() && u32_at(segment, start + 4) >= 48 {
        let extension_bytes = if segment[start + 45] & 1 == 1 { 16 } else { 0 };
        let key_end = start + 48 + (u32_at(segment, start + 40) & 0xffff) + extension_bytes;
        let end = start + u32_at(segment, start + 4);
        records.push(Record { start, key: start + 48..key_end, value: key_end..end });
        start = end.next_multiple_of(8);
    }
    records
}

fn write_u32(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

/// Makes the checksums of a segment match again, of the records that it had.
fn sign_segment(segment: &mut [u8], number: u64, records: &[Record]) {
    let checksum = crc32c::crc32c(&segment[..60]);
    write_u32(segment, 60, checksum);
    let seed = crc32c::crc32c_append(crc32c::crc32c(&SECRET), &number.to_le_bytes());
    for Record { start, key, value } in records {
        let checksum = crc32c::crc32c(&segment[value.clone()]);
        write_u32(segment, start + 36, checksum);
        let key_bytes = u32_at(segment, start + 40) & 0xffff;
        let extension_bytes = if segment[start + 45] & 1 == 1 { 16 } else { 0 };
        let end = (key.start + key_bytes + extension_bytes).min(segment.len());
        let checksum = crc32c::crc32c_append(seed, &segment[start + 4..end]);
        write_u32(segment, *start, checksum);
    }
}

fn sign_manifest(manifest: &mut [u8]) {
    let end = manifest.len() - 4;
    let checksum = crc32c::crc32c(&manifest[..end]);
    write_u32(manifest, end, checksum);
}

/// A manifest that ends with these length and checksum of the snapshot.
fn name_snapshot(manifest: &mut [u8], file_bytes: u64, checksum: u32) {
    let end = manifest.len();
    manifest[end - 16..end - 8].copy_from_slice(&file_bytes.to_le_bytes());
    write_u32(manifest, end - 8, checksum);
    sign_manifest(manifest);
}

/// Writes numbers at the ends of their ranges over each place of a file, and makes all checksums match.
fn mutate(name: &str, whole: &SimDisk, step: usize) -> usize {
    let bytes = whole.read(name).expect("reads");
    let number = name.strip_prefix("segment-").map(|number| number.parse().expect("a number"));
    let records = number.map(|_: u64| records(&bytes)).unwrap_or_default();
    let mut tried = 0;
    for at in (0..bytes.len()).step_by(step) {
        for pattern in
            [&[0xff; 8][..], &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], &[0xff; 2], &[0; 8]]
        {
            let end = (at + pattern.len()).min(bytes.len());
            let mut mutant = bytes.clone();
            mutant[at..end].copy_from_slice(&pattern[..end - at]);
            if mutant == bytes {
                continue;
            }
            let disk = whole.power_loss(PowerLoss::Nothing, 0);
            if let Some(number) = number {
                sign_segment(&mut mutant, number, &records);
            } else if name == "MANIFEST" {
                sign_manifest(&mut mutant);
            } else {
                let mut manifest = disk.read("MANIFEST").expect("reads");
                name_snapshot(&mut manifest, mutant.len() as u64, crc32c::crc32c(&mutant));
                disk.put("MANIFEST", manifest);
            }
            disk.put(name, mutant);
            let lived = catch_unwind(AssertUnwindSafe(|| live_with(&disk)));
            assert!(lived.is_ok(), "{name}: {pattern:02x?} at {at:#x}");
            tried += 1;
        }
    }
    tried
}

#[test]
fn no_number_overflows() {
    for is_closed in [true, false] {
        let whole = SimDisk::new();
        store_on(&whole, is_closed);
        let mut names = larder_store::files::Files::list(&whole).expect("lists");
        names.retain(|name| !name.starts_with("RESERVE") && name != "LOCK");
        // Segments are alike, but for the first and the last ones.
        names.sort_unstable();
        for (nth, name) in names.iter().enumerate() {
            let step = match &name[..6] {
                "MANIFE" => 1,
                "index-" => 131,
                _ if nth < 3 || nth + 2 > names.len() => 8,
                _ => 64,
            };
            assert!(mutate(name, &whole, step) > 0, "{name}");
        }
    }
}

/// What the checksum of so many zeros is: each doubling is one combination.
fn checksum_of_zeros(mut count: usize) -> u32 {
    let (mut sum, mut power, mut power_bytes) = (crc32c::crc32c(&[]), crc32c::crc32c(&[0]), 1);
    while count > 0 {
        if count & 1 == 1 {
            sum = crc32c::crc32c_combine(sum, power, power_bytes);
        }
        power = crc32c::crc32c_combine(power, power, power_bytes);
        (count, power_bytes) = (count >> 1, power_bytes * 2);
    }
    sum
}

/// The most memory that this process ever had.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("reads");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux says it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// A sparse snapshot has any length, its zeros have a checksum, and take no disk.
#[test]
fn a_sparse_snapshot_takes_no_memory() {
    const SHARD_BYTES: usize = 1 << 30;
    let dir = std::env::temp_dir().join(format!("larder-sparse-{}", std::process::id()));
    std::fs::create_dir(&dir).expect("makes a directory");
    let store = LogStore::open(&dir, options()).expect("opens");
    store.append(&[put(b"key", &[b"value"], 0)]).expect("appends");
    store.close().expect("closes");
    drop(store);
    let name = std::fs::read_dir(&dir).expect("lists").find_map(|entry| {
        let name = entry.expect("lists").file_name().into_string().expect("UTF-8");
        name.starts_with("index-").then_some(name)
    });
    let path = dir.join(name.expect("there is a snapshot"));
    let snapshot = std::fs::read(&path).expect("reads");
    // Up to the first shard, which has so many slots, and an entry in the first one.
    let shards = first_shard(&snapshot);
    let slots = (SHARD_BYTES - 16) / 14;
    let mut head = snapshot[..shards].to_vec();
    head.extend_from_slice(&((16 + slots * 14) as u32).to_le_bytes());
    for number in [slots as u32, 1, 0, 0] {
        head.extend_from_slice(&number.to_le_bytes());
    }
    head.extend_from_slice(&1_u64.to_le_bytes());
    let file_bytes = shards + 4 + 16 + slots * 14 + 1023 * 20;
    let zeros = file_bytes - head.len();
    let checksum = crc32c::crc32c_combine(crc32c::crc32c(&head), checksum_of_zeros(zeros), zeros);
    std::fs::write(&path, &head).expect("writes");
    let file = std::fs::File::options().write(true).open(&path).expect("opens");
    file.set_len(file_bytes as u64).expect("the file system has sparse files");
    sign_snapshot_of(&dir, file_bytes as u64, checksum);

    let before = peak_bytes();
    let store = LogStore::open(&dir, options()).expect("a snapshot only saves time");
    assert!(store.may_contain(b"key"));
    let grown = peak_bytes() - before;
    assert!(grown < SHARD_BYTES as u64 / 4, "{grown} bytes for a sparse file");
    std::fs::remove_dir_all(&dir).expect("removes");
}

/// Where the first shard of a snapshot begins: behind its head, the segments, and that no prefixes are counted.
fn first_shard(snapshot: &[u8]) -> usize {
    16 + 28 * u32_at(snapshot, 12) + 2
}

fn sign_snapshot_of(dir: &Path, file_bytes: u64, checksum: u32) {
    let path = dir.join("MANIFEST");
    let mut manifest = std::fs::read(&path).expect("reads");
    name_snapshot(&mut manifest, file_bytes, checksum);
    std::fs::write(&path, manifest).expect("writes");
}

/// Sequences and numbers of files that leave no room for the next one.
#[test]
fn numbers_out_of_range_are_damage() {
    // Of `MANIFEST`: next number, last sequence; behind one segment its highest sequence, behind that the flush.
    for at in [0x1c, 0x24] {
        let disk = SimDisk::new();
        store_on(&disk, false);
        let mut manifest = disk.read("MANIFEST").expect("reads");
        manifest[at..at + 8].fill(0xff);
        sign_manifest(&mut manifest);
        disk.put("MANIFEST", manifest);
        let error = LogStore::open_files(Arc::new(disk.clone()), options()).err().expect("it is refused");
        assert!(matches!(&error, Error::Corrupt { file, .. } if file == "MANIFEST"), "{error}");
        let report = check(&disk, true).expect("checks");
        assert!(report.is_repaired, "{report:?}");
        LogStore::open_files(Arc::new(disk), options()).expect("a repaired store opens");
    }
}
