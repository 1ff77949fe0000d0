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
    has_room_for(length.checked_mul(size_of::<T>())?).then(|| vector.try_reserve_exact(length).ok())??;
    Some(vector)
}

/// Makes room for more at the end. False: there is no memory for it, or none to spare.
#[must_use]
pub(crate) fn reserve<T>(vector: &mut Vec<T>, more: usize) -> bool {
    let has_room = vector.capacity() - vector.len() >= more;
    has_room || has_room_for(more.saturating_mul(size_of::<T>())) && vector.try_reserve(more).is_ok()
}

/// True if there is memory for what is taken without asking. It is taken and given back, so this thread has it at hand.
pub(crate) fn has_headroom() -> bool {
    is_available(HEADROOM_BYTES)
}

/// True if there is memory for so many bytes, and headroom besides. Looked at before they are taken: another thread
/// that needs a few bytes in the meantime must find them. Small requests are frequent, and are not looked at.
fn has_room_for(bytes: usize) -> bool {
    bytes < LARGE_BYTES_MIN || is_available(bytes.saturating_add(HEADROOM_BYTES))
}

fn is_available(bytes: usize) -> bool {
    Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
}

/// More than all threads together take without asking until one of them asks again. The allocator keeps what is given
/// back (mallopt(3), `M_TRIM_THRESHOLD`), and none of its pages is touched.
const HEADROOM_BYTES: usize = 2 << 20;
/// From this size on requests look for headroom.
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
