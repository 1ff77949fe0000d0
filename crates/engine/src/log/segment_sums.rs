//! Sums over segments, updated as segments are opened and freed, since there may be too many to scan on demand.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::log::segment::LARGE;

/// Sums over all segments and runs that hold something. Locked once per segment or run.
#[derive(Default)]
pub(crate) struct SegmentSums {
    /// By place in `Stats::queues`.
    places: Mutex<[Place; 3]>,
    /// Segments that were ever in use: higher ids need not be scanned.
    segments_end: AtomicU32,
    /// Runs that are in use.
    runs: AtomicU32,
}

#[derive(Default)]
struct Place {
    sum: Sum,
    /// The number of segments opened in each second.
    opened: BTreeMap<u32, u64>,
}

/// The contents of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    /// Segments; runs for large items.
    pub(crate) segments: u64,
    pub(crate) memory_bytes: u64,
    /// When the oldest segment was opened.
    pub(crate) opened_secs: Option<u32>,
}

impl SegmentSums {
    /// Adds one of this size that was opened in that second.
    pub(crate) fn add(&self, place: usize, memory_bytes: u64, opened_secs: u32) {
        if place == LARGE {
            self.runs.fetch_add(1, Relaxed);
        }
        let place = &mut self.places()[place];
        place.sum.segments += 1;
        place.sum.memory_bytes += memory_bytes;
        *place.opened.entry(opened_secs).or_default() += 1;
    }

    /// Removes one, with the same arguments as for `add`.
    pub(crate) fn remove(&self, place: usize, memory_bytes: u64, opened_secs: u32) {
        if place == LARGE {
            self.runs.fetch_sub(1, Relaxed);
        }
        let place = &mut self.places()[place];
        place.sum.segments -= 1;
        place.sum.memory_bytes -= memory_bytes;
        if let Some(count) = place.opened.get_mut(&opened_secs) {
            *count -= 1;
            if *count == 0 {
                place.opened.remove(&opened_secs);
            }
        }
    }

    /// By place in `Stats::queues`.
    pub(crate) fn sums(&self) -> [Sum; 3] {
        let oldest = |place: &Place| place.opened.first_key_value().map(|(&secs, _)| secs);
        self.places().each_ref().map(|place| Sum { opened_secs: oldest(place), ..place.sum })
    }

    /// Notes that the segment with this number is used.
    pub(crate) fn note_use(&self, number: u32) {
        self.segments_end.fetch_max(number + 1, Relaxed);
    }

    /// Segments with numbers below this were in use.
    pub(crate) fn segments_end(&self) -> u32 {
        self.segments_end.load(Relaxed)
    }

    /// The number of runs.
    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Relaxed) as usize
    }

    fn places(&self) -> MutexGuard<'_, [Place; 3]> {
        // No code panics under this lock.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::segment::SMALL;

    #[test]
    fn the_oldest_is_known_after_others_have_gone() {
        let sums = SegmentSums::default();
        sums.add(SMALL, 100, 7);
        sums.add(SMALL, 100, 5);
        sums.add(SMALL, 100, 5);
        sums.add(LARGE, 30, 2);
        let small = |segments, opened_secs| Sum { segments, memory_bytes: 100 * segments, opened_secs };
        assert_eq!(sums.sums()[SMALL], small(3, Some(5)));
        sums.remove(SMALL, 100, 5);
        assert_eq!(sums.sums()[SMALL], small(2, Some(5)));
        sums.remove(SMALL, 100, 5);
        assert_eq!(sums.sums()[SMALL], small(1, Some(7)));
        sums.remove(SMALL, 100, 7);
        assert_eq!(sums.sums()[SMALL], Sum::default());
        assert_eq!(sums.sums()[LARGE], Sum { segments: 1, memory_bytes: 30, opened_secs: Some(2) });
    }
}
