//! A record of what a handle evicted, for whoever wants to watch.

use crate::handle::{Guard, Handle};
use crate::log::item::FETCHED;
use crate::log::offset::Offset;
use crate::request::Expiry;

/// A living item that had to go.
#[derive(Clone, Debug)]
pub struct Evicted {
    /// Its key.
    pub key: Box<[u8]>,
    /// Was it fetched since it was stored?
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

/// What a handle remembers of its evictions.
#[derive(Default)]
pub(crate) struct EvictionLog {
    is_kept: bool,
    evicted: Vec<Evicted>,
}

impl Handle {
    /// Whether evictions by this handle are to be remembered until they are taken; else they are forgotten.
    pub fn record_evictions(&mut self, is_kept: bool) {
        let eviction_log = &mut self.eviction_log.get_mut();
        eviction_log.is_kept = is_kept;
        if !is_kept {
            eviction_log.evicted = Vec::new();
        }
    }

    /// Are they?
    pub fn records_evictions(&self) -> bool {
        self.eviction_log.borrow().is_kept
    }

    /// What was evicted since the last call; only the first thousand of it.
    pub fn take_evicted(&mut self) -> Vec<Evicted> {
        std::mem::take(&mut self.eviction_log.get_mut().evicted)
    }
}

impl Guard<'_> {
    /// Notes that the item at an offset is evicted, if anybody wants to know.
    pub(crate) fn record_eviction(&self, offset: Offset, idle_secs: u32) {
        let eviction_log = &mut *self.handle.eviction_log.borrow_mut();
        if !eviction_log.is_kept || eviction_log.evicted.len() >= EVICTION_LOG_MAX {
            return;
        }
        let raw = self.item_ref_at(offset);
        eviction_log.evicted.push(Evicted {
            key: raw.key().into(),
            is_fetched: raw.marks() & FETCHED != 0,
            expiry: raw.expiry(),
            idle_secs,
            queue: self.engine().arena.queue_at(offset),
            value_bytes: raw.value_bytes(),
        });
    }
}

const EVICTION_LOG_MAX: usize = 1000;
