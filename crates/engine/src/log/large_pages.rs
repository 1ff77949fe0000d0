//! Large pages: what is full is moved to them in the background, some of it each second.
//!
//! A look-up reads one line of the index and a few of an item, anywhere in gigabytes: with small pages it waits for the
//! page table as well, and in a virtual machine for two of them. Moved memory needs no more of it than before, since
//! only what is full is moved. Nobody waits for a large page to be found: the kernel does that first. But while it
//! copies, whoever reads there waits, and so does whoever touches memory for the first time anywhere; therefore nothing
//! is moved while the cache takes new memory.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::log::arena::Arena;
use crate::log::segment::{SEALED, Segment, SegmentId};
use crate::request::Now;

/// What lies on large pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LargePages {
    /// Nothing.
    Never,
    /// What the index and the segments have filled, soon after.
    Filled,
    /// That, and segments from the start. Whoever first writes to one waits until the system has found and cleared a
    /// large page, which may take milliseconds; and what is given back reaches others only when they are short of
    /// memory.
    FromTheStart,
}

/// How far the background step has come.
#[derive(Default)]
pub(crate) struct Mover {
    /// When it last began to move some.
    secs: AtomicU32,
    /// So many more in this second ...
    left: AtomicU32,
    /// ... and none from then on.
    until_micros: AtomicU64,
    /// How much memory the cache had when it began.
    used_bytes: AtomicU64,
    /// Which large page of the log is next.
    next_page: AtomicUsize,
    /// When the last was moved, until it is known how long that took; 0: it is.
    begun_micros: AtomicU64,
    /// Since a move took long none is begun before this second ...
    rests_until_secs: AtomicU32,
    /// ... and this is for how long.
    rest_secs: AtomicU32,
}

impl Mover {
    /// May a page be moved now, by a cache that has so much memory? Asked at once when one was moved.
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

    /// One was moved, begun now.
    pub(crate) fn note_move(&self, now: Now) {
        self.left.fetch_sub(1, Relaxed);
        self.begun_micros.store(now.micros, Relaxed);
    }

    /// There was none to be moved, or none to be had.
    pub(crate) fn note_end(&self) {
        self.left.store(0, Relaxed);
    }
}

impl Arena {
    /// Moves one page of the log. False: nothing is to be moved where it looked, or the system has no large page now.
    pub(crate) fn move_to_large_page(&self, mover: &Mover) -> bool {
        for _ in 0..LOOKS_PER_MOVE {
            let page = mover.next_page.fetch_add(1, Relaxed);
            let Some(range) = self.region.large_page(page) else {
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

    /// Do full segments alone lie here, and not all of them on large pages?
    fn are_filled(&self, range: &Range<usize>) -> bool {
        let full_bytes = (self.segments.segment_bytes - self.segments.segment_bytes / 16) as u64;
        let is_full = |(id, segment): (SegmentId, &Segment)| {
            !self.segments.is_run(id)
                && segment.state() == SEALED
                && segment.usage.filled_bytes.load(Relaxed) >= full_bytes
        };
        self.segments_in(range).all(is_full)
            && self.segments_in(range).any(|(_, segment)| !segment.on_large_page.load(Relaxed))
    }

    /// The segments that lie, whole or in part, in a range of the log.
    fn segments_in(&self, range: &Range<usize>) -> impl Iterator<Item = (SegmentId, &Segment)> {
        let ids = self.segments.id_at_byte(range.start)..=self.segments.id_at_byte(range.end - 1);
        ids.map(|id| (id, self.segments.get(id)))
    }
}

/// Some 600 us each, on a machine that has memory at hand ...
const MOVES_PER_SECOND: u32 = 64;
/// ... and in a virtual one whose host has to find it 5 ms and more: none is begun after so long. A gigabyte takes 2.5
/// s of a core in all, once, and until then each get of it costs a third more.
const MOVING_MICROS_PER_SECOND: u64 = 200_000;
/// Of pages of which there may be very many, none of them to be moved.
const LOOKS_PER_MOVE: u32 = 4096;
/// A move that takes so long says that the processors are all taken, several times over: before it copies, the kernel
/// waits until each has put away what it holds back, and whoever wants to change the address space meanwhile, and all
/// behind them, wait for that. (On a core that one worker keeps busy they take 10 to 20 ms, and now and then 50.)
const LONG_MOVE_MICROS: u64 = 200_000;
/// For so long nothing is moved then, and for twice as long each time that it happens again ...
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
