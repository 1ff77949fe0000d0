//! Offsets: where items lie in the log.
//!
//! Unsafe code lives here because whoever has an offset may read an item there ([`crate::Guard`] does). Only the log
//! makes them, as it allocates and walks; the index gives back those that it was given.
#![allow(unsafe_code)]

use crate::log::item::{ALIGN_BYTES, ItemRef};

/// Where an item was or will be written. Counts for the guard under which it was read: later another item may lie
/// there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Offset(usize);

impl Offset {
    pub(super) fn new(bytes: usize) -> Self {
        debug_assert!(bytes.is_multiple_of(ALIGN_BYTES));
        Self(bytes)
    }

    /// In bytes from the start of the log.
    #[inline]
    pub(crate) fn bytes(self) -> usize {
        self.0
    }

    /// Where the next item of the segment lies, behind the one that lies here.
    #[inline]
    pub(crate) fn after(self, item: ItemRef<'_>) -> Self {
        Self(self.0 + item.size())
    }

    /// From here to a later one of the same segment.
    pub(crate) fn bytes_to(self, later: Self) -> usize {
        later.0 - self.0
    }

    /// What the index keeps: a number below [`crate::index::buckets::LOG_BYTES_MAX`] / 8.
    #[inline]
    pub(crate) fn to_word(self) -> u64 {
        (self.0 / ALIGN_BYTES) as u64
    }

    /// Back from what the index keeps.
    ///
    /// # Safety
    /// The word is from [`Offset::to_word`] of an offset of the same log.
    #[inline]
    pub(crate) unsafe fn from_word(word: u64) -> Self {
        Self(word as usize * ALIGN_BYTES)
    }
}

/// The index is tested without a log.
#[cfg(test)]
impl PartialEq<usize> for Offset {
    fn eq(&self, bytes: &usize) -> bool {
        self.0 == *bytes
    }
}

/// As above.
#[cfg(test)]
impl From<usize> for Offset {
    fn from(bytes: usize) -> Self {
        Self(bytes)
    }
}
