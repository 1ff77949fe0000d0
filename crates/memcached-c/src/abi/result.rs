//! Results: items in memory of the C heap.
//!
//! Invariant: the text of a result is null or of its root's heap, has `current_size` bytes, and `end` is in it or at
//! its end.

#![allow(unsafe_code)]

use std::ffi::c_char;
use std::ptr::{self, null, null_mut};
use std::slice;

use super::structs::*;
use super::{Fallback, Heap};

/// A `memcached_result_st` that C code passed, or null.
#[repr(transparent)]
pub(crate) struct ResultPtr(*mut ResultSt);

impl Fallback for ResultPtr {
    fn fallback() -> Self {
        Self::null()
    }
}

impl ResultPtr {
    /// The result at this address.
    pub(super) fn at(address: *mut ResultSt) -> Self {
        Self(address)
    }

    /// No result.
    pub(crate) fn null() -> Self {
        Self(null_mut())
    }

    /// Makes an empty result for a client, in this struct or in a new one. Null: there is no memory.
    pub(crate) fn create(&self, memc: *mut MemcachedSt) -> Self {
        if !self.0.is_null() {
            self.initialize(memc);
            return Self(self.0);
        }
        let created = Self(Heap::at(memc).allocate(size_of::<ResultSt>()).cast());
        created.initialize(memc);
        if let Some(result) = created.get() {
            result.options |= ALLOCATED;
        }
        created
    }

    /// Makes this an empty result for a client.
    pub(super) fn initialize(&self, memc: *mut MemcachedSt) {
        if !self.0.is_null() {
            // SAFETY: there is room for one. Its content may be uninitialised, so it is neither read nor dropped.
            unsafe { self.0.write(ResultSt { root: memc, ..ResultSt::new(INITIALIZED) }) };
        }
    }

    /// The result. `None`: null.
    #[expect(clippy::mut_from_ref, reason = "as a pointer gives it; no two are used at a time")]
    pub(crate) fn get(&self) -> Option<&mut ResultSt> {
        // SAFETY: it is null or initialised, and C code does not use it during the call.
        unsafe { self.0.as_mut() }
    }

    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn address(&self) -> *mut ResultSt {
        self.0
    }

    /// Frees its value, and the struct itself if [`ResultPtr::create`] made it.
    pub(crate) fn free(&self) {
        let Some(result) = self.get() else { return };
        let heap = result.heap();
        heap.free(result.value.string.cast());
        let is_allocated = result.options & ALLOCATED != 0;
        let root = result.root;
        *result = ResultSt { root, ..ResultSt::new(0) };
        if is_allocated {
            heap.free(self.0.cast());
        }
    }
}

impl ResultSt {
    pub(super) fn new(options: u8) -> Self {
        Self {
            item_flags: 0,
            item_expiration: 0,
            key_length: 0,
            item_cas: 0,
            root: null_mut(),
            value: StringSt {
                end: null_mut(),
                string: null_mut(),
                current_size: 0,
                root: null_mut(),
                options: INITIALIZED,
            },
            numeric_value: u64::MAX,
            count: 0,
            item_key: [0; KEY_SIZE],
            options,
        }
    }

    fn heap(&self) -> Heap {
        Heap::at(self.root)
    }

    /// Is the struct of the heap? Otherwise C code owns it.
    pub(crate) fn is_allocated(&self) -> bool {
        self.options & ALLOCATED != 0
    }

    /// Makes it empty; memory for the next value stays.
    pub(crate) fn reset(&mut self) {
        self.key_length = 0;
        self.value.end = self.value.string;
        self.item_flags = 0;
        self.item_cas = 0;
        self.item_expiration = 0;
        self.numeric_value = u64::MAX;
    }

    /// Sets the key, of at most 250 bytes.
    pub(crate) fn set_key(&mut self, key: &[u8]) {
        let key = key.get(..KEY_SIZE - 1).unwrap_or(key);
        for (place, byte) in self.item_key.iter_mut().zip(key.iter().chain([&0])) {
            *place = c_char::from_ne_bytes([*byte]);
        }
        self.key_length = key.len();
    }

    /// The key, with a NUL at its end. Null: it has none.
    pub(crate) fn key(&self) -> *const c_char {
        if self.key_length > 0 { self.item_key.as_ptr() } else { null() }
    }

    /// The bytes of the key.
    pub(crate) fn key_bytes(&self) -> impl Iterator<Item = u8> {
        self.item_key.iter().take(self.key_length).flat_map(|byte| byte.to_ne_bytes())
    }

    /// Makes the value empty; its memory stays.
    pub(crate) fn empty_value(&mut self) {
        self.value.end = self.value.string;
    }

    pub(crate) fn key_length(&self) -> usize {
        self.key_length
    }

    /// Appends to the value, with a NUL behind it. False: there is no memory.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> bool {
        let used = self.value_length();
        let Some(needed) = used.checked_add(bytes.len()).and_then(|sum| sum.checked_add(1)) else {
            return false;
        };
        if needed > self.value.current_size {
            let Some(size) = needed.checked_next_multiple_of(BLOCK_SIZE) else { return false };
            let enlarged: *mut c_char = self.heap().enlarge(self.value.string.cast(), size).cast();
            if enlarged.is_null() {
                return false;
            }
            self.value.string = enlarged;
            self.value.current_size = size;
        }
        // SAFETY: the text has at least `needed` bytes, of which `used` are before the new ones.
        unsafe {
            let end = self.value.string.add(used);
            ptr::copy_nonoverlapping(bytes.as_ptr().cast(), end, bytes.len());
            self.value.end = end.add(bytes.len());
            self.value.end.write(0);
        }
        true
    }

    /// The value; null: it never had one.
    pub(crate) fn value(&self) -> *const c_char {
        self.value.string
    }

    pub(crate) fn value_length(&self) -> usize {
        (self.value.end as usize).saturating_sub(self.value.string as usize)
    }

    /// The bytes of the value.
    pub(crate) fn value_bytes(&self) -> &[u8] {
        if self.value.string.is_null() {
            return b"";
        }
        // SAFETY: see the invariant.
        unsafe { slice::from_raw_parts(self.value.string.cast(), self.value_length()) }
    }

    /// Gives the value to the caller, who frees it. Null: it is empty.
    pub(crate) fn take_value(&mut self) -> *mut c_char {
        if self.value_length() == 0 {
            return null_mut();
        }
        let value = self.value.string;
        self.value.string = null_mut();
        self.value.end = null_mut();
        self.value.current_size = 0;
        value
    }
}

/// Values grow by so many bytes.
const BLOCK_SIZE: usize = 1024;
