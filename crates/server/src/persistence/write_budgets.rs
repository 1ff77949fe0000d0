//! Slows down namespaces that write faster than cleaning frees space, so that the disk usage stays within its bound.
//!
//! Each namespace has a budget of bytes that it may still write. A change spends some of it, and changes of a namespace
//! whose budget is used up wait. Budgets are refilled from the space that the store has left, and from what cleaning
//! frees meanwhile. The smallest need is met first, so that a light writer never waits for a heavy one. As long as
//! cleaning and the committer keep up, all budgets are full, and nobody waits.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::*};
use std::sync::{Mutex, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use larder_policy::NAMESPACES_MAX;
use larder_store::{Headroom, Store};

/// The budgets of a store's namespaces, by namespace number.
pub(crate) struct WriteBudgets {
    budgets: Box<[Budget]>,
    refill: Mutex<Refill>,
    segment_bytes: AtomicI64,
    /// Cleaning has found nothing to do, although there was too little space.
    is_stuck: AtomicBool,
    /// The thread that cleans; woken when there is something to clean.
    cleaner: OnceLock<Thread>,
}

#[derive(Default)]
struct Budget {
    /// Size of a full budget; 0: there is no such namespace.
    full_bytes: AtomicI64,
    /// Bytes left; negative after a change that was longer than what was left.
    left_bytes: AtomicI64,
}

/// State of the store at the last refill.
#[derive(Default)]
struct Refill {
    at: Option<Instant>,
    reclaimed_bytes: u64,
}

impl Default for WriteBudgets {
    fn default() -> Self {
        let budgets = (0..=NAMESPACES_MAX).map(|_| Budget::default()).collect();
        Self {
            budgets,
            refill: Mutex::default(),
            segment_bytes: AtomicI64::new(0),
            is_stuck: AtomicBool::new(false),
            cleaner: OnceLock::new(),
        }
    }
}

impl Budget {
    /// Bytes that the budget lacks.
    fn need_bytes(&self) -> i64 {
        self.full_bytes.load(Relaxed) - self.left_bytes.load(Relaxed)
    }
}

impl WriteBudgets {
    /// Gives these namespaces full budgets, together about half a segment at most. Call once.
    pub(super) fn open(&self, numbers: &[u8], segment_bytes: u64) {
        self.segment_bytes.store(segment_bytes as i64, Relaxed);
        let full_bytes = segment_bytes / 2 / numbers.len().max(1) as u64;
        let full_bytes = full_bytes.clamp(FULL_BYTES_MIN, FULL_BYTES_MAX) as i64;
        for number in numbers {
            if let Some(budget) = self.budgets.get(usize::from(*number)) {
                budget.full_bytes.store(full_bytes, Relaxed);
            }
        }
        self.distribute(u64::MAX);
    }

    /// Registers this thread as the one that cleans.
    pub(super) fn set_cleaner(&self) {
        let _ = self.cleaner.set(std::thread::current());
    }

    /// Charges a change of this namespace, which is on its way to the store.
    pub(crate) fn spend(&self, number: u8, bytes: u64) {
        if let Some(budget) = self.budgets.get(usize::from(number)) {
            budget.left_bytes.fetch_sub(bytes.min(1 << 40) as i64, Relaxed);
        }
    }

    /// Checks whether a change of this namespace may be made now. `journal_bytes` are on their way to the store.
    /// Errors: the time to ask again.
    pub(crate) fn admit(&self, number: u8, store: &dyn Store, journal_bytes: u64) -> Result<(), Instant> {
        let Some(budget) = self.budgets.get(usize::from(number)) else { return Ok(()) };
        let full_bytes = budget.full_bytes.load(Relaxed);
        if full_bytes == 0 || budget.left_bytes.load(Relaxed) >= full_bytes / 2 {
            return Ok(());
        }
        self.refill(store, journal_bytes);
        if budget.left_bytes.load(Relaxed) > 0 {
            return Ok(());
        }
        Err(Instant::now() + PAUSE)
    }

    /// Notes that cleaning finds nothing to do, or fails. If the headroom is still too small, as it was the last time,
    /// nobody waits for it any longer: a value longer than a segment is dead in the open one, or the disk is full.
    pub(super) fn note_idle(&self, store: &dyn Store) {
        let segment_bytes = self.segment_bytes.load(Relaxed);
        let has_room = store.room().is_none_or(|room| room.bytes >= segment_bytes);
        if self.is_stuck.swap(!has_room, Relaxed) && !has_room {
            self.distribute(u64::MAX);
        }
    }

    /// Notes that cleaning makes progress.
    pub(super) fn note_cleaning(&self) {
        self.is_stuck.store(false, Relaxed);
    }

    fn refill(&self, store: &dyn Store, journal_bytes: u64) {
        // The thread that holds the lock does it for all.
        let Ok(mut refill) = self.refill.try_lock() else { return };
        let now = Instant::now();
        let since = refill.at.map(|at| now.duration_since(at));
        if since.is_some_and(|since| since < REFILL_PAUSE) {
            return;
        }
        refill.at = Some(now);
        // A light writer would wait for everything that is in the journal before its change.
        let of_journal = JOURNAL_BYTES_MAX.saturating_sub(journal_bytes);
        let Some(Headroom { bytes, reclaimed_bytes }) = store.room() else {
            return self.distribute(of_journal);
        };
        let reclaimed = reclaimed_bytes.saturating_sub(refill.reclaimed_bytes);
        refill.reclaimed_bytes = refill.reclaimed_bytes.max(reclaimed_bytes);
        let given: i64 = self.budgets.iter().map(|budget| budget.left_bytes.load(Relaxed).max(0)).sum();
        let segment_bytes = self.segment_bytes.load(Relaxed);
        // The batch that is being appended has left the journal, and is not on the disk yet.
        let batch_bytes = (segment_bytes / 4).min(JOURNAL_BYTES_MAX as i64);
        let room = bytes - batch_bytes - journal_bytes as i64 - given;
        // If far more is to be reclaimed than was written, as after a large flush, half of what is reclaimed may be
        // written: the debt shrinks, and all go on. What was reclaimed while nobody asked does not count.
        let is_far_behind = bytes < -segment_bytes && since.is_some_and(|since| since < RECENT);
        let grant = if is_far_behind { reclaimed / 2 } else { room.max(0) as u64 };
        self.distribute(grant.min(of_journal));
        // There is something to clean.
        if bytes < 2 * segment_bytes
            && let Some(cleaner) = self.cleaner.get()
        {
            cleaner.unpark();
        }
    }

    /// Gives equal shares to all budgets that are not full; one that needs less leaves the rest to the others.
    fn distribute(&self, bytes: u64) {
        let mut needy: Vec<_> = self.budgets.iter().filter(|budget| budget.need_bytes() > 0).collect();
        needy.sort_by_cached_key(|budget| budget.need_bytes());
        let mut left = i64::try_from(bytes).unwrap_or(i64::MAX);
        for (nth, budget) in needy.iter().enumerate() {
            let share = left / (needy.len() - nth) as i64;
            let given = share.min(budget.need_bytes());
            budget.left_bytes.fetch_add(given, Relaxed);
            left -= given;
        }
    }
}

/// Room for a few changes, however short segments are.
const FULL_BYTES_MIN: u64 = 64 << 10;
const FULL_BYTES_MAX: u64 = 4 << 20;
/// Nothing is given while more than this is on its way to the store: a quarter of the journal's limit.
const JOURNAL_BYTES_MAX: u64 = super::JOURNAL_BYTES_MAX / 4;
/// Pause before a waiting request asks again.
const PAUSE: Duration = Duration::from_millis(5);
/// Minimum time between two checks of the remaining space, since each looks at all segments.
const REFILL_PAUSE: Duration = Duration::from_micros(500);
const RECENT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use larder_store::MemoryStore;

    use super::*;

    fn left(budgets: &WriteBudgets) -> Vec<i64> {
        budgets.budgets.iter().take(4).map(|budget| budget.left_bytes.load(Relaxed)).collect()
    }

    #[test]
    fn who_writes_little_is_filled_first() {
        let budgets = WriteBudgets::default();
        budgets.open(&[0, 1, 2], 6 << 20);
        let full = 1 << 20;
        assert_eq!(left(&budgets), [full, full, full, 0]);
        for (number, spent) in [(0, 100), (1, 3 << 20), (2, 2 << 20)] {
            budgets.spend(number, spent);
        }
        budgets.distribute(2_100);
        assert_eq!(left(&budgets), [full, 1_000 - 2 * full, 1_000 - full, 0]);
        budgets.distribute(u64::MAX);
        assert_eq!(left(&budgets), [full, full, full, 0]);
    }

    #[test]
    fn nobody_waits_for_cleaning_where_there_is_none() {
        let budgets = WriteBudgets::default();
        budgets.open(&[0], 64 << 20);
        let store = MemoryStore::new();
        budgets.spend(0, 5 << 20);
        assert!(budgets.admit(0, &store, 0).is_ok());
        assert_eq!(left(&budgets)[0], FULL_BYTES_MAX as i64);
        budgets.spend(0, 5 << 20);
        assert!(budgets.admit(0, &store, JOURNAL_BYTES_MAX).is_err(), "but for what is on its way");
    }
}
