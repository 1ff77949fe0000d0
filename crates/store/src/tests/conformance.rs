//! What the trait promises, of every driver.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use super::driver::{Driver, Log, Memory};
use super::model::{Change, State, append};
use super::pieces::Pieces;
use super::script::{START_SECS, Script, Step, seed_base};
use crate::files::Files;
use crate::files::sim::SimDisk;
use crate::{
    Budget, Cursor, Entry, Error, Manifest, Marks, Meta, NoValue, PendingFlush, Put, SequenceRange, Sink,
    Store, VALUE_BYTES_MAX, VecSink, restore,
};

fn put(key: &str, value: &[u8], version: u64) -> Change {
    put_until(key, value, version, 0)
}

fn put_until(key: &str, value: &[u8], version: u64, exptime_secs: u64) -> Change {
    let (key, value) = (key.into(), value.to_vec());
    Change::Put { key, value, client_flags: 3, exptime_secs, version, marks: Marks::NONE }
}

fn delete(key: &str, version: u64) -> Change {
    Change::Delete { key: key.into(), version }
}

fn flush(prefix: &str, version: u64) -> Change {
    Change::Flush { prefix: prefix.into(), except: Vec::new(), version }
}

/// The value, if the key has one.
fn value_at(store: &dyn Store, key: &str, now: u64) -> Option<Vec<u8>> {
    let mut sink = VecSink::default();
    store.get(key.as_bytes(), now, &mut sink).expect("reads").map(|_| sink.into_value())
}

fn value(store: &dyn Store, key: &str) -> Option<Vec<u8>> {
    value_at(store, key, START_SECS)
}

/// A whole scan: how often each key was visited.
fn scan(store: &dyn Store, limit: usize, now: u64) -> BTreeMap<String, usize> {
    let mut visits = BTreeMap::new();
    let mut cursor = Cursor::new();
    let mut visit = |key: &[u8], _: &Meta| {
        *visits.entry(String::from_utf8_lossy(key).into_owned()).or_default() += 1;
    };
    while store.for_each_key(&mut cursor, limit, now, &mut visit).expect("scans") {}
    visits
}

fn clean_up(store: &dyn Store, now: u64) {
    while store.maintain(Budget { bytes: 1 << 16 }, now).expect("cleans").more {}
}

/// What holds right after the changes holds after cleaning, and after both kinds of an end.
fn whenever<D: Driver>(changes: &[&[Change]], check: impl Fn(&dyn Store)) {
    for is_closed in [false, true] {
        let place = D::new();
        let mut store = place.open().expect("opens");
        for batch in changes {
            append(&store, batch).expect("appends");
        }
        check(&store);
        clean_up(&store, START_SECS);
        check(&store);
        for _ in 0..2 {
            if is_closed {
                store.close().expect("closes");
            }
            store = place.reopen(store);
            check(&store);
        }
        clean_up(&store, START_SECS);
        check(&store);
    }
}

fn random_scripts_equal_the_model<D: Driver>(seeds: u64, steps: usize, keys: usize) {
    for seed in (0..seeds).map(|nth| seed_base() + nth) {
        let script = Script::random(seed, steps, keys, true);
        let place = D::new();
        let mut store = place.open().expect("opens");
        let mut state = State::default();
        let mut now = START_SECS;
        for (number, step) in script.steps.iter().enumerate() {
            match step {
                Step::Append(batch) => {
                    let range = append(&store, batch).expect("appends");
                    assert_eq!(range.first, state.last_sequence + 1);
                    state.apply(batch);
                    assert_eq!(range.last, state.last_sequence);
                }
                Step::Sync => assert_eq!(store.sync().expect("syncs"), state.last_sequence),
                Step::Maintain(bytes, at) => {
                    now = *at;
                    store.maintain(Budget { bytes: *bytes }, now).expect("maintains");
                }
                Step::Reopen { clean } => {
                    if *clean {
                        store.close().expect("closes");
                    }
                    store = place.reopen(store);
                }
            }
            if number % 40 == 0 || matches!(step, Step::Reopen { .. }) {
                let difference = state.difference(&store, &script.keys, now);
                assert_eq!(difference, None, "seed {seed}, step {number}, {step:?}");
            }
        }
        assert_eq!(state.difference(&store, &script.keys, now), None, "seed {seed}, end");
    }
}

fn a_batch_is_applied_in_order_and_numbered<D: Driver>() {
    let place = D::new();
    let store = place.open().expect("opens");
    assert_eq!((store.last_sequence(), store.durable_sequence(), store.highest_version()), (0, 0, 0));
    let range = append(&store, &[put("a", b"1", 1), delete("a", 2), put("b", b"1", 3), put("b", b"2", 4)]);
    assert_eq!(range.expect("appends"), SequenceRange { first: 1, last: 4 });
    assert_eq!((value(&store, "a"), value(&store, "b")), (None, Some(b"2".to_vec())));
    assert_eq!(append(&store, &[]).expect("appends"), SequenceRange { first: 5, last: 4 });
    let range = append(&store, &[put("a", b"3", 5)]).expect("appends");
    assert_eq!((range, store.last_sequence()), (SequenceRange { first: 5, last: 5 }, 5));
    let meta = store.get(b"a", START_SECS, &mut NoValue).expect("reads").expect("is there");
    assert_eq!((meta.sequence, meta.version, meta.value_bytes), (5, 5, 1));
}

/// One entry that cannot be kept: nothing of its batch is visible, and no number is used up.
fn a_batch_is_kept_whole_or_not_at_all<D: Driver>() {
    let place = D::new();
    let store = place.open().expect("opens");
    append(&store, &[put("old", b"value", 1)]).expect("appends");
    let long = "k".repeat(65_536);
    let half = vec![0; 17 << 20];
    let batches: [&[Change]; 4] = [
        &[put("new", b"value", 2), put("", b"value", 3)],
        &[flush("", 2), put(&long, b"value", 3)],
        &[delete("old", 2), flush(&long, 3)],
        &[put("new", &half, 2), put("newer", &half, 3)],
    ];
    for batch in batches {
        assert!(matches!(append(&store, batch), Err(Error::Invalid { .. })));
        assert_eq!(scan(&store, 9, START_SECS), [("old".to_owned(), 1)].into());
        assert_eq!((store.last_sequence(), store.highest_version()), (1, 1));
    }
    append(&store, &[put(&long[1..], b"value", 2)]).expect("the longest key");
    let store = place.reopen(store);
    assert_eq!(value(&store, &long[1..]), Some(b"value".to_vec()));
}

fn all_of_an_item_comes_back<D: Driver>() {
    let item = Put {
        key: b"k\0\xff y",
        value: &[b"", b"va", b"l\0e"],
        client_flags: u32::MAX,
        exptime_secs: START_SECS + 1,
        version: 1 << 52,
        marks: Marks::STALE | Marks::BINARY_KEY,
        origin: 255,
        expiry_value_version: 0,
        expiry_version: 0,
        base_version: 0,
    };
    for is_closed in [false, true] {
        let place = D::new();
        let mut store = place.open().expect("opens");
        store.append(&[Entry::Put(item)]).expect("appends");
        for _ in 0..3 {
            let mut sink = VecSink::default();
            let meta = store.get(item.key, START_SECS, &mut sink).expect("reads").expect("is there");
            assert_eq!(
                meta,
                Meta {
                    value_bytes: 5,
                    client_flags: item.client_flags,
                    exptime_secs: item.exptime_secs,
                    version: item.version,
                    marks: item.marks,
                    origin: item.origin,
                    sequence: 1,
                }
            );
            assert_eq!(sink.into_value(), b"val\0e");
            if is_closed {
                store.close().expect("closes");
            }
            store = place.reopen(store);
        }
    }
}

fn what_was_deleted_stays_deleted<D: Driver>() {
    let changes: [&[Change]; 3] = [
        &[put("a", b"1", 1), put("b", b"1", 2), put("a", b"2", 3)],
        &[delete("a", 4), delete("never", 5)],
        &[delete("b", 6), put("b", b"2", 7)],
    ];
    whenever::<D>(&changes, |store| {
        assert_eq!(value(store, "a"), None);
        assert_eq!(value(store, "never"), None);
        assert_eq!(value(store, "b"), Some(b"2".to_vec()));
    });
}

fn a_flush_ends_what_was_before_it<D: Driver>() {
    let all = |version| [put("a:1", b"x", version), put("a:12", b"x", version), put("b:1", b"x", version)];
    let keys = |store: &dyn Store| scan(store, 2, START_SECS).into_keys().collect::<Vec<_>>();
    whenever::<D>(&[&all(1), &[flush("a:", 2)]], |store| assert_eq!(keys(store), ["b:1"]));
    whenever::<D>(&[&all(1), &[flush("a:1", 2), put("a:1", b"y", 3)]], |store| {
        assert_eq!((value(store, "a:1"), value(store, "a:12")), (Some(b"y".to_vec()), None));
        assert_eq!(keys(store), ["a:1", "b:1"]);
    });
    // In one batch, in its order.
    let batch = [put("a:3", b"x", 2), flush("a:", 3), put("a:4", b"x", 4), flush("b:1", 5)];
    whenever::<D>(&[&all(1), &batch], |store| assert_eq!(keys(store), ["a:4"]));
    whenever::<D>(&[&all(1), &[flush("", 2)], &[put("c", b"x", 3)]], |store| {
        assert_eq!(keys(store), ["c"]);
        assert_eq!((store.last_sequence(), store.highest_version()), (5, 3));
    });
    // A longer prefix, then a shorter one; a key that is a prefix itself.
    whenever::<D>(&[&all(1), &[flush("a:12", 2)], &[put("a:12", b"y", 3)], &[flush("a", 4)]], |store| {
        assert_eq!(keys(store), ["b:1"]);
    });
}

fn a_delayed_flush_is_kept_until_it_is_made_or_cancelled<D: Driver>() {
    let at = |prefix: &str, at_secs| Change::FlushAt { prefix: prefix.into(), at_secs };
    let cancel = |prefix: &str| Change::CancelFlushAt { prefix: prefix.into() };
    let pending = |prefix: &str, at_secs| PendingFlush { prefix: prefix.into(), at_secs };
    let changes: [&[Change]; 3] = [
        &[put("a:1", b"x", 1), at("a:", START_SECS - 9), at("b:", 7), at("c:", 8), at("", 9)],
        &[at("b:", 70)],
        &[cancel("c:"), cancel("never")],
    ];
    whenever::<D>(&changes, |store| {
        assert_eq!(
            store.pending_flushes(),
            [pending("", 9), pending("a:", START_SECS - 9), pending("b:", 70)]
        );
        assert_eq!(value(store, "a:1"), Some(b"x".to_vec()), "the store does nothing by itself");
        assert_eq!(store.highest_version(), 1);
    });
    // A flush ends the delayed one of exactly its prefix.
    let changes: [&[Change]; 2] =
        [&[at("a:", 5), at("a:1", 6), at("b:", 7)], &[flush("a:", 1), flush("", 2), at("c:", 8)]];
    whenever::<D>(&changes, |store| {
        assert_eq!(store.pending_flushes(), [pending("a:1", 6), pending("b:", 7), pending("c:", 8)]);
    });
}

fn items_expire_by_the_clock_of_the_caller<D: Driver>() {
    let place = D::new();
    let mut store = place.open().expect("opens");
    let exptime = START_SECS + 10;
    append(&store, &[put_until("a", b"1", 1, exptime), put("b", b"2", 2)]).expect("appends");
    for is_closed in [false, true] {
        assert_eq!(value_at(&store, "a", exptime - 1), Some(b"1".to_vec()));
        assert_eq!(scan(&store, 1, exptime - 1).len(), 2);
        assert_eq!(value_at(&store, "a", exptime), None);
        assert_eq!(scan(&store, 1, exptime), [("b".to_owned(), 1)].into());
        clean_up(&store, exptime - 1);
        if is_closed {
            store.close().expect("closes");
        }
        store = place.reopen(store);
    }
    // Touched: it lives on, whatever was cleaned up.
    append(&store, &[put_until("a", b"1", 3, exptime + 10)]).expect("appends");
    clean_up(&store, exptime);
    let store = place.reopen(store);
    assert_eq!(value_at(&store, "a", exptime), Some(b"1".to_vec()));
    clean_up(&store, exptime + 10);
    assert_eq!(value_at(&store, "a", exptime + 10), None);
    assert_eq!(value_at(&store, "b", exptime + 10), Some(b"2".to_vec()));
}

fn the_highest_version_never_falls<D: Driver>() {
    let changes: [&[Change]; 4] = [
        &[put("a", b"1", 50)],
        &[delete("a", 60)],
        &[put("b", b"1", 5), flush("", 70)],
        &[put("c", b"1", 6)],
    ];
    for last in 1..=changes.len() {
        let highest = [50, 60, 70, 70][last - 1];
        whenever::<D>(&changes[..last], |store| assert_eq!(store.highest_version(), highest));
    }
}

fn a_scan_visits_all_that_stays<D: Driver>() {
    let place = D::new();
    let mut store = place.open().expect("opens");
    let keys: Vec<String> = (0..200).map(|nth| format!("key-{nth}")).collect();
    for (key, version) in keys.iter().zip(1..) {
        append(&store, &[put(key, &[7; 300], version)]).expect("appends");
    }
    let once: BTreeMap<String, usize> = keys.iter().map(|key| (key.clone(), 1)).collect();
    for limit in [1, 7, 1000] {
        assert_eq!(scan(&store, limit, START_SECS), once);
    }
    assert_eq!(scan(&store, 0, START_SECS), once, "a step does something");
    store = place.reopen(store);
    assert_eq!(scan(&store, 7, START_SECS), once);

    // Others change, come and go meanwhile.
    let mut seen: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let (mut cursor, mut version, mut more) = (Cursor::new(), 1_000, true);
    while more {
        let mut visit = |key: &[u8], meta: &Meta| {
            seen.entry(String::from_utf8_lossy(key).into_owned()).or_default().push(meta.version);
        };
        more = store.for_each_key(&mut cursor, 5, START_SECS, &mut visit).expect("scans");
        if version < 1_400 {
            version += 1;
            let nth = version as usize % 100;
            append(&store, &[put(&keys[nth], &[8; 300], version), delete(&keys[199 - nth], version)])
                .expect("appends");
            store.maintain(Budget { bytes: 1_000 }, START_SECS).expect("cleans");
        }
    }
    for key in &keys[..100] {
        let versions = seen.get(key).unwrap_or_else(|| panic!("{key} was not visited"));
        assert!(versions.is_sorted(), "{key}: an older state after a newer: {versions:?}");
    }
    let mut after = cursor.clone();
    assert!(!store.for_each_key(&mut after, 5, START_SECS, &mut |_, _| panic!("it is over")).expect("scans"));
}

fn no_item_is_denied<D: Driver>() {
    let place = D::new();
    let mut store = place.open().expect("opens");
    assert!(!store.may_contain(b"key"), "there is nothing yet");
    for nth in 0..2_000 {
        append(&store, &[put(&format!("key-{nth}"), &[1; 100], nth + 1)]).expect("appends");
    }
    for is_closed in [false, true] {
        for nth in 0..2_000 {
            assert!(store.may_contain(format!("key-{nth}").as_bytes()), "key-{nth}");
        }
        // An absent key is rarely worth a read.
        let absent = (0..1_000).filter(|nth| store.may_contain(format!("no-{nth}").as_bytes())).count();
        assert!(absent < 100, "{absent} of 1,000 absent keys may be there");
        if is_closed {
            store.close().expect("closes");
        }
        store = place.reopen(store);
    }
}

/// Wants a value, and has no place for it.
struct Homeless;

impl Sink for Homeless {
    fn start(&mut self, _: &Meta) -> bool {
        true
    }

    fn buffer(&mut self, _: usize) -> &mut [u8] {
        &mut []
    }
}

fn a_value_goes_where_the_sink_says<D: Driver>() {
    let place = D::new();
    let store = place.open().expect("opens");
    let mut random = fastrand::Rng::with_seed(1);
    let lengths = [0, 1, 16_383, 16_384, 65_000, 65_536, 300_000, 3_000_000, 20 << 20];
    let values: Vec<Vec<u8>> = lengths
        .iter()
        .map(|&length| std::iter::repeat_with(|| random.u8(..)).take(length).collect())
        .collect();
    for (nth, value) in values.iter().enumerate() {
        append(&store, &[put(&format!("key-{nth}"), value, 1)]).expect("appends");
    }
    clean_up(&store, START_SECS);
    let store = place.reopen(store);
    for (nth, value) in values.iter().enumerate() {
        let key = format!("key-{nth}");
        let mut sink = Pieces::default();
        let meta = store.get(key.as_bytes(), START_SECS, &mut sink).expect("reads").expect("is there");
        assert!(meta.value_bytes == value.len() && sink.value == *value, "{} bytes", value.len());
        let declined = store.get(key.as_bytes(), START_SECS, &mut NoValue).expect("declining is no error");
        assert_eq!(declined, Some(meta));
        let placed = store.get(key.as_bytes(), START_SECS, &mut Homeless);
        assert_eq!(matches!(placed, Err(Error::Declined)), !value.is_empty());
    }
    assert_eq!(store.get(b"absent", START_SECS, &mut Homeless).expect("reads"), None);
}

/// The value is one piece of memory, many times: nobody needs to have so much to be refused.
fn a_value_that_is_too_long_is_refused<D: Driver>() {
    let place = D::new();
    let store = place.open().expect("opens");
    let piece = vec![1; 1 << 20];
    let mut pieces = vec![&piece[..]; VALUE_BYTES_MAX >> 20];
    pieces.push(b"1");
    let too_long = Put {
        key: b"key",
        value: &pieces,
        client_flags: 0,
        exptime_secs: 0,
        version: 1,
        marks: Marks::NONE,
        origin: 0,
        expiry_value_version: 0,
        expiry_version: 0,
        base_version: 0,
    };
    assert!(matches!(store.append(&[Entry::Put(too_long)]), Err(Error::Invalid { .. })));
    assert_eq!((value(&store, "key"), store.last_sequence()), (None, 0));
}

fn what_is_durable_is_known<D: Driver>() {
    let place = D::new();
    let store = place.open().expect("opens");
    append(&store, &[put("a", b"1", 1), put("b", b"1", 2)]).expect("appends");
    assert!(store.durable_sequence() <= store.last_sequence());
    let fsyncs = store.stats().fsyncs;
    assert_eq!((store.sync().expect("syncs"), store.durable_sequence()), (2, 2));
    assert!(store.stats().fsyncs > fsyncs);
    append(&store, &[put("c", b"1", 3)]).expect("appends");
    assert_eq!(store.durable_sequence(), 2);
    let store = place.reopen(store);
    assert_eq!((store.last_sequence(), store.durable_sequence()), (3, 3), "what an opening finds is durable");
}

fn a_failed_sync_ends_writing<D: Driver>() {
    let place = D::new();
    let store = place.open().expect("opens");
    append(&store, &[put("key", b"value", 1)]).expect("appends");
    let store = place.fail_sync(store);
    append(&store, &[put("key", b"later", 2)]).expect("appends");
    assert!(matches!(store.sync(), Err(Error::ReadOnly { .. })));
    assert!(matches!(store.sync(), Err(Error::ReadOnly { .. })), "it is not tried again");
    assert!(matches!(append(&store, &[put("key", b"last", 3)]), Err(Error::ReadOnly { .. })));
    assert!(store.stats().read_only);
    assert_eq!(value(&store, "key"), Some(b"later".to_vec()), "reads go on");
    assert_eq!(scan(&store, 3, START_SECS).len(), 1);
    assert!(!store.maintain(Budget { bytes: 1_000 }, START_SECS).is_ok_and(|progress| progress.more));
    let store = place.reopen(store);
    append(&store, &[put("key", b"last", 4)]).expect("a new process writes");
    store.sync().expect("syncs");
}

fn without_room_nothing_of_a_batch_is_visible<D: Driver>() {
    let place = D::new();
    let mut store = place.open().expect("opens");
    let mut state = State::default();
    let before = [put("a", &[1; 300], 1), put("b", &[1; 300], 2)];
    append(&store, &before).expect("appends");
    state.apply(&before);
    store = place.fill(store);
    let errors = store.stats().full_errors;
    // What is open may still take a few.
    let mut version = 2;
    let refused = loop {
        version += 1;
        assert!(version < 1_000, "there is room without end");
        let batch =
            [put("a", &[version as u8; 300], version), put(&format!("c-{version}"), &[2; 300], version)];
        match append(&store, &batch) {
            Ok(_) => state.apply(&batch),
            Err(Error::Full { .. }) => break batch,
            Err(error) => panic!("{error}"),
        }
    };
    assert!(store.stats().full_errors > errors && !store.stats().read_only);
    let mut keys: Vec<Vec<u8>> = state.items.keys().cloned().collect();
    keys.push(format!("c-{version}").into());
    assert_eq!(state.difference(&store, &keys, START_SECS), None, "reads go on");
    place.make_room(&store);
    append(&store, &refused).expect("there is room again");
    state.apply(&refused);
    store.sync().expect("syncs");
    assert_eq!(state.difference(&store, &keys, START_SECS), None);
    let store = place.reopen(store);
    assert_eq!(state.difference(&store, &keys, START_SECS), None);
}

fn a_closed_store_takes_nothing<D: Driver>() {
    let place = D::new();
    let store = place.open().expect("opens");
    append(&store, &[put("key", b"value", 1)]).expect("appends");
    store.close().expect("closes");
    assert_eq!(store.durable_sequence(), 1);
    assert!(matches!(append(&store, &[put("key", b"later", 2)]), Err(Error::ReadOnly { .. })));
    assert!(append(&store, &[]).is_err());
    assert_eq!(value(&store, "key"), Some(b"value".to_vec()));
    let store = place.reopen(store);
    assert_eq!(value(&store, "key"), Some(b"value".to_vec()));
    append(&store, &[put("key", b"later", 2)]).expect("appends");
}

fn one_process_at_a_time<D: Driver>() {
    if !D::HAS_FILES {
        return;
    }
    let place = D::new();
    let store = place.open().expect("opens");
    let second = place.open().err().expect("it is open");
    assert!(matches!(second, Error::Locked { .. }), "{second}");
    append(&store, &[put("key", b"value", 1)]).expect("the first goes on");
    store.close().expect("closes");
    assert!(place.open().is_err(), "closed, but not gone");
    place.reopen(store);
}

fn backups_follow_each_other_and_are_restored<D: Driver>() {
    let place = D::new();
    let store = place.open().expect("opens");
    if !D::HAS_FILES {
        assert!(matches!(store.backup(&SimDisk::new(), None), Err(Error::Unsupported { .. })));
        return;
    }
    let (mut state, now) = (State::default(), START_SECS);
    let keys: Vec<Vec<u8>> = (0..300).map(|nth| format!("c:{nth}").into()).collect();
    for key in &keys {
        let batch = [put(&String::from_utf8_lossy(key), &[1; 150], 1)];
        append(&store, &batch).expect("appends");
        state.apply(&batch);
    }
    let mut random = fastrand::Rng::with_seed(4);
    let mut change = |store: &dyn Store, state: &mut State, count: usize| {
        for _ in 0..count {
            let key = String::from_utf8_lossy(&keys[random.usize(0..40)]).into_owned();
            let version = state.highest_version + 1;
            let batch = match random.u32(0..8) {
                0 => [delete(&key, version)],
                1 => [Change::FlushAt { prefix: key.into(), at_secs: version }],
                2 if random.u32(0..8) == 0 => [flush("c:1", version)],
                _ => [put(&key, &vec![2; random.usize(0..300)], version)],
            };
            append(store, &batch).expect("appends");
            state.apply(&batch);
            store.maintain(Budget { bytes: 500 }, now).expect("maintains");
        }
    };
    let mut backups: Vec<SimDisk> = Vec::new();
    let mut copied = Vec::new();
    for round in 0..5 {
        change(&store, &mut state, 60);
        let target = SimDisk::new();
        let since = backups.last().map(|last| Manifest::read(last).expect("reads").expect("is there"));
        let manifest = store.backup(&target, since.as_ref()).expect("backs up");
        assert_eq!(manifest.last_sequence(), state.last_sequence);
        assert_eq!(Manifest::read(&target).expect("reads"), Some(manifest.clone()));
        copied.push((target.list().expect("lists").len(), manifest.files().count() + 1));
        backups.push(target);
        let expected = state.clone();
        // The store goes on; the backup does not.
        change(&store, &mut state, 20);

        let newest_first: Vec<&dyn Files> = backups.iter().rev().map(|disk| disk as &dyn Files).collect();
        let other = D::restored(&newest_first).expect("restores");
        let copy = other.open().expect("opens");
        assert_eq!(expected.difference(&copy, &keys, now), None, "round {round}");
        // No file of the copy may stand for one of the store, though both go on from here.
        let (more, mut expected) = ([put("more", &[1; 10], 1 << 40)], expected);
        append(&copy, &more).expect("the copy is a store");
        expected.apply(&more);
        let of_copy = SimDisk::new();
        copy.backup(&of_copy, since.as_ref()).expect("backs up");
        let older = backups.iter().rev().skip(1).map(|disk| disk as &dyn Files);
        let third = D::restored(&[&of_copy as &dyn Files].into_iter().chain(older).collect::<Vec<_>>());
        let third = third.expect("restores");
        let store_of_copy = third.open().expect("opens");
        assert_eq!(expected.difference(&store_of_copy, &keys, now), None, "round {round}");
        copy.close().expect("closes");
    }
    assert!(copied.iter().skip(1).any(|(files, of)| files < of), "only new files are copied: {copied:?}");
    let first: [&dyn Files; 1] = [&backups[4]];
    assert!(D::restored(&first).is_err(), "the backup that it follows is missing");
    let newest_first: Vec<&dyn Files> = backups.iter().rev().map(|disk| disk as &dyn Files).collect();
    assert!(matches!(restore(&newest_first, &backups[0]), Err(Error::Invalid { .. })), "not over a store");
    assert_eq!(state.difference(&store, &keys, now), None);
}

/// One appender, one cleaner, readers: each read is of the last version that was there before it, or a later one.
fn readers_see_no_older_state<D: Driver>()
where
    D::Store: Sync,
{
    let place = D::new();
    let store = place.open().expect("opens");
    let newest: Vec<AtomicU64> = (0..60).map(|_| AtomicU64::new(0)).collect();
    // The version of the last flush that was begun, and of the last that was made.
    let (flushing, flushed) = (AtomicU64::new(0), AtomicU64::new(0));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (store, newest, done) = (&store, &newest, &done);
            let (flushing, flushed) = (&flushing, &flushed);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(reader);
                let mut reads = 0;
                while !done.load(SeqCst) || reads < 1_000 {
                    let nth = random.usize(0..newest.len());
                    let (before, flush) = (newest[nth].load(SeqCst), flushed.load(SeqCst));
                    let mut sink = VecSink::default();
                    let meta =
                        store.get(format!("key-{nth}").as_bytes(), START_SECS, &mut sink).expect("reads");
                    match meta.map(|meta| meta.version) {
                        Some(version) => {
                            assert!(version >= before && version > flush, "{version}: {before}, {flush}");
                            assert!(sink.into_value().iter().all(|&byte| byte == version as u8));
                        }
                        None => assert!(flushing.load(SeqCst) > before || before == 0, "key-{nth} is gone"),
                    }
                    reads += 1;
                }
            });
        }
        let (cleaner, cleaner_done) = (&store, &done);
        scope.spawn(move || {
            let mut now = START_SECS;
            while !cleaner_done.load(SeqCst) {
                now += 1;
                let progress = cleaner.maintain(Budget { bytes: 5_000 }, now).expect("cleans");
                if !progress.more {
                    std::thread::yield_now();
                }
            }
        });
        let mut random = fastrand::Rng::with_seed(99);
        for version in 1..10_000 {
            if version % 500 == 0 {
                flushing.store(version, SeqCst);
                append(&store, &[flush("key-", version)]).expect("appends");
                flushed.store(version, SeqCst);
            } else {
                let nth = random.usize(0..newest.len());
                append(&store, &[put(&format!("key-{nth}"), &[version as u8; 100], version)])
                    .expect("appends");
                newest[nth].store(version, SeqCst);
            }
        }
        done.store(true, SeqCst);
    });
}

/// All of the suite, of one driver.
macro_rules! suite {
    ($name:ident, $driver:ty, $scripts:expr) => {
        mod $name {
            use super::*;

            #[test]
            fn random_scripts() {
                for (seeds, steps, keys) in $scripts {
                    random_scripts_equal_the_model::<$driver>(seeds, steps, keys);
                }
            }

            suite! {
                $driver:
                a_batch_is_applied_in_order_and_numbered
                a_batch_is_kept_whole_or_not_at_all
                all_of_an_item_comes_back
                what_was_deleted_stays_deleted
                a_flush_ends_what_was_before_it
                a_delayed_flush_is_kept_until_it_is_made_or_cancelled
                items_expire_by_the_clock_of_the_caller
                the_highest_version_never_falls
                a_scan_visits_all_that_stays
                no_item_is_denied
                a_value_goes_where_the_sink_says
                a_value_that_is_too_long_is_refused
                what_is_durable_is_known
                a_failed_sync_ends_writing
                without_room_nothing_of_a_batch_is_visible
                a_closed_store_takes_nothing
                one_process_at_a_time
                backups_follow_each_other_and_are_restored
                readers_see_no_older_state
            }
        }
    };
    ($driver:ty: $($promise:ident)*) => {
        $(
            #[test]
            fn $promise() {
                super::$promise::<$driver>();
            }
        )*
    };
}

suite!(log, Log, [(40, 2_000, 30), (4, 20_000, 300)]);
suite!(memory, Memory, [(20, 2_000, 30)]);
