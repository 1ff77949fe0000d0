//! Versions of items: the CAS values of a store, unique for each key and rising.
//!
//! A version has 53 bits, so that a program that keeps numbers as floating point (JavaScript) reads it exactly: 45 bits
//! of time in steps of 125 microseconds since 2025, and 8 bits of site. So it is above every version that was given
//! before, also before a restart, without a note on the disk of each; where a key changes twice within a step, or the
//! clock was set back, the next number above the last is taken.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Unix time in microseconds. May go back.
    fn unix_micros(&self) -> u64;
}

/// Bits of the site in a version.
pub const SITE_BITS: u32 = 8;
/// The highest version.
pub const VERSION_MAX: u64 = (1 << 53) - 1;

/// Gives versions.
pub struct Versions {
    site: u8,
    /// At least the highest version given that is ahead of the clock, or that was deleted ahead of it.
    highest: AtomicU64,
}

impl Versions {
    /// For a site whose store has `highest` as its highest version.
    pub fn new(site: u8, highest: u64) -> Self {
        Self { site, highest: AtomicU64::new(if highest <= VERSION_MAX { highest } else { 0 }) }
    }

    /// A version above `replaced` and above all that were retired. A `replaced` far ahead of the clock is a client's
    /// own value: the new version differs from it, and may be below it. If it counted, one client could use up all
    /// versions of all keys.
    pub fn above(&self, replaced: u64, clock: &dyn Clock) -> u64 {
        let now = version_at(clock.unix_micros(), self.site);
        let is_foreign = is_foreign(replaced, now);
        let highest = self.highest.load(Relaxed);
        let floor = if is_foreign { highest } else { highest.max(replaced) };
        if now > floor {
            return now;
        }
        let mut version = self.next(floor);
        if version == replaced {
            version = self.next(version);
        }
        if is_foreign || replaced >= floor {
            // Ahead of the clock: another key may come back to it once this one is gone.
            self.highest.fetch_max(version, Relaxed);
        }
        version
    }

    /// No key gets this version again.
    pub fn retire(&self, version: u64, clock: &dyn Clock) {
        let now = version_at(clock.unix_micros(), self.site);
        if version >= now && !is_foreign(version, now) {
            self.highest.fetch_max(version, Relaxed);
        }
    }

    /// From here on versions are above this one, unless it is a client's own.
    pub fn raise(&self, highest: u64, clock: &dyn Clock) {
        if !is_foreign(highest, version_at(clock.unix_micros(), self.site)) {
            self.highest.fetch_max(highest, Relaxed);
        }
    }

    fn next(&self, version: u64) -> u64 {
        next_version(version, self.site)
    }
}

/// The lowest version of a site that is above this one and belongs to a later moment.
pub(super) fn next_version(version: u64, site: u8) -> u64 {
    let step = (version >> SITE_BITS) + 1;
    (step << SITE_BITS | u64::from(site)).min(VERSION_MAX)
}

/// The version of a moment, at a site.
pub fn version_at(unix_micros: u64, site: u8) -> u64 {
    let step = unix_micros.saturating_sub(EPOCH_MICROS) / STEP_MICROS;
    (step << SITE_BITS | u64::from(site)).min(VERSION_MAX)
}

/// True if this is so far ahead of the clock that a client gave it, and not we before the clock was set back.
pub(super) fn is_foreign(version: u64, now: u64) -> bool {
    version > now.saturating_add(AHEAD_MAX)
}

/// Forty years: clocks are set back by less, and versions last for a hundred beyond them.
const AHEAD_MAX: u64 = (40 * 365 * 86_400 * 1_000_000 / STEP_MICROS) << SITE_BITS;
/// 2025-01-01T00:00:00Z.
const EPOCH_MICROS: u64 = 1_735_689_600_000_000;
const STEP_MICROS: u64 = 125;

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
    fn rise_whatever_the_clock_does() {
        let clock = At(AtomicU64::new(EPOCH_MICROS + 1_000_000));
        let versions = Versions::new(3, 0);
        let first = versions.above(0, &clock);
        assert_eq!(first, 8000 << 8 | 3, "a second has 8,000 steps");
        let second = versions.above(first, &clock);
        assert_eq!(second, 8001 << 8 | 3);
        // Deleted, and stored again within the same step.
        versions.retire(second, &clock);
        let third = versions.above(0, &clock);
        assert!(third > second);
        // The clock is set back, also at a restart.
        clock.0.store(EPOCH_MICROS, Relaxed);
        assert!(versions.above(third, &clock) > third);
        let restarted = Versions::new(3, third);
        assert!(restarted.above(0, &clock) > third);
        // Far ahead: it stays within 53 bits.
        clock.0.store(u64::MAX, Relaxed);
        assert_eq!(versions.above(third, &clock), VERSION_MAX);
        // A client's own value.
        clock.0.store(EPOCH_MICROS + 9_000_000, Relaxed);
        assert!(restarted.above(u64::MAX, &clock) <= VERSION_MAX);
    }

    /// A client may give an item any version (`E`): that must not use up those of other keys.
    #[test]
    fn a_clients_own_version_concerns_its_key_alone() {
        let clock = At(AtomicU64::new(EPOCH_MICROS + 60_000_000));
        for own in [VERSION_MAX, VERSION_MAX - 1, VERSION_MAX - (1 << SITE_BITS), 1 << 52, u64::MAX] {
            let versions = Versions::new(1, 0);
            versions.retire(own, &clock);
            versions.raise(own, &clock);
            assert_ne!(versions.above(own, &clock), own);
            let mut last = 0;
            for _ in 0..3 {
                let next = versions.above(last, &clock);
                assert!(next > last && next < VERSION_MAX / 2, "{own}: {next} after {last}");
                last = next;
            }
            // Each change of the key has a new version, also while the clock stands still.
            versions.retire(last, &clock);
            let again = versions.above(own, &clock);
            assert!(again > last && versions.above(again, &clock) > again);
        }
        // As far ahead as counts: many changes may pass that bound, and still rise.
        let versions = Versions::new(1, 0);
        let mut last = version_at(clock.0.load(Relaxed), 1) + AHEAD_MAX;
        for _ in 0..10 {
            let next = versions.above(last, &clock);
            assert!(next > last);
            last = next;
        }
    }

    #[test]
    fn a_version_lasts_for_a_century() {
        let century = EPOCH_MICROS + 100 * 366 * 86_400 * 1_000_000;
        assert!(version_at(century, 255) < VERSION_MAX);
    }
}
