//! Positions whose changes were lost because the store could not append them, or make them durable.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::journal::Refusal;

/// Ranges of lost positions. Whoever waits for a position learns of its loss within moments, so old ranges go.
#[derive(Default)]
pub(super) struct Failures {
    /// Of all ranges: nothing above it has failed.
    highest: AtomicU64,
    lost: Mutex<Lost>,
}

#[derive(Default)]
struct Lost {
    ranges: VecDeque<(RangeInclusive<u64>, Refusal)>,
    /// Positions within the ranges, in order, of removals that were made nevertheless.
    kept: VecDeque<u64>,
}

impl Failures {
    pub(super) fn add(&self, range: RangeInclusive<u64>, why: Refusal) {
        let mut lost = self.lock();
        self.highest.store(*range.end(), Release);
        match lost.ranges.back_mut() {
            Some((last, same)) if *same == why && *last.end() + 1 >= *range.start() => {
                *last = *last.start()..=*range.end();
            }
            _ => lost.ranges.push_back((range, why)),
        }
        if lost.ranges.len() > RANGES_MAX {
            lost.ranges.pop_front();
        }
    }

    /// Marks these positions, in order, as removals that were made, although they are in a lost range.
    pub(super) fn keep(&self, positions: impl Iterator<Item = u64>) {
        let mut lost = self.lock();
        lost.kept.extend(positions);
        let excess = lost.kept.len().saturating_sub(KEPT_MAX);
        lost.kept.drain(..excess);
    }

    pub(super) fn contain(&self, position: u64) -> bool {
        self.why(position).is_some()
    }

    /// Reason why the change at this position was lost; `None`: it was not.
    pub(super) fn why(&self, position: u64) -> Option<Refusal> {
        if position > self.highest.load(Acquire) {
            return None;
        }
        let lost = self.lock();
        lost.ranges.iter().find(|(range, _)| range.contains(&position)).map(|(_, why)| *why)
    }

    pub(super) fn has_kept(&self, position: u64) -> bool {
        position <= self.highest.load(Acquire) && self.lock().kept.binary_search(&position).is_ok()
    }

    fn lock(&self) -> MutexGuard<'_, Lost> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const RANGES_MAX: usize = 1024;
/// More positions than can be in flight at once.
const KEPT_MAX: usize = 128 << 10;
