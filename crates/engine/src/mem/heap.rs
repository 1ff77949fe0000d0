//! The C library's allocator, from which the whole process has its heap.
#![allow(unsafe_code)]

/// From now on all threads share one heap, so that memory freed by one thread can be used by all. The GNU C library
/// otherwise lets each thread take 64 MiB of address space for itself (mallopt(3), `M_ARENA_MAX`): where that is
/// limited, another thread's allocation fails. Call before threads are started: those that have a heap keep it.
/// False: this allocator has no such setting.
pub fn share_heap() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    {
        // SAFETY: mallopt takes a lock of its own and changes a number.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) != 0 }
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu", not(miri))))]
    false
}

#[cfg(all(test, target_os = "linux", target_env = "gnu", not(any(miri, asan))))]
mod tests {
    #[test]
    fn the_allocator_takes_the_setting() {
        assert!(super::share_heap());
    }
}
