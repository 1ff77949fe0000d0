//! Slowing down namespaces that write faster than cleaning gets room back, so that the disk stays within its bound.
//!
//! Each namespace has a budget of bytes that it may still write. A change spends some of it, and one of a namespace
//! that has none left waits. Budgets are filled from the room that the store has left, and from what cleaning gives
//! back meanwhile; the one who needs least first, so that who writes little never waits for who writes much. As long as
//! cleaning and the committer follow, all of them are full, and nobody waits.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::*};
use std::sync::{Mutex, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use larder_policy::NAMESPACES_MAX;
use larder_store::{Headroom, Store};

/// The budgets of the namespaces of a store, by their numbers.
pub(crate) struct WriteBudgets {
    budgets: Box<[Budget]>,
    refill: Mutex<Refill>,
    segment_bytes: AtomicI64,
    /// Cleaning has found nothing to do, though there was too little room.
    is_stuck: AtomicBool,
    /// The thread that cleans.
    cleaner: OnceLock<Thread>,
}

#[derive(Default)]
struct Budget {
    /// What it has when it is full; 0: there is no such namespace.
    full_bytes: AtomicI64,
    /// Below 0 after a change that was longer than what was left.
    left_bytes: AtomicI64,
}

/// What the last refill saw.
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
    /// What it lacks.
    fn need_bytes(&self) -> i64 {
        self.full_bytes.load(Relaxed) - self.left_bytes.load(Relaxed)
    }
}

impl WriteBudgets {
    /// Gives full budgets to these namespaces: together about half a segment at most. Call once.
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

    /// This thread is the one that cleans.
    pub(super) fn set_cleaner(&self) {
        let _ = self.cleaner.set(std::thread::current());
    }

    /// A change of this namespace is on its way to the store.
    pub(crate) fn spend(&self, number: u8, bytes: u64) {
        if let Some(budget) = self.budgets.get(usize::from(number)) {
            budget.left_bytes.fetch_sub(bytes.min(1 << 40) as i64, Relaxed);
        }
    }

    /// Whether a change of this namespace may be made now. `journal_bytes` are on their way to the store. Errors: ask
    /// again then.
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

    /// Cleaning finds nothing to do, or fails. If the headroom is nevertheless too small, and was the last time, nobody
    /// waits for it any longer: a value longer than a segment is dead in the open one, or the disk is full.
    pub(super) fn note_idle(&self, store: &dyn Store) {
        let segment_bytes = self.segment_bytes.load(Relaxed);
        let has_room = store.room().is_none_or(|room| room.bytes >= segment_bytes);
        if self.is_stuck.swap(!has_room, Relaxed) && !has_room {
            self.distribute(u64::MAX);
        }
    }

    /// Cleaning makes room.
    pub(super) fn note_cleaning(&self) {
        self.is_stuck.store(false, Relaxed);
    }

    fn refill(&self, store: &dyn Store, journal_bytes: u64) {
        // Whoever has the lock does it for all.
        let Ok(mut refill) = self.refill.try_lock() else { return };
        let now = Instant::now();
        let since = refill.at.map(|at| now.duration_since(at));
        if since.is_some_and(|since| since < REFILL_PAUSE) {
            return;
        }
        refill.at = Some(now);
        // Who writes little waits for all that is in the journal before.
        let of_journal = JOURNAL_BYTES_MAX.saturating_sub(journal_bytes);
        let Some(Headroom { bytes, reclaimed_bytes }) = store.room() else {
            return self.distribute(of_journal);
        };
        let reclaimed = reclaimed_bytes.saturating_sub(refill.reclaimed_bytes);
        refill.reclaimed_bytes = refill.reclaimed_bytes.max(reclaimed_bytes);
        let given: i64 = self.budgets.iter().map(|budget| budget.left_bytes.load(Relaxed).max(0)).sum();
        let segment_bytes = self.segment_bytes.load(Relaxed);
        // The batch that is being appended is in the journal no more, and not on the disk.
        let batch_bytes = (segment_bytes / 4).min(JOURNAL_BYTES_MAX as i64);
        let room = bytes - batch_bytes - journal_bytes as i64 - given;
        // With far more to reclaim than was written, as after a large flush, half of what is reclaimed may be written:
        // the debt falls, and all go on. What was reclaimed while nobody asked says nothing.
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

    /// Equal shares to all whose budgets are not full: who needs less than that leaves the rest to the others.
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

/// A few changes, however short segments are.
const FULL_BYTES_MIN: u64 = 64 << 10;
const FULL_BYTES_MAX: u64 = 4 << 20;
/// Nothing is given while more is on its way to the store: a quarter of what it may be.
const JOURNAL_BYTES_MAX: u64 = super::JOURNAL_BYTES_MAX / 4;
/// How long a request waits until it asks again.
const PAUSE: Duration = Duration::from_millis(5);
/// Between two looks at the room that is left: each looks at all segments.
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
