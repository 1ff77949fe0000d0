//! Over-provisioning: without eviction (`-M`), a part of the memory is kept for garbage, and decides which stores are
//! admitted.
//!
//! A delete or replacement leaves a hole in the log. Compaction joins holes by moving what lives beside them: the
//! higher the garbage ratio of a segment, the less is moved for each byte won. So a part of the memory is kept free of
//! live bytes. A store that adds live bytes beyond the rest is refused; one that replaces as much is admitted, and some
//! segment then has that garbage ratio.
//!
//! An expired item counts as live until it is found. Segments in which all have expired are found at once; the others
//! only by looking at all items, which the background step does as soon as a store was refused.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::engine::Engine;
use crate::handle::Guard;
use crate::log::segment::{LARGE, MAIN, SMALL};
use crate::reclaim::victim::{RECLAIM_STEP_BYTES, ReclaimScope};
use crate::request::WriteError;

/// The part of the memory kept for garbage. At worst sixteen bytes are then moved for each that is stored.
const OVER_PROVISIONING_PART: u64 = 16;

/// How full the cache has been.
#[derive(Default)]
pub(crate) struct OverProvisioning {
    /// The most live bytes since memory was plenty: with a store that was admitted, or when one was refused.
    live_bytes_max: AtomicU64,
    /// Segments to be searched for expired items since a store was refused.
    unsearched: AtomicUsize,
}

impl OverProvisioning {
    fn note(&self, live_bytes: u64) {
        if live_bytes > self.live_bytes_max.load(Relaxed) {
            self.live_bytes_max.fetch_max(live_bytes, Relaxed);
        }
    }

    /// So many segments more were searched: are there others?
    pub(crate) fn note_searched(&self, walked: usize) -> bool {
        let unsearched = self.unsearched.load(Relaxed);
        if unsearched == 0 {
            return false;
        }
        self.unsearched.store(unsearched.saturating_sub(walked), Relaxed);
        unsearched > walked
    }

    /// Memory is plenty.
    pub(crate) fn forget(&self) {
        if self.live_bytes_max.load(Relaxed) != 0 {
            self.live_bytes_max.store(0, Relaxed);
        }
    }
}

/// How many segments of so much memory are kept for garbage and for compaction.
pub(crate) fn kept_segments(memory_bytes: u64, segment_bytes: usize, reserve: usize) -> u32 {
    (memory_bytes / segment_bytes as u64 / OVER_PROVISIONING_PART) as u32 + reserve as u32
}

impl Guard<'_> {
    /// Admits a store that adds so many live bytes; always, where it replaces as much.
    pub(crate) fn admit(&self, added_bytes: i64) -> Result<(), WriteError> {
        let engine = self.engine();
        if engine.admits(added_bytes) {
            return Ok(());
        }
        // What has expired or was flushed counts as live until it is found, and a run until nobody sees it any more.
        if self.reclaim_some(RECLAIM_STEP_BYTES, ReclaimScope::DeadOnly) > 0 || engine.arena.has_limbo() {
            engine.arena.drain_limbo();
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
        // The index takes memory after items have come, the ends of segments stay empty, and two who count at once
        // count too little: none of that may refuse a store that replaces what was deleted.
        left_bytes >= kept_bytes / 2 && live_bytes <= self.over_provisioning.live_bytes_max.load(Relaxed)
    }

    fn note_refusal(&self) {
        self.over_provisioning.note(self.live_bytes(&[SMALL, MAIN, LARGE]));
        if self.over_provisioning.unsearched.load(Relaxed) == 0 {
            // One more than there are: the first may have been searched in part.
            self.over_provisioning.unsearched.store(self.arena.segments.ids().count() + 1, Relaxed);
        }
    }

    /// Bytes that are not live and could be won, garbage included. Below zero where the limit was lowered.
    fn usable_bytes(&self) -> i64 {
        let unused_bytes = self.arena.budget.limit_bytes() as i64 - self.arena.budget.used_bytes() as i64;
        let in_segments = self.arena.segments.capacity_bytes.load(Relaxed) as i64;
        unused_bytes + self.arena.runs.committed_bytes() as i64 + in_segments
            - self.live_bytes(&[SMALL, MAIN]) as i64
    }

    fn live_bytes(&self, queues: &[usize]) -> u64 {
        let counters =
            self.counters.iter().flat_map(|counters| queues.iter().map(|&at| &counters.queues[at]));
        // One handle's may have wrapped around: items die by the hands of others. For a moment the sum can be below
        // zero too: the death was counted after its handle had been read, and the birth is not seen yet.
        let sum = counters.fold(0_u64, |sum, queue| sum.wrapping_add(queue.live_bytes.get()));
        (sum as i64).max(0) as u64
    }
}
