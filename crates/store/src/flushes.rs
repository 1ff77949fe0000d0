//! Which flushes still matter, and which are to come.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A prefix and when it was flushed last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlushTable {
    /// Sequence and version of the newest flush of a prefix. None is covered by a newer one of a shorter prefix.
    pub(super) marks: BTreeMap<Vec<u8>, FlushMark>,
    /// Delayed flushes.
    pub(super) pending: BTreeMap<Vec<u8>, PendingMark>,
    /// The lengths that prefixes of `marks` have.
    lengths: BTreeSet<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlushMark {
    pub(super) sequence: u64,
    pub(super) version: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingMark {
    pub(super) sequence: u64,
    pub(super) at_secs: u64,
}

impl FlushTable {
    pub(super) fn flush(&mut self, prefix: &[u8], mark: FlushMark) {
        self.pending.remove(prefix);
        self.marks.retain(|other, _| !other.starts_with(prefix));
        self.marks.insert(prefix.to_vec(), mark);
        self.measure();
    }

    pub(super) fn delay(&mut self, prefix: &[u8], mark: PendingMark) {
        self.pending.insert(prefix.to_vec(), mark);
    }

    pub(super) fn cancel(&mut self, prefix: &[u8]) {
        self.pending.remove(prefix);
    }

    /// The sequence of the newest flush that the key falls under; 0: none.
    pub(super) fn newest(&self, key: &[u8]) -> u64 {
        (self.lengths.iter().take_while(|&&length| length <= key.len()))
            .filter_map(|&length| self.marks.get(&key[..length]))
            .map(|mark| mark.sequence)
            .max()
            .unwrap_or(0)
    }

    /// The sequence of the newest flush of everything; 0: none.
    pub(super) fn newest_of_all(&self) -> u64 {
        self.marks.get([].as_slice()).map_or(0, |mark| mark.sequence)
    }

    /// Forgets the flushes below which there is no record.
    pub(super) fn forget_below(&mut self, oldest_sequence: u64) {
        self.marks.retain(|_, mark| mark.sequence > oldest_sequence);
        self.measure();
    }

    fn measure(&mut self) {
        self.lengths = self.marks.keys().map(Vec::len).collect();
    }
}

/// The table, and a number with which most reads need not look at it.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    table: RwLock<FlushTable>,
    /// The highest sequence of a flush.
    newest: AtomicU64,
}

impl Flushes {
    pub(super) fn new(table: FlushTable) -> Self {
        let flushes = Self { table: RwLock::new(table), newest: AtomicU64::new(0) };
        flushes.note_newest(&flushes.read());
        flushes
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, FlushTable> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, FlushTable> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut FlushTable)) {
        let mut table = self.write();
        change(&mut table);
        self.note_newest(&table);
    }

    fn note_newest(&self, table: &FlushTable) {
        let newest = table.marks.values().map(|mark| mark.sequence).max().unwrap_or(0);
        self.newest.store(newest, Ordering::Release);
    }

    /// Was the record of this key and sequence flushed?
    pub(super) fn covers(&self, key: &[u8], sequence: u64) -> bool {
        sequence < self.newest.load(Ordering::Acquire) && sequence < self.read().newest(key)
    }

    /// The highest sequence of a flush; 0: none.
    pub(super) fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_prefix_is_flushed_with_a_shorter_one() {
        let mut table = FlushTable::default();
        let mark = |sequence| FlushMark { sequence, version: 0 };
        table.flush(b"user:", mark(5));
        table.flush(b"page:", mark(6));
        assert_eq!((table.newest(b"user:1"), table.newest(b"page:1"), table.newest(b"use")), (5, 6, 0));
        table.flush(b"user:1", mark(7));
        assert_eq!((table.newest(b"user:1"), table.newest(b"user:2")), (7, 5));
        table.flush(b"", mark(9));
        assert_eq!((table.newest(b"user:1"), table.newest(b"x"), table.marks.len()), (9, 9, 1));
    }
}
