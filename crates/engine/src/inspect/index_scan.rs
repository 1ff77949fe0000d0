//! A walk over all items, bucket by bucket: for dumps of keys and for finding expired items.
//!
//! The walk visits the hashes in the order of their reversed bits. The hashes of a bucket are adjacent in that order,
//! and stay so when the index splits the bucket: so the position of the walk remains a border between buckets however
//! much the index grows meanwhile, and an item that exists all the time is visited exactly once.

use crate::handle::Guard;
use crate::index::buckets::SlotRef;
use crate::index::hash::Hash;
use crate::mem::lines::WORDS;
use crate::request::Fetched;

/// The position of a walk. It may be continued under any guard, of any handle of the same engine.
#[derive(Clone, Debug, Default)]
pub struct IndexScan {
    /// The reversed hash from which on nothing was visited.
    at: u64,
    is_done: bool,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScanStep {
    /// Items examined.
    pub examined: u64,
    /// ... of which removed.
    pub reclaimed: u64,
}

impl IndexScan {
    /// True if all items were visited.
    pub fn is_done(&self) -> bool {
        self.is_done
    }
}

impl Guard<'_> {
    /// Visits the live items of the next bucket, about seven, without a trace. Writers of that bucket wait for less
    /// than a microsecond, no one else waits.
    pub fn scan<'t>(&'t self, walk: &mut IndexScan, mut meet: impl FnMut(Fetched<'t>)) {
        for found in self.step(walk) {
            let (offset, raw) = (found.entry.offset(), self.item_ref(&found));
            if self.engine().liveness(offset, raw, self.now()).is_ok() {
                meet(self.describe(raw, offset));
            }
        }
    }

    /// Removes the expired and flushed items of the next bucket.
    pub fn scan_expired(&self, walk: &mut IndexScan) -> ScanStep {
        let entries = self.step(walk);
        let mut swept = ScanStep { examined: entries.len() as u64, reclaimed: 0 };
        for found in entries {
            let (offset, raw) = (found.entry.offset(), self.item_ref(&found));
            if self.engine().liveness(offset, raw, self.now()).is_err() {
                self.reap(self.prepare(raw.key()), offset);
                self.counters().crawler_reclaimed.add(1);
                swept.reclaimed += 1;
            }
            self.counters().crawler_checked.add(1);
        }
        swept
    }

    /// The entries of the next bucket. Their items may be unlinked from then on, but stay readable under the guard.
    fn step(&self, walk: &mut IndexScan) -> Vec<SlotRef<'_>> {
        if walk.is_done {
            return Vec::new();
        }
        let first = Hash(walk.at.reverse_bits());
        // Not while the bucket is locked: other threads may hold the allocator.
        let mut entries = Vec::with_capacity(2 * WORDS);
        let bucket = self.engine().index.lock(self.pinned(), first);
        let hashes = 1u64.checked_shl(u64::BITS - self.engine().index.bucket_bits(first));
        entries.extend(bucket.entries());
        drop(bucket);
        entries.iter().for_each(|found| self.engine().arena.prefetch(found.entry.offset()));
        match hashes.and_then(|hashes| walk.at.checked_add(hashes)) {
            Some(next) => walk.at = next,
            None => walk.is_done = true,
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::IndexScan;
    use crate::{Config, Engine, Expiry, LargePages, Now, Store};

    /// Each item is visited once, although the index grows from 1 bucket to hundreds meanwhile, and items move.
    #[test]
    fn a_walk_meets_every_item_once_while_the_index_grows() {
        let config = Config {
            memory_bytes: 16 << 20,
            item_bytes_max: 1 << 20,
            evict: true,
            handles_max: 1,
            index_power: Some(0),
            large_pages: LargePages::Filled,
            hash_key: [7, 9],
        };
        let mut handle = Engine::new(config).unwrap().handle().unwrap();
        let now = Now { secs: 1, micros: 1 };
        let mut store = |from: u32, to: u32| {
            for number in from..to {
                let guard = handle.pin(now);
                let key = number.to_be_bytes();
                let _ = guard.store(guard.prepare(&key), &Store::set(&key, b"value"));
            }
        };
        store(0, 1000);
        let mut met = HashMap::<Vec<u8>, u32>::new();
        let mut walk = IndexScan::default();
        for round in 0u32.. {
            let guard = handle.pin(now);
            guard.scan(&mut walk, |fetched| *met.entry(fetched.item.key().to_vec()).or_default() += 1);
            if walk.is_done() {
                break;
            }
            // New items, so that the index grows, and replaced ones, so that they move.
            for number in (1000 + round * 50..1050 + round * 50).chain([round % 1000]) {
                let key = number.to_be_bytes();
                let _ = guard.store(guard.prepare(&key), &Store::set(&key, b"value"));
            }
        }
        for number in 0..1000u32 {
            assert_eq!(met.get(&number.to_be_bytes()[..]), Some(&1), "{number}");
        }
        assert!(met.values().all(|&times| times == 1));
    }

    #[test]
    fn a_sweep_removes_what_has_expired() {
        let config = Config {
            memory_bytes: 16 << 20,
            item_bytes_max: 1 << 20,
            evict: true,
            handles_max: 1,
            index_power: None,
            large_pages: LargePages::Filled,
            hash_key: [7, 9],
        };
        let engine = Engine::new(config).unwrap();
        let mut handle = engine.handle().unwrap();
        let guard = handle.pin(Now { secs: 1, micros: 1 });
        for number in 0..100u32 {
            let key = number.to_be_bytes();
            let expiry = if number % 4 == 0 { Expiry::at(3) } else { Expiry::NEVER };
            let _ = guard.store(guard.prepare(&key), &Store { expiry, ..Store::set(&key, b"value") });
        }
        drop(guard);
        let guard = handle.pin(Now { secs: 3, micros: 3 });
        let mut walk = IndexScan::default();
        while !walk.is_done() {
            guard.scan_expired(&mut walk);
        }
        let stats = engine.stats();
        assert_eq!((stats.items, stats.crawler_reclaimed, stats.crawler_checked), (75, 25, 100));
    }
}
