//! Victims: the segment or run to reclaim next, and the progress of that.

use std::sync::atomic::Ordering::Relaxed;

use crate::engine::Engine;
use crate::handle::Guard;
use crate::log::segment::Claim;
use crate::log::walk::ClaimedWalk;
use crate::policy::queues::ReclaimMode;

/// Bytes of victims that one request examines before it lets other connections run: a hundred microseconds with small
/// items.
pub(crate) const RECLAIM_STEP_BYTES: usize = 32 << 10;
/// Items whose index lines are prefetched together.
pub(super) const BATCH: usize = 8;
/// How many items ahead an item's header is prefetched. Items that share a segment have similar sizes.
pub(super) const AHEAD_ITEMS: usize = 20;

/// A segment or run that is being reclaimed.
pub(crate) struct Victim {
    pub(super) walk: ClaimedWalk,
    pub(super) mode: ReclaimMode,
}

/// What may be reclaimed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReclaimScope {
    /// The handle's present victim only.
    InProgress,
    /// That, then expired and flushed segments.
    DeadOnly,
    /// That, then garbage, then (with eviction) what is due.
    Any,
}

impl Guard<'_> {
    /// Examines up to `bytes_max` bytes of victims (at least one item). Returns how many it examined; 0: there is no
    /// victim.
    pub(crate) fn reclaim_some(&self, bytes_max: usize, scope: ReclaimScope) -> usize {
        let mut done = 0;
        while done < bytes_max.max(1) {
            let in_hand = self.handle.reclaimer.borrow_mut().victim.take();
            let Some(mut victim) = in_hand.or_else(|| self.choose_victim(scope)) else { break };
            let before = victim.walk.next();
            if self.engine().arena.segments.is_run(victim.walk.id()) {
                done += self.reclaim_run(victim);
                continue;
            }
            if victim.mode == ReclaimMode::Refill {
                self.find_holes(&mut victim);
                done += before.bytes_to(victim.walk.next());
                let mut reclaimer = self.handle.reclaimer.borrow_mut();
                if !victim.walk.is_at_end() {
                    reclaimer.victim = Some(victim);
                } else {
                    reclaimer.await_unpins(self.engine(), victim.walk.into_claim());
                    self.counters().refilled.add(1);
                }
                continue;
            }
            if self.reclaim_batch(&mut victim).is_err() {
                if self.engine().evict {
                    // Waits for space.
                    self.handle.reclaimer.borrow_mut().victim = Some(victim);
                } else {
                    let claim = victim.walk.into_claim();
                    self.engine().policy.put_back(&self.engine().arena.segments, claim);
                }
                break;
            }
            done += before.bytes_to(victim.walk.next());
            if !victim.walk.is_at_end() {
                self.handle.reclaimer.borrow_mut().victim = Some(victim);
            } else {
                self.engine().retire(victim.walk.into_claim());
                // Choosing a victim took work even if only its empty tail was left.
                done += 64;
            }
        }
        done
    }

    fn choose_victim(&self, scope: ReclaimScope) -> Option<Victim> {
        if scope == ReclaimScope::InProgress {
            return None;
        }
        let engine = self.engine();
        let segments = &engine.arena.segments;
        let mark = engine.flush_mark.load(Relaxed);
        let only_dead = scope == ReclaimScope::DeadOnly;
        let next = || engine.policy.next_victim(segments, self.now(), mark, only_dead, engine.evict);
        let claim_most_garbage = || Some((engine.policy.claim_most_garbage(segments)?, ReclaimMode::Compact));
        let mut reclaimer = self.handle.reclaimer.borrow_mut();
        let (claim, mode) = match next() {
            Some((claim, mode)) => {
                let mode = reclaimer.mode(engine, claim.id(), mode);
                (claim, mode)
            }
            None if only_dead => return None,
            None if !engine.evict => claim_most_garbage()?,
            // There is no other victim: the pending refill has to be reclaimed after all.
            None if reclaimer.put_pending_refill_back(engine) => next()?,
            None => return None,
        };
        Some(engine.victim(claim, mode))
    }
}

impl Engine {
    /// Makes a victim of a claimed segment.
    pub(super) fn victim(&self, claim: Claim, mode: ReclaimMode) -> Victim {
        Victim { walk: ClaimedWalk::new(&self.arena.segments, claim), mode }
    }
}
