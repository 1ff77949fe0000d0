//! Refilling: new items go into the holes of a segment, whose live items stay in place (`log/holes.rs`).
//!
//! First the holes of a claimed segment are mapped. Then the segment waits until every guard has ended that may read
//! what was dead by then. Then its stream opens it in place of a free one.

use std::sync::atomic::Ordering::Relaxed;

use crate::engine::Engine;
use crate::handle::Guard;
use crate::log::allocator::WriteStream;
use crate::log::holes::HoleMap;
use crate::log::segment::{Claim, GROUPS, HeldSegment, SegmentId};
use crate::policy::queues::ReclaimMode;
use crate::reclaim::Reclaimer;
use crate::reclaim::pressure::Pressure;
use crate::reclaim::victim::{AHEAD_ITEMS, BATCH, Victim};

/// A segment of which more than this part was never filled is better compacted.
const FULL_PART: usize = 8;
/// A pending refill is put back after this many segments were taken by other streams.
const REFUSALS_MAX: u32 = 8;

/// A segment whose holes are mapped, and will be filled once nobody reads there any more.
pub(crate) struct PendingRefill {
    pub(super) held: HeldSegment,
    pub(super) hole_map: HoleMap,
    /// How often another stream took a segment meanwhile.
    refusals: u32,
}

impl Reclaimer {
    /// The pending refill, if it belongs to this stream, has room, and nobody reads its holes any more.
    pub(super) fn take_refill(
        &mut self,
        engine: &Engine,
        stream: WriteStream,
        flush_mark: u32,
        bytes: usize,
    ) -> Option<PendingRefill> {
        let pending_refill = self.pending_refill.as_mut()?;
        let segment = engine.arena.segments.get(pending_refill.held.id());
        let is_useless = if segment.flush_mark.load(Relaxed) != flush_mark {
            true
        } else if engine.policy.streams.of_segment(segment) != stream {
            pending_refill.refusals += 1;
            pending_refill.refusals == REFUSALS_MAX
        } else if !pending_refill.held.is_unread(&engine.arena.epochs) {
            false
        } else if pending_refill.hole_map.has_room(bytes) {
            return self.pending_refill.take();
        } else {
            segment.has_unfilled_holes.store(true, Relaxed);
            true
        };
        if is_useless {
            self.put_pending_refill_back(engine);
        }
        None
    }

    /// True if the live items of a sealed segment may stay in place: the handle fills segments of that stream, and most
    /// holes of this segment were filled the last time.
    fn may_refill(&self, engine: &Engine, id: SegmentId) -> bool {
        let segments = &engine.arena.segments;
        let segment = segments.get(id);
        let filled_bytes = segment.usage.filled_bytes() as usize;
        engine.evict
            && !engine.is_crowded()
            && self.pending_refill.is_none()
            && self.busiest == Some(engine.policy.streams.of_segment(segment))
            && [0, GROUPS - 1].contains(&usize::from(segment.group.load(Relaxed)))
            && filled_bytes >= segments.segment_bytes - segments.segment_bytes / FULL_PART
            && !segment.has_unfilled_holes.load(Relaxed)
    }

    /// How to reclaim a segment that was claimed.
    pub(super) fn mode(&self, engine: &Engine, id: SegmentId, mode: ReclaimMode) -> ReclaimMode {
        if mode == ReclaimMode::Compact && self.may_refill(engine, id) { ReclaimMode::Refill } else { mode }
    }

    /// A stream took a segment, or the holes of one: chooses the victim to reclaim while that is being filled, if any.
    pub(super) fn note_supplied(&mut self, engine: &Engine, stream: WriteStream, is_refill: bool) {
        self.busiest = Some(stream);
        if self.victim.is_none() {
            // One segment is freed for one that was taken: stores reclaim it while they fill the other.
            self.victim = self.victim_ahead(engine, is_refill);
        }
    }

    /// A victim to reclaim although there is enough memory, so that unused memory need not be touched.
    fn victim_ahead(&self, engine: &Engine, is_refill: bool) -> Option<Victim> {
        let segments = &engine.arena.segments;
        let claim = if is_refill && engine.is_under(Pressure::Nearing) {
            engine.policy.claim_garbage_if(segments, |id| self.may_refill(engine, id))
        } else if engine.is_under(Pressure::Growing) {
            engine.policy.claim_mostly_garbage(segments)
        } else {
            None
        };
        let claim = claim?;
        let mode = self.mode(engine, claim.id(), ReclaimMode::Compact);
        Some(engine.victim(claim, mode))
    }

    /// Makes the victim, whose holes are mapped, the pending refill.
    pub(super) fn await_unpins(&mut self, engine: &Engine, claim: Claim) {
        let held = engine.arena.segments.hold_for_refill(claim, &engine.arena.epochs);
        let hole_map = std::mem::take(&mut self.hole_map);
        self.pending_refill = Some(PendingRefill { held, hole_map, refusals: 0 });
    }

    /// Returns the pending refill to its queue.
    pub(super) fn put_pending_refill_back(&mut self, engine: &Engine) -> bool {
        let Some(pending_refill) = self.pending_refill.take() else { return false };
        engine.policy.put_back(&engine.arena.segments, pending_refill.held.into_claim());
        true
    }
}

impl Guard<'_> {
    /// Maps the holes among the next few items of a victim.
    pub(super) fn find_holes(&self, victim: &mut Victim) {
        let arena = &self.engine().arena;
        let mut reclaimer = self.handle.reclaimer.borrow_mut();
        let mut walk = victim.walk.walk(self.pinned(), &arena.region);
        let mut is_first = victim.walk.next() == arena.segments.items(victim.walk.id()).0;
        for _ in 0..BATCH {
            let at = walk.bookmark().at();
            let Some(bytes) = reclaimer.hole_map.note_next(&mut walk, is_first) else { break };
            arena.region.prefetch(at.bytes() + AHEAD_ITEMS * bytes);
            is_first = false;
        }
        victim.walk.seek_after(&walk);
    }
}
