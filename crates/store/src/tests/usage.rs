//! What the store counts for prefixes is what a model counts.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::driver::small_segments;
use super::model::{Change, State, append};
use super::script::{START_SECS, Script, Step, seed_base};
use crate::files::sim::SimDisk;
use crate::{Budget, LogStore, MemoryStore, PrefixUsage, Store};

/// What the prefixes use, by the documented layout: 48 bytes, key, value, up to a multiple of 8. Apart from it what
/// items that have expired may take in addition, since nobody is told when they go.
fn expected(state: &State, prefixes: &[&[u8]], now: u64) -> Vec<(u64, u64)> {
    let mut usage = vec![(0, 0); prefixes.len()];
    for (key, (meta, value)) in &state.items {
        let longest = (0..prefixes.len()).filter(|&nth| key.starts_with(prefixes[nth]));
        let Some(nth) = longest.max_by_key(|&nth| prefixes[nth].len()) else { continue };
        let bytes = (48 + key.len() + value.len()).next_multiple_of(8) as u64;
        let (live, expired) = &mut usage[nth];
        *if meta.is_expired(now) { expired } else { live } += bytes;
    }
    usage
}

fn maintain_all(store: &dyn Store, now: u64) {
    for _ in 0..1_000 {
        if !store.maintain(Budget { bytes: 1 << 20 }, now).expect("maintains").more {
            return;
        }
    }
    panic!("it does not end");
}

/// `stored_expired`: the keys of items that had expired when they were stored.
fn check(
    store: &dyn Store,
    usage: &PrefixUsage,
    (state, stored_expired): (&State, &BTreeSet<Vec<u8>>),
    prefixes: &[&[u8]],
    now: u64,
) {
    let mut state = state.clone();
    state.items.retain(|key, _| !stored_expired.contains(key));
    (0..prefixes.len()).for_each(|nth| usage.ask_for_room(nth));
    maintain_all(store, now);
    assert!(usage.is_complete());
    for (nth, (live, expired)) in expected(&state, prefixes, now).into_iter().enumerate() {
        let bytes = usage.bytes(nth);
        // Lengths are kept to 0.1 %.
        let slack = live / 1_000 + 8;
        assert!(bytes + slack >= live, "{nth}: {bytes} of {live} (and {expired}) are counted");
        assert!(bytes <= live + expired + slack, "{nth}: {bytes} of {live} (and {expired}) are counted");
    }
}

const SETS: [&[&[u8]]; 3] =
    [&[b"", b"a:", b"b:key-1"], &[b"a:", b"b:"], &[b"", b"b:", b"b:key-1", b"b:key-10"]];

/// What a batch leaves stored though it had expired, by the time that maintenance was told last: that takes no room.
fn note_expired(stored: &mut BTreeSet<Vec<u8>>, batch: &[Change], told_secs: u64) {
    for change in batch {
        match change {
            Change::Put { key, exptime_secs, .. } if (1..=told_secs).contains(exptime_secs) => {
                stored.insert(key.clone());
            }
            Change::Put { key, .. } | Change::Delete { key, .. } => drop(stored.remove(key)),
            _ => {}
        }
    }
}

/// Random changes and flushes with cleaning, restarts clean and crashed, and other prefixes after a restart.
#[test]
fn counts_equal_the_model() {
    for seed in (0..30).map(|seed| seed_base() + 500 + seed) {
        let mut random = fastrand::Rng::with_seed(seed);
        let script = Script::random(seed, 2_500, 60, true);
        let disk = SimDisk::new();
        let open = || LogStore::open_files(Arc::new(disk.clone()), small_segments()).expect("opens");
        let (mut store, mut state, mut now) = (open(), State::default(), START_SECS);
        let mut prefixes = SETS[0];
        let mut usage = store.count_prefixes(prefixes).expect("counts");
        let (mut stored_expired, mut told_secs) = (BTreeSet::new(), 0);
        for (number, step) in script.steps.iter().enumerate() {
            match step {
                Step::Append(batch) => {
                    append(&store, batch).expect("appends");
                    state.apply(batch);
                    note_expired(&mut stored_expired, batch, told_secs);
                }
                Step::Sync => drop(store.sync().expect("syncs")),
                Step::Maintain(bytes, at) => {
                    (now, told_secs) = (*at, *at);
                    store.maintain(Budget { bytes: *bytes }, now).expect("maintains");
                }
                Step::Reopen { clean } => {
                    let was_complete = usage.is_complete();
                    if *clean {
                        store.close().expect("closes");
                    }
                    let before: Vec<_> = (0..prefixes.len()).map(|nth| usage.bytes(nth)).collect();
                    drop(store);
                    store = open();
                    told_secs = 0;
                    let is_same = random.u32(0..3) > 0;
                    if !is_same {
                        prefixes = SETS[random.usize(0..SETS.len())];
                    }
                    usage = store.count_prefixes(prefixes).expect("counts");
                    if *clean && is_same {
                        let after: Vec<_> = (0..prefixes.len()).map(|nth| usage.bytes(nth)).collect();
                        assert_eq!((usage.is_complete(), after), (was_complete, before), "seed {seed}");
                    }
                }
            }
            // At run time, too.
            if random.u32(0..300) == 0 {
                prefixes = SETS[random.usize(0..SETS.len())];
                usage = store.count_prefixes(prefixes).expect("counts");
            }
            if number % 100 == 0 {
                check(&store, &usage, (&state, &stored_expired), prefixes, now);
                told_secs = now;
            }
        }
        check(&store, &usage, (&state, &stored_expired), prefixes, now);
        // All expires or is flushed: there is room again, also in the segment that is still open.
        now += 100;
        let flush = Change::Flush { prefix: b"b:".to_vec(), except: vec![b"b:key-1".to_vec()], version: 1 };
        append(&store, std::slice::from_ref(&flush)).expect("appends");
        state.apply(&[flush]);
        check(&store, &usage, (&state, &stored_expired), prefixes, now);
        assert_eq!(state.difference(&store, &script.keys, now), None, "seed {seed}");
    }
}

#[test]
fn the_memory_driver_counts_too() {
    let script = Script::random(7, 2_000, 60, false);
    let store = MemoryStore::new();
    let usage = store.count_prefixes(SETS[0]).expect("counts");
    let (mut state, mut now) = (State::default(), START_SECS);
    for step in &script.steps {
        match step {
            Step::Append(batch) => {
                append(&store, batch).expect("appends");
                state.apply(batch);
            }
            Step::Maintain(_, at) => now = *at,
            _ => {}
        }
    }
    maintain_all(&store, now);
    for (nth, (live, _)) in expected(&state, SETS[0], now).into_iter().enumerate() {
        // Without padding.
        assert!(usage.bytes(nth) <= live && usage.bytes(nth) + 8 * 60 >= live);
    }
}

/// A sweep for one prefix finds what has expired in the open segment, and in sealed ones.
#[test]
fn expired_items_give_their_room_back_when_it_is_asked_for() {
    let disk = SimDisk::new();
    let store = LogStore::open_files(Arc::new(disk), small_segments()).expect("opens");
    let usage = store.count_prefixes(&[b"", b"s:"]).expect("counts");
    for nth in 0..100_u64 {
        let put = Change::Put {
            key: format!("s:{nth}").into_bytes(),
            value: vec![1; 100],
            client_flags: 0,
            exptime_secs: START_SECS + 10,
            version: nth + 1,
            marks: crate::Marks::NONE,
        };
        append(&store, &[put]).expect("appends");
    }
    let full = usage.bytes(1);
    assert!(full >= 100 * 150, "{full}");
    maintain_all(&store, START_SECS + 9);
    assert_eq!(usage.bytes(1), full);
    usage.ask_for_room(1);
    maintain_all(&store, START_SECS + 9);
    assert_eq!(usage.bytes(1), full, "nothing has expired");
    usage.ask_for_room(1);
    maintain_all(&store, START_SECS + 10);
    assert_eq!((usage.bytes(1), usage.bytes(0)), (0, 0));
    assert_eq!(store.stats().records, 0);
}

/// What had expired before it was stored is nothing, whatever was looked at before: in the open segment, in sealed
/// ones, and after restarts of both kinds.
#[test]
fn items_stored_after_their_time_take_no_room() {
    let disk = SimDisk::new();
    let open = || LogStore::open_files(Arc::new(disk.clone()), small_segments()).expect("opens");
    let mut store = open();
    for round in 0..4_u64 {
        let usage = store.count_prefixes(&[b"", b"s:"]).expect("counts");
        maintain_all(&store, START_SECS);
        for nth in 0..60_u64 {
            // Most live, so that what has expired is no sixteenth of a segment.
            let exptime_secs = if nth % 30 == 0 { 1 } else { START_SECS + 10_000 };
            let put = Change::Put {
                key: format!("s:{nth}").into_bytes(),
                value: vec![1; 100],
                client_flags: 0,
                exptime_secs,
                version: round * 100 + nth + 1,
                marks: crate::Marks::NONE,
            };
            append(&store, &[put]).expect("appends");
            usage.ask_for_room(1);
            maintain_all(&store, START_SECS);
        }
        // By the documented layout; ten keys have a digit less, which the padding hides.
        let live = 58 * 152;
        let check =
            |usage: &PrefixUsage| assert!(usage.bytes(1).abs_diff(live) <= live / 500, "{}", usage.bytes(1));
        check(&usage);
        if round % 2 == 0 {
            store.close().expect("closes");
        }
        drop(store);
        store = open();
        let usage = store.count_prefixes(&[b"", b"s:"]).expect("counts");
        maintain_all(&store, START_SECS);
        check(&usage);
    }
}

/// A bad sector below one record: the others are counted, and what comes after counting goes on.
#[test]
fn records_that_cannot_be_read_do_not_stop_counting() {
    let disk = SimDisk::new();
    let open = || LogStore::open_files(Arc::new(disk.clone()), small_segments()).expect("opens");
    let store = open();
    for nth in 0..60_u64 {
        let put = Change::Put {
            key: format!("s:{nth:02}").into_bytes(),
            value: vec![1; 100],
            client_flags: 0,
            exptime_secs: 0,
            version: nth + 1,
            marks: crate::Marks::NONE,
        };
        append(&store, &[put]).expect("appends");
    }
    store.close().expect("closes");
    drop(store);
    // By the documented layout: a header of 64 bytes, then records of 152 bytes, each behind it a commit of 48.
    let record_at = |nth: u64| 64 + nth * (152 + 48);
    let name = "segment-0000000000000001";
    for nth in [3, 7] {
        disk.spoil(name, record_at(nth) + 8).expect("it is there");
    }
    // Of a value nothing is needed.
    disk.spoil(name, record_at(5) + 60).expect("it is there");

    let store = open();
    let usage = store.count_prefixes(&[b"s:"]).expect("counts");
    let mut errors = 0;
    for _ in 0..1_000 {
        match store.maintain(Budget { bytes: 1 << 20 }, START_SECS) {
            Ok(progress) if !progress.more => break,
            Ok(_) => {}
            Err(error) => {
                assert!(matches!(error, crate::Error::Io { .. }), "{error}");
                errors += 1;
            }
        }
    }
    assert!(usage.is_complete());
    let bytes = 58 * 152_u64;
    assert!(usage.bytes(0).abs_diff(bytes) <= bytes / 500, "{} of {bytes}", usage.bytes(0));
    assert_eq!((errors, store.stats().uncounted_records), (1, 2));
}

/// A batch that could not be appended is not counted.
#[test]
fn what_failed_is_not_counted() {
    let faults = crate::MemoryFaults { fail_append: Some(2), ..crate::MemoryFaults::default() };
    let store = MemoryStore::new().and_faults(faults);
    let usage = store.count_prefixes(&[b""]).expect("counts");
    let put = |key: &str| Change::Put {
        key: key.into(),
        value: vec![1; 52],
        client_flags: 0,
        exptime_secs: 0,
        version: 1,
        marks: crate::Marks::NONE,
    };
    append(&store, &[put("1234")]).expect("appends");
    append(&store, &[put("5678")]).expect_err("as planned");
    assert_eq!(usage.bytes(0), 104);
}
