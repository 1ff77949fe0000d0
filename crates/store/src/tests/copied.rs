//! All states of a store whose files are damaged, as a site copies them that begins anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::driver::small_segments;
use crate::files::sim::SimDisk;
use crate::{Cursor, Entry, Error, LogOptions, LogStore, Marks, Meta, Put, Retention, Store};

const NAME: &str = "segment-0000000000000001";
/// The values of the keys; `None`: deleted.
type States = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

fn open(disk: &SimDisk, segment_bytes: u64) -> LogStore {
    let options = LogOptions { segment_bytes, ..small_segments() };
    let store = LogStore::open_files(Arc::new(disk.clone()), options).expect("opens");
    let retention =
        Retention { is_replicated: true, log_after_sequence: 0, log_bytes_max: u64::MAX, ..Retention::NONE };
    store.retain(retention).expect("keeps");
    store
}

fn set(store: &LogStore, key: &str, value: &str) {
    let put = Put {
        key: key.as_bytes(),
        value: &[value.as_bytes()],
        client_flags: 0,
        exptime_secs: 0,
        version: store.last_sequence() + 1,
        marks: Marks::NONE,
        origin: 1,
        base_version: 0,
        expiry_value_version: 0,
        expiry_version: 0,
    };
    store.append(&[Entry::Put(put)]).expect("there is room");
}

fn delete(store: &LogStore, key: &str) {
    let version = store.last_sequence() + 1;
    store.append(&[Entry::Delete { key: key.as_bytes(), version, base_version: 0 }]).expect("there is room");
}

/// All states, in steps of each length.
fn copy(store: &LogStore, mut unreadable: Option<&mut u64>) -> crate::Result<States> {
    let mut copies = [1, 700, usize::MAX].into_iter().map(|budget_bytes| {
        let (mut cursor, mut states) = (Cursor::new(), States::new());
        let mut visit = |key: &[u8], state: &crate::KeyState, value: Option<&[u8]>| {
            let value = value.expect("values are whole");
            let before = states.insert(key.to_vec(), state.item.map(|_| value.to_vec()));
            assert_eq!(before, None, "it was visited before");
        };
        unreadable.as_deref_mut().into_iter().for_each(|count| *count = 0);
        while store.for_each_state(&mut cursor, budget_bytes, unreadable.as_deref_mut(), &mut visit)? {}
        Ok(states)
    });
    let first = copies.next().expect("there are three")?;
    for other in copies {
        assert_eq!(other?, first);
    }
    Ok(first)
}

/// Flips a bit in the key of the nth record of this key: nobody knows then how long the record is, and of what.
fn damage(disk: &SimDisk, key: &str, nth: usize) {
    let bytes = disk.read(NAME).expect("reads");
    let mut found = (64..bytes.len() - key.len()).filter(|&at| bytes[at..].starts_with(key.as_bytes()));
    let at = found.nth(nth).expect("it is there");
    disk.flip_bit(NAME, at as u64, 0).expect("flips");
}

/// In the open segment, which has no footer, and in a sealed one without a readable footer.
#[test]
fn a_damaged_record_that_was_replaced_stops_no_copy() {
    for (segment_bytes, is_reopened) in [(1 << 20, false), (1 << 20, true), (4096, false), (4096, true)] {
        let disk = SimDisk::new();
        let mut store = open(&disk, segment_bytes);
        let text = |n: u32| format!("{n}").repeat(50);
        for key in ["replaced", "deleted", "alive"] {
            set(&store, key, "old");
        }
        (0..9).for_each(|n| set(&store, &format!("a{n}"), &text(n)));
        set(&store, "replaced", "new");
        delete(&store, "deleted");
        (0..40).for_each(|n| set(&store, &format!("b{n}"), &text(n)));
        store.sync().expect("it is durable");
        let all = copy(&store, None).expect("it is whole");
        assert_eq!((all.len(), all[&b"deleted"[..]].clone()), (52, None));

        let is_sealed = segment_bytes == 4096;
        if is_sealed {
            let bytes = disk.read(NAME).expect("reads");
            disk.flip_bit(NAME, bytes.len() as u64 - 30, 3).expect("flips");
        }
        if is_reopened {
            store.close().expect("closes");
            drop(store);
            store = open(&disk, segment_bytes);
        }
        damage(&disk, "replaced", 0);
        damage(&disk, "deleted", 0);
        assert_eq!(copy(&store, None).expect("nothing that counts is damaged"), all);
        let mut unreadable = 0;
        assert_eq!(copy(&store, Some(&mut unreadable)).expect("it goes on"), all);
        assert_eq!(unreadable, 0);

        // What is the newest of its key is missed: an item, or a deletion, behind which nothing comes back.
        for (key, nth) in [("alive", 0), ("deleted", 0)] {
            damage(&disk, key, nth);
            let told = copy(&store, None).expect_err("it is damaged");
            assert!(matches!(told, Error::Corrupt { .. }), "{told}");
            copy(&store, Some(&mut unreadable)).expect("it goes on");
            assert!(unreadable > 0);
        }
        let mut left = all.clone();
        left.retain(|key, _| !["alive", "deleted"].map(str::as_bytes).contains(&&key[..]));
        assert_eq!(copy(&store, Some(&mut unreadable)).expect("it goes on"), left);
        assert_eq!(unreadable, 2);
    }
}

/// Where little is live the footer says what to read, and where it cannot be read all is.
#[test]
fn a_damaged_footer_stops_no_copy() {
    let disk = SimDisk::new();
    let store = open(&disk, 4096);
    for value in ["old", "new"] {
        (0..60).for_each(|n| set(&store, &format!("key{n}"), value));
    }
    store.sync().expect("it is durable");
    let copied = || {
        let reads_before = store.stats().reads;
        (copy(&store, None).expect("all records are whole"), store.stats().reads - reads_before)
    };
    let (all, reads) = copied();
    assert_eq!(all.len(), 60);
    let bytes = disk.read(NAME).expect("reads");
    disk.flip_bit(NAME, bytes.len() as u64 - 30, 3).expect("flips");
    let (without, reads_without) = copied();
    assert_eq!(without, all);
    assert!(reads < reads_without, "{reads} records were read, and {reads_without} without the footer");
}

/// The same of a list of keys, however it is cut into steps.
#[test]
fn a_damaged_footer_ends_no_list_of_keys() {
    let disk = SimDisk::new();
    let store = open(&disk, 4096);
    for value in ["old", "new"] {
        (0..60).for_each(|n| set(&store, &format!("key{n}"), value));
    }
    store.sync().expect("it is durable");
    let bytes = disk.read(NAME).expect("reads");
    disk.flip_bit(NAME, bytes.len() as u64 - 30, 3).expect("flips");
    for limit in [1, 7, usize::MAX] {
        let (mut cursor, mut listed) = (Cursor::new(), BTreeSet::new());
        let mut visit = |key: &[u8], _: &Meta| assert!(listed.insert(key.to_vec()), "it was listed before");
        while store.for_each_key(&mut cursor, limit, 0, &mut visit).expect("all records are whole") {}
        assert_eq!(listed.len(), 60);
    }
}

/// Of a damaged header nobody knows.
#[test]
fn a_damaged_value_is_told_without_its_key() {
    let disk = SimDisk::new();
    let store = open(&disk, 1 << 20);
    set(&store, "alive", "value of it");
    store.sync().expect("it is durable");
    damage(&disk, "value of it", 0);
    let told = copy(&store, None).expect_err("it is damaged").to_string();
    assert!(told.contains("the checksum of a value does not match"), "{told}");
    assert!(!told.contains("alive"), "{told}");
}
