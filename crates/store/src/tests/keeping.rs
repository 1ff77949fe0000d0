//! Checks and repairs; large values; many threads; bounds of memory and disk.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use super::driver::{open_log, segment_names, small_segments};
use super::model::{Change, State, append};
use super::pieces::Pieces;
use super::script::START_SECS;
use crate::files::Files;
use crate::files::sim::{PowerLoss, SimDisk};
use crate::{
    Budget, DroppedTail, Error, LogOptions, LogStore, Marks, Progress, Stats, Store, TryGet, VecSink, check,
};

fn put(key: &str, value: Vec<u8>, version: u64) -> Change {
    Change::Put { key: key.into(), value, client_flags: 3, exptime_secs: 0, version, marks: Marks::NONE }
}

#[test]
fn a_check_finds_what_is_broken_and_a_repair_cuts_it() {
    let disk = SimDisk::new();
    let store = open_log(&disk).expect("opens");
    let mut state = State::default();
    for nth in 0..200_u64 {
        let batch = [put(&format!("key-{nth}"), vec![nth as u8; 200], nth + 1)];
        append(&store, &batch).expect("appends");
        state.apply(&batch);
    }
    store.sync().expect("syncs");
    store.maintain(Budget { bytes: 0 }, START_SECS).expect("notes");
    assert!(matches!(check(&disk, false), Err(Error::Locked { .. })), "not while it is open");
    drop(store);
    let whole = check(&disk, false).expect("checks");
    assert_eq!((whole.damages.len(), whole.lost.len()), (0, 0), "{whole:?}");
    assert!(whole.records > 200);

    let keys: Vec<Vec<u8>> = (0..200).map(|nth| format!("key-{nth}").into()).collect();
    let mut refused = 0;
    let mut random = fastrand::Rng::with_seed(3);
    for name in disk.list().expect("lists") {
        if name.starts_with("RESERVE") || name == "LOCK" {
            continue;
        }
        for _ in 0..10 {
            let broken = disk.power_loss(crate::files::sim::PowerLoss::Nothing, 0);
            let length = disk.read(&name).expect("reads").len() as u64;
            broken.flip_bit(&name, random.u64(0..length), random.u8(0..8)).expect("flips");
            let found = check(&broken, false).expect("checks");
            let opens = open_log(&broken).is_ok();
            refused += u32::from(!opens);
            assert!(opens || !found.damages.is_empty(), "{name}: what does not open is damaged");
            if found.damages.is_empty() {
                continue;
            }
            let repaired = check(&broken, true).expect("repairs");
            assert!(repaired.is_repaired, "{repaired:?}");
            let again = check(&broken, false).expect("checks");
            assert_eq!(again.damages, [], "{name}: {found:?}, {repaired:?}");
            let store = open_log(&broken).expect("a repaired store opens");
            let mut missing = 0;
            for key in &keys {
                let mut sink = VecSink::default();
                match store.get(key, START_SECS, &mut sink).expect("reads") {
                    Some(meta) => assert_eq!(state.items.get(key), Some(&(meta, sink.into_value()))),
                    None => missing += 1,
                }
            }
            assert!(missing <= 1, "{name}: one bit costs one item, not {missing}: {found:?}, {repaired:?}");
            if missing > 0 {
                assert!(!repaired.lost.is_empty(), "{name}: what is lost is said");
            }
            append(&store, &[put("more", vec![1; 10], 1 << 40)]).expect("appends");
            assert!(store.last_sequence() > 200 - 2);
        }
    }
    assert!(refused > 10, "{refused}");
}

#[test]
fn a_lost_manifest_or_segment_is_repaired() {
    let disk = SimDisk::new();
    let store = open_log(&disk).expect("opens");
    for nth in 0..200_u64 {
        append(&store, &[put(&format!("key-{nth}"), vec![nth as u8; 200], nth + 1)]).expect("appends");
    }
    store.close().expect("closes");
    drop(store);
    for (lost, left) in [("MANIFEST", 200..201), (&*segment_names(&disk)[1], 150..200)] {
        let broken = disk.power_loss(crate::files::sim::PowerLoss::Nothing, 0);
        broken.remove(lost).expect("removes");
        assert!(open_log(&broken).is_err());
        let report = check(&broken, true).expect("repairs");
        assert!(report.is_repaired && !report.lost.is_empty(), "{report:?}");
        let store = open_log(&broken).expect("opens");
        let found = (0..200).filter(|nth| store.may_contain(format!("key-{nth}").as_bytes())).count();
        assert!(left.contains(&found), "{found} keys are left without {lost}");
        assert_eq!(store.last_sequence(), 200);
        for nth in 0..200_u64 {
            let mut sink = VecSink::default();
            if store.get(format!("key-{nth}").as_bytes(), START_SECS, &mut sink).expect("reads").is_some() {
                assert_eq!(sink.into_value(), vec![nth as u8; 200]);
            }
        }
    }
}

#[test]
fn a_flipped_bit_of_a_value_is_one_damage() {
    let disk = SimDisk::new();
    let store = open_log(&disk).expect("opens");
    append(&store, &[put("before", vec![1; 100], 1)]).expect("appends");
    append(&store, &[put("key", b"the value that is damaged".repeat(8), 2)]).expect("appends");
    append(&store, &[put("behind", vec![2; 100], 3)]).expect("appends");
    store.close().expect("closes");
    drop(store);
    let (name, at) = (disk.list().expect("lists").into_iter())
        .filter(|name| name.starts_with("segment-"))
        .find_map(|name| {
            let bytes = disk.read(&name).expect("reads");
            let at = bytes.windows(9).position(|window| window == b"the value")?;
            Some((name, at))
        })
        .expect("a segment has the value");
    disk.flip_bit(&name, at as u64 + 30, 0).expect("flips");
    let found = check(&disk, false).expect("checks");
    let whats: Vec<_> = found.damages.iter().map(|damage| damage.what.as_str()).collect();
    assert_eq!(whats, ["the checksum of the value of key does not match"]);
}

#[test]
fn without_a_manifest_each_segment_is_named_once_and_none_is_lost_unsaid() {
    let disk = SimDisk::new();
    let store = open_log(&disk).expect("opens");
    for nth in 0..200_u64 {
        append(&store, &[put(&format!("key-{nth}"), vec![nth as u8; 200], nth + 1)]).expect("appends");
    }
    store.close().expect("closes");
    drop(store);
    disk.remove("MANIFEST").expect("removes");
    // Its magic number: nothing says what this file is.
    let there = segment_names(&disk);
    let headless = &*there[1];
    disk.flip_bit(headless, 0, 0).expect("flips");
    let found = check(&disk, false).expect("checks");
    assert!(found.has_lost_manifest && !found.is_repaired, "{found:?}");
    let named: Vec<_> = found.damages.iter().map(|damage| damage.file.clone()).collect();
    let mut expected = vec!["MANIFEST".to_owned()];
    expected.extend(there.iter().cloned());
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    assert_eq!(sorted(named), sorted(expected));
    let repaired = check(&disk, true).expect("repairs");
    let lost = format!("{headless}: all of it; older values of its keys may be back");
    assert!(repaired.lost.contains(&lost), "{repaired:?}");
    let store = open_log(&disk).expect("opens");
    let removed = store.removed_files();
    assert!(removed.iter().all(|name| name.starts_with("index-")), "of the records none: {removed:?}");
    assert!(disk.list().expect("lists").contains(&format!("damaged-{headless}")));
}

#[test]
fn what_opening_removes_is_told() {
    let disk = SimDisk::new();
    drop(open_log(&disk).expect("opens"));
    disk.create("segment-0000000000999999").expect("creates");
    disk.create("precious").expect("creates");
    let store = open_log(&disk).expect("opens");
    assert_eq!(store.removed_files(), ["segment-0000000000999999"]);
    assert!(disk.list().expect("lists").contains(&"precious".to_owned()));
}

/// Opening reports the end of the log that a crash has torn: the number of bytes, and where they begin.
#[test]
fn what_opening_drops_of_the_log_is_told() {
    let disk = SimDisk::new();
    let store = open_log(&disk).expect("opens");
    append(&store, &[put("kept", vec![7; 100], 1)]).expect("appends");
    store.sync().expect("syncs");
    let whole = disk.read("segment-0000000000000001").expect("reads");
    append(&store, &[put("torn", vec![7; 1000], 2)]).expect("appends");
    let name = "segment-0000000000000001";
    let longer = disk.read(name).expect("reads");
    let end = (0..longer.len()).find(|at| whole.get(*at) != longer.get(*at)).expect("it is longer") / 8 * 8;
    for (kept, zeros) in [(700, 0), (700, 500), (1, 0), (0, 500), (0, 0)] {
        let after = disk.power_loss(PowerLoss::Nothing, 0);
        let mut bytes = longer[..end].to_vec();
        // A writer's data never ends with a zero.
        bytes.extend((0..kept).map(|_| 7));
        bytes.resize(end + kept + zeros, 0);
        after.put(name, bytes);
        let expected =
            (kept > 0).then(|| DroppedTail { file: name.to_owned(), offset: end as u64, bytes: kept as u64 });
        let expected: Vec<_> = expected.into_iter().collect();
        let report = check(&after, false).expect("reads");
        assert_eq!(
            (report.dropped, report.damages),
            (expected.clone(), vec![]),
            "{kept} bytes, {zeros} zeros"
        );
        let store = open_log(&after).expect("opens");
        assert_eq!((store.dropped_tails(), store.last_sequence()), (&expected[..], 1));
        drop(store);
        assert_eq!(open_log(&after).expect("opens").dropped_tails(), []);
    }
}

/// After a power loss the newer of two open files may have changes that the older one has lost the end of.
#[test]
fn what_follows_a_lost_end_of_the_log_is_dropped() {
    for is_synced in [false, true] {
        let disk = SimDisk::new();
        let store = open_log(&disk).expect("opens");
        let maintain = || store.maintain(Budget { bytes: 0 }, START_SECS).expect("prepares the next file");
        maintain();
        for version in 1..16 {
            append(&store, &[put(&format!("key-{version}"), vec![1; 300], version)]).expect("appends");
            if version == 3 {
                maintain();
            }
            if version == 14 && is_synced {
                store.sync().expect("syncs");
            }
        }
        assert_eq!(store.stats().segments, 2, "neither is sealed");
        let [older, newer] = segment_names(&disk).try_into().expect("two");
        let after = disk.power_loss(PowerLoss::Nothing, 0);
        let whole = open_log(&disk.power_loss(PowerLoss::Nothing, 0)).expect("opens");
        assert_eq!(whole.last_sequence(), 15);
        let mut bytes = after.read(&older).expect("reads");
        let end = bytes.iter().rposition(|byte| *byte != 0).expect("it has data");
        bytes[end - 100..].fill(0);
        after.put(&older, bytes);

        let report = check(&after, false).expect("reads");
        if is_synced {
            assert!(matches!(open_log(&after), Err(Error::Corrupt { .. })), "it was durable");
            assert!(!report.damages.is_empty());
            assert!(check(&after, true).expect("repairs").is_repaired);
            let repaired = open_log(&after).expect("opens");
            assert_eq!((repaired.stats().records, repaired.last_sequence()), (14, 15));
            continue;
        }
        assert_eq!(report.damages, []);
        let store = open_log(&after).expect("nothing that was durable is lost");
        assert_eq!(report.dropped, store.dropped_tails());
        assert!(report.dropped.iter().any(|tail| (&tail.file, tail.offset) == (&newer, 64)), "{report:?}");
        let last = store.last_sequence();
        assert!((7..14).contains(&last) && store.stats().records == last, "{last}");
        append(&store, &[put("more", vec![1; 300], 20)]).expect("appends");
        drop(store);
        let store = open_log(&after).expect("opens");
        assert_eq!((store.last_sequence(), store.stats().records), (last + 1, last + 1));
    }
}

/// On a file of the system that was just written, and on one whose file system cannot tell.
#[test]
fn small_values_are_read_without_waiting() {
    let dir = std::env::temp_dir().join(format!("larder-store-try-{}", std::process::id()));
    let store = LogStore::open(&dir, LogOptions::default()).expect("opens");
    for (key, bytes) in [("small", 100), ("large", 100_000)] {
        append(&store, &[put(key, vec![7; bytes], 1)]).expect("appends");
    }
    let ask = |key: &[u8]| {
        let mut value = Vec::new();
        (store.try_get(key, START_SECS, &mut |_, bytes| value = bytes.to_vec()), value)
    };
    assert_eq!(ask(b"none"), (TryGet::Absent, Vec::new()));
    assert_eq!(ask(b"large"), (TryGet::WouldBlock, Vec::new()));
    let file = std::fs::File::open(dir.join("MANIFEST")).expect("opens");
    let mut byte = [0];
    let mut pieces = [std::io::IoSliceMut::new(&mut byte)];
    let can_tell = rustix::io::preadv2(&file, &mut pieces, 0, rustix::io::ReadWriteFlags::NOWAIT).is_ok();
    let small = if can_tell { (TryGet::Found, vec![7; 100]) } else { (TryGet::WouldBlock, Vec::new()) };
    let answer = ask(b"small");
    drop(store);
    std::fs::remove_dir_all(&dir).expect("removes");
    assert_eq!(answer, small);
}

#[test]
fn large_values_are_read_in_pieces_and_verified() {
    let disk = SimDisk::new();
    let store = open_log(&disk).expect("opens");
    let mut random = fastrand::Rng::with_seed(1);
    let lengths = [0, 1, 16_383, 16_384, 65_000, 65_536, 300_000, 3_000_000];
    let values: Vec<Vec<u8>> = lengths
        .iter()
        .map(|&length| std::iter::repeat_with(|| random.u8(..)).take(length).collect())
        .collect();
    for (nth, value) in values.iter().enumerate() {
        let batch =
            [put(&format!("key-{nth}"), value.clone(), 1), put(&format!("gone-{nth}"), value.clone(), 2)];
        append(&store, &batch).expect("appends");
    }
    let all_there = |store: &dyn Store| {
        for (nth, value) in values.iter().enumerate() {
            let mut sink = Pieces::default();
            let meta = store.get(format!("key-{nth}").as_bytes(), START_SECS, &mut sink).expect("reads");
            assert_eq!(meta.map(|meta| meta.value_bytes), Some(value.len()));
            assert!(sink.value == *value, "value {nth}");
        }
    };
    all_there(&store);
    for nth in 0..values.len() {
        append(&store, &[Change::Delete { key: format!("gone-{nth}").into(), version: 3 }]).expect("appends");
    }
    while store.maintain(Budget { bytes: 100_000 }, START_SECS).expect("cleans").more {}
    assert!(store.stats().cleaned_bytes > 300_000, "large values were copied: {:?}", store.stats());
    all_there(&store);
    store.close().expect("closes");
    drop(store);
    let store = open_log(&disk).expect("opens");
    all_there(&store);
    let mut nowhere = crate::NoValue;
    assert!(
        store.get(b"key-7", START_SECS, &mut nowhere).expect("reads").is_some(),
        "a declined value is no error"
    );
}

/// One appender, one cleaner, readers: each read is of the last version that was there before it, or a later one.
#[test]
fn readers_beside_appender_and_cleaner() {
    let store = Arc::new(open_log(&SimDisk::new()).expect("opens"));
    let keys = 600;
    let newest: Arc<Vec<AtomicU64>> = Arc::new((0..keys).map(|_| AtomicU64::new(0)).collect());
    let done = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (store, newest, done) = (store.clone(), newest.clone(), done.clone());
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(reader);
                let mut reads = 0;
                while !done.load(SeqCst) || reads < 1_000 {
                    let nth = random.usize(0..keys);
                    let before = newest[nth].load(SeqCst);
                    let mut sink = VecSink::default();
                    let meta =
                        store.get(format!("key-{nth}").as_bytes(), START_SECS, &mut sink).expect("reads");
                    let version = meta.map_or(0, |meta| meta.version);
                    assert!(version >= before, "key-{nth}: {version} after {before}");
                    assert!(sink.into_value().iter().all(|&byte| byte == version as u8));
                    reads += 1;
                }
            });
        }
        let (cleaner, cleaner_done) = (store.clone(), done.clone());
        scope.spawn(move || {
            while !cleaner_done.load(SeqCst) {
                let progress = cleaner.maintain(Budget { bytes: 5_000 }, START_SECS).expect("cleans");
                if !progress.more {
                    std::thread::yield_now();
                }
            }
        });
        let mut random = fastrand::Rng::with_seed(99);
        let mut version = 0;
        while version < 20_000 || (version < 2_000_000 && store.stats().cleaned_bytes < 50_000) {
            version += 1;
            let nth = if random.u32(0..4) == 0 { random.usize(0..keys) } else { random.usize(0..50) };
            append(&*store, &[put(&format!("key-{nth}"), vec![version as u8; 100], version)])
                .expect("appends");
            newest[nth].store(version, SeqCst);
        }
        done.store(true, SeqCst);
    });
    assert!(store.stats().cleaned_bytes > 0);
}

/// Under overwrites, deletions and expiry the disk stays under its bound, and so do the tombstones.
#[test]
fn disk_and_index_stay_bounded() {
    let disk = SimDisk::new();
    let store = open_log(&disk).expect("opens");
    let segment_bytes = small_segments().segment_bytes;
    let mut random = fastrand::Rng::with_seed(2);
    let mut now = START_SECS;
    for version in 1..60_000_u64 {
        now += u64::from(version % 100 == 0);
        // Half of the keys are sessions: used for a while, and never again.
        let key = if random.bool() {
            format!("session-{}", version / 50 + random.u64(0..20))
        } else {
            format!("key-{}", random.u64(0..100))
        };
        let change = match random.u32(0..10) {
            0 => Change::Delete { key: key.into(), version },
            _ => Change::Put {
                exptime_secs: if key.starts_with('s') { now + 5 } else { 0 },
                key: key.into(),
                value: vec![1; 100],
                client_flags: 0,
                version,
                marks: Marks::NONE,
            },
        };
        append(&store, &[change]).expect("appends");
        store.maintain(Budget { bytes: 2_000 }, now).expect("cleans");
        if version % 5_000 == 0 {
            let stats = store.stats();
            let bound = stats.live_bytes * 3 / 2 + 8 * segment_bytes;
            assert!(
                stats.disk_bytes <= bound,
                "version {version}: {} > {bound}, {stats:?}",
                stats.disk_bytes
            );
            assert!(stats.records < 2_000, "version {version}: {stats:?}");
        }
    }
    let stats = store.stats();
    assert!(stats.live_bytes < 300_000, "old sessions and their tombstones are gone: {stats:?}");
    assert!(disk.counts().written_bytes < 60_000 * 200 * 3);
}

/// A writer that appends while there is headroom, and cleans otherwise, stays within the documented bound, and never
/// waits in vain.
#[test]
fn who_heeds_the_room_stays_within_the_bound() {
    let segment_bytes = small_segments().segment_bytes;
    for (mix, keys, deletes, ttl_secs) in [
        ("a few keys", 20, 0, 0),
        ("many keys", 2_000, 0, 0),
        ("deletions", 300, 2, 0),
        ("expiry", u64::MAX, 0, 1),
    ] {
        let store = open_log(&SimDisk::new()).expect("opens");
        let mut random = fastrand::Rng::with_seed(7);
        let mut live: BTreeMap<u64, u64> = BTreeMap::new();
        let (mut now, mut cleaned, mut version) = (START_SECS, 0, 0);
        while version < 20_000 {
            // This is the maximum for a record of 200 bytes and the commit mark of its batch.
            if store.room().expect("it has a bound").bytes < 300 {
                cleaned += 1;
                let mut progress = Progress { bytes: 0, more: true };
                while store.room().expect("it has a bound").bytes < 300 {
                    assert!(progress.more, "{mix}: no room, and nothing to clean: {:?}", store.stats());
                    progress = store.maintain(Budget { bytes: 2_000 }, now).expect("cleans");
                }
                continue;
            }
            version += 1;
            let nth = if keys == u64::MAX { version } else { random.u64(0..keys) };
            let key = format!("key-{nth}");
            let change = if random.u32(0..10) < deletes {
                live.remove(&nth);
                Change::Delete { key: key.into(), version }
            } else {
                let exptime_secs = if ttl_secs == 0 { 0 } else { now + ttl_secs };
                live.insert(nth, if ttl_secs == 0 { u64::MAX } else { exptime_secs });
                let (value, marks) = (vec![1; 100], Marks::NONE);
                Change::Put { key: key.into(), value, client_flags: 0, exptime_secs, version, marks }
            };
            append(&store, &[change]).expect("appends");
            if version % 50 == 0 {
                live.retain(|_, exptime_secs| *exptime_secs > now);
                // A live item takes a record of 160 bytes and the commit mark of its batch; a deletion one of 56 bytes
                // and a mark, as long as an older record of its key is there.
                let Stats { disk_bytes, tombstones, .. } = store.stats();
                let live_bytes = live.len() as u64 * (160 + 48) + tombstones * (56 + 48);
                let bound = live_bytes * 3 / 2 + 6 * segment_bytes;
                assert!(
                    disk_bytes <= bound,
                    "{mix}, version {version}: {disk_bytes} > {bound}, {:?}",
                    store.stats()
                );
            }
            if version % 500 == 0 {
                // Many items expire at once: the next look at the room is the first to know.
                now += 1;
                store.maintain(Budget { bytes: 0 }, now).expect("is told the time");
            }
        }
        assert!(cleaned > 10, "{mix}: it was never full");
    }
}

/// A flush of a prefix is O(1), and its room comes back.
#[test]
fn flushed_prefixes_give_their_room_back() {
    let disk = SimDisk::new();
    let store = open_log(&disk).expect("opens");
    let mut expected = BTreeMap::new();
    for nth in 0..600_u64 {
        let key = format!("{}:{nth}", if nth % 2 == 0 { "a" } else { "b" });
        append(&store, &[put(&key, vec![1; 200], nth + 1)]).expect("appends");
        expected.insert(key, nth % 2 == 1);
    }
    let before = store.stats();
    append(&store, &[Change::Flush { prefix: b"a:".to_vec(), except: Vec::new(), version: 1_000 }])
        .expect("appends");
    assert!(store.stats().appended_bytes - before.appended_bytes < 200);
    while store.maintain(Budget { bytes: 100_000 }, START_SECS).expect("cleans").more {}
    let stats = store.stats();
    assert!(stats.disk_bytes < before.disk_bytes * 3 / 4, "{stats:?}");
    assert!(stats.records < 320, "{stats:?}");
    for (key, is_there) in &expected {
        let found = store.get(key.as_bytes(), START_SECS, &mut crate::NoValue).expect("reads");
        assert_eq!(found.is_some(), *is_there, "{key}");
    }
}
