//! Heap memory whose size a client chooses. If there is none, that client is refused or disconnected, and the others
//! are served.
//!
//! Allocations that are small, and the same for each request or connection, are not checked; if one fails the process
//! ends, as always in Rust. To prevent that, [`has_headroom`] is called before a connection is accepted, and large
//! allocations must leave headroom.

/// A copy; `None`: there is no memory for it.
pub(crate) fn copy(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut copy = with_capacity(bytes.len())?;
    copy.extend_from_slice(bytes);
    Some(copy)
}

/// An empty vector with capacity; `None`: there is no memory for it and headroom besides.
pub(crate) fn with_capacity<T>(length: usize) -> Option<Vec<T>> {
    let mut vector = Vec::new();
    has_room_for(length.checked_mul(size_of::<T>())?).then(|| vector.try_reserve_exact(length).ok())??;
    Some(vector)
}

/// Reserves space for more elements. False: there is no memory for it, or no headroom left.
#[must_use]
pub(crate) fn reserve<T>(vector: &mut Vec<T>, more: usize) -> bool {
    let has_room = vector.capacity() - vector.len() >= more;
    has_room || has_room_for(more.saturating_mul(size_of::<T>())) && vector.try_reserve(more).is_ok()
}

/// True if there is memory for unchecked allocations. It is allocated and freed, so the allocator keeps it for this
/// thread.
pub(crate) fn has_headroom() -> bool {
    is_available(HEADROOM_BYTES)
}

/// True if there is memory for so many bytes, and headroom besides. The check comes first, because another thread must
/// find headroom at any time. Small requests are frequent and are not checked.
fn has_room_for(bytes: usize) -> bool {
    bytes < LARGE_BYTES_MIN || is_available(bytes.saturating_add(HEADROOM_BYTES))
}

fn is_available(bytes: usize) -> bool {
    Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
}

/// More than the unchecked allocations of all threads until one of them checks again. The allocator keeps freed memory
/// (mallopt(3), `M_TRIM_THRESHOLD`), and none of the pages is touched.
const HEADROOM_BYTES: usize = 2 << 20;
/// From this size on, requests check for headroom.
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
}
