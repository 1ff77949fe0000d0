//! Tables: values that begin as zeros, side by side, with memory for only those that were written.
#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::ops::Deref;

use crate::memory::{PAGE_BYTES, Region};

/// What may lie in a [`Table`].
///
/// # Safety
/// Bytes of zero are a value of the type, and it has nothing to drop.
pub(crate) unsafe trait Zeroed: Sync {}

/// A slice that lives in a [`Region`]. The allocator would do, but that clears by hand what is to lie on cache lines: then a table made
/// for all that may come takes memory for it from the start.
pub(crate) struct Table<T> {
    region: Region,
    length: usize,
    values: PhantomData<T>,
}

impl<T: Zeroed> Table<T> {
    /// `length` zeros. Errors: the system refuses the address space.
    pub(crate) fn reserve(length: usize) -> io::Result<Self> {
        const { assert!(align_of::<T>() <= PAGE_BYTES) };
        let region = Region::reserve(length * size_of::<T>())?;
        Ok(Self { region, length, values: PhantomData })
    }
}

impl<T: Zeroed> Deref for Table<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the region has `length` values and lives as long as the table; it is aligned (to a page), initialised
        // (zeros, which are values by the promise of `Zeroed`), and written through shared references only.
        unsafe { std::slice::from_raw_parts(self.region.base().cast().as_ptr(), self.length) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    // SAFETY: zero is a value of it, and it has nothing to drop.
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
