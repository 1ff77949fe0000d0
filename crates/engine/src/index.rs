//! From the hash of a key to the offset of its item.

pub(crate) mod buckets;
pub(crate) mod hash;
