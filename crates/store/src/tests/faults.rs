//! Disks that fail: EIO, a full disk, bits that flip, and who must not open a store.

use std::sync::Arc;

use super::crash::changes_of;
use super::driver::{open_log, small_segments};
use super::model::{Change, State, append};
use super::script::{START_SECS, Script, Step};
use crate::files::Files;
use crate::files::sim::{DiskFaults, PowerLoss, SimDisk};
use crate::{Budget, Error, LogOptions, LogStore, Marks, Store};

/// Runs a script on a disk with a fault. A batch that fails is not visible then, and the rest goes on as if it had not
/// been tried. Returns what is wrong.
fn run_with_fault(script: &Script, faults: DiskFaults) -> Result<(), String> {
    let disk = SimDisk::with_faults(faults);
    let mut store = match open_log(&disk) {
        Ok(store) => store,
        // Once. The next start finds nothing amiss.
        Err(Error::Corrupt { .. }) => return Err("a fault passes for damage".to_owned()),
        Err(_) => open_log(&disk).map_err(|error| format!("opening again: {error}"))?,
    };
    let mut state = State::default();
    let (mut durable, mut states) = (0, vec![State::default()]);
    let mut now = START_SECS;
    for (number, step) in script.steps.iter().enumerate() {
        match step {
            Step::Append(batch) => {
                if append(&store, batch).is_ok() {
                    state.apply(batch);
                }
                states.push(state.clone());
            }
            Step::Sync => {
                if store.sync().is_ok() {
                    durable = states.len() - 1;
                }
            }
            Step::Maintain(bytes, at) => {
                now = *at;
                let _ = store.maintain(Budget { bytes: *bytes }, now);
            }
            Step::Reopen { .. } => {}
        }
        if number % 10 == 0
            && let Some(difference) = state.difference(&store, &script.keys, now)
        {
            return Err(format!("step {number}: {difference}"));
        }
    }
    let was_read_only = store.stats().read_only;
    // A fault comes once: whoever is not read-only works on, unless it comes now.
    if !was_read_only && store.sync().is_ok() {
        durable = states.len() - 1;
    }
    drop(store);
    for loss in PowerLoss::ALL {
        let after = disk.power_loss(loss, number_of(&faults));
        store = open_log(&after).map_err(|error| format!("{loss:?}: does not open: {error}"))?;
        let last = store.last_sequence();
        let fits = states[durable..].iter().any(|state| {
            state.last_sequence == last && state.difference(&store, &script.keys, now).is_none()
        });
        if !fits {
            let nearest = states.iter().rev().find(|state| state.last_sequence == last);
            let difference = nearest.and_then(|state| state.difference(&store, &script.keys, now));
            return Err(format!("{loss:?}: not what was durable, up to {last}: {difference:?}"));
        }
    }
    Ok(())
}

fn number_of(faults: &DiskFaults) -> u64 {
    faults.fail_change_at.or(faults.fail_sync_at).or(faults.full_at).unwrap_or(0)
}

#[test]
fn each_write_and_each_sync_fails_once() {
    for seed in 0..4 {
        let script = Script::random(seed, 160, 8, false);
        for nth in 1..=changes_of(&script) {
            let write = DiskFaults { fail_change_at: Some(nth), seed, ..DiskFaults::default() };
            let sync = DiskFaults { fail_sync_at: Some(nth), seed, ..DiskFaults::default() };
            for faults in [write, sync] {
                run_with_fault(&script, faults)
                    .unwrap_or_else(|what| panic!("script {seed}, {faults:?}: {what}"));
            }
        }
    }
}

#[test]
fn each_allocation_finds_no_room_once() {
    for seed in 0..4 {
        let script = Script::random(seed, 160, 8, false);
        for nth in 1..=changes_of(&script) {
            let faults = DiskFaults { full_at: Some(nth), seed, ..DiskFaults::default() };
            run_with_fault(&script, faults)
                .unwrap_or_else(|what| panic!("script {seed}, {faults:?}: {what}"));
        }
    }
}

fn put(key: &str, value: &[u8], version: u64) -> Change {
    Change::Put {
        key: key.into(),
        value: value.to_vec(),
        client_flags: 3,
        exptime_secs: 0,
        version,
        marks: Marks::NONE,
    }
}

#[test]
fn a_failed_sync_ends_writing_for_ever() {
    let disk = SimDisk::new();
    let store = open_log(&disk).expect("opens");
    append(&store, &[put("key", b"value", 1)]).expect("appends");
    disk.set_faults(DiskFaults { fail_sync_at: Some(disk.counts().syncs + 1), ..DiskFaults::default() });
    let error = store.sync().expect_err("the sync fails");
    assert!(matches!(error, Error::ReadOnly { .. }) && error.to_string().contains("fsync failed"), "{error}");
    assert!(matches!(store.sync(), Err(Error::ReadOnly { .. })), "it is not tried again");
    assert!(matches!(append(&store, &[put("key", b"later", 2)]), Err(Error::ReadOnly { .. })));
    let mut sink = crate::VecSink::default();
    assert!(store.get(b"key", START_SECS, &mut sink).expect("reads go on").is_some());
    assert!(store.stats().read_only);
}

/// A shortage of memory may be retried where nothing that counts can be lost: for a new segment and a new manifest. For
/// the log's own bytes and the name of the manifest, the state is unknown afterwards.
#[test]
fn a_shortage_ends_writing_only_where_something_may_be_lost() {
    let ends_writing = |ahead| {
        let disk = SimDisk::new();
        let store = open_log(&disk).expect("opens");
        append(&store, &[put("key-0", b"value", 1)]).expect("appends");
        let fails_at = disk.counts().syncs + ahead;
        disk.set_faults(DiskFaults { fail_sync_at: Some(fails_at), can_pass: true, ..DiskFaults::default() });
        let mut state = State::default();
        state.apply(&[put("key-0", b"value", 1)]);
        let segments = store.stats().segments;
        for version in 2..200 {
            let batch = [put(&format!("key-{}", version % 20), &[version as u8; 300], version)];
            let appended = append(&store, &batch);
            if appended.is_ok() {
                state.apply(&batch);
            } else {
                assert!(disk.counts().syncs >= fails_at, "{appended:?}");
                break;
            }
            assert!(store.stats().segments < segments + 3, "no sync fails");
        }
        let read_only = store.stats().read_only;
        assert_eq!(append(&store, &[put("again", b"value", 300)]).is_err(), read_only);
        if !read_only {
            state.apply(&[put("again", b"value", 300)]);
        }
        let keys: Vec<Vec<u8>> = (0..20).map(|nth| format!("key-{nth}").into()).collect();
        assert_eq!(state.difference(&store, &keys, START_SECS), None, "sync {ahead}");
        read_only
    };
    // In order: the bytes and the name of the new segment, the bytes of the full one, the bytes and the name of the
    // manifest.
    assert_eq!([1, 2, 3, 4, 5].map(ends_writing), [false, false, true, false, true]);
}

/// Space that is set aside for deletions is used for deletions alone.
#[test]
fn values_take_nothing_of_the_room_for_deletions() {
    let disk = SimDisk::with_faults(DiskFaults { capacity_bytes: Some(800_000), ..DiskFaults::default() });
    // The room for the manifest, which nobody else needs here, is no segment.
    let options = LogOptions { segment_bytes: 64 << 10, ..small_segments() };
    let store = LogStore::open_files(Arc::new(disk.clone()), options).expect("opens");
    store.maintain(Budget { bytes: 1 << 20 }, START_SECS).expect("sets its reserve aside");
    let mut nth = 0;
    while append(&store, &[put(&format!("key-{nth}"), &[1; 300], nth + 1)]).is_ok() {
        nth += 1;
    }
    disk.set_faults(DiskFaults { capacity_bytes: Some(disk.used_bytes()), ..DiskFaults::default() });
    let (mut deleted, mut stored) = (0, 0);
    for key in 0..60 {
        let delete = [Change::Delete { key: format!("key-{key}").into(), version: 1 << 40 }];
        deleted += usize::from(append(&store, &delete).is_ok());
        stored += usize::from(append(&store, &[put("more", &[1; 300], 1 << 41)]).is_ok());
    }
    assert!(deleted == 60 && stored == 0, "{deleted} deleted, {stored} stored");
}

/// A file that finds no room must not take what others need: some file systems leave a part of it allocated.
#[test]
fn a_value_without_room_takes_none() {
    let disk = SimDisk::with_faults(DiskFaults { capacity_bytes: Some(200_000), ..DiskFaults::default() });
    let store = open_log(&disk).expect("opens");
    store.maintain(Budget { bytes: 0 }, START_SECS).expect("prepares the next segment");
    append(&store, &[put("small", &[1; 300], 1)]).expect("there is room");
    store.maintain(Budget { bytes: 0 }, START_SECS).expect("prepares the next segment");
    let before = disk.used_bytes();
    let refused = append(&store, &[put("large", &[1; 300_000], 2)]);
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    assert_eq!(disk.used_bytes(), before);
}

/// The same of a reserve that became too short, as with larger segments than before.
#[test]
fn a_reserve_without_room_takes_none() {
    let disk = SimDisk::with_faults(DiskFaults { capacity_bytes: Some(200_000), ..DiskFaults::default() });
    let store = open_log(&disk).expect("opens");
    store.maintain(Budget { bytes: 0 }, START_SECS).expect("sets room aside");
    Files::open(&disk, "RESERVE-CLEAN").and_then(|file| file.truncate(100)).expect("it is there");
    let other = Files::create(&disk, "other").expect("creates");
    other.allocate(200_000 - disk.used_bytes() - 50).expect("there is room");
    let before = disk.used_bytes();
    store.maintain(Budget { bytes: 0 }, START_SECS).expect("goes on");
    assert_eq!(disk.used_bytes(), before);
}

/// Cleaning checks its reserve, and may have no descriptor left to do so.
#[test]
fn a_reserve_is_not_given_up_before_there_is_another() {
    let disk = SimDisk::with_faults(DiskFaults { capacity_bytes: Some(60_000), ..DiskFaults::default() });
    let store = open_log(&disk).expect("opens");
    let budget = Budget { bytes: 1 << 20 };
    store.maintain(budget, START_SECS).expect("sets its reserve aside");
    let mut nth = 0;
    while append(&store, &[put(&format!("key-{nth}"), &[1; 300], nth + 1)]).is_ok() {
        nth += 1;
    }
    // The reserves of a store with fewer segments are too short for this one, and there is no room for longer ones.
    let reserves =
        || ["RESERVE-CLEAN", "RESERVE-DELETE"].map(|name| disk.read(name).map_or(0, |bytes| bytes.len()));
    let before = reserves();
    disk.set_faults(DiskFaults { capacity_bytes: Some(disk.used_bytes()), ..DiskFaults::default() });
    let _ = store.maintain(budget, START_SECS);
    assert!(before[0] > 0 && before == reserves(), "{before:?}, then {:?}", reserves());
}

/// A disk that is full for good until somebody deletes: appends fail, reads and cleaning go on.
#[test]
fn a_full_disk_refuses_writes_and_recovers() {
    let disk = SimDisk::with_faults(DiskFaults { capacity_bytes: Some(200_000), ..DiskFaults::default() });
    let store = open_log(&disk).expect("opens");
    let budget = Budget { bytes: 1 << 20 };
    store.maintain(budget, START_SECS).expect("sets its reserve aside");
    let mut state = State::default();
    let mut version = 0;
    let mut fill = |state: &mut State| {
        loop {
            version += 1;
            let batch = [put(&format!("key-{}", version % 500), &[version as u8; 300], version)];
            match append(&store, &batch) {
                Ok(_) => state.apply(&batch),
                Err(Error::Full { .. }) => break version,
                Err(error) => panic!("{error}"),
            }
        }
    };
    let filled = fill(&mut state);
    assert!(filled > 300, "{filled}");
    let keys: Vec<Vec<u8>> = (0..500).map(|nth| format!("key-{nth}").into()).collect();
    assert_eq!(state.difference(&store, &keys, START_SECS), None, "reads go on");
    assert!(store.stats().full_errors > 0);
    let can_write = |store: &LogStore| match store.try_write(360, 1) {
        Ok(()) => true,
        Err(Error::Full { .. }) => false,
        Err(error) => panic!("{error}"),
    };
    assert!(!can_write(&store), "it knows beforehand");

    // Deletions of a few bytes fit the open segment for a while; then cleaning makes room with its reserve.
    let mut deleted = 0;
    for key in &keys {
        let batch = [Change::Delete { key: key.clone(), version: 1 << 40 }];
        if append(&store, &batch).is_ok() {
            state.apply(&batch);
            deleted += 1;
        }
        let _ = store.maintain(budget, START_SECS);
    }
    assert!(deleted > 400, "{deleted} deletions");
    while store.maintain(budget, START_SECS).expect("cleans").more {}
    let before = state.last_sequence;
    assert!(can_write(&store));
    fill(&mut state);
    assert!(state.last_sequence - before > 100, "there is room again");
    assert_eq!(state.difference(&store, &keys, START_SECS), None);
    store.close().expect("closes");
    drop(store);
    let store = open_log(&disk).expect("opens");
    assert_eq!(state.difference(&store, &keys, START_SECS), None);
}

/// Every bit of every file of a closed store, a sample of them: what is read is right, or an error, or the start of the
/// store is refused.
#[test]
fn no_flipped_bit_is_read_as_data() {
    let disk = SimDisk::new();
    let script = Script::random(5, 300, 12, false);
    let mut state = State::default();
    let store = open_log(&disk).expect("opens");
    for step in &script.steps {
        if let Step::Append(batch) = step {
            append(&store, batch).expect("appends");
            state.apply(batch);
        }
    }
    store.sync().expect("syncs");
    // Lets the log say that its end is durable. Until then, damage there looks like a batch that nobody waited for.
    store.maintain(Budget { bytes: 0 }, START_SECS).expect("notes");
    for is_closed in [false, true] {
        if is_closed {
            store.close().expect("closes");
        }
        let mut random = fastrand::Rng::with_seed(9);
        let mut refused = 0;
        for name in crate::files::Files::list(&disk).expect("lists") {
            let length = disk.read(&name).expect("reads").len() as u64;
            for _ in 0..200.min(length) {
                let after = disk.power_loss(PowerLoss::Nothing, 0);
                after.flip_bit(&name, random.u64(0..length), random.u8(0..8)).expect("flips");
                let store = match open_log(&after) {
                    Ok(store) => store,
                    Err(Error::Corrupt { .. } | Error::NewerFormat { .. }) => {
                        refused += 1;
                        continue;
                    }
                    Err(error) => panic!("{name}: {error}"),
                };
                for key in &script.keys {
                    let mut sink = crate::VecSink::default();
                    match store.get(key, START_SECS, &mut sink) {
                        Ok(Some(meta)) => {
                            assert_eq!(state.items.get(key), Some(&(meta, sink.into_value())), "{name}");
                        }
                        Ok(None) => {
                            let item = state.items.get(key);
                            let expected = item.filter(|(meta, _)| !meta.is_expired(START_SECS));
                            assert!(expected.is_none(), "{name}: a flipped bit hides a key");
                        }
                        Err(error) => assert!(matches!(error, Error::Corrupt { .. }), "{error}"),
                    }
                }
            }
        }
        assert!(refused > 100, "{refused} refused");
    }
}

#[test]
fn a_missing_file_a_second_process_and_a_newer_format_are_refused() {
    let disk = SimDisk::new();
    let store = open_log(&disk).expect("opens");
    append(&store, &[put("key", b"value", 1)]).expect("appends");
    let second = open_log(&disk).err().expect("one process at a time");
    assert!(matches!(second, Error::Locked { .. }), "{second}");
    store.close().expect("closes");
    drop(store);

    for missing in ["MANIFEST", "segment-0000000000000001"] {
        let after = disk.power_loss(PowerLoss::Nothing, 0);
        crate::files::Files::remove(&after, missing).expect("removes");
        let error = open_log(&after).err().expect("a file is missing");
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        assert!(error.to_string().contains(missing) && error.to_string().contains("missing"), "{error}");
    }

    let name = "segment-0000000000000001";
    let bytes = disk.read(name).expect("reads");
    for (length, is_refused) in [(bytes.len() - 1, true), (0, true), (bytes.len() + 512, false)] {
        let after = disk.power_loss(PowerLoss::Nothing, 0);
        let mut other = bytes.clone();
        other.resize(length, 0);
        after.put(name, other);
        assert_eq!(open_log(&after).is_err(), is_refused, "a file of {length} bytes");
    }

    let after = disk.power_loss(PowerLoss::Nothing, 0);
    let mut manifest = after.read("MANIFEST").expect("reads");
    manifest[10] = 4;
    let body = manifest.len() - 4;
    let checksum = crc32c::crc32c(&manifest[..body]).to_le_bytes();
    manifest[body..].copy_from_slice(&checksum);
    after.put("MANIFEST", manifest);
    let error = open_log(&after).err().expect("a newer format");
    assert!(matches!(&error, Error::NewerFormat { format, .. } if format == "1.4"), "{error}");
}

/// A value that looks like the log, in a torn tail: it must not pass for a proof of loss, nor for a record.
#[test]
fn a_value_cannot_pass_for_a_commit_mark() {
    let disk = SimDisk::new();
    let store = open_log(&disk).expect("opens");
    append(&store, &[put("first", b"value", 1)]).expect("appends");
    append(&store, &[put("second", b"value", 2)]).expect("appends");
    store.sync().expect("syncs");
    append(&store, &[put("third", b"value", 3)]).expect("appends");
    let bytes = disk.read("segment-0000000000000001").expect("reads");
    drop(store);
    // The same log in another store, as a value: checksums begin with the secret of the store.
    let other = SimDisk::new();
    let options = LogOptions { secret: Some([8; 16]), ..small_segments() };
    let open = |disk: &SimDisk| LogStore::open_files(Arc::new(disk.clone()), options.clone());
    let store = open(&other).expect("opens");
    append(&store, &[put("a", b"value", 1)]).expect("appends");
    store.sync().expect("syncs");
    append(&store, &[put("b", &bytes[..2_000], 2)]).expect("appends");
    drop(store);
    let name = "segment-0000000000000001";
    let end = 64 + 56 + 48;
    other.flip_bit(name, end + 20, 0).expect("flips");
    let store = open(&other).expect("nothing that was durable is lost");
    assert_eq!(store.last_sequence(), 1);
}
