//! Tables: arrays of zero-initialised values, with memory only for those that were written.
#![allow(unsafe_code)]

use std::io;
#[cfg(not(all(loom, test)))]
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::AtomicU32;

#[cfg(not(all(loom, test)))]
use crate::mem::region::{PAGE_BYTES, Region};

/// Types that may be in a [`Table`].
///
/// # Safety
/// Bytes of zero are a valid value of the type, and it has no destructor.
pub(crate) unsafe trait Zeroed: Sync {}

/// A cache line of sixteen half words.
#[cfg_attr(all(loom, test), derive(Default))]
#[repr(align(64))]
pub(crate) struct HalfWords(pub(crate) [AtomicU32; 16]);

// SAFETY: only atomic numbers.
unsafe impl Zeroed for HalfWords {}

/// A slice in a [`Region`]. The allocator would do as well, but for cache-aligned values it writes the zeros itself, so
/// a table of the largest possible size would take all its memory from the start.
#[cfg(not(all(loom, test)))]
pub(crate) struct Table<T> {
    region: Region,
    length: usize,
    values: PhantomData<T>,
}

#[cfg(not(all(loom, test)))]
impl<T: Zeroed> Table<T> {
    /// Reserves `length` zero values. Errors: the system refuses the address space.
    pub(crate) fn reserve(length: usize) -> io::Result<Self> {
        const { assert!(align_of::<T>() <= PAGE_BYTES) };
        let region = Region::reserve_committed(length * size_of::<T>())?;
        Ok(Self { region, length, values: PhantomData })
    }

    /// As [`crate::mem::numa::interleave`].
    pub(crate) fn interleave(&self, nodes: &[u32]) -> io::Result<()> {
        crate::mem::numa::interleave(&self.region, nodes)
    }
}

#[cfg(not(all(loom, test)))]
impl<T: Zeroed> Deref for Table<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the region has `length` values and lives as long as the table; it is aligned (to a page), initialised
        // (zeros, which are values by the promise of `Zeroed`), and written through shared references only.
        unsafe { std::slice::from_raw_parts(self.region.base().cast().as_ptr(), self.length) }
    }
}

/// The model checker's atomics are not zero-initialised.
#[cfg(all(loom, test))]
pub(crate) struct Table<T>(Vec<T>);

#[cfg(all(loom, test))]
impl<T: Zeroed + Default> Table<T> {
    pub(crate) fn reserve(length: usize) -> io::Result<Self> {
        Ok(Self((0..length).map(|_| T::default()).collect()))
    }

    pub(crate) fn interleave(&self, _nodes: &[u32]) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(all(loom, test))]
impl<T> Deref for Table<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    // SAFETY: zero is a value of it, and it has no destructor.
    unsafe impl Zeroed for AtomicU64 {}

    #[test]
    fn values_begin_as_zeros_and_stay_apart() {
        let table: Table<AtomicU64> = Table::reserve(1_000).expect("address space");
        assert_eq!(table.len(), 1_000);
        assert!(table.iter().all(|value| value.load(Relaxed) == 0));
        (0..).zip(table.iter()).for_each(|(n, value)| value.store(n, Relaxed));
        assert!((0..).zip(table.iter()).all(|(n, value)| value.load(Relaxed) == n));
        assert!(Table::<AtomicU64>::reserve(0).expect("address space").is_empty());
    }
}
