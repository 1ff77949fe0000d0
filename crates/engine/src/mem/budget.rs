//! The memory budget: one sum for index, ghost, segments and large values.
//!
//! Charged per page, segment or upload step, never per request.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(crate) struct Budget {
    limit_bytes: AtomicU64,
    used_bytes: AtomicU64,
}

impl Budget {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self { limit_bytes: AtomicU64::new(limit_bytes), used_bytes: AtomicU64::new(0) }
    }

    /// Charges `bytes` if they fit.
    pub(crate) fn try_take(&self, bytes: u64) -> bool {
        let limit = self.limit_bytes();
        self.used_bytes
            .fetch_update(Relaxed, Relaxed, |used| used.checked_add(bytes).filter(|&sum| sum <= limit))
            .is_ok()
    }

    /// Charges `bytes` even if they do not fit: for the index, which must not lose an item. The next eviction pays back
    /// the excess.
    pub(crate) fn force(&self, bytes: u64) {
        self.used_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn give(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Relaxed);
    }

    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Relaxed)
    }

    pub(crate) fn set_limit_bytes(&self, limit_bytes: u64) {
        self.limit_bytes.store(limit_bytes, Relaxed);
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Relaxed)
    }

    pub(crate) fn is_exceeded(&self) -> bool {
        self.exceeding_bytes() > 0
    }

    /// Charged beyond the limit.
    pub(crate) fn exceeding_bytes(&self) -> u64 {
        self.used_bytes().saturating_sub(self.limit_bytes())
    }
}
