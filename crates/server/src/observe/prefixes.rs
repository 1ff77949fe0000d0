//! `stats detail`: commands counted by the prefix of their keys, which ends at the delimiter.
//!
//! Each worker has its own table. A table has a fixed maximum of prefixes, because clients choose them. The first
//! prefixes stay.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use arrayvec::ArrayVec;
use larder_protocol::{KEY_BYTES_MAX, dump};

use crate::namespaces::Rights;

/// The tables of all workers.
#[derive(Debug)]
pub struct Prefixes {
    delimiter: u8,
    tables: Box<[Table]>,
    /// Commands not counted because the table was full.
    uncounted: AtomicU64,
}

/// Counts by namespace number and prefix: a client does not see counts of a namespace that it may not read.
type Table = Mutex<HashMap<Box<[u8]>, Counts>>;

/// Counts of the operations on the keys of a prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    gets: u64,
    hits: u64,
    sets: u64,
    deletes: u64,
}

/// An operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Get { is_hit: bool },
    Set,
    Delete,
}

impl Prefixes {
    /// For so many workers.
    pub fn new(workers: usize, delimiter: u8) -> Self {
        Self {
            delimiter,
            tables: (0..workers).map(|_| Table::default()).collect(),
            uncounted: AtomicU64::new(0),
        }
    }

    /// Counts an operation on a key of a namespace. A key without a delimiter has no prefix and is not counted.
    pub(crate) fn count(&self, worker: usize, namespace: u8, key: &[u8], operation: Operation) {
        let Some(end) = key.iter().position(|byte| *byte == self.delimiter) else { return };
        let Some(table) = self.tables.get(worker) else { return };
        let mut place = ArrayVec::<u8, { 1 + KEY_BYTES_MAX }>::new();
        place.push(namespace);
        if place.try_extend_from_slice(&key[..end]).is_err() {
            return;
        }
        let (mut table, prefix) = (lock(table), &place[..]);
        if !table.contains_key(prefix) {
            if table.len() >= PREFIXES_MAX {
                self.uncounted.fetch_add(1, Relaxed);
                return;
            }
            table.insert(prefix.into(), Counts::default());
        }
        let Some(counts) = table.get_mut(prefix) else { return };
        match operation {
            Operation::Get { is_hit } => {
                counts.gets += 1;
                counts.hits += u64::from(is_hit);
            }
            Operation::Set => counts.sets += 1,
            Operation::Delete => counts.deletes += 1,
        }
    }

    /// The reply to `stats detail dump` for a client with these rights, without END. Prefixes that are not plain words
    /// are URI-encoded.
    pub(crate) fn dump(&self, rights: Rights) -> Vec<u8> {
        let mut all = HashMap::<Box<[u8]>, Counts>::new();
        for table in &self.tables {
            for (place, counts) in lock(table).iter() {
                let Some((_, prefix)) = place.split_first().filter(|(number, _)| rights.may_read(**number))
                else {
                    continue;
                };
                let sum = all.entry(prefix.into()).or_default();
                sum.gets += counts.gets;
                sum.hits += counts.hits;
                sum.sets += counts.sets;
                sum.deletes += counts.deletes;
            }
        }
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let mut lines = Vec::new();
        for (prefix, Counts { gets, hits, sets, deletes }) in all {
            lines.extend_from_slice(b"PREFIX ");
            if dump::is_word(&prefix) {
                lines.extend_from_slice(&prefix);
            } else {
                dump::uri(&prefix, |bytes| lines.extend_from_slice(bytes));
            }
            lines
                .extend_from_slice(format!(" get {gets} hit {hits} set {sets} del {deletes}\r\n").as_bytes());
        }
        lines
    }

    /// Removes all counts.
    pub(crate) fn reset(&self) {
        for table in &self.tables {
            lock(table).clear();
        }
        self.uncounted.store(0, Relaxed);
    }
}

fn lock(table: &Table) -> MutexGuard<'_, HashMap<Box<[u8]>, Counts>> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prefixes in a worker's table at most: some 3 MB with the longest keys.
const PREFIXES_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_summed_and_tables_do_not_grow_without_end() {
        let prefixes = Prefixes::new(2, b':');
        for worker in 0..2 {
            prefixes.count(worker, 0, b"a:1", Operation::Get { is_hit: worker == 0 });
            prefixes.count(worker, 0, b"a:2:3", Operation::Set);
            prefixes.count(worker, 0, b":", Operation::Delete);
            prefixes.count(worker, 0, b"none", Operation::Set);
        }
        let expected = "PREFIX  get 0 hit 0 set 0 del 2\r\nPREFIX a get 2 hit 1 set 2 del 0\r\n";
        assert_eq!(String::from_utf8(prefixes.dump(Rights::ALL)).unwrap(), expected);
        for number in 0..100_000 {
            prefixes.count(0, 0, format!("{number}:x").as_bytes(), Operation::Set);
        }
        let lines = prefixes.dump(Rights::ALL).iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(lines, PREFIXES_MAX);
        prefixes.count(0, 0, b"a:1", Operation::Delete);
        assert!(
            String::from_utf8(prefixes.dump(Rights::ALL))
                .unwrap()
                .contains("PREFIX a get 2 hit 1 set 2 del 1\r\n")
        );
        prefixes.reset();
        prefixes.count(0, 0, b"x\r\nEND\r\n:1", Operation::Set);
        let encoded = "PREFIX x%0D%0AEND%0D%0A get 0 hit 0 set 1 del 0\r\n";
        assert_eq!(String::from_utf8(prefixes.dump(Rights::ALL)).unwrap(), encoded);
        prefixes.reset();
        assert!(prefixes.dump(Rights::ALL).is_empty());
    }
}
