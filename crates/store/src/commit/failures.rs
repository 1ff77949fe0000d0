//! Positions whose changes were lost because the store could not append them, or make them durable.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::sync::{Mutex, PoisonError};

/// Ranges of lost positions. Whoever waits for a position learns of its loss within moments, so old ranges go.
#[derive(Default)]
pub(super) struct Failures {
    /// Of all ranges: nothing above it has failed.
    highest: AtomicU64,
    ranges: Mutex<VecDeque<RangeInclusive<u64>>>,
}

impl Failures {
    pub(super) fn add(&self, range: RangeInclusive<u64>) {
        let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        self.highest.store(*range.end(), Release);
        match ranges.back_mut() {
            Some(last) if *last.end() + 1 >= *range.start() => *last = *last.start()..=*range.end(),
            _ => ranges.push_back(range),
        }
        if ranges.len() > RANGES_MAX {
            ranges.pop_front();
        }
    }

    pub(super) fn contain(&self, position: u64) -> bool {
        position <= self.highest.load(Acquire) && {
            let ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
            ranges.iter().any(|range| range.contains(&position))
        }
    }
}

const RANGES_MAX: usize = 1024;
