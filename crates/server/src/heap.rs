//! Memory of the heap whose size a client decides: where there is none, the client is refused or cut off, and the
//! others are served on.
//!
//! What is small and the same for each request or connection is taken without asking; an allocation of that kind that
//! fails ends the process, as always in Rust. That it does not is seen to by [`has_headroom`] before a connection is
//! let in, and by asking for more than is needed.

/// A copy; `None`: there is no memory for it.
pub(crate) fn copy(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut copy = with_capacity(bytes.len())?;
    copy.extend_from_slice(bytes);
    Some(copy)
}

/// An empty vector with room; `None`: there is no memory for it, and some to spare.
pub(crate) fn with_capacity<T>(length: usize) -> Option<Vec<T>> {
    let mut vector = Vec::new();
    vector.try_reserve_exact(length).ok()?;
    if is_worth_asking(length * size_of::<T>()) && !has_headroom() {
        return None;
    }
    Some(vector)
}

/// Makes room for more at the end. False: there is no memory for it, or none to spare.
#[must_use]
pub(crate) fn reserve<T>(vector: &mut Vec<T>, more: usize) -> bool {
    let has_room = vector.capacity() - vector.len() >= more;
    has_room
        || vector.try_reserve(more).is_ok() && (!is_worth_asking(more * size_of::<T>()) || has_headroom())
}

/// Is there memory for what is taken without asking? It is taken and given back, and so is at hand for this thread.
pub(crate) fn has_headroom() -> bool {
    Vec::<u8>::new().try_reserve_exact(HEADROOM_BYTES).is_ok()
}

/// Small requests are frequent, and come from what the allocator has at hand.
fn is_worth_asking(bytes: usize) -> bool {
    bytes >= HEADROOM_BYTES / 8
}

/// Below the size from which allocators map pages for each request (mallopt(3), `M_MMAP_THRESHOLD`): what is given back
/// stays.
const HEADROOM_BYTES: usize = 64 << 10;

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
