//! Lifetimes of items that are read from the store.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_engine::Expiry;
use larder_store::Meta;
use larder_store::commit::version_at;

use crate::clock::Clock;

/// Everything that determines the lifetime of a namespace's items.
#[derive(Clone, Copy)]
pub(super) struct Lifetime<'l> {
    pub(super) clock: &'l Clock,
    pub(super) lapsed: &'l Lapsed,
    /// The policy of the namespace. It may be newer than the item.
    pub(super) ttl_max_secs: Option<u32>,
}

impl Lifetime<'_> {
    /// Expiry of an item; `None`: it has expired.
    pub(super) fn expiry_of(&self, meta: &Meta) -> Option<Expiry> {
        if self.lapsed.has(meta) {
            return None;
        }
        self.clock.unexpired(self.exptime_secs(meta))
    }

    /// Expiry as a Unix time; 0 means never.
    pub(super) fn exptime_secs(&self, meta: &Meta) -> u64 {
        let Some(ttl_max_secs) = self.ttl_max_secs.map(u64::from) else { return meta.exptime_secs };
        // A touch, which keeps the version, may have extended it up to this time.
        let latest_secs = self.clock.unix_secs().saturating_add(ttl_max_secs);
        if meta.exptime_secs != 0 && meta.exptime_secs <= latest_secs {
            return meta.exptime_secs;
        }
        stored_secs(meta.version).saturating_add(ttl_max_secs).clamp(1, latest_secs)
    }
}

/// Items that had expired when the wall clock was set back. Clients were told that these are gone, so they must not
/// come back, although the store would find them again until the clock shows their time once more. Later changes are
/// judged by the clock as it is now.
#[derive(Debug, Default)]
pub(crate) struct Lapsed {
    /// The latest Unix time that was observed.
    latest_secs: AtomicU64,
    /// The newest change of the store when the clock was set back from that time; 0: it was not set back.
    sequence: AtomicU64,
}

impl Lapsed {
    /// Notes the time, once a second or so, and the store's newest change.
    pub(super) fn note(&self, now_unix_secs: u64, last_sequence: u64) {
        if self.latest_secs.fetch_max(now_unix_secs, Relaxed) <= now_unix_secs {
            self.sequence.store(0, Relaxed);
        } else if self.sequence.load(Relaxed) == 0 {
            self.sequence.store(last_sequence, Relaxed);
        }
    }

    fn has(&self, meta: &Meta) -> bool {
        meta.sequence <= self.sequence.load(Relaxed) && meta.is_expired(self.latest_secs.load(Relaxed))
    }
}

/// The Unix time at which a version was given. A client may have chosen the version (`E`): then the time is long past,
/// or in the future.
pub(super) fn stored_secs(version: u64) -> u64 {
    // A version is a number of steps since an epoch: the difference between two versions a second apart is a second's
    // steps.
    let epoch_micros = 1_735_689_600_000_000;
    let versions_per_sec = version_at(epoch_micros + 1_000_000, 0) - version_at(epoch_micros, 0);
    (version / versions_per_sec.max(1)).saturating_add(epoch_micros / 1_000_000)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use larder_store::Marks;

    use super::*;

    const START_SECS: u64 = 1_800_000_000;

    /// An item that was stored `after_secs` seconds after the start.
    fn stored(after_secs: u64, exptime_secs: u64, sequence: u64) -> Meta {
        Meta {
            value_bytes: 1,
            client_flags: 0,
            exptime_secs,
            version: version_at((START_SECS + after_secs) * 1_000_000 + 999_999, 7),
            marks: Marks::NONE,
            origin: 0,
            sequence,
        }
    }

    #[test]
    fn a_version_tells_when_it_was_given() {
        assert_eq!(stored_secs(stored(5, 0, 1).version), START_SECS + 5);
        assert!(stored_secs(1) < START_SECS && stored_secs(u64::MAX) > START_SECS);
    }

    #[test]
    fn no_item_outlives_a_policy_that_is_newer() {
        let nanos = Arc::<AtomicU64>::default();
        let clock = Clock::simulated(Duration::from_secs(START_SECS), Arc::clone(&nanos));
        let lapsed = Lapsed::default();
        let lifetime = Lifetime { clock: &clock, lapsed: &lapsed, ttl_max_secs: Some(60) };
        let left_secs = |meta: &Meta| {
            let expiry = lifetime.expiry_of(meta)?;
            Some(clock.secs_of(expiry)? - clock.now().secs)
        };
        nanos.fetch_add(100_000_000_000, Relaxed);
        for (stored_after_secs, exptime_secs, expected) in [
            // These were to live for ever, or for long.
            (100, 0, Some(60)),
            (70, 0, Some(30)),
            (40, 0, None),
            (70, START_SECS + 10_000, Some(30)),
            (39, START_SECS + 10_000, None),
            // The policy allows these expiries: the items were touched.
            (1, START_SECS + 159, Some(59)),
            (90, START_SECS + 110, Some(10)),
            (90, START_SECS + 100, None),
            // This one was stored by a clock that was ahead.
            (5_000, 0, Some(60)),
        ] {
            let meta = stored(stored_after_secs, exptime_secs, 1);
            assert_eq!(left_secs(&meta), expected, "{stored_after_secs} {exptime_secs}");
        }
        let without = Lifetime { ttl_max_secs: None, ..lifetime };
        assert_eq!(without.expiry_of(&stored(1, 0, 1)), Some(Expiry::NEVER));
    }

    #[test]
    fn what_clients_were_told_is_gone_does_not_come_back_with_the_clock() {
        let nanos = Arc::<AtomicU64>::default();
        let clock = Clock::simulated(Duration::from_secs(START_SECS), Arc::clone(&nanos));
        let lapsed = Lapsed::default();
        let has = |meta: &Meta| {
            Lifetime { clock: &clock, lapsed: &lapsed, ttl_max_secs: None }.expiry_of(meta).is_some()
        };
        let (soon, later) = (stored(0, START_SECS + 10, 1), stored(0, START_SECS + 50, 2));
        lapsed.note(clock.unix_secs(), 2);
        assert!(has(&soon) && has(&later));
        clock.set_simulated_wall(20);
        lapsed.note(clock.unix_secs(), 2);
        assert!(!has(&soon) && has(&later));
        clock.set_simulated_wall(-20);
        lapsed.note(clock.unix_secs(), 3);
        let new = stored(0, START_SECS + 10, 4);
        assert!(!has(&soon) && has(&later) && has(&new));
        lapsed.note(clock.unix_secs(), 9);
        assert!(!has(&soon) && has(&new), "it is not set back again by that");
        nanos.fetch_add(30_000_000_000, Relaxed);
        lapsed.note(clock.unix_secs(), 9);
        assert!(!has(&soon) && !has(&new) && has(&later));
    }
}
