//! A value on cache lines of its own, so that a core that writes it often does not slow down others that read its
//! neighbours (false sharing).

use std::ops::Deref;

/// Two lines: processors prefetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(T);

impl<T> CachePadded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(value)
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
