//! Pointers that C code passes.
//!
//! Invariant: only C code makes these values, as arguments. They are null, or valid for the call as libmemcached's
//! manual demands: text ends with a NUL or has the length that is passed with it, an array has so many elements.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char};
use std::slice;

use super::{AnalysisSt, Heap, Memc, MemcachedSt, Return, StatSt};
use crate::face::Pool;

/// Text.
#[repr(transparent)]
pub(crate) struct Chars(*const c_char);

impl Chars {
    /// So many bytes; of null, none.
    pub(crate) fn bytes(&self, length: usize) -> &[u8] {
        if self.0.is_null() || length == 0 || isize::try_from(length).is_err() {
            return b"";
        }
        // SAFETY: it is not null, and C code passed the length with it.
        unsafe { slice::from_raw_parts(self.0.cast(), length) }
    }

    /// The text up to its NUL. `None`: null.
    pub(crate) fn text(&self) -> Option<&CStr> {
        // SAFETY: text that is passed without a length ends with a NUL.
        (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) })
    }

    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn address(&self) -> *const c_char {
        self.0
    }
}

/// The keys of a multi-get: their texts.
#[repr(transparent)]
pub(crate) struct Keys(*const *const c_char);

impl Keys {
    /// The keys. Errors: an array is null, or there is no memory for so many.
    pub(crate) fn slices<'k>(
        &'k self,
        lengths: &'k Array<usize>,
        count: usize,
    ) -> Result<Vec<&'k [u8]>, Return> {
        let lengths = lengths.slice(count).ok_or(Return::BAD_KEY_PROVIDED)?;
        if self.0.is_null() {
            return Err(Return::BAD_KEY_PROVIDED);
        }
        let mut keys = Vec::new();
        keys.try_reserve_exact(count).map_err(|_| Return::MEMORY_ALLOCATION_FAILURE)?;
        // SAFETY: it is not null, and has as many elements as the lengths.
        let texts = unsafe { slice::from_raw_parts(self.0, count) };
        let key = |(text, length): (&'k *const c_char, &usize)| {
            if text.is_null() || isize::try_from(*length).is_err() {
                return &b""[..];
            }
            // SAFETY: it is not null, and C code passed the length with it.
            unsafe { slice::from_raw_parts(text.cast::<u8>(), *length) }
        };
        keys.extend(texts.iter().zip(lengths).map(key));
        Ok(keys)
    }
}

/// An array that is read.
#[repr(transparent)]
pub(crate) struct Array<T>(*const T);

impl<T> Array<T> {
    /// So many elements. `None`: null.
    pub(crate) fn slice(&self, count: usize) -> Option<&[T]> {
        let is_valid = !self.0.is_null()
            && count.checked_mul(size_of::<T>()).is_some_and(|size| isize::try_from(size).is_ok());
        // SAFETY: it is not null, and C code passed the count with it.
        is_valid.then(|| unsafe { slice::from_raw_parts(self.0, count) })
    }

    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

/// Where a result goes, if it is wanted.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// Writes the result, unless it is not wanted.
    pub(crate) fn set(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: it is not null, so C code wants the result there. Nothing is read or dropped.
            unsafe { self.0.write(value) };
        }
    }

    /// Writes consecutive results.
    pub(crate) fn set_all(&self, values: impl IntoIterator<Item = T>, room: usize) {
        if self.0.is_null() {
            return;
        }
        for (place, value) in values.into_iter().take(room).enumerate() {
            // SAFETY: C code said that there is room for so many.
            unsafe { self.0.add(place).write(value) };
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

/// A struct that is read, such as a `timespec`.
#[repr(transparent)]
pub(crate) struct Ref<T>(*const T);

impl<T> Ref<T> {
    /// The struct. `None`: null.
    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: it is null or valid for the call.
        unsafe { self.0.as_ref() }
    }
}

/// Statistics: an element for each server, or one.
#[repr(transparent)]
pub(crate) struct StatArray(*mut StatSt);

impl StatArray {
    /// As many as `memcached_stat` made. `None`: null.
    pub(crate) fn slice(&self, count: usize) -> Option<&[StatSt]> {
        // SAFETY: they were made by `memcached_stat` of a client with so many servers.
        (!self.0.is_null()).then(|| unsafe { slice::from_raw_parts(self.0, count) })
    }

    /// The only one, or the first. Its content may be uninitialised.
    pub(crate) fn set(&self, stat: StatSt) {
        if !self.0.is_null() {
            // SAFETY: there is room for one. Nothing is read or dropped.
            unsafe { self.0.write(stat) };
        }
    }
}

impl StatSt {
    /// Without any statistics.
    pub(crate) fn empty(root: *mut MemcachedSt) -> Self {
        // SAFETY: it consists of numbers and pointers, for all of which zeros are a value.
        let zero: Self = unsafe { std::mem::zeroed() };
        Self { root, ..zero }
    }
}

impl AnalysisSt {
    /// With all numbers 0.
    pub(crate) fn empty(root: *mut MemcachedSt) -> Self {
        // SAFETY: it consists of numbers and a pointer, for all of which zeros are a value.
        let zero: Self = unsafe { std::mem::zeroed() };
        Self { root, ..zero }
    }
}

impl Chars {
    /// No text.
    pub(crate) fn null() -> Self {
        Self(std::ptr::null())
    }
}

impl StatArray {
    /// Frees what `memcached_stat` made.
    pub(crate) fn free(&self) {
        // SAFETY: it is null or an array that `memcached_stat` made, with the client that it was made for.
        if let Some(root) = unsafe { self.0.as_ref() }.map(|stat| stat.root) {
            Heap::at(root).free(self.0.cast());
        }
    }
}

/// A `memcached_analysis_st` that C code passed, or null.
#[repr(transparent)]
pub(crate) struct AnalysisPtr(*mut AnalysisSt);

impl AnalysisPtr {
    /// Frees what `memcached_analyze` made.
    pub(crate) fn free(&self) {
        // SAFETY: it is null, or `memcached_analyze` made it, with the client that it was made for.
        if let Some(root) = unsafe { self.0.as_ref() }.map(|analysis| analysis.root) {
            Heap::at(root).free(self.0.cast());
        }
    }
}

/// A `memcached_pool_st` that C code passed, or null.
#[repr(transparent)]
pub(crate) struct PoolPtr(*mut Pool);

impl PoolPtr {
    /// The pool. `None`: null.
    pub(crate) fn get(&self) -> Option<&Pool> {
        // SAFETY: it is null, or a pool that was not destroyed; threads share it.
        unsafe { self.0.as_ref() }
    }

    /// The pool, to be destroyed.
    pub(crate) fn take(self) -> Option<Box<Pool>> {
        // SAFETY: it came from `Box::into_raw`, and C code gives it up.
        (!self.0.is_null()).then(|| unsafe { Box::from_raw(self.0) })
    }
}

/// A client that is passed from thread to thread, and used by one at a time.
#[repr(transparent)]
pub(crate) struct SharedMemc(*mut MemcachedSt);

// SAFETY: C code uses a client of a pool only between taking and releasing it, and the pool only behind its lock.
unsafe impl Send for SharedMemc {}
// SAFETY: the pool uses its master only behind its lock.
unsafe impl Sync for SharedMemc {}

impl SharedMemc {
    /// The client, to be shared.
    pub(crate) fn of(memc: &Memc) -> Self {
        Self(memc.address())
    }

    /// The client.
    pub(crate) fn memc(&self) -> Memc {
        Memc::at(self.0)
    }
}
