//! Offsets: the places of items in the log.
//!
//! Unsafe code lives here because an offset allows reading an item there ([`crate::Guard`] does). Only the log makes
//! offsets, as it allocates and walks; the index returns those that it was given.
#![allow(unsafe_code)]

use crate::log::item::{ALIGN_BYTES, ItemRef};

/// The place where an item was or will be written. Valid under the guard under which it was read: later another item
/// may lie there.
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

    /// The next item of the segment, behind the one at this offset.
    #[inline]
    pub(crate) fn after(self, item: ItemRef<'_>) -> Self {
        Self(self.0 + item.size())
    }

    /// The distance to a later offset of the same segment.
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

/// For tests of the index, which have no log.
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
