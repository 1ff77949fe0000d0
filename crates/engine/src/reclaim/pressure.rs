//! Memory pressure: four watermarks, and the consequences of each.
//!
//! *Spare* memory is in use, and free or about to be: free segments, free runs, limbo. *Available* memory is the spare
//! memory and what the budget still allows. *Kept* memory is [`Watermarks::kept_bytes`].
//!
//! | level | reached when | what follows |
//! |---|---|---|
//! | [`Pressure::Growing`] | spare < kept | segments that are mostly garbage are compacted (1) |
//! | [`Pressure::Nearing`] | available < kept + 2 segments | a refill maps the holes of the next segment ahead |
//! | [`Pressure::Low`], with eviction | available < kept | a store reclaims [`WORK_FACTOR`] times what it takes (4) |
//! | [`Pressure::Low`], without | available < kept | stores have to be admitted (2), and streams share open segments |
//! | [`Pressure::Short`], with eviction | available < kept | victims are emptied, also by the background step |
//! | [`Pressure::Short`], without | available < 2 reserves | the same (3) |
//!
//! 1. Before memory is touched that was never used.
//! 2. `over_provisioning.rs`.
//! 3. Compaction begins late on purpose: the later, the more of each segment is garbage.
//! 4. Unless there is an upload to revoke that stopped arriving (`leases.rs`).
//!
//! A level does not imply the one before: with few segments for many handles, two reserves exceed the kept memory.
//!
//! [`WORK_FACTOR`]: crate::reclaim::supply::WORK_FACTOR

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::engine::Engine;
use crate::log::arena::Arena;
use crate::reclaim::over_provisioning;

/// A watermark of free memory. See the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pressure {
    /// Stores will soon take memory that was never used.
    Growing,
    /// [`Pressure::Low`] is reached once a segment or two are taken and none is freed.
    Nearing,
    /// Less memory is available than should be.
    Low,
    /// Segments have to be reclaimed.
    Short,
}

/// The watermarks. They change with the limit. The reserve is the arena's.
pub(crate) struct Watermarks {
    evict: bool,
    segment_bytes: usize,
    handles: u32,
    /// Free segments to keep ready, so that a store need not wait for readers to leave an evicted one. Without eviction
    /// this includes the memory reserved for garbage (`over_provisioning.rs`).
    kept_segments: AtomicU32,
}

impl Watermarks {
    /// For a log of so many segments.
    pub(crate) fn new(evict: bool, arena: &Arena, log_segments: u32, handles: usize) -> Self {
        let segment_bytes = arena.segments.segment_bytes;
        let watermarks =
            Self { evict, segment_bytes, handles: handles as u32, kept_segments: AtomicU32::new(0) };
        watermarks.set_log_segments(arena, log_segments);
        watermarks
    }

    /// Adapts the watermarks, and the arena's reserve, to a new limit. What they keep free is a part of it: what is
    /// left has to be of use.
    pub(crate) fn set_log_segments(&self, arena: &Arena, log_segments: u32) {
        let (reserve, kept) = if self.evict {
            (0, (2 + self.handles / 8).min(log_segments / 16).max(1))
        } else {
            let reserve = self.handles.min(log_segments / 8).max(1);
            (reserve, over_provisioning::kept_segments(log_segments, reserve))
        };
        self.kept_segments.store(kept, Relaxed);
        // Free segments that are not given back to the system when the budget is exceeded by little.
        let ready_min = if self.evict { kept } else { reserve };
        arena.set_reserve(reserve as usize, ready_min as usize);
    }

    /// The number of free segments to keep ready.
    pub(crate) fn kept_segments(&self) -> usize {
        self.kept_segments.load(Relaxed) as usize
    }

    /// Memory that should be available.
    pub(crate) fn kept_bytes(&self) -> u64 {
        (self.kept_segments() * self.segment_bytes) as u64
    }

    fn bytes(&self, level: Pressure, arena: &Arena) -> u64 {
        let segments_bytes = |segments: usize| (segments * self.segment_bytes) as u64;
        match level {
            Pressure::Nearing => self.kept_bytes() + segments_bytes(2),
            Pressure::Short if !self.evict => segments_bytes(2 * arena.reserve()),
            Pressure::Growing | Pressure::Low | Pressure::Short => self.kept_bytes(),
        }
    }
}

impl Engine {
    /// True if memory is below this watermark. Memory in limbo counts as free.
    #[inline]
    pub(crate) fn is_under(&self, level: Pressure) -> bool {
        let (spare_bytes, wanted_bytes) =
            (self.arena.spare_bytes(), self.watermarks.bytes(level, &self.arena));
        match level {
            Pressure::Growing => spare_bytes < wanted_bytes,
            _ => {
                self.arena.budget.limit_bytes() + spare_bytes < self.arena.budget.used_bytes() + wanted_bytes
            }
        }
    }

    /// True if a store will find `bytes` once the present guards have ended. Correct also after the limit was lowered,
    /// when more is freed than becomes available.
    pub(crate) fn is_coming(&self, bytes: usize) -> bool {
        self.arena.unused_bytes() + self.arena.spare_bytes()
            >= (bytes + self.arena.reserve() * self.arena.segments.segment_bytes) as u64
    }
}
