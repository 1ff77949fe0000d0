//! CAS values: small and unique, without a counter that all threads write to.
//!
//! Handle `h` of `n` gives `h + 2`, `h + 2 + n`, `h + 2 + 2n` and so on, each once, so a value tells which handle gave
//! it. Before a handle replaces a value that is not below its next one, it advances past that value (a Lamport clock;
//! Lamport, CACM 1978). So of all values that the engine gives:
//! - no two are equal, whatever their items, even if a handle is dropped and taken again;
//! - each is above the one that it replaces;
//! - none is above about `n` times the number of values given.
//!
//! A key that was deleted or has expired replaces nothing, so its new value may be below its last. Where order counts
//! (`ms I`), any value that the engine has given is older than one that differs from it.
//!
//! A client may install a value of its own (`E` of the meta commands). If the engine may have given that value by now,
//! it is treated as if it had. If it is ahead of its handle's count, it moves no count, or one client could make all
//! values large: its replacement differs from it, but may be below it, as in memcached, whose counter ignores such
//! values too. A client that installs values should install all values of a key: the engine may later give one that a
//! client has installed, perhaps to the same key.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use crate::log::superblock::{CasCounter, Superblock};
use crate::mem::table::Table;

pub(crate) struct CasValues {
    /// Indexed by handle: the value that it gives next. Written by that handle only. Others read it under the lock of a
    /// bucket in which they found one of its values, so they see the count that gave that value, or a later one.
    next: Table<CasCounter>,
    /// The values below were given by an earlier process, or never.
    first: u64,
}

impl CasValues {
    pub(crate) fn new(handles: usize) -> io::Result<Self> {
        Self::starting(Table::reserve_committed(handles)?, FIRST)
    }

    /// Kept in a file: above all values that were given in it before.
    pub(crate) fn kept_in(superblock: &Superblock, handles: usize) -> io::Result<Self> {
        let left = superblock.left();
        let counters = handles.max(left.cas_counters);
        let before: Table<CasCounter> = Table::map(&superblock.cas_part(), counters)?;
        if !before.commit(0..counters) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let given_end = (0..left.cas_counters).map(|counter| before[counter].load(Relaxed));
        // A file that says more was not written by a cache: so many are never given.
        let first = given_end.fold(FIRST.max(left.cas_end), u64::max).min(u64::MAX / 2);
        superblock.set_cas(first, handles);
        drop(before);
        let next: Table<CasCounter> = Table::map(&superblock.cas_part(), handles)?;
        if !next.commit(0..handles) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Self::starting(next, first)
    }

    fn starting(next: Table<CasCounter>, first: u64) -> io::Result<Self> {
        (0..next.len()).for_each(|handle| next[handle].store(first + handle as u64, Relaxed));
        Ok(Self { next, first })
    }

    /// A fresh value of a handle, to replace `replaced` (0: nothing).
    #[inline]
    pub(crate) fn fresh(&self, handle: usize, replaced: u64) -> u64 {
        let next = self.next[handle].load(Relaxed);
        let value = if replaced < next { next } else { self.catch_up(handle, next, replaced) };
        self.next[handle].store(value + self.step(), Relaxed);
        value
    }

    /// The handle's first value above `replaced`, if `replaced` is one that a handle has given.
    #[cold]
    fn catch_up(&self, handle: usize, next: u64, replaced: u64) -> u64 {
        // Not of an earlier process: it is not below the next.
        let giver = (replaced - self.first) % self.step();
        if replaced < self.next[giver as usize].load(Relaxed) {
            // Above by 1 to `step`, and one of this handle's values.
            let ahead = (handle as u64 + self.step() - giver - 1) % self.step() + 1;
            return replaced + ahead;
        }
        if replaced == next { next + self.step() } else { next }
    }

    /// True if a handle has given this value, so that a client may have seen it: of an item that is there, or was.
    #[cold]
    pub(crate) fn has_given(&self, cas: u64) -> bool {
        let Some(given) = cas.checked_sub(self.first) else { return cas >= FIRST };
        cas < self.next[(given % self.step()) as usize].load(Relaxed)
    }

    fn step(&self) -> u64 {
        self.next.len() as u64
    }
}

/// As in memcached.
const FIRST: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(loom))]
    #[test]
    fn begin_at_two_and_stay_small() {
        let values = CasValues::new(3).unwrap();
        assert_eq!([0, 1, 2].map(|handle| values.fresh(handle, 0)), [2, 3, 4]);
        assert_eq!([0, 0, 0].map(|handle| values.fresh(handle, 0)), [5, 8, 11]);
        // Just above what another handle gave.
        assert_eq!((values.fresh(1, 11), values.fresh(2, 11), values.fresh(0, 11)), (12, 13, 14));
        assert_eq!((values.fresh(2, 14), values.fresh(1, 16)), (16, 18));
        assert!([2, 13, 16, 18].iter().all(|&given| values.has_given(given)));
        assert!(![0, 1, 17, 19, 21, u64::MAX].iter().any(|&other| values.has_given(other)));
    }

    #[cfg(not(loom))]
    #[test]
    fn values_of_clients_move_no_count() {
        let values = CasValues::new(2).unwrap();
        for installed in [u64::MAX, u64::MAX - 1, 1 << 32, 1000] {
            let value = values.fresh(0, installed);
            assert!(value < 10, "{value}");
        }
        assert_eq!(values.fresh(0, 10), 12, "what it replaces it does not repeat");
        assert_eq!(values.fresh(1, 5), 3, "nobody has given 5");
        assert_eq!(values.fresh(1, 10), 11, "the other has");
    }

    /// Two handles change one item, each under its lock. Each value is above the one before, and a client's value moves
    /// no count, whatever each handle sees of the other's count.
    #[cfg(loom)]
    #[test]
    fn are_above_what_they_replace() {
        use crate::sync::Mutex;

        loom::model(|| {
            let shared = loom::sync::Arc::new((CasValues::new(2).unwrap(), Mutex::new(0)));
            let change = |handle| {
                let shared = loom::sync::Arc::clone(&shared);
                move || {
                    let (values, item) = &*shared;
                    // Another item, so that the two counts differ.
                    let mut given = vec![values.fresh(handle, 0)];
                    for _ in 0..2 {
                        let mut cas = item.lock().unwrap();
                        let fresh = values.fresh(handle, *cas);
                        assert!(fresh > *cas);
                        *cas = fresh;
                        given.push(fresh);
                    }
                    given
                }
            };
            let other = loom::thread::spawn(change(1));
            let mut given = change(0)();
            given.extend(other.join().unwrap());
            assert!(given.iter().all(|&cas| cas <= 13), "{given:?}");
            given.sort_unstable();
            given.dedup();
            assert_eq!(given.len(), 6);
        });
    }
}
