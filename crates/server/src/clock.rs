//! The time: seconds since shortly before the server's start, and clients' expiry times on that scale.
//!
//! It follows the monotonic clock, so a step of the wall clock neither expires nor revives an item. Wall time is read
//! once, at the start; absolute expiry times count from there. A cache that is kept in a file (`-e`) goes on from where
//! an earlier process left it: then the seconds began with the start of the first, as memcached's do.

#[cfg(debug_assertions)]
mod debug;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use larder_engine::{Expiry, Now};

/// A moment of the monotonic clock, as one number, so that a duration is one subtraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    nanos: u64,
}

impl Moment {
    /// Reads the clock.
    pub fn now() -> Self {
        static ZERO: LazyLock<Instant> = LazyLock::new(Instant::now);
        let zero = *ZERO;
        let elapsed = Instant::now().saturating_duration_since(zero);
        Self { nanos: elapsed.as_secs() * NANOS_PER_SEC + u64::from(elapsed.subsec_nanos()) }
    }

    /// Nanoseconds from an earlier moment to this one.
    pub fn nanos_since(self, earlier: Self) -> u64 {
        self.nanos.saturating_sub(earlier.nanos)
    }

    /// A later moment.
    #[cfg(test)]
    pub(crate) fn after(self, nanos: u64) -> Self {
        Self { nanos: self.nanos + nanos }
    }
}

/// The server's clock. Ticks in whole seconds, the first of which is [`FIRST_SEC`].
#[derive(Debug)]
pub struct Clock {
    started: Moment,
    /// Wall time of the start, since 1970.
    started_wall: Duration,
    /// In place of the monotonic clock: nanoseconds that a simulation sets.
    simulated_nanos: Option<Arc<AtomicU64>>,
    /// The second of the start.
    first_secs: u32,
    #[cfg(debug_assertions)]
    adjustment: debug::Adjustment,
}

impl Clock {
    /// Starts counting.
    pub fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            started: Moment::now(),
            started_wall: wall,
            first_secs: FIRST_SEC,
            simulated_nanos: None,
            #[cfg(debug_assertions)]
            adjustment: debug::Adjustment::default(),
        }
    }

    /// Starts counting on a clock that a simulation sets, and that never goes back. `wall`: since 1970.
    pub fn simulated(wall: Duration, nanos: Arc<AtomicU64>) -> Self {
        Self {
            started: Moment { nanos: nanos.load(Relaxed) },
            started_wall: wall,
            first_secs: FIRST_SEC,
            simulated_nanos: Some(nanos),
            #[cfg(debug_assertions)]
            adjustment: debug::Adjustment::default(),
        }
    }

    /// The same clock, which began with this second.
    #[must_use]
    pub fn resume(self, first_secs: u32) -> Self {
        Self { first_secs: first_secs.max(FIRST_SEC), ..self }
    }

    /// The time.
    pub fn now(&self) -> Now {
        self.at(match &self.simulated_nanos {
            None => Moment::now(),
            Some(nanos) => Moment { nanos: nanos.load(Relaxed) },
        })
    }

    /// The time at an earlier reading of the clock.
    pub fn at(&self, moment: Moment) -> Now {
        #[cfg(debug_assertions)]
        let moment = self.adjustment.apply(moment);
        let elapsed_nanos = moment.nanos_since(self.started);
        Now {
            secs: u32::try_from(elapsed_nanos / NANOS_PER_SEC)
                .unwrap_or(u32::MAX)
                .saturating_add(self.first_secs),
            micros: elapsed_nanos / 1_000,
        }
    }

    /// debugtime.
    #[cfg(debug_assertions)]
    pub(crate) fn change(&self, change: larder_protocol::admin::Clock) {
        self.adjustment.change(change);
    }

    /// The meaning of a client's exptime (memcached, doc/protocol.txt, "Expiration times"): 0 is never, negative is
    /// past, up to 30 days count from now, and more is a Unix time.
    pub fn expiry(&self, exptime: i64, now: Now) -> Expiry {
        match exptime {
            0 => Expiry::NEVER,
            ..0 => Expiry::PAST,
            1..=RELATIVE_SECS_MAX => Expiry::at(clamp(i64::from(now.secs) + exptime)),
            _ => Expiry::at(clamp(exptime.saturating_sub(self.wall_secs(0)))),
        }
    }

    /// When an expiry is, for stores and other sites: Unix time; 0: never.
    pub fn exptime_secs(&self, expiry: Expiry) -> u64 {
        // What has expired long ago may have been before 1970.
        expiry.secs().map_or(0, |secs| u64::try_from(self.wall_secs(secs)).unwrap_or(0).max(1))
    }

    /// The reverse; `None`: it has expired.
    pub fn unexpired(&self, exptime_secs: u64) -> Option<Expiry> {
        if exptime_secs == 0 {
            return Some(Expiry::NEVER);
        }
        let left_secs = i64::try_from(exptime_secs).unwrap_or(i64::MAX).saturating_sub(self.wall_secs(0));
        let secs = clamp(left_secs);
        (secs > self.now().secs).then(|| Expiry::at(secs))
    }

    /// True if this exptime is an absolute time before the cache's start, which flush_all ignores. memcached's time
    /// begins about a minute before its start.
    pub fn is_before_start(&self, exptime: i64) -> bool {
        exptime > RELATIVE_SECS_MAX && exptime <= self.wall_secs(FIRST_SEC) - 61
    }

    /// The Unix time of a second on the scale of [`Now::secs`].
    pub fn wall_secs(&self, secs: u32) -> i64 {
        let zero =
            i64::try_from(self.started_wall.as_secs()).unwrap_or(i64::MAX) - i64::from(self.first_secs);
        zero.saturating_add(i64::from(secs))
    }
}

/// Unix time now, on the wall clock.
pub(crate) fn unix_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn clamp(secs: i64) -> u32 {
    u32::try_from(secs.max(0)).unwrap_or(u32::MAX)
}

/// The second of the start. As in memcached, whose uptime begins at 2.
pub const FIRST_SEC: u32 = 2;
/// The longest exptime that counts from now: 30 days.
const RELATIVE_SECS_MAX: i64 = 60 * 60 * 24 * 30;
const NANOS_PER_SEC: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now { secs: 100, micros: 0 };

    fn started_at(unix_secs: u64) -> Clock {
        Clock { started_wall: Duration::from_secs(unix_secs), ..Clock::start() }
    }

    #[test]
    fn thirty_days_divide_relative_from_absolute() {
        let clock = started_at(1_800_000_000);
        assert_eq!(clock.expiry(0, NOW), Expiry::NEVER);
        assert_eq!(clock.expiry(-1, NOW), Expiry::PAST);
        assert_eq!(clock.expiry(i64::MIN, NOW), Expiry::PAST);
        assert_eq!(clock.expiry(2_592_000, NOW), Expiry::at(100 + 2_592_000));
        assert_eq!(clock.expiry(2_592_001, NOW), Expiry::PAST);
        assert_eq!(clock.expiry(1_800_000_000 - 60, NOW), Expiry::PAST);
        assert_eq!(clock.expiry(1_800_000_098 + 7, NOW), Expiry::at(107));
        assert!(clock.expiry(1_800_000_098 - 7, NOW).is_past(NOW));
        assert_eq!(clock.expiry(i64::MAX, NOW), Expiry::at(u32::MAX));
    }

    /// memcached 1.6.18: `flush_all` of 61 s before its start and earlier does nothing, of 60 s flushes.
    #[test]
    fn what_was_a_minute_before_the_start_is_before_all_time() {
        let clock = started_at(1_800_000_000);
        for (exptime, is_before) in [
            (1_800_000_000 - 61, true),
            (1_800_000_000 - 60, false),
            (2_592_001, true),
            (2_592_000, false),
            (0, false),
            (-1, false),
            (i64::MIN, false),
            (i64::MAX, false),
        ] {
            assert_eq!(clock.is_before_start(exptime), is_before, "{exptime}");
        }
    }

    /// A cache of 100 seconds, of which the last process saw 40.
    #[test]
    fn a_clock_goes_on_from_where_another_was() {
        let clock = started_at(1_800_000_100).resume(102);
        assert_eq!(clock.now().secs, 102);
        assert_eq!((clock.wall_secs(2), clock.wall_secs(102)), (1_800_000_000, 1_800_000_100));
        let now = Now { secs: 102, micros: 0 };
        assert_eq!(clock.expiry(10, now), Expiry::at(112));
        assert_eq!(clock.expiry(1_800_000_110, now), Expiry::at(112));
        assert!(clock.is_before_start(1_800_000_000 - 61) && !clock.is_before_start(1_800_000_000 - 60));
    }

    #[test]
    fn starts_at_second_two() {
        let clock = Clock::start();
        assert_eq!(clock.now().secs, 2);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map(|wall| wall.as_secs());
        assert!(clock.wall_secs(2).unsigned_abs().abs_diff(wall.unwrap_or_default()) <= 1);
    }
}
