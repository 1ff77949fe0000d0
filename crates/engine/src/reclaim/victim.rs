//! Victims: which segment or run is emptied next, and how far that has come.

use std::sync::atomic::Ordering::Relaxed;

use crate::engine::Engine;
use crate::handle::Guard;
use crate::log::offset::Offset;
use crate::log::segment::SegmentId;
use crate::policy::queues::ReclaimMode;

/// What one request empties at most, in bytes of victims, before it lets others run: a hundred microseconds with small
/// items.
pub(crate) const RECLAIM_STEP_BYTES: usize = 32 << 10;
/// Items whose index lines are fetched ahead of the work on them.
pub(super) const BATCH: usize = 8;
/// How many items ahead the header of one is fetched. Items that share a segment are of about the same size.
pub(super) const AHEAD_ITEMS: usize = 20;

/// A segment or run being emptied.
#[derive(Clone, Copy)]
pub(crate) struct Victim {
    pub(crate) id: SegmentId,
    pub(super) mode: ReclaimMode,
    pub(super) next: Offset,
    pub(super) end: Offset,
}

/// What may be emptied.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReclaimScope {
    /// What the handle is emptying already.
    InProgress,
    /// That, then what has expired or was flushed.
    DeadOnly,
    /// That, then garbage, then (with eviction) whatever is due.
    Any,
}

impl Guard<'_> {
    /// Looks at up to `bytes_max` bytes of victims (but at least at one item). Returns how many it looked at; 0:
    /// nothing to empty.
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
                    // Space is to come.
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
                // An empty tail still took the work of choosing.
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
            // Nothing else is left: it has to be emptied after all.
            None if reclaimer.put_pending_refill_back(engine) => next()?,
            None => return None,
        };
        Some(engine.victim(id, mode))
    }
}

impl Engine {
    /// A segment that was claimed to be emptied.
    pub(super) fn victim(&self, id: SegmentId, mode: ReclaimMode) -> Victim {
        let segments = &self.arena.segments;
        Victim { id, mode, next: segments.first(id), end: segments.end(id) }
    }
}
