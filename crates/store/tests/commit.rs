//! The journal and the committer over a store in memory: order, group commit, and what becomes of changes that the
//! store loses.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use larder_store::commit::{
    Change, Clock, Committer, Destination, Journal, JournalConfig, Kind, Observer, Outcome, Refusal,
    Registers, Step,
};
use larder_store::{
    Entry, Error, KeyState, Marks, MemoryFaults, MemoryStore, Result, SequenceRange, Store, VecSink,
};

struct Still;

impl Clock for Still {
    fn unix_micros(&self) -> u64 {
        1_800_000_000_000_000
    }
}

/// What the committer told.
#[derive(Default)]
struct Witness {
    lost: Mutex<Vec<Vec<u8>>>,
    commits: Mutex<Vec<(usize, bool)>>,
    errors: AtomicU64,
}

impl Observer for Witness {
    fn on_progress(&self) {}

    fn on_lost(&self, change: &Change) {
        self.lost.lock().unwrap().push(change.key().to_vec());
    }

    fn on_commit(&self, changes: usize, _bytes: u64, durable_micros: Option<u64>) {
        self.commits.lock().unwrap().push((changes, durable_micros.is_some()));
    }

    fn on_error(&self, _error: &Error) {
        self.errors.fetch_add(1, SeqCst);
    }
}

struct Bed {
    journal: Arc<Journal>,
    store: Arc<MemoryStore>,
    seen: Arc<Witness>,
    committer: Committer,
}

fn bed(faults: MemoryFaults) -> Bed {
    let journal = Arc::new(Journal::new(JournalConfig {
        bytes_max: 1 << 20,
        changes_max: 64,
        site: 0,
        highest_version: 0,
        clock: Box::new(Still),
    }));
    let store = Arc::new(MemoryStore::with_faults(faults));
    let seen = Arc::<Witness>::default();
    let observer = Arc::clone(&seen) as Arc<dyn Observer>;
    let committer = Committer::new(Arc::clone(&journal), Arc::clone(&store), observer, Some(1000));
    Bed { journal, store, seen, committer }
}

impl Bed {
    fn put(&self, key: &[u8], value: &[u8], is_sync: bool) -> u64 {
        let position = self.journal.next_position(hash(key));
        self.submit(position, key, value, is_sync);
        position
    }

    fn submit(&self, position: u64, key: &[u8], value: &[u8], is_sync: bool) {
        self.journal.submit(position, change(key, value, self.journal.version_above(0), is_sync));
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let mut sink = VecSink::default();
        self.store.get(key, 1, &mut sink).unwrap().map(|_| sink.into_value())
    }

    /// Steps until there is nothing to do.
    fn settle(&mut self, now_micros: u64) -> Step {
        (0..100).map(|_| self.committer.step_through(now_micros)).find(|step| *step != Step::Again).unwrap()
    }
}

fn change(key: &[u8], value: &[u8], version: u64, is_sync: bool) -> Change {
    let kind = Kind::Put {
        client_flags: 0,
        exptime_secs: 0,
        version,
        marks: Marks::NONE,
        registers: Registers::default(),
    };
    Change::new(kind, key, value, is_sync)
}

fn hash(key: &[u8]) -> u64 {
    key.iter().fold(0, |hash: u64, byte| hash.wrapping_mul(31) + u64::from(*byte))
}

#[test]
fn what_waits_is_made_durable_together_and_in_order() {
    let mut bed = bed(MemoryFaults::default());
    // Two threads have their positions; the later one is the first to submit.
    let first = bed.journal.next_position(hash(b"key"));
    let second = bed.put(b"key", b"second", true);
    assert_eq!(bed.committer.step_through(0), Step::Idle, "the first is still to come");
    assert_eq!((bed.journal.outcome(second), bed.get(b"key")), (Outcome::Pending, None));
    bed.submit(first, b"key", b"first", true);
    let other = bed.put(b"other", b"value", false);
    assert!(!bed.journal.is_applied(first));
    bed.settle(0);
    assert_eq!(bed.get(b"key").as_deref(), Some(&b"second"[..]));
    for position in [first, second, other] {
        assert_eq!(bed.journal.outcome(position), Outcome::Done);
    }
    assert_eq!(*bed.seen.commits.lock().unwrap(), [(3, true)], "one batch, one fsync");
    assert_eq!(bed.store.stats().fsyncs, 1);
}

#[test]
fn what_nobody_waits_for_is_durable_after_the_interval() {
    let mut bed = bed(MemoryFaults::default());
    let position = bed.put(b"key", b"value", false);
    assert_eq!(bed.settle(500), Step::IdleUntil { micros: 1500 });
    assert!(bed.journal.is_applied(position));
    assert_eq!(bed.journal.outcome(position), Outcome::Pending);
    assert_eq!(bed.settle(1499), Step::IdleUntil { micros: 1500 });
    assert_eq!(bed.settle(1500), Step::Idle);
    assert_eq!(bed.journal.outcome(position), Outcome::Done);
}

#[test]
fn the_interval_holds_while_changes_go_on_coming() {
    let mut bed = bed(MemoryFaults::default());
    let mut positions = Vec::new();
    for step in 0..100 {
        positions.push(bed.put(format!("key{step}").as_bytes(), b"value", false));
        // Each finds a change that is not applied yet.
        bed.committer.step_through(step * 100);
        let due = positions.iter().take((step as usize).saturating_sub(15));
        due.for_each(|position| assert_eq!(bed.journal.outcome(*position), Outcome::Done, "at {step}"));
    }
    // An interval of 1,000: about nine fsyncs.
    assert!((5..=10).contains(&bed.store.stats().fsyncs), "{}", bed.store.stats().fsyncs);
}

#[test]
fn the_payload_is_key_and_value_wherever_the_value_is() {
    let owned = change(b"key", b"value", 1, false);
    let shared = Change::with_shared(owned.kind(), b"key", Box::new(b"value".to_vec()), false);
    assert_eq!([owned.payload_bytes(), shared.payload_bytes()], [8, 8]);
}

#[test]
fn a_full_disk_loses_what_waits_and_works_again() {
    let mut bed = bed(MemoryFaults { fail_append: Some(2), ..MemoryFaults::default() });
    let kept = bed.put(b"kept", b"1", true);
    bed.settle(0);
    let lost = [bed.put(b"kept", b"2", true), bed.put(b"new", b"3", true)];
    let step = bed.settle(10);
    assert_eq!(bed.journal.refusal(), Some(Refusal::Full));
    assert_eq!(bed.journal.admit(), Err(Refusal::Full));
    assert!(lost.iter().all(|lost| bed.journal.outcome(*lost) == Outcome::Lost));
    assert_eq!(bed.journal.outcome(kept), Outcome::Done);
    assert_eq!(*bed.seen.lost.lock().unwrap(), [b"kept".to_vec(), b"new".to_vec()]);
    assert_eq!(bed.get(b"kept").as_deref(), Some(&b"1"[..]));
    // What is shown from now on waits for no lost position, and what was read before counts no more.
    let now = bed.journal.position_of(hash(b"kept"));
    assert!(now > lost[1] && bed.journal.outcome(now) == Outcome::Done && bed.journal.is_applied(now));
    // A thread that was admitted before.
    let late = bed.put(b"late", b"4", true);
    assert_eq!(bed.journal.outcome(late), Outcome::Pending);
    let Step::IdleUntil { micros } = step else { panic!("{step:?}") };
    bed.settle(micros);
    assert_eq!((bed.journal.admit(), bed.journal.outcome(late)), (Ok(()), Outcome::Done));
    assert_eq!(bed.get(b"late").as_deref(), Some(&b"4"[..]));
    assert!(lost.iter().all(|lost| bed.journal.outcome(*lost) == Outcome::Lost), "for good");
}

#[test]
fn after_a_failed_fsync_nothing_is_promised_any_more() {
    let mut bed = bed(MemoryFaults { fail_sync: Some(2), ..MemoryFaults::default() });
    let kept = bed.put(b"kept", b"1", true);
    bed.settle(0);
    let lost = bed.put(b"key", b"2", true);
    assert_eq!(bed.settle(0), Step::Idle);
    assert_eq!(bed.journal.admit(), Err(Refusal::ReadOnly));
    assert_eq!((bed.journal.outcome(kept), bed.journal.outcome(lost)), (Outcome::Done, Outcome::Lost));
    // Who shows it now must know that it may not be there after a crash.
    assert_eq!(bed.journal.position_of(hash(b"key")), lost);
    let late = bed.put(b"late", b"3", true);
    bed.settle(1_000_000);
    assert_eq!((bed.journal.outcome(late), bed.get(b"late")), (Outcome::Lost, None));
    assert_eq!(bed.journal.refusal(), Some(Refusal::ReadOnly), "for good");
}

#[test]
fn the_journal_is_bounded() {
    let mut bed = bed(MemoryFaults::default());
    let mut admitted = 0;
    while bed.journal.admit().is_ok() {
        bed.put(format!("key{admitted}").as_bytes(), b"value", false);
        admitted += 1;
    }
    assert_eq!((admitted, bed.journal.admit()), (64, Err(Refusal::Busy)));
    bed.settle(0);
    assert_eq!(bed.journal.admit(), Ok(()));
    bed.put(b"large", &vec![0; 1 << 20], false);
    assert_eq!(bed.journal.admit(), Err(Refusal::Busy));
    bed.settle(0);
    assert_eq!((bed.journal.admit(), bed.journal.load()), (Ok(()), (0, 0)));
}

/// A flush that the store never had keeps no key from being shown; one that may be durable keeps all.
#[test]
fn a_lost_flush_concerns_no_key_unless_it_was_appended() {
    let flush = |bed: &Bed| {
        let flush = bed.journal.next_position_of_all();
        bed.journal.submit(flush, Change::new(Kind::Flush, b"", b"", true));
        flush
    };
    let mut bed = bed(MemoryFaults { fail_sync: Some(2), ..MemoryFaults::default() });
    let kept = bed.put(b"kept", b"1", true);
    bed.settle(0);
    bed.put(b"lost", b"2", true);
    bed.settle(0);
    let late = flush(&bed);
    bed.settle(0);
    assert_eq!(bed.journal.outcome(late), Outcome::Lost);
    assert_eq!(bed.journal.position_of(hash(b"kept")), kept);
    let mut bed = self::bed(MemoryFaults { fail_sync: Some(2), ..MemoryFaults::default() });
    bed.put(b"kept", b"1", true);
    bed.settle(0);
    let appended = flush(&bed);
    bed.settle(0);
    assert_eq!(bed.journal.position_of(hash(b"kept")), appended);
    assert_eq!(bed.journal.outcome(appended), Outcome::Lost);
}

/// A store takes batches of a bounded size, and a large value alone.
#[test]
fn a_large_value_is_a_batch_of_its_own() {
    let mut bed = bed(MemoryFaults::default());
    let large = vec![7; 20 << 20];
    bed.put(b"before", b"1", true);
    bed.put(b"large", &large, true);
    bed.put(b"behind", b"2", true);
    bed.settle(0);
    assert_eq!(*bed.seen.commits.lock().unwrap(), [(1, true), (1, true), (1, true)]);
    assert_eq!(bed.get(b"large").map(|value| value.len()), Some(20 << 20));
}

/// Threads change the same few keys, each change under its key's lock; the store fails once. In the end the store has,
/// of each key, the newest change that was not lost.
#[test]
fn threads_agree_with_the_store_after_a_failure() {
    for seed in 0..20 {
        let mut bed = bed(MemoryFaults { fail_append: Some(3 + seed % 5), ..MemoryFaults::default() });
        let keys: Vec<Mutex<Vec<(u64, String)>>> = (0..4).map(|_| Mutex::default()).collect();
        let finished = AtomicU64::new(0);
        let (journal, keys, finished) = (&Arc::clone(&bed.journal), &keys, &finished);
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed * 10 + thread);
                    for number in 0..300 {
                        while journal.admit().is_err() {
                            std::thread::yield_now();
                        }
                        let index = rng.usize(..keys.len());
                        let key = format!("key{index}");
                        let value = format!("{thread}:{number}");
                        let mut changes = keys[index].lock().unwrap();
                        let position = journal.next_position(hash(key.as_bytes()));
                        changes.push((position, value.clone()));
                        drop(changes);
                        let change = change(key.as_bytes(), value.as_bytes(), 1, number % 2 == 0);
                        journal.submit(position, change);
                    }
                    finished.fetch_add(1, SeqCst);
                });
            }
            let mut now_micros = 0;
            while finished.load(SeqCst) < 3 || journal.load().0 > 0 {
                bed.committer.step_through(now_micros);
                now_micros += 10_000;
            }
            bed.committer.sync();
        });
        let mut lost = 0;
        let mut newest = HashMap::new();
        for (index, changes) in keys.iter().enumerate() {
            for (position, value) in changes.lock().unwrap().iter() {
                match bed.journal.outcome(*position) {
                    Outcome::Done => drop(newest.insert(index, value.clone())),
                    Outcome::Lost => lost += 1,
                    Outcome::Pending => panic!("all is committed"),
                }
            }
        }
        assert!(lost > 0);
        for (index, value) in newest {
            let found = bed.get(format!("key{index}").as_bytes());
            assert_eq!(found.as_deref(), Some(value.as_bytes()), "seed {seed}");
        }
    }
}

/// Whoever waits hurries the committer, whatever it is doing: else this test would take a minute for each change.
#[test]
fn who_waits_is_not_kept_waiting_for_more_changes() {
    const THREADS: u64 = 3;
    const CHANGES: u64 = 2000;
    let Bed { journal, mut committer, .. } = bed(MemoryFaults::default());
    let minute = Duration::from_secs(60);
    // Before the committer waits.
    journal.submit(journal.next_position(0), change(b"key", b"value", journal.version_above(0), true));
    journal.hurry();
    journal.wait(minute, || minute);
    let submit = &|thread: u64| {
        for number in 0..CHANGES {
            let position = journal.next_position(number);
            let is_sync = number % 2 == thread % 2;
            journal.submit(position, change(b"key", b"value", journal.version_above(0), is_sync));
            journal.hurry();
            while !journal.is_applied(position) {
                std::thread::yield_now();
            }
        }
        journal.wake();
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || submit(thread));
        }
        while !journal.is_applied(THREADS * CHANGES + 1) {
            if committer.step_through(0) != Step::Again {
                journal.wait(minute, || minute);
            }
        }
    });
}

/// Who reads the log gets what was changed here without waiting for the interval, in as few syncs as the pause allows.
#[test]
fn what_is_followed_is_made_durable_at_once_and_then_at_a_pace() {
    let mut bed = bed(MemoryFaults::default());
    let unfollowed = bed.put(b"before", b"value", false);
    assert_eq!(bed.settle(10_000), Step::IdleUntil { micros: 11_000 }, "the interval");
    assert_eq!(bed.journal.outcome(unfollowed), Outcome::Pending);
    bed.journal.follow();
    assert_eq!(bed.settle(10_010), Step::Idle);
    assert_eq!(bed.journal.outcome(unfollowed), Outcome::Done, "it has a follower now");
    assert_eq!((bed.committer.linger_micros(10_010), bed.committer.linger_micros(10_810)), (800, 0));
    let second = bed.put(b"key", b"second", false);
    assert_eq!(bed.settle(10_020), Step::IdleUntil { micros: 10_810 }, "so soon after the last one");
    assert_eq!(bed.journal.outcome(second), Outcome::Pending);
    bed.settle(10_810);
    assert_eq!(bed.journal.outcome(second), Outcome::Done);
    // What came from elsewhere says nothing to them.
    let foreign = bed.journal.next_position(hash(b"foreign"));
    let version = bed.journal.version_above(0);
    bed.journal.submit(foreign, change(b"foreign", b"value", version, false).unfollowed());
    assert_eq!(bed.settle(20_000), Step::IdleUntil { micros: 21_000 }, "the interval");
    let third = bed.put(b"key", b"third", false);
    assert_eq!(bed.settle(20_001), Step::Idle);
    assert_eq!(bed.journal.outcome(third), Outcome::Done);
    bed.journal.unfollow();
    bed.put(b"key", b"fourth", false);
    assert_eq!(bed.settle(30_000), Step::IdleUntil { micros: 31_000 });
}

/// What comes within the pause after a sync for followers is durable with the next one, not with the one after that.
#[test]
fn what_comes_within_the_pause_goes_with_the_next_sync() {
    let mut bed = bed(MemoryFaults::default());
    bed.journal.follow();
    bed.put(b"key", b"first", false);
    bed.settle(10_000);
    assert_eq!((bed.committer.gather_micros(10_200), bed.committer.gather_micros(10_800)), (600, 0));
    let applied = bed.put(b"key", b"second", false);
    bed.settle(10_500);
    assert_eq!(bed.committer.gather_micros(10_500), 0, "it waits for the sync, not for more");
    let submitted = bed.put(b"other", b"value", false);
    let is_durable = |bed: &Bed, position| bed.journal.outcome(position) == Outcome::Done;
    assert_eq!(bed.committer.step_through(11_000), Step::Again);
    assert_eq!((bed.journal.is_applied(submitted), is_durable(&bed, applied)), (true, false));
    // Under load there always is more.
    let late = bed.put(b"other", b"late", false);
    assert_eq!(bed.committer.step_through(11_000), Step::Again);
    assert!(is_durable(&bed, submitted), "one sync for all that had come");
    assert!(!bed.journal.is_applied(late), "the sync comes before more is taken");
    bed.journal.unfollow();
    assert_eq!(bed.committer.gather_micros(11_100), 0);
}

/// A sync takes CPU from the requests: with many changes, fewer of them are made.
#[test]
fn under_load_followers_get_fewer_syncs() {
    let mut bed = bed(MemoryFaults::default());
    bed.journal.follow();
    let put_many = |bed: &mut Bed, count| {
        for _ in 0..count {
            bed.put(b"key", b"value", false);
        }
    };
    put_many(&mut bed, 60);
    bed.settle(5_000);
    assert_eq!((bed.committer.gather_micros(5_000), bed.committer.linger_micros(5_000)), (2_000, 2_000));
    for at in [5_100, 5_200, 10_000] {
        put_many(&mut bed, 80);
        bed.settle(at);
    }
    assert_eq!((bed.committer.gather_micros(10_000), bed.committer.linger_micros(10_000)), (0, 300));
    put_many(&mut bed, 10);
    assert_eq!(bed.settle(11_000), Step::IdleUntil { micros: 12_000 }, "appended while the cache has it");
    bed.settle(12_000);
    assert_eq!(bed.committer.gather_micros(12_000), 800, "the load is over");
}

/// What cannot be appended does not keep what was appended from becoming durable.
#[test]
fn a_full_store_still_makes_durable_what_it_has() {
    let mut bed = bed(MemoryFaults { fail_append: Some(3), ..MemoryFaults::default() });
    bed.journal.follow();
    bed.put(b"key", b"first", false);
    bed.settle(10_000);
    bed.put(b"key", b"second", false);
    bed.settle(10_500);
    bed.put(b"key", b"lost", false);
    let Step::IdleUntil { micros } = bed.settle(11_000) else { panic!("it tries again later") };
    assert_eq!((bed.journal.refusal(), bed.store.durable_sequence()), (Some(Refusal::Full), 2));
    let next = bed.put(b"key", b"next", false);
    assert_eq!(bed.committer.step_through(micros), Step::Again);
    assert!(bed.journal.is_applied(next));
}

/// What waits for the interval is done once the store has it durably, also if an append fails meanwhile.
#[test]
fn a_failed_append_makes_nothing_done_that_is_not_durable() {
    for fail_sync in [None, Some(1)] {
        let mut bed = bed(MemoryFaults { fail_append: Some(2), fail_sync, ..MemoryFaults::default() });
        let kept = bed.put(b"key", b"first", false);
        bed.settle(0);
        assert_eq!((bed.journal.outcome(kept), bed.store.durable_sequence()), (Outcome::Pending, 0));
        let lost = bed.put(b"other", b"second", false);
        bed.settle(10);
        let (refusal, outcome, durable) = match fail_sync {
            None => (Refusal::Full, Outcome::Done, 1),
            Some(_) => (Refusal::ReadOnly, Outcome::Lost, 0),
        };
        assert_eq!(bed.journal.refusal(), Some(refusal));
        assert_eq!((bed.journal.outcome(kept), bed.store.durable_sequence()), (outcome, durable));
        assert_eq!(bed.journal.outcome(lost), Outcome::Lost);
    }
}

/// Without the hurry each wait would take a minute.
#[test]
fn whoever_waits_ends_the_gathering_before_it_begins_or_after() {
    let bed = bed(MemoryFaults::default());
    let minute = Duration::from_secs(60);
    let since = std::time::Instant::now();
    bed.journal.hurry();
    bed.journal.gather(minute);
    assert!(since.elapsed() < minute);
    for _ in 0..200 {
        std::thread::scope(|scope| {
            let gathering = scope.spawn(|| bed.journal.gather(minute));
            bed.journal.hurry();
            gathering.join().unwrap();
        });
        assert!(since.elapsed() < minute);
    }
}

/// Changes that are appended while a sync runs become durable by the next one.
#[test]
fn a_sync_covers_what_was_appended_before_it_began() {
    let mut bed = bed(MemoryFaults::default());
    let is_done = |bed: &Bed, position| bed.journal.outcome(position) == Outcome::Done;
    let before = bed.put(b"key", b"before", true);
    assert_eq!([bed.committer.step(0), bed.committer.step(0)], [Step::Again, Step::Sync]);
    // The disk is slow: changes that nobody waits for reach the store meanwhile, and survive the end of the process.
    let meanwhile = [bed.put(b"key", b"meanwhile", false), bed.put(b"held", b"value", true)];
    assert_eq!([bed.committer.step(10), bed.committer.step(20)], [Step::Again, Step::Idle]);
    assert_eq!(bed.get(b"key").as_deref(), Some(&b"meanwhile"[..]));
    assert!(meanwhile.iter().all(|position| bed.journal.is_applied(*position)));
    assert!(!is_done(&bed, before) && bed.committer.is_syncing());
    bed.committer.synced(Ok(1), 3_000_000);
    assert_eq!((is_done(&bed, before), is_done(&bed, meanwhile[0])), (true, false));
    assert_eq!(bed.committer.step(3_000_000), Step::Sync, "somebody waits for the other");
    bed.committer.synced(Ok(3), 3_000_000);
    assert!(meanwhile.iter().all(|position| is_done(&bed, *position)));
}

/// A reader of a change that was answered at once, or came from another site, may wait until it is durable, and does
/// not have to wait for the interval.
#[test]
fn whoever_waits_for_a_change_that_was_answered_gets_a_sync() {
    let mut bed = bed(MemoryFaults::default());
    let position = bed.put(b"key", b"value", false);
    assert_eq!(bed.settle(0), Step::IdleUntil { micros: 1000 });
    bed.journal.want_durable(position);
    // Each wait would take a minute without the request for a sync.
    let minute = Duration::from_secs(60);
    bed.journal.wait(minute, || minute);
    assert_eq!(bed.settle(10), Step::Idle);
    assert_eq!(bed.journal.outcome(position), Outcome::Done);
    // This request comes before the change is appended.
    let position = bed.put(b"key", b"second", false);
    bed.journal.want_durable(position);
    assert_eq!(bed.settle(20), Step::Idle);
    assert_eq!((bed.journal.outcome(position), bed.store.stats().fsyncs), (Outcome::Done, 2));
}

/// Each wait would take a minute without the call.
#[test]
fn a_second_thread_is_called_beside_a_sync_for_what_was_answered() {
    let bed = bed(MemoryFaults::default());
    let (minute, none) = (Duration::from_secs(60), Duration::ZERO);
    let journal = &bed.journal;
    // The call comes before the sync, within it, and for somebody who waits.
    bed.put(b"key", b"value", false);
    journal.beside_sync(|| assert!(journal.stand_by(minute, none)));
    bed.put(b"key", b"value", false);
    std::thread::scope(|scope| {
        let standing = scope.spawn(|| journal.stand_by(minute, none));
        journal.beside_sync(|| {
            bed.put(b"key", b"value", false);
            assert!(standing.join().unwrap());
        });
    });
    journal.beside_sync(|| {
        journal.hurry_append();
        assert!(journal.stand_by(minute, minute), "nor does it linger");
    });
    // Changes that wait for the next sync call nobody, nor does anything outside of a sync.
    let bed = self::bed(MemoryFaults::default());
    bed.put(b"key", b"value", true);
    bed.journal.beside_sync(|| bed.put(b"key", b"value", true));
    assert!(!bed.journal.stand_by(none, none));
    bed.put(b"key", b"value", false);
    assert!(!bed.journal.stand_by(none, none));
}

/// Acknowledged values never go back: neither those of the failed sync, nor those that came after it.
#[test]
fn what_was_answered_stays_readable_after_a_failed_fsync() {
    let mut bed = bed(MemoryFaults { fail_sync: Some(2), ..MemoryFaults::default() });
    bed.put(b"key", b"1", false);
    bed.settle(0);
    bed.settle(1_000);
    let appended = bed.put(b"key", b"2", false);
    bed.settle(1_500);
    // These are in flight when the sync fails, or come from a thread that was admitted before.
    let on_its_way = [bed.put(b"key", b"3", false), bed.put(b"new", b"4", false)];
    let held = bed.put(b"held", b"5", true);
    assert!(!bed.committer.sync());
    assert_eq!(bed.journal.admit(), Err(Refusal::ReadOnly));
    assert_eq!(bed.get(b"key").as_deref(), Some(&b"3"[..]));
    assert_eq!((bed.get(b"new").as_deref(), bed.get(b"held")), (Some(&b"4"[..]), None));
    let late = bed.put(b"key", b"6", false);
    bed.settle(10_000);
    assert_eq!(bed.get(b"key").as_deref(), Some(&b"6"[..]));
    assert_eq!(*bed.seen.lost.lock().unwrap(), [b"held".to_vec()], "memory keeps the others");
    for position in on_its_way.into_iter().chain([appended, held, late]) {
        assert_eq!(bed.journal.outcome(position), Outcome::Lost, "nobody is told that it is durable");
    }
}

/// Space is set aside for removals: they are made even behind a change that found no room, and while nothing else is
/// taken.
#[test]
fn a_full_disk_takes_removals() {
    let mut bed = bed(MemoryFaults { fail_append: Some(2), ..MemoryFaults::default() });
    bed.put(b"old", b"1", true);
    bed.put(b"older", b"1", true);
    bed.settle(0);
    let remove = |bed: &Bed, key: &[u8]| {
        let position = bed.journal.next_position(hash(key));
        let kind = Kind::Delete { version: 0, base_version: 0 };
        bed.journal.submit(position, Change::new(kind, key, b"", true));
        position
    };
    let lost = [bed.put(b"new", b"2", true)];
    let removed = remove(&bed, b"old");
    let later = bed.put(b"later", b"3", true);
    bed.settle(10);
    assert_eq!(bed.journal.admit(), Err(Refusal::Full));
    assert_eq!(bed.journal.removal_outcome(removed), Outcome::Done);
    assert_eq!(bed.get(b"old"), None);
    for lost in [lost[0], later] {
        assert_eq!([bed.journal.outcome(lost), bed.journal.removal_outcome(lost)], [Outcome::Lost; 2]);
        assert_eq!(bed.journal.loss(lost), Refusal::Full);
    }
    // The outcome of a position also covers what others were shown: it does not say whether that is durable.
    assert_eq!(bed.journal.outcome(removed), Outcome::Lost);
    assert_eq!(*bed.seen.lost.lock().unwrap(), [b"new".to_vec(), b"later".to_vec()]);
    // The removal is made before anything else is tried again.
    assert_eq!(bed.journal.admit_removal(), Ok(()));
    let removed = remove(&bed, b"older");
    let step = bed.settle(20);
    assert!(matches!(step, Step::IdleUntil { micros } if micros > 20), "{step:?}");
    assert_eq!((bed.journal.outcome(removed), bed.get(b"older")), (Outcome::Done, None));
    assert_eq!(bed.journal.admit(), Err(Refusal::Full));
}

/// A store whose disk is full, or takes no write, as long as it is told.
struct Short {
    store: Arc<MemoryStore>,
    is_short: Arc<AtomicBool>,
    error: fn() -> Error,
}

impl Short {
    fn check(&self) -> Result<()> {
        if self.is_short.load(SeqCst) { Err((self.error)()) } else { Ok(()) }
    }
}

impl Destination for Short {
    fn append(&self, entries: &[Entry<'_>]) -> Result<SequenceRange> {
        self.check()?;
        self.store.append(entries)
    }

    fn try_write(&self, _: u64, _: usize) -> Result<()> {
        self.check()
    }

    fn sync(&self) -> Result<u64> {
        self.store.sync()
    }

    fn keep_readable(&self, entries: &[Entry<'_>]) -> Result<()> {
        self.store.keep_readable(entries)
    }

    fn state(&self, key: &[u8]) -> Result<Option<KeyState>> {
        self.store.state(key)
    }
}

/// A client that is answered at once takes its change for made, so the store is never tried with a change.
#[test]
fn changes_are_refused_until_the_store_takes_them() {
    let full = || Error::Full { doing: String::new() };
    let broken = || Error::Io { doing: String::new(), source: std::io::ErrorKind::Other.into() };
    for (error, refusal) in [(full as fn() -> Error, Refusal::Full), (broken, Refusal::Failed)] {
        let mut bed = bed(MemoryFaults::default());
        let is_short = Arc::new(AtomicBool::new(true));
        let store = Short { store: Arc::clone(&bed.store), is_short: Arc::clone(&is_short), error };
        let observer = Arc::clone(&bed.seen) as Arc<dyn Observer>;
        bed.committer = Committer::new(Arc::clone(&bed.journal), store, observer, Some(1000));
        bed.put(b"key", b"lost", false);
        let mut step = bed.settle(0);
        for _ in 0..5 {
            let Step::IdleUntil { micros } = step else { panic!("{step:?}") };
            step = bed.settle(micros);
            assert_eq!(bed.journal.admit(), Err(refusal));
        }
        // Of a thread that was admitted before: whoever waits for it is told.
        let late = bed.put(b"late", b"lost", true);
        let Step::IdleUntil { micros } = step else { panic!("{step:?}") };
        let step = bed.settle(micros);
        assert_eq!((bed.journal.outcome(late), bed.journal.loss(late)), (Outcome::Lost, refusal));
        assert_eq!(bed.journal.admit(), Err(refusal));
        is_short.store(false, SeqCst);
        let Step::IdleUntil { micros } = step else { panic!("{step:?}") };
        bed.settle(micros);
        assert_eq!(bed.journal.admit(), Ok(()));
        let kept = bed.put(b"key", b"kept", true);
        bed.settle(micros);
        assert_eq!(
            (bed.journal.outcome(kept), bed.get(b"key").as_deref()),
            (Outcome::Done, Some(&b"kept"[..]))
        );
        assert_eq!(bed.seen.lost.lock().unwrap().len(), 2);
    }
}
