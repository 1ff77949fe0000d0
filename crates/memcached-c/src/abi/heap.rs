//! The C heap, or what a program has replaced it with (`memcached_set_memory_allocators`).
//!
//! Invariant: memory is given back to the heap that it came from. `memcached_st`, `hashkit_st`, lists of servers and
//! the text of a statistic are of `malloc`; values, results, statistics, their analysis and logins of the client's
//! allocators.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_void};
use std::ptr::{self, null_mut};

use super::structs::{AllocatorSt, MemcachedSt};

/// A client's heap.
#[derive(Clone, Copy)]
pub(crate) struct Heap {
    allocators: AllocatorSt,
    memc: *const MemcachedSt,
}

impl Heap {
    /// The heap of a client.
    pub(crate) fn of(memc: &MemcachedSt) -> Self {
        Self { allocators: memc.allocators.get(), memc }
    }

    /// `malloc`'s.
    pub(crate) fn system() -> Self {
        Self::at(ptr::null())
    }

    /// The heap of the client at this address; null: `malloc`.
    pub(super) fn at(memc: *const MemcachedSt) -> Self {
        // SAFETY: it is null, or the root of a struct, which outlives it.
        match unsafe { memc.as_ref() } {
            Some(memc) => Self::of(memc),
            None => Self { allocators: AllocatorSt::DEFAULT, memc },
        }
    }

    /// New memory of this size; null: there is none.
    pub(crate) fn allocate(&self, bytes: usize) -> *mut c_void {
        match self.allocators.malloc {
            Some(malloc) => malloc(self.memc, bytes, self.allocators.context),
            None => null_mut(),
        }
    }

    /// Larger memory with the same content; null: there is none, and the old memory stays.
    pub(super) fn enlarge(&self, memory: *mut c_void, bytes: usize) -> *mut c_void {
        match self.allocators.realloc {
            Some(realloc) => realloc(self.memc, memory, bytes, self.allocators.context),
            None => null_mut(),
        }
    }

    /// Gives memory back; null is ignored.
    pub(crate) fn free(&self, memory: *mut c_void) {
        if let Some(free) = self.allocators.free
            && !memory.is_null()
        {
            free(self.memc, memory, self.allocators.context);
        }
    }

    /// A copy of these structs, which consist of numbers and pointers; null: there is no memory.
    pub(crate) fn store<T: Copy>(&self, elements: &[T]) -> *mut T {
        let memory = self.allocate(size_of_val(elements).max(1)).cast::<T>();
        if !memory.is_null() {
            // SAFETY: the memory is new and has this size; allocators align it for any type of C.
            unsafe { ptr::copy_nonoverlapping(elements.as_ptr(), memory, elements.len()) };
        }
        memory
    }

    /// A copy of text, with a NUL at its end; null: there is no memory.
    pub(crate) fn store_text(&self, text: &[u8]) -> *mut c_char {
        self.store_parts(&[text, b"\0"]).cast()
    }

    /// A copy of several texts, one behind the other; null: there is no memory.
    pub(super) fn store_parts(&self, parts: &[&[u8]]) -> *mut u8 {
        let bytes = parts.iter().fold(0usize, |sum, part| sum.saturating_add(part.len()));
        let memory = self.allocate(bytes).cast::<u8>();
        if memory.is_null() {
            return memory;
        }
        let mut end = memory;
        for part in parts {
            // SAFETY: the memory is new and has room for all of them; this is behind those before.
            unsafe {
                ptr::copy_nonoverlapping(part.as_ptr(), end, part.len());
                end = end.add(part.len());
            }
        }
        memory
    }
}

/// A copy, with room for so many bytes more. `None`: there is no memory.
pub(crate) fn copied(bytes: &[u8], more_bytes: usize) -> Option<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len().checked_add(more_bytes)?).ok()?;
    copy.extend_from_slice(bytes);
    Some(copy)
}

/// A value in a box. `None`: there is no memory.
pub(crate) fn boxed<T>(value: T) -> Option<Box<T>> {
    let mut room = Vec::new();
    room.try_reserve_exact(1).ok()?;
    room.push(value);
    let one: Box<[T; 1]> = room.into_boxed_slice().try_into().ok()?;
    // SAFETY: an array of one element has the layout of the element.
    Some(unsafe { Box::from_raw(Box::into_raw(one).cast()) })
}

/// A struct of `malloc`'s heap, all zeros; null: there is no memory.
pub(super) fn new_struct<T>() -> *mut T {
    // SAFETY: no precondition.
    unsafe { libc::calloc(1, size_of::<T>()) }.cast()
}

/// Gives a struct of [`new_struct`] back.
///
/// # Safety
/// It is one, and is not used any more.
pub(super) unsafe fn free_struct<T>(memory: *mut T) {
    // SAFETY: the caller's.
    unsafe { libc::free(memory.cast()) };
}

impl AllocatorSt {
    /// `malloc` and its kin.
    pub(crate) const DEFAULT: Self = Self {
        calloc: Some(default_calloc),
        free: Some(default_free),
        malloc: Some(default_malloc),
        realloc: Some(default_realloc),
        context: null_mut(),
    };
}

extern "C-unwind" fn default_malloc(_: *const MemcachedSt, bytes: usize, _: *mut c_void) -> *mut c_void {
    // SAFETY: no precondition.
    unsafe { libc::malloc(bytes) }
}

extern "C-unwind" fn default_free(_: *const MemcachedSt, memory: *mut c_void, _: *mut c_void) {
    // SAFETY: callers give back what the other functions returned, or null.
    unsafe { libc::free(memory) }
}

extern "C-unwind" fn default_realloc(
    _: *const MemcachedSt,
    memory: *mut c_void,
    bytes: usize,
    _: *mut c_void,
) -> *mut c_void {
    // SAFETY: callers pass what the other functions returned, or null.
    unsafe { libc::realloc(memory, bytes) }
}

extern "C-unwind" fn default_calloc(
    _: *const MemcachedSt,
    count: usize,
    bytes: usize,
    _: *mut c_void,
) -> *mut c_void {
    // SAFETY: no precondition.
    unsafe { libc::calloc(count, bytes) }
}
