//! Large pages: full memory is moved to them in the background, some of it each second.
//!
//! A look-up reads one line of the index and a few of an item, anywhere in gigabytes. With small pages it also waits
//! for the page table, and in a virtual machine for two of them. Moved memory takes no more space, since only full
//! memory is moved. Nobody waits while the kernel finds a large page. But while the kernel copies, a thread that
//! accesses that memory waits, and so does a thread that touches any memory for the first time; therefore nothing is
//! moved while the cache takes new memory.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::log::arena::Arena;
use crate::log::segment::{SEALED, Segment, SegmentId};
use crate::request::Now;

/// What is placed on large pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LargePages {
    /// Nothing.
    Never,
    /// The index and the segments, soon after they are full.
    Filled,
    /// Also segments from the start. A thread that first writes to one waits until the system has found and cleared a
    /// large page, which may take milliseconds. Memory that is given back reaches other processes only when they are
    /// short of memory.
    FromTheStart,
}

/// The state of the background moves.
#[derive(Default)]
pub(crate) struct Mover {
    /// The second of the last move.
    secs: AtomicU32,
    /// How many more moves are allowed in this second ...
    left: AtomicU32,
    /// ... and until when.
    until_micros: AtomicU64,
    /// The memory of the cache at the start of that second.
    used_bytes: AtomicU64,
    /// The next large page of the log to examine.
    next_page: AtomicUsize,
    /// When the last move began, until its duration is known; 0: it is known.
    begun_micros: AtomicU64,
    /// After a long move, no move begins before this second ...
    rests_until_secs: AtomicU32,
    /// ... which is this long a rest.
    rest_secs: AtomicU32,
}

impl Mover {
    /// True if a page may be moved now, in a cache with so much memory. Called right after a move as well.
    pub(crate) fn may_move(&self, now: Now, used_bytes: u64) -> bool {
        let begun_micros = self.begun_micros.swap(0, Relaxed);
        if begun_micros != 0 && now.micros.saturating_sub(begun_micros) >= LONG_MOVE_MICROS {
            let rest_secs = (2 * self.rest_secs.load(Relaxed)).clamp(REST_SECS_MIN, REST_SECS_MAX);
            self.rest_secs.store(rest_secs, Relaxed);
            self.rests_until_secs.store(now.secs + rest_secs, Relaxed);
        }
        if self.secs.swap(now.secs, Relaxed) != now.secs {
            let is_growing = self.used_bytes.swap(used_bytes, Relaxed) < used_bytes;
            self.left.store(if is_growing { 0 } else { MOVES_PER_SECOND }, Relaxed);
            self.until_micros.store(now.micros + MOVING_MICROS_PER_SECOND, Relaxed);
        }
        now.secs >= self.rests_until_secs.load(Relaxed)
            && self.left.load(Relaxed) > 0
            && now.micros < self.until_micros.load(Relaxed)
    }

    /// A move began now.
    pub(crate) fn note_move(&self, now: Now) {
        self.left.fetch_sub(1, Relaxed);
        self.begun_micros.store(now.micros, Relaxed);
    }

    /// There was no page to move, or no large page.
    pub(crate) fn note_end(&self) {
        self.left.store(0, Relaxed);
    }
}

impl Arena {
    /// Moves one page of the log. False: none of the examined pages is to be moved, or the system has no large page
    /// now.
    pub(crate) fn move_to_large_page(&self, mover: &Mover) -> bool {
        let used_end = self.segments.start(self.segments.log_ids().end);
        for _ in 0..LOOKS_PER_MOVE {
            let page = mover.next_page.fetch_add(1, Relaxed);
            let Some(range) = self.region.large_page(page).filter(|range| range.end <= used_end) else {
                mover.next_page.store(0, Relaxed);
                return false;
            };
            if self.are_filled(&range) {
                let is_moved = self.region.move_to_large_page(range.clone());
                if is_moved {
                    self.segments_in(&range)
                        .for_each(|(_, segment)| segment.on_large_page.store(true, Relaxed));
                }
                return is_moved;
            }
        }
        false
    }

    /// True if the range holds only full segments, not all of which are on large pages.
    fn are_filled(&self, range: &Range<usize>) -> bool {
        let full_bytes = (self.segments.segment_bytes - self.segments.segment_bytes / 16) as u64;
        let is_full = |(id, segment): (SegmentId, &Segment)| {
            !self.segments.is_run(id)
                && segment.state() == SEALED
                && segment.usage.filled_bytes() >= full_bytes
        };
        self.segments_in(range).all(is_full)
            && self.segments_in(range).any(|(_, segment)| !segment.on_large_page.load(Relaxed))
    }

    /// The segments that lie in a range of the log, entirely or in part.
    fn segments_in(&self, range: &Range<usize>) -> impl Iterator<Item = (SegmentId, &Segment)> {
        let ids = self.segments.id_at_byte(range.start)..=self.segments.id_at_byte(range.end - 1);
        ids.map(|id| (id, self.segments.get(id)))
    }
}

/// A move takes some 600 us on a machine that has memory at hand ...
const MOVES_PER_SECOND: u32 = 64;
/// ... and 5 ms and more in a virtual machine whose host has to find it: no move begins after this time. A gigabyte
/// takes 2.5 s of a core in all, once, and until then each get of it costs a third more.
const MOVING_MICROS_PER_SECOND: u64 = 200_000;
/// Pages examined for one move: very many may not be movable.
const LOOKS_PER_MOVE: u32 = 4096;
/// A longer move indicates that all processors are several times overcommitted. Before the kernel copies it waits until
/// each processor has flushed its pending pages, and every thread that changes the address space meanwhile, and all
/// behind it, wait for that. (On a core that one worker keeps busy moves take 10 to 20 ms, and now and then 50.)
const LONG_MOVE_MICROS: u64 = 200_000;
/// After such a move none begins for this long, doubled each time that it happens again ...
const REST_SECS_MIN: u32 = 60;
/// ... up to this.
const REST_SECS_MAX: u32 = 3600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_long_move_there_is_a_rest() {
        let mover = Mover::default();
        let at = |secs: u32, millis: u64| Now { secs, micros: u64::from(secs) * 1_000_000 + millis * 1000 };
        let may_move = |secs, millis| mover.may_move(at(secs, millis), 1);
        assert!(!may_move(1, 0), "it has just grown");
        assert!(may_move(2, 0));
        mover.note_move(at(2, 0));
        assert!(may_move(2, 1));
        mover.note_move(at(2, 1));
        assert!((2..62).all(|secs| !may_move(secs, 300)));
        assert!(may_move(62, 200));
        mover.note_move(at(62, 200));
        assert!((64..184).all(|secs| !may_move(secs, 0)), "for twice as long");
        assert!(may_move(184, 0));
        mover.note_end();
        assert!(!may_move(184, 100));
        assert!(may_move(185, 0), "nobody was kept waiting");
    }
}
