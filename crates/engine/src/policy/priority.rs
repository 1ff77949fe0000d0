//! The priority of an item: how often it is read, for each byte that it takes.
//!
//! The miss ratio counts requests, so of two items that are read equally often the smaller has the higher priority: two
//! of half the size save twice the misses in the same memory.
//!
//! The priority of a key that was never read depends on the workload: low in a scan, high where new keys are popular.
//! It is learned from the ghost, as in ARC (Megiddo and Modha, FAST 2003): where keys evicted from the small queue
//! return more often than keys evicted from the main queue, new keys stay longer, otherwise shorter.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::log::segment::{CLASSES, MAIN, SMALL};

/// The weight of an item that was read once since it was last examined, or whose key returned soon after its eviction.
const READ: u32 = 1 << 10;
const INSERT_PRIORITY_MIN: u32 = READ / 8;
const INSERT_PRIORITY_MAX: u32 = READ * 2;

/// The weight of an item by its number of reads (at most three are counted).
pub(crate) fn of_uses(uses: u8) -> u32 {
    u32::from(uses) * READ
}

/// The priority class of items with this total size and weight. Each class covers a factor of four in priority.
pub(crate) fn class_of(bytes: u64, weight: u32) -> usize {
    let (bytes, reads) = (bytes * u64::from(READ), u64::from(weight.max(1)));
    // The logarithm of the quotient, without a division.
    let most = (bytes | 1).ilog2().saturating_sub(reads.ilog2());
    let bytes_per_read_power = most - u32::from(most > 0 && bytes < reads << most);
    // Limits: 256 bytes, 1, 4, 16, 64 and 256 KiB a read; the last class has none.
    (bytes_per_read_power as usize / 2).saturating_sub(3).min(CLASSES - 1)
}

/// The H-value of GreedyDual-Size: how long, by the policy's clock, `bytes` of this weight are kept.
pub(crate) fn h_value(bytes: u64, weight: u32) -> u64 {
    (u64::from(weight) << 24) / bytes.max(1)
}

/// The weight of an item that was never read.
pub(crate) struct InsertPriority(AtomicU32);

impl Default for InsertPriority {
    fn default() -> Self {
        Self(AtomicU32::new(READ))
    }
}

impl InsertPriority {
    /// The weight of an item that enters a queue.
    pub(crate) fn at_first(&self, queue: usize) -> u32 {
        let insert_priority = self.0.load(Relaxed);
        if queue == SMALL { insert_priority } else { insert_priority.max(READ) }
    }

    fn change(&self, is_more: bool) {
        let insert_priority = self.0.load(Relaxed);
        let step = insert_priority / 20;
        let changed = if is_more { insert_priority + step } else { insert_priority - step };
        // A race loses one step.
        self.0.store(changed.clamp(INSERT_PRIORITY_MIN, INSERT_PRIORITY_MAX), Relaxed);
    }
}

/// What a handle has learned from keys that return after eviction, by queue, with exponential decay.
#[derive(Default)]
pub(crate) struct Adaptation {
    evicted: [f64; 2],
    returned: [f64; 2],
    /// Evictions since the last update.
    fresh: u64,
}

impl Adaptation {
    /// A key returned that was evicted from a queue.
    pub(crate) fn note_return(&mut self, from: usize) {
        self.returned[from] += 1.0;
    }

    /// An item was evicted from a queue. Now and then this updates the insert priority.
    pub(crate) fn note_eviction(&mut self, from: usize, items: u64, insert_priority: &InsertPriority) {
        self.evicted[from] += 1.0;
        self.fresh += 1;
        if self.fresh < (items / STEPS_PER_TURNOVER).max(EVICTIONS_PER_STEP_MIN) {
            return;
        }
        self.fresh = 0;
        if self.returned == [0.0; 2] {
            // Nothing was learned: the background step's handle never sees a key return.
            return;
        }
        let share = |queue: usize| self.returned[queue] / self.evicted[queue].max(1.0);
        insert_priority.change(share(SMALL) > share(MAIN));
        for sum in self.evicted.iter_mut().chain(&mut self.returned) {
            *sum *= MEMORY;
        }
    }
}

/// Updates per turnover of the cache (as many evictions as there are items).
const STEPS_PER_TURNOVER: u64 = 64;
const EVICTIONS_PER_STEP_MIN: u64 = 16;
/// The part of the counts that an update keeps.
const MEMORY: f64 = 0.95;

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 2^26 evictions of each queue, 2^25 keys of the small and 2^24 of the main queue return, so new keys deserve a
    /// longer stay. A 32-bit float would count both to 2^24.
    #[cfg(not(miri))]
    #[test]
    fn adaptation_counts_beyond_a_32_bit_float() {
        let (mut adaptation, insert_priority) = (Adaptation::default(), InsertPriority::default());
        let items = STEPS_PER_TURNOVER << 27;
        for number in 0..1 << 26 {
            if number % 2 == 0 {
                adaptation.note_return(SMALL);
            }
            if number % 4 == 0 {
                adaptation.note_return(MAIN);
            }
            adaptation.note_eviction(SMALL, items, &insert_priority);
            adaptation.note_eviction(MAIN, items, &insert_priority);
        }
        assert_eq!(adaptation.fresh, 0, "a conclusion was drawn");
        assert!(insert_priority.at_first(SMALL) > READ, "{}", insert_priority.at_first(SMALL));
    }

    #[test]
    fn a_class_is_what_division_says() {
        for bytes in (0..200_000u64).step_by(7).chain((0..40).map(|power| (1 << power) - 1)) {
            for weight in [0, 1, 127, 128, 1000, 1023, 1024, 1025, 2048, 3 * READ, 1 << 30] {
                let bytes_per_read = bytes * u64::from(READ) / u64::from(weight.max(1));
                let limits = [256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18];
                let expected = limits.iter().filter(|limit| bytes_per_read >= **limit).count();
                assert_eq!(class_of(bytes, weight), expected, "{bytes} bytes, {weight}");
            }
        }
    }
}
