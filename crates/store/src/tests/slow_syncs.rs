//! Slow syncs: the log goes on meanwhile, and later entries do not become durable by the running sync.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use super::model::{Change, append};
use super::script::START_SECS;
use crate::files::sim::{DiskFaults, PowerLoss, SimDisk};
use crate::files::{File, Files, Lock};
use crate::{Budget, Entry, Error, LogOptions, LogStore, Marks, Put, Store, VecSink};

type Happening = Box<dyn FnOnce() + Send>;

/// A disk whose syncs of files wait while its gate is closed, and whose next read may take long.
#[derive(Clone)]
struct SlowDisk {
    disk: SimDisk,
    gate: Arc<Gate>,
    /// Happens at the end of the next read.
    during_read: Arc<Mutex<Option<Happening>>>,
}

#[derive(Default)]
struct Gate {
    is_closed: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_closed(&self, is_closed: bool) {
        *self.lock() = is_closed;
        self.opened.notify_all();
    }

    fn wait_for(&self, waiting: usize) {
        while self.waiting.load(SeqCst) < waiting {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

struct SlowFile {
    file: Arc<dyn File>,
    name: String,
    slow: SlowDisk,
}

impl SlowDisk {
    fn new() -> Self {
        Self { disk: SimDisk::new(), gate: Arc::default(), during_read: Arc::default() }
    }

    fn file(&self, name: &str, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(SlowFile { file, name: name.to_owned(), slow: self.clone() })
    }
}

impl Files for SlowDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(self.file(name, self.disk.create(name)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(self.file(name, self.disk.open(name)?))
    }

    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.disk.open_to_read(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }

    fn lock(&self, name: &str) -> io::Result<Box<dyn Lock>> {
        Files::lock(&self.disk, name)
    }

    fn describe(&self) -> String {
        self.disk.describe()
    }
}

impl File for SlowFile {
    fn write_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.file.write_at(pieces, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let count = self.file.read_at(buffer, offset)?;
        let happens = self.slow.during_read.lock().unwrap_or_else(PoisonError::into_inner).take();
        happens.into_iter().for_each(|happens| happens());
        Ok(count)
    }

    fn sync(&self) -> io::Result<()> {
        let gate = &self.slow.gate;
        let mut is_closed = gate.lock();
        if !*is_closed {
            drop(is_closed);
            return self.file.sync();
        }
        let begun = self.slow.disk.begin_sync(Some(&self.name))?;
        gate.waiting.fetch_add(1, SeqCst);
        while *is_closed {
            is_closed = gate.opened.wait(is_closed).unwrap_or_else(PoisonError::into_inner);
        }
        begun.finish();
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.file.allocate(bytes)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.file.truncate(bytes)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}

fn options(segment_bytes: u64) -> LogOptions {
    LogOptions { segment_bytes, secret: Some([7; 16]), ..LogOptions::default() }
}

fn put(key: &str, value: &[u8], version: u64) -> Change {
    let key = key.into();
    let value = value.to_vec();
    Change::Put { key, value, client_flags: 0, exptime_secs: 0, version, marks: Marks::NONE }
}

fn value_of(store: &LogStore, key: &str) -> Option<Vec<u8>> {
    let mut sink = VecSink::default();
    store.get(key.as_bytes(), START_SECS, &mut sink).expect("reads").map(|_| sink.into_value())
}

/// A kill during the sync loses nothing that was appended, and power loss only what came after the sync began.
#[test]
fn appending_goes_on_while_a_sync_runs() {
    let slow = SlowDisk::new();
    let store = LogStore::open_files(Arc::new(slow.clone()), options(64 << 10)).expect("opens");
    append(&store, &[put("before", b"1", 1)]).expect("appends");
    slow.gate.set_closed(true);
    std::thread::scope(|scope| {
        let syncing = scope.spawn(|| store.sync());
        slow.gate.wait_for(1);
        let (tell, appended) = mpsc::channel();
        let store = &store;
        scope.spawn(move || {
            for nth in 0..100 {
                append(store, &[put(&format!("key-{nth}"), b"2", 2 + nth)]).expect("appends");
            }
            let _ = tell.send(());
        });
        let is_appended = appended.recv_timeout(Duration::from_secs(60)).is_ok();
        let read = value_of(store, "key-99");
        let durable = store.durable_sequence();
        let after_kill = slow.disk.power_loss(PowerLoss::Nothing, 0);
        slow.gate.set_closed(false);
        assert!(is_appended, "it waits for the disk");
        assert_eq!((read.as_deref(), durable), (Some(&b"2"[..]), 0));
        let after_kill = LogStore::open_files(Arc::new(after_kill), options(64 << 10)).expect("opens");
        assert_eq!(after_kill.last_sequence(), 101);
        assert_eq!(syncing.join().expect("no panic").expect("syncs"), 1);
    });
    let after = LogStore::open_files(Arc::new(slow.disk.power_loss(PowerLoss::Drop, 0)), options(64 << 10));
    assert_eq!(after.expect("opens").last_sequence(), 1, "nor was more promised");
    assert_eq!(store.sync().expect("syncs"), 101);
    let after = LogStore::open_files(Arc::new(slow.disk.power_loss(PowerLoss::Drop, 0)), options(64 << 10));
    assert_eq!(after.expect("opens").last_sequence(), 101);
}

/// Appends these while the disk syncs nothing. Opens the gate if that waits.
fn append_meanwhile(store: &LogStore, slow: &SlowDisk, versions: std::ops::Range<u64>) {
    std::thread::scope(|scope| {
        let (tell, appended) = mpsc::channel();
        scope.spawn(move || {
            for version in versions {
                append(store, &[put(&format!("key-{version}"), &[1; 200], version)]).expect("appends");
            }
            let _ = tell.send(());
        });
        let is_appended = appended.recv_timeout(Duration::from_secs(60)).is_ok();
        if !is_appended {
            slow.gate.set_closed(false);
        }
        assert!(is_appended, "it waits for the disk");
    });
}

/// Neither the making of the next file nor the end of a full one keeps changes waiting.
#[test]
fn appending_goes_on_while_files_are_made_and_sealed() {
    let slow = SlowDisk::new();
    let open = |disk: SimDisk| LogStore::open_files(Arc::new(disk), options(4 << 10)).expect("opens");
    let store = LogStore::open_files(Arc::new(slow.clone()), options(4 << 10)).expect("opens");
    let maintain = || store.maintain(Budget { bytes: 1 << 20 }, START_SECS).expect("maintains");
    maintain();
    slow.gate.set_closed(true);
    append_meanwhile(&store, &slow, 1..3);
    // The next file is made, then the manifest that names it.
    std::thread::scope(|scope| {
        let making = scope.spawn(maintain);
        slow.gate.wait_for(1);
        append_meanwhile(&store, &slow, 3..5);
        slow.gate.set_closed(false);
        making.join().expect("no panic");
    });
    slow.gate.set_closed(true);
    append_meanwhile(&store, &slow, 5..16);
    let waiting = slow.gate.waiting.load(SeqCst);
    std::thread::scope(|scope| {
        let sealing = scope.spawn(maintain);
        slow.gate.wait_for(waiting + 1);
        append_meanwhile(&store, &slow, 16..19);
        assert_eq!(value_of(&store, "key-18"), Some(vec![1; 200]));
        assert_eq!(open(slow.disk.power_loss(PowerLoss::Nothing, 0)).last_sequence(), 18);
        let after = open(slow.disk.power_loss(PowerLoss::Drop, 0));
        assert!(after.last_sequence() >= store.durable_sequence(), "{}", after.last_sequence());
        slow.gate.set_closed(false);
        sealing.join().expect("no panic");
    });
    assert_eq!(store.sync().expect("syncs"), 18);
    assert_eq!(open(slow.disk.power_loss(PowerLoss::Drop, 0)).last_sequence(), 18);
    store.close().expect("closes");
    assert_eq!(open(slow.disk.power_loss(PowerLoss::Drop, 0)).last_sequence(), 18);
}

/// Whichever sync fails (of a seal, of the next file or of the manifest), answered changes stay readable in their
/// newest version, and none of them is written any more.
#[test]
fn what_was_answered_is_kept_readable_after_any_failed_sync() {
    let mut failures = 0;
    for nth in 1..200 {
        let disk = SimDisk::new();
        let store = LogStore::open_files(Arc::new(disk.clone()), options(4 << 10)).expect("opens");
        let fail_sync_at = Some(disk.counts().syncs + nth);
        disk.set_faults(DiskFaults { fail_sync_at, ..DiskFaults::default() });
        let mut changes = 0;
        let lost = loop {
            changes += 1;
            let change = put(&format!("key-{}", changes % 10), &vec![changes as u8; 500], changes);
            match append(&store, std::slice::from_ref(&change)) {
                Err(Error::ReadOnly { .. }) => break Some(change),
                result => drop(result.expect("there is room")),
            }
            if store.maintain(Budget { bytes: 1 << 20 }, START_SECS).is_err() || changes == 60 {
                break None;
            }
        };
        if !store.stats().read_only {
            continue;
        }
        failures += 1;
        let written = disk.counts().written_bytes;
        let from = if lost.is_some() { changes } else { changes + 1 };
        for nth in from..from + 30 {
            let (key, value) = (format!("key-{}", nth % 10), vec![nth as u8; 500]);
            let entry = Entry::Put(Put {
                key: key.as_bytes(),
                value: &[&value],
                client_flags: 0,
                exptime_secs: 0,
                version: nth,
                marks: Marks::NONE,
                origin: 0,
                base_version: 0,
                expiry_value_version: 0,
                expiry_version: 0,
            });
            store.keep_readable(&[entry]).expect("it is in memory");
            assert_eq!(value_of(&store, &key).as_deref(), Some(&value[..]), "sync {fail_sync_at:?}");
        }
        for nth in from + 20..from + 30 {
            assert_eq!(value_of(&store, &format!("key-{}", nth % 10)), Some(vec![nth as u8; 500]));
        }
        assert_eq!(disk.counts().written_bytes, written);
        assert!(matches!(store.sync(), Err(Error::ReadOnly { .. })));
        drop(store);
        LogStore::open_files(Arc::new(disk.power_loss(PowerLoss::Nothing, 0)), options(4 << 10))
            .expect("opens");
    }
    assert!(failures > 20, "{failures}");
}

/// A flush is forgotten once no segment has what it means. That does not bring an item back for a read that has begun.
#[test]
fn a_flush_that_is_forgotten_during_a_read_still_counts() {
    let get =
        |store: &LogStore| store.get(b"key", START_SECS, &mut VecSink::default()).expect("reads").is_some();
    let state =
        |store: &LogStore| store.state(b"key").expect("reads").is_some_and(|state| state.item.is_some());
    forget_a_flush_during("get", get);
    forget_a_flush_during("state", state);
}

fn forget_a_flush_during(what: &str, finds: impl Fn(&LogStore) -> bool) {
    let disk = SlowDisk::new();
    let options = LogOptions { segment_bytes: 4096, ..LogOptions::default() };
    let store = Arc::new(LogStore::open_files(Arc::new(disk.clone()), options).expect("opens"));
    let put = |key: &str, version| Change::Put {
        key: key.into(),
        value: vec![1; 100],
        client_flags: 0,
        exptime_secs: 0,
        version,
        marks: Marks::NONE,
    };
    append(&*store, &[put("key", 1)]).expect("appends");
    assert!(finds(&store), "{what}");
    let flush = Change::Flush { prefix: b"key".to_vec(), except: Vec::new(), version: 2 };
    append(&*store, &[flush]).expect("appends");
    // The segment of both is full, and nothing in it lives.
    for version in 3..60 {
        append(&*store, &[put("other", version)]).expect("appends");
    }
    let cleaned = Arc::clone(&store);
    let clean = move || while cleaned.maintain(Budget { bytes: 10_000 }, START_SECS).expect("cleans").more {};
    *disk.during_read.lock().expect("nobody panicked") = Some(Box::new(clean));
    assert!(!finds(&store), "{what}: it was flushed");
    assert_eq!(store.newest_flush_version(b"key"), 0, "{what}: the flush was forgotten");
}

/// An item that changes while keys are scanned goes to the log's open segment, which may come before a copy.
#[test]
fn a_scan_visits_what_changes_meanwhile() {
    let store = LogStore::open_files(Arc::new(SimDisk::new()), options(4096)).expect("a new store");
    let mut version = 0;
    let mut put = |key: &str, bytes: usize| {
        version += 1;
        let value = vec![b'v'; bytes];
        let put = Put {
            key: key.as_bytes(),
            value: &[&value],
            client_flags: 0,
            exptime_secs: 0,
            version,
            marks: Marks::NONE,
            origin: 0,
            base_version: 0,
            expiry_value_version: 0,
            expiry_version: 0,
        };
        store.append(&[Entry::Put(put)]).expect("there is room");
    };
    for key in ["kept 1", "kept 2", "kept 3"] {
        put(key, 10);
    }
    for nth in 0..18 {
        put(&format!("other {}", nth % 2), 700);
        store.maintain(Budget { bytes: 0 }, START_SECS).expect("prepares");
    }
    while store.maintain(Budget { bytes: 1 << 20 }, START_SECS).expect("cleans").more {}
    let mut cursor = crate::Cursor::new();
    let mut seen = Vec::new();
    let mut more = true;
    while more {
        more = store
            .for_each_key(&mut cursor, 1, START_SECS, &mut |key, _| seen.push(key.to_vec()))
            .expect("scans");
        if seen.last().is_some_and(|key| key == b"kept 1") {
            put("kept 2", 10);
            put("kept 3", 10);
        }
    }
    for key in ["kept 1", "kept 2", "kept 3"] {
        assert!(seen.iter().any(|seen| seen == key.as_bytes()), "{key} was not visited");
    }
}

/// The same within one step: to the end of the segment that is being visited, to later ones, and to cold ones.
#[test]
fn a_single_step_of_a_scan_visits_what_changes_meanwhile() {
    for rolls in [false, true] {
        let store = LogStore::open_files(Arc::new(SimDisk::new()), options(4096)).expect("a new store");
        let put = |key: &str, bytes: usize, version: u64| {
            let value = vec![b'v'; bytes];
            let put = Put {
                key: key.as_bytes(),
                value: &[&value],
                client_flags: 0,
                exptime_secs: 0,
                version,
                marks: Marks::NONE,
                origin: 0,
                base_version: 0,
                expiry_value_version: 0,
                expiry_version: 0,
            };
            store.append(&[Entry::Put(put)]).expect("there is room");
        };
        let keys: Vec<_> = (0..30).map(|nth| format!("kept {nth}")).collect();
        for (key, version) in keys.iter().zip(1..) {
            put(key, if rolls { 600 } else { 10 }, version);
        }
        let mut changes = Some(100..);
        let mut seen = Vec::new();
        let mut cursor = crate::Cursor::new();
        let mut visit = |key: &[u8], _: &crate::Meta| {
            seen.push(key.to_vec());
            let Some(versions) = changes.take() else { return };
            // Of the keys that are left every second one changes; the others are moved by cleaning.
            for (key, version) in keys.iter().skip(1).step_by(2).zip(versions) {
                put(key, 10, version);
                store.maintain(Budget { bytes: 1 << 20 }, START_SECS).expect("cleans");
            }
            while store.maintain(Budget { bytes: 1 << 20 }, START_SECS).expect("cleans").more {}
        };
        while store.for_each_key(&mut cursor, 1 << 16, START_SECS, &mut visit).expect("scans") {}
        for key in &keys {
            assert!(seen.iter().any(|seen| seen == key.as_bytes()), "{key} was not visited");
        }
    }
}
