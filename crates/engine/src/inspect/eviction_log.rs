//! A log of the items that a handle evicted, for watchers.

use crate::handle::{Guard, Handle};
use crate::index::buckets::SlotRef;
use crate::log::item::FETCHED;
use crate::request::Expiry;

/// A live item that was evicted.
#[derive(Clone, Debug)]
pub struct Evicted {
    /// Its key.
    pub key: Box<[u8]>,
    /// True if it was fetched since it was stored.
    pub is_fetched: bool,
    /// When it would have expired.
    pub expiry: Expiry,
    /// Seconds since its last use.
    pub idle_secs: u32,
    /// Which of [`crate::Stats::queues`] it lived in.
    pub queue: usize,
    /// Size of its value.
    pub value_bytes: usize,
}

/// The recorded evictions of a handle.
#[derive(Default)]
pub(crate) struct EvictionLog {
    is_kept: bool,
    evicted: Vec<Evicted>,
}

impl Handle {
    /// Turns the recording of this handle's evictions on or off.
    pub fn record_evictions(&mut self, is_kept: bool) {
        let eviction_log = &mut self.eviction_log.get_mut();
        eviction_log.is_kept = is_kept;
        if !is_kept {
            eviction_log.evicted = Vec::new();
        }
    }

    /// True if evictions are recorded.
    pub fn records_evictions(&self) -> bool {
        self.eviction_log.borrow().is_kept
    }

    /// Takes the evictions since the last call, at most the first thousand.
    pub fn take_evicted(&mut self) -> Vec<Evicted> {
        std::mem::take(&mut self.eviction_log.get_mut().evicted)
    }
}

impl Guard<'_> {
    /// Records that an item is evicted, if evictions are recorded.
    pub(crate) fn record_eviction(&self, found: &SlotRef<'_>, idle_secs: u32) {
        let eviction_log = &mut *self.handle.eviction_log.borrow_mut();
        if !eviction_log.is_kept || eviction_log.evicted.len() >= EVICTION_LOG_MAX {
            return;
        }
        let raw = self.item_ref(found);
        eviction_log.evicted.push(Evicted {
            key: raw.key().into(),
            is_fetched: raw.marks() & FETCHED != 0,
            expiry: raw.expiry(),
            idle_secs,
            queue: self.engine().arena.queue_at(found.entry.offset()),
            value_bytes: raw.value_bytes(),
        });
    }
}

const EVICTION_LOG_MAX: usize = 1000;
