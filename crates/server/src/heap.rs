//! Heap memory whose size a client chooses. If there is none, that client is refused or disconnected, and the others
//! are served.
//!
//! Allocations that are small, and the same for each request or connection, are not checked; if one fails the process
//! ends, as always in Rust. So headroom is left for them: [`has_headroom`] is called before a connection is accepted,
//! and a large request is granted only if headroom remains. Large requests of all threads are granted one after the
//! other, so two of them never count on the same headroom. Small ones are frequent: each thread counts those that it
//! was granted, and looks for headroom once they are a fraction of it.
//!
//! That holds where all threads have one heap (`startup/address_space.rs` sets this under a limit).

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

/// A copy; `None`: there is no memory for it.
pub(crate) fn copy(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut copy = with_capacity(bytes.len())?;
    copy.extend_from_slice(bytes);
    Some(copy)
}

/// An empty vector with capacity; `None`: there is no memory for it and headroom besides.
pub(crate) fn with_capacity<T>(length: usize) -> Option<Vec<T>> {
    let mut vector = Vec::new();
    let bytes = length.checked_mul(size_of::<T>())?;
    take(bytes, || vector.try_reserve_exact(length).is_ok()).then_some(vector)
}

/// Reserves space for more elements. False: there is no memory for it, or no headroom left.
#[must_use]
pub(crate) fn reserve<T>(vector: &mut Vec<T>, more: usize) -> bool {
    if vector.capacity() - vector.len() >= more {
        return true;
    }
    // It moves: old and new place are taken for a moment, and the new one may be twice the old.
    let length = vector.len().saturating_add(more).max(2 * vector.capacity());
    take(length.saturating_mul(size_of::<T>()), || vector.try_reserve(more).is_ok())
}

/// Reserves space for `length` elements in all, and no more. False: there is no memory for it, or no headroom left.
#[must_use]
pub(crate) fn reserve_exact<T>(vector: &mut Vec<T>, length: usize) -> bool {
    let more = length.saturating_sub(vector.len());
    take(length.saturating_mul(size_of::<T>()), || vector.try_reserve_exact(more).is_ok())
}

/// True if there is memory for unchecked allocations. It is allocated and freed.
pub(crate) fn has_headroom() -> bool {
    take(LARGE_BYTES_MIN, || true)
}

/// Takes memory, if there is headroom besides.
fn take(bytes: usize, allocate: impl FnOnce() -> bool) -> bool {
    if bytes == 0 {
        return allocate();
    }
    let unseen_bytes = UNSEEN_BYTES.get().saturating_add(bytes);
    if unseen_bytes < LARGE_BYTES_MIN {
        UNSEEN_BYTES.set(unseen_bytes);
        return allocate();
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let is_available = is_available(bytes.saturating_add(HEADROOM_BYTES)) && allocate();
    // After a refusal the next small request looks as well.
    UNSEEN_BYTES.set(if is_available { 0 } else { LARGE_BYTES_MIN });
    is_available
}

fn is_available(bytes: usize) -> bool {
    Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
}

thread_local! {
    /// What this thread was granted since it last looked for headroom.
    static UNSEEN_BYTES: Cell<usize> = const { Cell::new(0) };
}

/// Held by the thread that looks for headroom and then takes what it found.
static TURN: Mutex<()> = Mutex::new(());

/// More than the unchecked allocations of all threads until one of them checks again. The allocator keeps freed memory
/// (mallopt(3), `M_TRIM_THRESHOLD`), and none of the pages is touched.
const HEADROOM_BYTES: usize = 2 << 20;
/// From this size on, one request or several together are checked for headroom.
const LARGE_BYTES_MIN: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_refused() {
        assert_eq!(copy(b"value").as_deref(), Some(&b"value"[..]));
        assert!(with_capacity::<u8>(isize::MAX as usize).is_none());
        let mut bytes = b"value".to_vec();
        assert!(!reserve(&mut bytes, isize::MAX as usize) && reserve(&mut bytes, 100_000));
        assert!(bytes.capacity() >= 100_005 && has_headroom());
    }

    #[test]
    fn small_requests_are_counted_until_they_are_a_large_one() {
        assert!(has_headroom());
        let looks = (0..64).filter(|_| {
            let _ = with_capacity::<u8>(LARGE_BYTES_MIN / 4);
            UNSEEN_BYTES.get() == 0
        });
        assert_eq!(looks.count(), 16);
    }

    #[test]
    fn after_a_refusal_small_requests_are_looked_at() {
        assert!(has_headroom());
        assert!(with_capacity::<u8>(isize::MAX as usize).is_none());
        assert_eq!(UNSEEN_BYTES.get(), LARGE_BYTES_MIN);
        assert!(with_capacity::<u8>(1).is_some() && UNSEEN_BYTES.get() == 0);
    }

    #[test]
    fn large_requests_wait_for_each_other() {
        assert!(take(LARGE_BYTES_MIN, || TURN.try_lock().is_err()));
        let _turn = TURN.lock().expect("nobody panics with it");
        assert!(with_capacity::<u8>(1).is_some(), "a small one does not wait");
    }
}
