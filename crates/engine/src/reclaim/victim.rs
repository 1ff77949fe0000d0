//! Victims: the segment or run to reclaim next, and the progress of that.

use std::sync::atomic::Ordering::Relaxed;

use crate::engine::Engine;
use crate::handle::Guard;
use crate::log::offset::Offset;
use crate::log::segment::SegmentId;
use crate::policy::queues::ReclaimMode;

/// Bytes of victims that one request examines before it lets other connections run: a hundred microseconds with small
/// items.
pub(crate) const RECLAIM_STEP_BYTES: usize = 32 << 10;
/// Items whose index lines are prefetched together.
pub(super) const BATCH: usize = 8;
/// How many items ahead an item's header is prefetched. Items that share a segment have similar sizes.
pub(super) const AHEAD_ITEMS: usize = 20;

/// A segment or run that is being reclaimed.
#[derive(Clone, Copy)]
pub(crate) struct Victim {
    pub(crate) id: SegmentId,
    pub(super) mode: ReclaimMode,
    pub(super) next: Offset,
    pub(super) end: Offset,
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
            let before = victim.next;
            if self.engine().arena.segments.is_run(victim.id) {
                done += self.reclaim_run(victim);
                continue;
            }
            if victim.mode == ReclaimMode::Refill {
                self.find_holes(&mut victim);
                done += before.bytes_to(victim.next);
                let mut reclaimer = self.handle.reclaimer.borrow_mut();
                if victim.next < victim.end {
                    reclaimer.victim = Some(victim);
                } else {
                    reclaimer.await_unpins(self.engine(), victim.id);
                    self.counters().refilled.add(1);
                }
                continue;
            }
            if self.reclaim_batch(&mut victim).is_err() {
                if self.engine().evict {
                    // Waits for space.
                    self.handle.reclaimer.borrow_mut().victim = Some(victim);
                } else {
                    self.engine().policy.put_back(&self.engine().arena.segments, victim.id);
                }
                break;
            }
            done += before.bytes_to(victim.next);
            if victim.next < victim.end {
                self.handle.reclaimer.borrow_mut().victim = Some(victim);
            } else {
                self.engine().arena.retire_segment(victim.id);
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
        let most_dead = || Some((engine.policy.most_dead(segments)?, ReclaimMode::Compact));
        let mut reclaimer = self.handle.reclaimer.borrow_mut();
        let (id, mode) = match next() {
            Some((id, mode)) => (id, reclaimer.mode(engine, id, mode)),
            None if only_dead => return None,
            None if !engine.evict => most_dead()?,
            // There is no other victim: the pending refill has to be reclaimed after all.
            None if reclaimer.put_pending_refill_back(engine) => next()?,
            None => return None,
        };
        Some(engine.victim(id, mode))
    }
}

impl Engine {
    /// Makes a victim of a claimed segment.
    pub(super) fn victim(&self, id: SegmentId, mode: ReclaimMode) -> Victim {
        let segments = &self.arena.segments;
        Victim { id, mode, next: segments.first(id), end: segments.end(id) }
    }
}
