//! The versions that a replicated site knows, so that each new one is above them: of values, deletions, touches and
//! flushes, its own and those of others, also of keys that are not in memory.

use std::sync::atomic::{AtomicU64, Ordering::*};

use super::versions::{Clock, is_foreign, next_version, version_at};

/// Of each key the highest version since the start, in a table by hash: keys may share an entry, which then has the
/// higher version. What is older than the start is below the floor.
pub(super) struct KnownVersions {
    site: u8,
    /// By hash.
    newest: Box<[AtomicU64]>,
    /// Of all keys: every new version is above it.
    floor: AtomicU64,
    /// An expiry waits for a value of this version, or of a lower one, to come; 0: none does.
    awaited: AtomicU64,
}

impl KnownVersions {
    pub(super) fn new(site: u8) -> Self {
        let newest = (0..TABLE_ENTRIES).map(|_| AtomicU64::new(0)).collect();
        Self { site, newest, floor: AtomicU64::new(0), awaited: AtomicU64::new(0) }
    }

    /// The next version of a key, and the highest one that was known of it.
    pub(super) fn next(&self, hash: u64, replaced: u64, clock: &dyn Clock) -> (u64, u64) {
        let now = version_at(clock.unix_micros(), self.site);
        // A client's own value, from before the store was replicated.
        let replaced = if is_foreign(replaced, now) { 0 } else { replaced };
        let newest = self.newest(hash);
        let known = newest.load(Acquire).max(replaced);
        let version = now.max(next_version(known.max(self.floor.load(SeqCst)), self.site));
        newest.fetch_max(version, AcqRel);
        (version, known)
    }

    /// What bounds all that is known of a key; and of that what is in the table.
    pub(super) fn known(&self, hash: u64) -> (u64, u64) {
        let newest = self.newest(hash).load(Acquire);
        (newest.max(self.floor.load(SeqCst)), newest)
    }

    /// A version above all, which is the floor from here on.
    pub(super) fn above_all(&self, clock: &dyn Clock) -> u64 {
        let now = version_at(clock.unix_micros(), self.site);
        let highest = self.newest.iter().map(|newest| newest.load(Acquire)).max().unwrap_or(0);
        let version = now.max(next_version(highest.max(self.floor.load(SeqCst)), self.site));
        self.floor.fetch_max(version, SeqCst);
        version
    }

    pub(super) fn note(&self, hash: u64, version: u64) {
        self.newest(hash).fetch_max(version, AcqRel);
    }

    pub(super) fn raise(&self, version: u64, clock: &dyn Clock) {
        if !is_foreign(version, version_at(clock.unix_micros(), self.site)) {
            self.floor.fetch_max(version, SeqCst);
        }
    }

    /// An expiry waits for a value of this version.
    pub(super) fn await_value(&self, version: u64) {
        self.awaited.fetch_max(version, SeqCst);
    }

    /// All values up to this version have come.
    pub(super) fn note_arrived(&self, version: u64) {
        let _ = self.awaited.fetch_update(SeqCst, SeqCst, |awaited| (awaited <= version).then_some(0));
    }

    /// True if an expiry may wait for a value above this one.
    pub(super) fn may_await_above(&self, version: u64) -> bool {
        self.awaited.load(SeqCst) > version
    }

    fn newest(&self, hash: u64) -> &AtomicU64 {
        &self.newest[hash as usize & (TABLE_ENTRIES - 1)]
    }
}

/// Two mebibytes. Keys that share an entry have higher versions than they need, and some of their conflicts are not
/// counted.
const TABLE_ENTRIES: usize = 1 << 18;

#[cfg(test)]
mod tests {
    use super::*;

    struct At(AtomicU64);

    impl Clock for At {
        fn unix_micros(&self) -> u64 {
            self.0.load(Relaxed)
        }
    }

    #[test]
    fn each_is_above_all_that_is_known_of_its_key() {
        let clock = At(AtomicU64::new(1_800_000_000_000_000));
        let versions = KnownVersions::new(3);
        let (first, base) = versions.next(7, 0, &clock);
        assert_eq!((first, base), (version_at(1_800_000_000_000_000, 3), 0));
        // A deletion and a set within the same step of the clock: nothing is in memory in between.
        let (second, base) = versions.next(7, 0, &clock);
        assert!(second > first && base == first);
        // Another site's, which is ahead.
        let theirs = version_at(1_800_000_030_000_000, 9);
        versions.note(7, theirs);
        let (third, base) = versions.next(7, second, &clock);
        assert!(third > theirs && base == theirs);
        assert_eq!(versions.next(8, 0, &clock).0, first, "another key does not run ahead with it");
        // A flush is above all of them, and what follows it is above the flush.
        let flush = versions.above_all(&clock);
        assert!(flush > third);
        assert!(versions.next(8, 0, &clock).0 > flush);
        // A beat, or what was before the start.
        versions.raise(flush + (5 << 8), &clock);
        assert!(versions.next(9, 0, &clock).0 > flush + (5 << 8));
    }
}
