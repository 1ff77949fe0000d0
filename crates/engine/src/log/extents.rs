//! Extents: free address space of runs, in units, merged where they touch.

use std::collections::{BTreeMap, BTreeSet};

use crate::log::segment::SegmentId;

/// Free extents of one kind.
#[derive(Default)]
pub(super) struct Extents {
    /// Start -> length.
    by_start: BTreeMap<SegmentId, u32>,
    by_length: BTreeSet<(u32, SegmentId)>,
    units: u64,
}

impl Extents {
    /// The sum of their lengths.
    pub(super) fn units(&self) -> u64 {
        self.units
    }

    /// The length of the longest.
    pub(super) fn longest(&self) -> u32 {
        self.by_length.last().map_or(0, |&(length, _)| length)
    }

    /// Adds an extent, which no other overlaps.
    pub(super) fn put(&mut self, mut start: SegmentId, mut units: u32) {
        if units == 0 {
            return;
        }
        self.units += u64::from(units);
        if let Some(&after) = self.by_start.get(&(start + units)) {
            self.remove(start + units, after);
            units += after;
        }
        if let Some((&before, &length)) = self.by_start.range(..start).next_back()
            && before + length == start
        {
            self.remove(before, length);
            start = before;
            units += length;
        }
        self.insert(start, units);
    }

    /// Takes the first `units` of the shortest extent that has so many.
    pub(super) fn take(&mut self, units: u32) -> Option<SegmentId> {
        let &(length, start) = self.by_length.range((units, 0)..).next()?;
        self.cut(start, length, units);
        Some(start)
    }

    /// Takes up to `units`: of an extent that has so many, else all of the longest.
    pub(super) fn take_some(&mut self, units: u32) -> Option<(SegmentId, u32)> {
        if let Some(start) = self.take(units) {
            return Some((start, units));
        }
        let &(length, start) = self.by_length.last()?;
        self.cut(start, length, length);
        Some((start, length))
    }

    /// Takes up to `units` of the shortest extent.
    pub(super) fn take_shortest(&mut self, units: u32) -> Option<(SegmentId, u32)> {
        let &(length, start) = self.by_length.first()?;
        let units = units.min(length);
        self.cut(start, length, units);
        Some((start, units))
    }

    fn cut(&mut self, start: SegmentId, length: u32, units: u32) {
        self.remove(start, length);
        if length > units {
            self.insert(start + units, length - units);
        }
        self.units -= u64::from(units);
    }

    fn insert(&mut self, start: SegmentId, length: u32) {
        self.by_start.insert(start, length);
        self.by_length.insert((length, start));
    }

    fn remove(&mut self, start: SegmentId, length: u32) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_merge_where_they_touch() {
        let mut extents = Extents::default();
        extents.put(4, 10);
        assert_eq!([3, 3, 4].map(|units| extents.take(units)), [Some(4), Some(7), Some(10)]);
        assert_eq!((extents.take(1), extents.units()), (None, 0));
        extents.put(4, 3);
        extents.put(10, 4);
        assert_eq!(extents.take(5), None);
        extents.put(7, 3);
        assert_eq!((extents.take(10), extents.units()), (Some(4), 0));
    }

    #[test]
    fn the_shortest_that_is_long_enough_is_cut() {
        let mut extents = Extents::default();
        for (start, units) in [(0, 9), (10, 4), (20, 6)] {
            extents.put(start, units);
        }
        assert_eq!(extents.take(5), Some(20));
        assert_eq!(extents.take_shortest(3), Some((25, 1)), "the rest");
        assert_eq!(extents.take_shortest(3), Some((10, 3)));
        assert_eq!(extents.take_some(7), Some((0, 7)));
        assert_eq!(extents.take_some(7), Some((7, 2)), "there are no more together");
        assert_eq!(extents.units(), 1);
    }

    /// Beside an array that says of each unit whether it is free.
    #[test]
    fn what_is_taken_was_free_and_nothing_is_lost() {
        let (mut extents, mut free) = (Extents::default(), [false; 200]);
        let (mut random, mut taken) = (fastrand::Rng::with_seed(7), vec![(0, 200)]);
        for _ in 0..if cfg!(miri) { 200 } else { 20_000 } {
            if !taken.is_empty() && random.bool() {
                let (start, units) = taken.swap_remove(random.usize(..taken.len()));
                free[start as usize..(start + units) as usize].fill(true);
                extents.put(start, units);
            } else {
                let units = random.u32(1..30);
                let longest = free.split(|is_free| !is_free).map(<[bool]>::len).max();
                let found = match random.u8(..3) {
                    0 => extents.take(units).map(|start| (start, units)),
                    1 => extents.take_some(units),
                    _ => extents.take_shortest(units),
                };
                assert!(found.is_some() || longest < Some(units as usize));
                if let Some((start, units)) = found {
                    let range = start as usize..(start + units) as usize;
                    assert!(free[range.clone()].iter().all(|is_free| *is_free));
                    free[range].fill(false);
                    taken.push((start, units));
                }
            }
            assert_eq!(extents.units(), free.iter().filter(|is_free| **is_free).count() as u64);
        }
    }
}
