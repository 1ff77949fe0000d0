//! Statistics, scans and reports of what the cache holds and did.

pub(crate) mod eviction_log;
pub(crate) mod index_scan;
pub(crate) mod segment_report;
pub(crate) mod stats;
