//! Eviction of live items.

use std::sync::atomic::Ordering::Relaxed;

use crate::handle::Guard;
use crate::index::buckets::{Bucket, SlotRef};
use crate::index::hash::Hash;
use crate::inspect::stats::QueueCounters;
use crate::log::item::FETCHED;
use crate::log::segment::{MAIN, SMALL};
use crate::policy::priority;
use crate::policy::queues::ReclaimMode;
use crate::reclaim::victim::Victim;
use crate::request::Expiry;

/// An evicted item that was used this recently counts as active (as memcached's `evicted_active`).
const ACTIVE_SECS: u32 = 60;

impl Guard<'_> {
    /// Evicts a live item, and adds its key to the ghost.
    pub(super) fn evict<'t>(&'t self, bucket: &Bucket<'t>, hash: Hash, found: SlotRef<'t>, from: usize) {
        let (offset, raw) = (found.entry.offset(), self.item_ref(&found));
        let policy = &self.engine().policy;
        policy.ghost.remember(hash, from);
        let items = self.engine().index.items();
        policy.ghost.fit(items);
        self.handle.adaptation.borrow_mut().note_eviction(from, items, &policy.insert_priority);
        let idle_secs = self.now().secs.saturating_sub(raw.used_secs());
        let fetched = raw.marks() & FETCHED != 0;
        let counters = self.counters();
        let queue: &QueueCounters = &counters.queues[self.engine().arena.queue_at(offset)];
        counters.evictions.add(1);
        queue.evictions.add(1);
        queue.evicted_with_expiry.add(i64::from(raw.expiry() != Expiry::NEVER));
        queue.evicted_idle_secs.set(u64::from(idle_secs));
        counters.evicted_unfetched.add(i64::from(!fetched));
        queue.evicted_unfetched.add(i64::from(!fetched));
        counters.evicted_active.add(i64::from(fetched && idle_secs < ACTIVE_SECS));
        self.record_eviction(&found, idle_secs);
        self.unlink(bucket, found);
    }

    /// Reclaims a run, which holds one item: evicts it, or puts it into the main queue. Returns the memory examined.
    pub(super) fn reclaim_run(&self, victim: Victim) -> usize {
        let engine = self.engine();
        let located =
            victim.walk.walk(self.pinned(), &engine.arena.region).next().expect("a run has one item");
        let (at, raw) = (located.offset(), located.raw());
        let hash = self.prepare(raw.key());
        let bucket = engine.index.lock(self.pinned(), hash);
        if let Some(found) = bucket.find(hash, |found| found.entry.offset() == at) {
            let segment = engine.arena.segments.get(victim.walk.id());
            let from = segment.queue();
            if engine.liveness(at, raw, self.now()).is_err() {
                self.drop_dead(&bucket, found);
            } else if victim.mode != ReclaimMode::Evict || found.entry.uses() > 0 {
                let is_evicted = victim.mode == ReclaimMode::Evict;
                if is_evicted {
                    bucket.clear_uses(&found);
                    segment.weight.store(priority::of_uses(found.entry.uses()), Relaxed);
                    segment.queue.store(MAIN as u8, Relaxed);
                    let moves = if from == SMALL {
                        &self.counters().moves_to_main
                    } else {
                        &self.counters().moves_within_main
                    };
                    moves.add(1);
                }
                engine.policy.requeue(&engine.arena.segments, victim.walk.into_claim());
                return 64;
            } else {
                self.evict(&bucket, hash, found, from);
            }
        }
        drop(bucket);
        let examined_bytes = engine.arena.segments.memory_bytes(victim.walk.id()) as usize;
        engine.retire(victim.walk.into_claim());
        examined_bytes
    }
}
