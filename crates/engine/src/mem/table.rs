//! Tables: arrays of zero-initialised values, with memory only for those that were written. There may be many more that
//! never are.
#![allow(unsafe_code)]

use std::io;
#[cfg(not(all(loom, test)))]
use std::marker::PhantomData;
use std::ops::{Index, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::mem::cache_padded::CachePadded;
use crate::mem::file::BackingFile;
#[cfg(not(all(loom, test)))]
use crate::mem::region::{PAGE_BYTES, Region};

/// Types that may be in a [`Table`].
///
/// # Safety
/// Bytes of zero are a valid value of the type, any bytes are if it is mapped from a file, and it has no destructor.
pub(crate) unsafe trait Zeroed: Sync {}

/// A cache line of sixteen half words.
#[cfg_attr(all(loom, test), derive(Default))]
#[repr(align(64))]
pub(crate) struct HalfWords(pub(crate) [AtomicU32; 16]);

// SAFETY: only atomic numbers.
unsafe impl Zeroed for HalfWords {}

// SAFETY: zero is a value of it, and it has no destructor.
unsafe impl Zeroed for AtomicU64 {}

#[cfg(all(loom, test))]
// SAFETY: the model checker's tables make values of their own.
unsafe impl Zeroed for crate::sync::AtomicU64 {}

// SAFETY: as the value, and nothing else is in it.
unsafe impl<T: Zeroed> Zeroed for CachePadded<T> {}

/// Where a table lies that another process finds later.
#[derive(Clone)]
pub(crate) struct FilePart {
    pub(crate) file: Arc<BackingFile>,
    /// In bytes from the start of the file; a multiple of the page size.
    pub(crate) offset: u64,
}

/// Values in a [`Region`]. The allocator would do as well, but for cache-aligned values it writes the zeros itself, so
/// a table of the largest possible size would take all its memory from the start.
#[cfg(not(all(loom, test)))]
pub(crate) struct Table<T> {
    region: Region,
    length: usize,
    values: PhantomData<T>,
}

#[cfg(not(all(loom, test)))]
impl<T: Zeroed> Table<T> {
    /// Reserves `length` zero values, which may be read once they are committed. Errors: the system refuses the address
    /// space.
    pub(crate) fn reserve(length: usize) -> io::Result<Self> {
        const { assert!(align_of::<T>() <= PAGE_BYTES) };
        let region = Region::reserve(length * size_of::<T>())?;
        region.set_dumped(0..region.len_bytes(), false);
        Ok(Self { region, length, values: PhantomData })
    }

    /// The same, committed from the start.
    pub(crate) fn reserve_committed(length: usize) -> io::Result<Self> {
        const { assert!(align_of::<T>() <= PAGE_BYTES) };
        let region = Region::reserve_committed(length * size_of::<T>())?;
        Ok(Self { region, length, values: PhantomData })
    }

    /// Maps `length` values in a file: zeros, or what was written there. To be committed as those of
    /// [`Table::reserve`]. Any bytes have to be a value of the type.
    pub(crate) fn map(part: &FilePart, length: usize) -> io::Result<Self> {
        const { assert!(align_of::<T>() <= PAGE_BYTES) };
        let region = Region::map(&part.file, part.offset, length * size_of::<T>())?;
        Ok(Self { region, length, values: PhantomData })
    }

    /// As [`crate::mem::numa::interleave`].
    pub(crate) fn interleave(&self, nodes: &[u32]) -> io::Result<()> {
        crate::mem::numa::interleave(&self.region, nodes)
    }

    /// Commits values. False: the system has no memory for them. Committed ones stay as they are.
    #[must_use]
    pub(crate) fn commit(&self, values: Range<usize>) -> bool {
        let start = values.start * size_of::<T>() / PAGE_BYTES * PAGE_BYTES;
        let end = (values.end * size_of::<T>()).next_multiple_of(PAGE_BYTES);
        let is_committed = self.region.commit(start, end - start);
        self.region.set_dumped(start..end, true);
        is_committed
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }
}

#[cfg(not(all(loom, test)))]
impl<T: Zeroed> Index<usize> for Table<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        assert!(index < self.length, "value {index} is outside the table");
        // SAFETY: the region has `length` values (checked) and lives as long as the table; it is aligned (to a page),
        // initialised (zeros, which are values by the promise of `Zeroed`), and written through shared references only.
        // Access to one that is not committed ends the process, or reads zeros.
        unsafe { self.region.base().cast::<T>().add(index).as_ref() }
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

    pub(crate) fn reserve_committed(length: usize) -> io::Result<Self> {
        Self::reserve(length)
    }

    pub(crate) fn map(_part: &FilePart, length: usize) -> io::Result<Self> {
        Self::reserve(length)
    }

    pub(crate) fn interleave(&self, _nodes: &[u32]) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn commit(&self, _values: Range<usize>) -> bool {
        true
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(all(loom, test))]
impl<T> Index<usize> for Table<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        &self.0[index]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    #[test]
    fn values_begin_as_zeros_and_stay_apart() {
        // In any order, and twice.
        let table: Table<AtomicU64> = Table::reserve(2_000).expect("address space");
        assert_eq!(table.len(), 2_000);
        for values in [1_000..2_000, 0..1_000, 900..1_100] {
            assert!(table.commit(values));
        }
        assert!((0..2_000).all(|n| table[n].load(Relaxed) == 0));
        (0..2_000).for_each(|n| table[n].store(n as u64, Relaxed));
        assert!((0..2_000).all(|n| table[n].load(Relaxed) == n as u64));
        let empty = Table::<AtomicU64>::reserve(0).expect("address space");
        assert!(empty.len() == 0 && empty.commit(0..0));
    }
}
