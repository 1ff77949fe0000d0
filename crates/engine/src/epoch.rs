//! Epoch-based reclamation: pinning, and memory that waits until no guard can read it.

pub(crate) mod epochs;
pub(crate) mod limbo;
