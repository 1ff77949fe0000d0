//! A value on cache lines that it shares with nothing: where one core writes often, others that read its neighbours
//! would have to fetch the line again each time.

use std::ops::Deref;

/// Two lines: processors fetch them in pairs.
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
