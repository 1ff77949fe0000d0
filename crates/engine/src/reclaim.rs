//! How memory comes back: eviction, compaction, refilling, expiry; and how stores get it ([`supply`]).
//!
//! Work is done a few items at a time. While memory is low, every store pays for the bytes that it takes by reclaiming
//! about four times as many of its handle's victim. So nobody waits for a whole segment, and the engine needs no thread
//! of its own.
//!
//! It knows `policy`, `log` and `index`, but no requests (`ops`).

pub(crate) mod accounting;
pub(crate) mod compact;
pub(crate) mod evict;
pub(crate) mod expire;
pub(crate) mod maintain;
pub(crate) mod over_provisioning;
pub(crate) mod pressure;
pub(crate) mod refill;
pub(crate) mod retire;
pub(crate) mod supply;
pub(crate) mod victim;

use crate::engine::Engine;
use crate::log::allocator::WriteStream;
use crate::log::holes::HoleMap;
use crate::reclaim::expire::Crawl;
use crate::reclaim::refill::PendingRefill;
use crate::reclaim::victim::Victim;

/// The reclaiming state of a handle.
#[derive(Default)]
pub(crate) struct Reclaimer {
    /// The segment that is being emptied, or whose holes are being mapped.
    pub(crate) victim: Option<Victim>,
    /// The holes found in it so far.
    hole_map: HoleMap,
    /// The segment whose holes will be filled next.
    pending_refill: Option<PendingRefill>,
    /// The stream that took a segment last.
    busiest: Option<WriteStream>,
    crawl: Crawl,
}

impl Reclaimer {
    /// True if it is working on memory that will be free.
    pub(crate) fn has_begun(&self) -> bool {
        self.victim.is_some() || self.pending_refill.is_some()
    }

    /// Returns the victim and the pending refill to their queues, for all handles.
    pub(crate) fn release(&mut self, engine: &Engine) {
        if let Some(victim) = self.victim.take() {
            engine.policy.put_back(&engine.arena.segments, victim.walk.into_claim());
        }
        self.hole_map = HoleMap::default();
        self.put_pending_refill_back(engine);
    }
}
