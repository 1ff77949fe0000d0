//! Over-provisioning: without eviction (`-M`) a part of the memory is reserved for garbage, which decides whether a
//! store is admitted.
//!
//! A delete or replacement leaves a hole in the log. Compaction joins holes by moving the live items between them: the
//! higher the garbage ratio of a segment, the less is moved for each byte freed. So a part of the memory is kept free
//! of live bytes. A store that would add live bytes to that part is refused. One that replaces as much is admitted, and
//! some segment then has that garbage ratio.
//!
//! An expired item counts as live until it is found. Segments in which all items have expired are found at once, others
//! only by scanning them, which the background step does as soon as a store was refused.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::engine::Engine;
use crate::handle::Guard;
use crate::log::segment::{LARGE, MAIN, SMALL};
use crate::reclaim::victim::{RECLAIM_STEP_BYTES, ReclaimScope};
use crate::request::WriteError;

/// The part of the memory that is reserved for garbage. At worst sixteen bytes are moved for each byte stored.
const OVER_PROVISIONING_PART: u32 = 16;

/// How full the cache has been since memory was last plenty.
#[derive(Default)]
pub(crate) struct OverProvisioning {
    /// The most live bytes in that time, either with an admitted store or when one was refused.
    live_bytes_max: AtomicU64,
    /// Segments that are still to be searched for expired items, since a store was refused.
    unsearched: AtomicUsize,
}

impl OverProvisioning {
    fn note(&self, live_bytes: u64) {
        if live_bytes > self.live_bytes_max.load(Relaxed) {
            self.live_bytes_max.fetch_max(live_bytes, Relaxed);
        }
    }

    /// Notes that `walked` more segments were searched. True: there are others.
    pub(crate) fn note_searched(&self, walked: usize) -> bool {
        let unsearched = self.unsearched.load(Relaxed);
        if unsearched == 0 {
            return false;
        }
        self.unsearched.store(unsearched.saturating_sub(walked), Relaxed);
        unsearched > walked
    }

    /// Resets the state: memory is plenty.
    pub(crate) fn forget(&self) {
        if self.live_bytes_max.load(Relaxed) != 0 {
            self.live_bytes_max.store(0, Relaxed);
        }
    }
}

/// The number of segments that are reserved for garbage and for compaction, of so many.
pub(crate) fn kept_segments(log_segments: u32, reserve: u32) -> u32 {
    log_segments / OVER_PROVISIONING_PART + reserve
}

impl Guard<'_> {
    /// Admits or refuses a store that adds `added_bytes` live bytes. Always admits one that replaces as much.
    pub(crate) fn admit(&self, added_bytes: i64) -> Result<(), WriteError> {
        let engine = self.engine();
        if engine.admits(added_bytes) {
            return Ok(());
        }
        // Expired and flushed items count as live until they are found, and a run until no guard sees it.
        if self.reclaim_some(RECLAIM_STEP_BYTES, ReclaimScope::DeadOnly) > 0 || engine.arena.has_limbo() {
            engine.arena.drain_limbo();
            return Err(WriteError::TryAgain);
        }
        // Nor is a store refused for a value that stopped arriving.
        if engine.arena.revoke_stopped_upload(self.now()) {
            return Err(WriteError::TryAgain);
        }
        engine.note_refusal();
        self.counters().out_of_memory.add(1);
        Err(WriteError::OutOfMemory)
    }
}

impl Engine {
    fn admits(&self, added_bytes: i64) -> bool {
        if added_bytes <= 0 {
            return true;
        }
        let kept_bytes = self.watermarks.kept_bytes() as i64;
        let left_bytes = self.usable_bytes() - added_bytes;
        let live_bytes = self.live_bytes(&[SMALL, MAIN, LARGE]) + added_bytes as u64;
        if left_bytes >= kept_bytes {
            self.over_provisioning.note(live_bytes);
            return true;
        }
        // The index takes memory after items have come, the ends of segments stay empty, and two threads that count at
        // once count too little. None of that may refuse a store that replaces what was deleted.
        left_bytes >= kept_bytes / 2 && live_bytes <= self.over_provisioning.live_bytes_max.load(Relaxed)
    }

    fn note_refusal(&self) {
        self.over_provisioning.note(self.live_bytes(&[SMALL, MAIN, LARGE]));
        if self.over_provisioning.unsearched.load(Relaxed) == 0 {
            // One more than there are: the first may have been searched in part.
            self.over_provisioning.unsearched.store(self.arena.ids().count() + 1, Relaxed);
        }
    }

    /// Bytes that are not live and could be freed, including garbage. Negative if the limit was lowered.
    fn usable_bytes(&self) -> i64 {
        let unused_bytes = self.arena.budget.limit_bytes() as i64 - self.arena.budget.used_bytes() as i64;
        let in_segments = self.arena.segments.capacity_bytes.load(Relaxed) as i64;
        unused_bytes + self.arena.committed_bytes() as i64 + in_segments
            - self.live_bytes(&[SMALL, MAIN]) as i64
    }

    fn live_bytes(&self, queues: &[usize]) -> u64 {
        let counters =
            self.counters.iter().flat_map(|counters| queues.iter().map(|&at| &counters.queues[at]));
        // A single handle's counter may have wrapped around: other handles count its items' deaths. For a moment the
        // sum may be negative too, if it includes a death but not yet the birth.
        let sum = counters.fold(0_u64, |sum, queue| sum.wrapping_add(queue.live_bytes.get()));
        (sum as i64).max(0) as u64
    }
}
