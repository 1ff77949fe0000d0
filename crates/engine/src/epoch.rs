//! Pinning, and frees that wait until nobody is pinned.

pub(crate) mod epochs;
pub(crate) mod limbo;
