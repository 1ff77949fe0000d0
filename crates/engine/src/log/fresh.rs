//! Fresh items: written where they will lie, and not found by anybody yet.
//!
//! Unsafe code lives here because memory of the log is written to. The invariant: an [`Allocation`] is bytes that
//! nobody else has, and that cannot be copied; a [`FreshItem`] is one that was written whole. So the index, which takes
//! nothing else, points to items.
#![allow(unsafe_code)]

use crate::epoch::epochs::Pinned;
use crate::log::item::{ItemRef, Shape};
use crate::log::offset::{FreshOffset, Offset};
use crate::mem::region::Region;
use crate::request::Expiry;

/// The space of an item: the holder's alone. It is written, or the segment that it lies in cannot be walked.
#[must_use]
pub(crate) struct Allocation {
    at: Offset,
    bytes: usize,
    /// Where a later item of the same size will probably go, in bytes from the start of the log.
    pub(crate) ahead: Option<usize>,
}

impl Allocation {
    /// # Safety
    /// These bytes of the log are in an open segment of this handle, and nobody else has them.
    #[inline(always)]
    pub(super) unsafe fn new(at: Offset, bytes: usize, ahead: Option<usize>) -> Self {
        Self { at, bytes, ahead }
    }

    pub(crate) fn at(&self) -> Offset {
        self.at
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes an item of its size, whose value `fill` writes.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn write<'g>(
        self,
        _: Pinned<'g>,
        log: &'g Region,
        shape: &Shape,
        key: &[u8],
        expiry: Expiry,
        now_secs: u32,
        fill: impl FnOnce(&mut [u8]),
    ) -> FreshItem<'g> {
        assert!(shape.size() == self.bytes, "an item fills its space");
        // SAFETY: the bytes are ours alone, and as many as the item has.
        let raw = unsafe {
            let raw = ItemRef::write(log, self.at.bytes(), shape, key, expiry, now_secs);
            fill(raw.value_mut(shape));
            raw
        };
        FreshItem { raw, allocation: self }
    }

    /// Writes a copy of an item of its size.
    pub(crate) fn write_copy<'g>(self, log: &'g Region, original: ItemRef<'g>) -> FreshItem<'g> {
        assert!(original.size() == self.bytes, "a copy fills its space");
        // SAFETY: as above.
        let raw = unsafe { original.copy_to(log, self.at.bytes()) };
        FreshItem { raw, allocation: self }
    }
}

/// An item that nobody can find yet. It is linked, taken back or discarded.
#[must_use]
pub(crate) struct FreshItem<'g> {
    raw: ItemRef<'g>,
    allocation: Allocation,
}

impl<'g> FreshItem<'g> {
    /// # Safety
    /// The item is at that place of the log, written whole, and nobody else can find it.
    pub(super) unsafe fn new(raw: ItemRef<'g>, at: Offset) -> Self {
        Self { raw, allocation: Allocation { at, bytes: raw.size(), ahead: None } }
    }

    /// The item; not for longer, since its space may be taken back.
    #[inline]
    pub(crate) fn raw(&self) -> ItemRef<'_> {
        self.raw
    }

    /// Enters the item's checksum, which begins with the file's seed. A copy has the original's.
    pub(crate) fn protect(&self, seed: u32) {
        self.raw.set_checksum(self.raw.compute_checksum(seed));
    }

    #[inline]
    pub(crate) fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    /// Lets others find it: `publish` passes its place to the index, which has room for it.
    #[inline(always)]
    pub(crate) fn replace<R>(self, publish: impl FnOnce(FreshOffset) -> R) -> (ItemRef<'g>, R) {
        self.raw.complete();
        let result = publish(FreshOffset::new(self.allocation.at));
        (self.raw, result)
    }

    /// The same where the index may have no room.
    #[inline(always)]
    pub(crate) fn insert(
        self,
        publish: impl FnOnce(FreshOffset) -> Result<(), FreshOffset>,
    ) -> Result<ItemRef<'g>, Self> {
        self.raw.complete();
        match publish(FreshOffset::new(self.allocation.at)) {
            Ok(()) => Ok(self.raw),
            Err(_) => {
                self.raw.withdraw();
                Err(self)
            }
        }
    }
}
