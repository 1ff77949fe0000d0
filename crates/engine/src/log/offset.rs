//! Offsets: the places of items in the log.

use crate::log::item::ALIGN_BYTES;

/// The place of an item. Only a number: to read there takes what proves that an item is there, and will be as long as
/// a guard lasts ([`crate::index::buckets::SlotRef`], [`crate::log::walk::Located`]).
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
    #[inline]
    pub(crate) fn from_word(word: u64) -> Self {
        Self(word as usize * ALIGN_BYTES)
    }
}

/// The place of an item that is written whole, and that nobody can find yet. The log alone makes it, and the index
/// takes it: so what an entry points to is an item.
#[derive(Debug)]
#[must_use]
pub(crate) struct FreshOffset(Offset);

impl FreshOffset {
    pub(super) fn new(offset: Offset) -> Self {
        Self(offset)
    }

    #[inline]
    pub(crate) fn get(&self) -> Offset {
        self.0
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
impl From<usize> for FreshOffset {
    fn from(bytes: usize) -> Self {
        Self(Offset(bytes))
    }
}
