//! What the cache holds and did, for those who want to see it.

pub(crate) mod eviction_log;
pub(crate) mod index_scan;
pub(crate) mod segment_report;
pub(crate) mod stats;
