//! How memory comes back: eviction, compaction, refilling, expiry.

pub(crate) mod evict;
pub(crate) mod over_provisioning;
