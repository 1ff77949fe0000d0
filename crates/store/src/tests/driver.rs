//! The drivers under test: where each keeps a store, and how things go wrong there.

use std::cell::RefCell;
use std::sync::Arc;

use crate::files::Files;
use crate::files::sim::{DiskFaults, SimDisk};
use crate::{LogOptions, LogStore, MemoryFaults, MemoryStore, Store, restore};

/// A place for one store, which outlives the process that has it open.
pub(super) trait Driver: Sized {
    type Store: Store + 'static;

    /// What is kept is in files: there are backups, and a lock.
    const HAS_FILES: bool = true;

    /// Without a store.
    fn new() -> Self;

    /// Opens the store, or makes one.
    fn open(&self) -> crate::Result<Self::Store>;

    /// The process ends, whether it has closed the store or not. What was appended stays.
    fn end(&self, store: Self::Store) {
        drop(store);
    }

    /// From now on a put finds no room.
    fn fill(&self, store: Self::Store) -> Self::Store;

    /// There is room again.
    fn make_room(&self, store: &Self::Store);

    /// The next `sync` fails.
    fn fail_sync(&self, store: Self::Store) -> Self::Store;

    /// Another place, with the store of these backups.
    fn restored(backups: &[&dyn Files]) -> crate::Result<Self>;

    /// Opens the store again after the end of the process.
    fn reopen(&self, store: Self::Store) -> Self::Store {
        self.end(store);
        self.open().expect("opens again")
    }
}

pub(super) struct Log {
    disk: SimDisk,
}

pub(super) fn small_segments() -> LogOptions {
    LogOptions { segment_bytes: 4096, secret: Some([7; 16]), ..LogOptions::default() }
}

/// The names of the files of segments, in their order.
pub(super) fn segment_names(disk: &SimDisk) -> Vec<String> {
    let names = disk.list().expect("lists").into_iter();
    let mut names: Vec<_> = names.filter(|name| name.starts_with("segment-")).collect();
    names.sort_unstable();
    names
}

pub(super) fn open_log(disk: &SimDisk) -> crate::Result<LogStore> {
    LogStore::open_files(Arc::new(disk.clone()), small_segments())
}

impl Driver for Log {
    type Store = LogStore;

    fn new() -> Self {
        Self { disk: SimDisk::new() }
    }

    fn open(&self) -> crate::Result<LogStore> {
        self.disk.set_faults(DiskFaults::default());
        open_log(&self.disk)
    }

    fn fill(&self, store: LogStore) -> LogStore {
        self.disk.set_faults(DiskFaults { capacity_bytes: Some(1), ..DiskFaults::default() });
        store
    }

    fn make_room(&self, _: &LogStore) {
        self.disk.set_faults(DiskFaults::default());
    }

    fn fail_sync(&self, store: LogStore) -> LogStore {
        let fail_sync_at = Some(self.disk.counts().syncs + 1);
        self.disk.set_faults(DiskFaults { fail_sync_at, ..DiskFaults::default() });
        store
    }

    fn restored(backups: &[&dyn Files]) -> crate::Result<Self> {
        let disk = SimDisk::new();
        restore(backups, &disk)?;
        Ok(Self { disk })
    }
}

/// Keeps what a process had, since a driver in memory ends with its value.
pub(super) struct Memory {
    left: RefCell<MemoryStore>,
}

impl Driver for Memory {
    type Store = MemoryStore;

    const HAS_FILES: bool = false;

    fn new() -> Self {
        Self { left: RefCell::default() }
    }

    fn open(&self) -> crate::Result<MemoryStore> {
        Ok(self.left.take())
    }

    fn end(&self, store: MemoryStore) {
        self.left.replace(store.kill());
    }

    fn fill(&self, store: MemoryStore) -> MemoryStore {
        store.kill().and_faults(MemoryFaults { fail_append: Some(1), ..MemoryFaults::default() })
    }

    fn make_room(&self, _: &MemoryStore) {}

    fn fail_sync(&self, store: MemoryStore) -> MemoryStore {
        store.kill().and_faults(MemoryFaults { fail_sync: Some(1), ..MemoryFaults::default() })
    }

    fn restored(_: &[&dyn Files]) -> crate::Result<Self> {
        Err(crate::Error::Unsupported { what: "backup" })
    }
}
