//! What the items of some prefixes use on the disk: for quotas.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::*};

use crate::error::{Error, Result};

/// The most prefixes that a store counts at one time.
pub const COUNTED_PREFIXES_MAX: usize = 64;

/// What the items of each of some prefixes use on the disk, as of now. A key counts for the longest prefix that it
/// begins with.
#[derive(Debug, Default)]
pub struct PrefixUsage {
    prefixes: Box<[Counted]>,
    /// Their numbers, the longest prefix first.
    longest_first: Box<[u8]>,
    is_complete: AtomicBool,
}

#[derive(Debug, Default)]
struct Counted {
    prefix: Box<[u8]>,
    /// Below 0 only while two threads count the same record.
    bytes: AtomicI64,
    wants_room: AtomicBool,
}

impl PrefixUsage {
    /// Nothing is counted yet. Errors: there are too many prefixes, or two are equal.
    pub(crate) fn new(prefixes: &[&[u8]]) -> Result<Self> {
        if prefixes.len() > COUNTED_PREFIXES_MAX {
            return Err(Error::Invalid { what: "more than 64 prefixes are to be counted" });
        }
        let mut longest_first: Box<[u8]> = (0..prefixes.len() as u8).collect();
        longest_first.sort_by_key(|&nth| {
            let prefix = prefixes[usize::from(nth)];
            (std::cmp::Reverse(prefix.len()), prefix)
        });
        let is_twice =
            |pair: &[u8]| pair.len() == 2 && prefixes[usize::from(pair[0])] == prefixes[usize::from(pair[1])];
        if longest_first.windows(2).any(is_twice) {
            return Err(Error::Invalid { what: "a prefix is to be counted twice" });
        }
        let counted = |prefix: &&[u8]| Counted { prefix: (*prefix).into(), ..Counted::default() };
        let prefixes = prefixes.iter().map(counted).collect();
        Ok(Self { prefixes, longest_first, is_complete: AtomicBool::new(false) })
    }

    /// Bytes of the prefix with this number, in the order in which they were given: records with their headers, in
    /// files of a log. What has expired counts until the store notices.
    pub fn bytes(&self, nth: usize) -> u64 {
        self.prefixes.get(nth).map_or(0, |counted| counted.bytes.load(Relaxed).max(0) as u64)
    }

    /// False: what was in the store before is still being counted, in [`Store::maintain`](crate::Store::maintain).
    pub fn is_complete(&self) -> bool {
        self.is_complete.load(Acquire)
    }

    /// The prefix has reached its quota: maintenance is to look soon for items of it that have expired.
    pub fn ask_for_room(&self, nth: usize) {
        if let Some(counted) = self.prefixes.get(nth)
            && !counted.wants_room.load(Relaxed)
        {
            counted.wants_room.store(true, Relaxed);
        }
    }

    /// Did somebody ask for room since the last call?
    pub(crate) fn take_wants_room(&self) -> bool {
        self.prefixes.iter().fold(false, |wants, counted| wants | counted.wants_room.swap(false, Relaxed))
    }

    pub(crate) fn set_complete(&self, is_complete: bool) {
        self.is_complete.store(is_complete, Release);
    }

    /// The number of the longest prefix that the key begins with.
    pub(crate) fn find(&self, key: &[u8]) -> Option<usize> {
        let numbers = self.longest_first.iter().map(|&nth| usize::from(nth));
        numbers.into_iter().find(|&nth| key.starts_with(&self.prefixes[nth].prefix))
    }

    pub(crate) fn prefixes(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.prefixes.iter().map(|counted| &*counted.prefix)
    }

    /// The prefix with this number uses so much more, or less.
    pub(crate) fn add(&self, nth: usize, bytes: i64) {
        if let Some(counted) = self.prefixes.get(nth) {
            counted.bytes.fetch_add(bytes, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_counts_for_its_longest_prefix() {
        let usage = PrefixUsage::new(&[b"", b"a:", b"a:b:", b"c:"]).expect("four prefixes");
        let found = ["", "a", "a:", "a:b", "a:b:1", "c:a:", "d"].map(|key| usage.find(key.as_bytes()));
        assert_eq!(found.map(|nth| nth.expect("one is empty")), [0, 0, 1, 1, 2, 3, 0]);
        assert_eq!(PrefixUsage::new(&[b"a"]).expect("one").find(b"b"), None);
        assert!(PrefixUsage::new(&[b"a", b"b", b"a"]).is_err());
        assert!(PrefixUsage::new(&[b"a".as_slice(); 65]).is_err());
    }
}
