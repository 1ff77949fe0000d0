//! The memory of connections: requests that have not come whole, and replies that were not taken yet.
//!
//! This memory lies outside of the cache, so it has a budget of its own. Each connection has a small free allowance;
//! what exceeds it is charged, and refused where a connection would hold more than it leaves to all others (dynamic
//! thresholds, as in shared-memory switches: Choudhury and Hahne, "Dynamic queue length thresholds", 1998). No item is
//! evicted for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The budget.
#[derive(Debug)]
pub struct BufferBudget {
    limit_bytes: u64,
    used_bytes: AtomicU64,
}

/// The charge of one connection for one purpose. Dropping it gives the memory back.
#[derive(Default)]
pub(crate) struct BufferCharge {
    charged: Option<(Arc<BufferBudget>, u64)>,
}

impl BufferBudget {
    /// The budget of a server with `memory_bytes` of cache. `limit_bytes`: `-o read_buf_mem_limit`; 0: not set.
    pub fn new(limit_bytes: u64, memory_bytes: u64) -> Self {
        let limit_bytes = match limit_bytes {
            0 => (memory_bytes / MEMORY_PART).max(LIMIT_BYTES_MIN),
            _ => limit_bytes,
        };
        Self { limit_bytes, used_bytes: AtomicU64::new(0) }
    }

    /// Bytes charged.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Relaxed)
    }

    /// Bytes that may be charged.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }
}

impl BufferCharge {
    /// Sets the charge to `bytes`. False: the budget does not allow it, and nothing has changed.
    pub(crate) fn resize(&mut self, buffers: &Arc<BufferBudget>, bytes: usize) -> bool {
        let charge = charge(bytes);
        let before = self.charge();
        if charge > before {
            let fits = |used: u64| {
                let used = used.saturating_add(charge - before);
                let left = buffers.limit_bytes.saturating_sub(used);
                (charge <= left).then_some(used)
            };
            if buffers.used_bytes.fetch_update(Relaxed, Relaxed, fits).is_err() {
                return false;
            }
        }
        self.note(buffers, charge.max(before));
        self.shrink(charge);
        true
    }

    /// The same for bytes that are there already, of one read or one reply. Always succeeds.
    pub(crate) fn force(&mut self, buffers: &Arc<BufferBudget>, bytes: usize) {
        if !self.resize(buffers, bytes) {
            let charge = charge(bytes);
            buffers.used_bytes.fetch_add(charge - self.charge(), Relaxed);
            self.note(buffers, charge);
        }
    }

    fn charge(&self) -> u64 {
        self.charged.as_ref().map_or(0, |&(_, bytes)| bytes)
    }

    fn note(&mut self, buffers: &Arc<BufferBudget>, charge: u64) {
        match &mut self.charged {
            Some((_, bytes)) => *bytes = charge,
            None if charge > 0 => self.charged = Some((Arc::clone(buffers), charge)),
            None => {}
        }
    }

    fn shrink(&mut self, charge: u64) {
        if let Some((buffers, bytes)) = &mut self.charged
            && *bytes > charge
        {
            buffers.used_bytes.fetch_sub(*bytes - charge, Relaxed);
            *bytes = charge;
        }
    }
}

impl Drop for BufferCharge {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

fn charge(bytes: usize) -> u64 {
    bytes.saturating_sub(FREE_BYTES) as u64
}

/// The free allowance of a connection for each purpose: as much as memcached reads at once.
pub(crate) const FREE_BYTES: usize = 16 << 10;
/// The part of the cache's memory that connections may take besides ...
const MEMORY_PART: u64 = 16;
/// ... and at least this much.
const LIMIT_BYTES_MIN: u64 = 32 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_holds_no_more_than_it_leaves_to_others() {
        let buffers = Arc::new(BufferBudget::new(1 << 20, 1 << 30));
        let mut many: Vec<BufferCharge> = (0..100).map(|_| BufferCharge::default()).collect();
        assert!(!many[0].resize(&buffers, (512 << 10) + FREE_BYTES + 1));
        assert!(many[0].resize(&buffers, (512 << 10) + FREE_BYTES));
        assert!(!many[1].resize(&buffers, 300 << 10));
        let count =
            many[1..].iter_mut().filter_map(|held| held.resize(&buffers, 64 << 10).then_some(())).count();
        assert!((8..=10).contains(&count), "{count}");
        assert!(many[99].resize(&buffers, FREE_BYTES), "what each has for itself");
        assert!(buffers.used_bytes() <= buffers.limit_bytes());
        many[99].force(&buffers, 1 << 20);
        assert!(many[99].resize(&buffers, 0));
        drop(many);
        assert_eq!(buffers.used_bytes(), 0);
    }
}
