//! Poison: marks memory that nobody may read any more, so that tests detect reads of it.
//!
//! Debug builds overwrite its bytes: a read finds no item there, and borrowed bytes change. With AddressSanitizer
//! (`--cfg asan`, as `cargo xtask ci` builds) each access to it ends the test. A release build does none of that.
//!
//! Unsafe code lives here because memory is overwritten, and because AddressSanitizer has a C interface.
#![allow(unsafe_code)]

use std::ops::Range;
#[cfg(asan)]
use std::sync::{Mutex, PoisonError};

use crate::mem::region::Region;

/// The byte of poisoned memory in debug builds. It gives no valid item length.
#[cfg(debug_assertions)]
const POISON: u8 = 0xdb;

/// From where to where anything in a region was poisoned. AddressSanitizer takes memory for all that is unpoisoned, an
/// eighth, so that is not done to a whole reservation.
#[derive(Default)]
pub(super) struct Poisoned {
    #[cfg(asan)]
    bounds: Mutex<Range<usize>>,
}

impl Poisoned {
    #[cfg(asan)]
    fn widen(&self, part: &Range<usize>) {
        let mut bounds = self.bounds.lock().unwrap_or_else(PoisonError::into_inner);
        let start = if bounds.is_empty() { part.start } else { bounds.start.min(part.start) };
        *bounds = start..bounds.end.max(part.end);
    }

    /// Empty without AddressSanitizer.
    pub(super) fn bounds(&self) -> Range<usize> {
        #[cfg(asan)]
        return self.bounds.lock().unwrap_or_else(PoisonError::into_inner).clone();
        #[cfg(not(asan))]
        return 0..0;
    }
}

impl Region {
    /// From here on nobody reads or writes this part of the region, until [`Region::unpoison`] makes it usable again.
    ///
    /// # Safety
    /// The part belongs to the caller alone: it was unlinked, and every guard that could have found it has ended.
    #[inline]
    pub(crate) unsafe fn poison(&self, part: Range<usize>) {
        debug_assert!(part.start <= part.end && part.end <= self.len_bytes());
        #[cfg(debug_assertions)]
        if !part.is_empty() {
            self.unpoison(part.clone());
            // SAFETY: in bounds (checked); exclusive by the caller's promise.
            unsafe { self.at(part.start).write_bytes(POISON, part.len()) }
        }
        #[cfg(asan)]
        if !part.is_empty() {
            self.poisoned.widen(&part);
            // SAFETY: in bounds (checked).
            unsafe { asan::__asan_poison_memory_region(self.at(part.start).as_ptr().cast(), part.len()) }
        }
        #[cfg(not(any(debug_assertions, asan)))]
        let _ = part;
    }

    /// From here on this part of the region may be written and read again.
    #[inline]
    pub(crate) fn unpoison(&self, part: Range<usize>) {
        #[cfg(asan)]
        if !part.is_empty() {
            assert!(part.end <= self.len_bytes());
            // SAFETY: in bounds (checked).
            unsafe { asan::__asan_unpoison_memory_region(self.at(part.start).as_ptr().cast(), part.len()) }
        }
        #[cfg(not(asan))]
        let _ = part;
    }
}

#[cfg(asan)]
mod asan {
    use std::ffi::c_void;

    // Of the sanitizer's runtime, which the compiler links.
    unsafe extern "C" {
        pub(super) fn __asan_poison_memory_region(address: *const c_void, bytes: usize);
        pub(super) fn __asan_unpoison_memory_region(address: *const c_void, bytes: usize);
    }
}
