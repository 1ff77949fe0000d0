//! The time: seconds since shortly before the server's start, and clients' expiry times on that scale.
//!
//! Two clocks decide when items expire:
//!
//! A time to live is counted on the monotonic clock that goes on while the machine is suspended (`CLOCK_BOOTTIME`).
//! Setting the wall clock neither expires nor revives such an item.
//! A Unix time is compared with the current wall clock. That clock may be set, so its lead over the other one is
//! measured once a second ([`Clock::observe_wall`]).
//!
//! Stores and other sites get Unix times, and times that come from there are judged by the wall clock. A cache that is
//! kept in a file (`-e`) continues the seconds of the earlier process, which began with the start of the first one, as
//! memcached's do.

#[cfg(debug_assertions)]
mod debug;

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use larder_engine::{Expiry, Now};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

/// A moment of the monotonic clock that counts while the machine is suspended, as one number, so that a duration takes
/// one subtraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    nanos: u64,
}

impl Moment {
    /// Reads the clock.
    pub fn now() -> Self {
        // By the C library: `rustix` looks for the kernel's own pages, which valgrind hides. Linux has had this clock
        // since 2.6.39, so it cannot fail.
        let time = clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap_or(TimeSpec::new(0, 0));
        // Neither is negative.
        Self { nanos: time.tv_sec() as u64 * NANOS_PER_SEC + time.tv_nsec() as u64 }
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
    source: Source,
    started: Moment,
    /// The second of the start.
    first_secs: u32,
    /// Unix time of second 0, by the wall clock as it was last observed.
    zero_unix_micros: AtomicI64,
    /// Lead of the wall clock in whole seconds since [`WALL_ZERO_SECS`].
    wall_ahead_secs: AtomicI32,
    #[cfg(debug_assertions)]
    adjustment: debug::Adjustment,
}

/// The source of time.
#[derive(Debug)]
enum Source {
    System,
    /// The time is set by a simulation.
    Simulated {
        nanos: Arc<AtomicU64>,
        /// Microseconds of Unix time by which the wall clock is ahead of `nanos`.
        wall_ahead_micros: AtomicI64,
    },
}

impl Source {
    fn now(&self) -> Moment {
        match self {
            Self::System => Moment::now(),
            Self::Simulated { nanos, .. } => Moment { nanos: nanos.load(Relaxed) },
        }
    }

    /// Reads the microseconds by which the wall clock is ahead of the monotonic one. `None`: this thread lost its core
    /// between the two readings each time, although they must be read `together`.
    fn wall_ahead_micros(&self, together: bool) -> Option<i64> {
        if let Self::Simulated { wall_ahead_micros, .. } = self {
            return Some(wall_ahead_micros.load(Relaxed));
        }
        (0..READINGS_MAX).find_map(|_| {
            let (before, unix_micros, after) = (Moment::now(), unix_micros(), Moment::now());
            let is_close = !together || after.nanos_since(before) <= READING_NANOS_MAX;
            is_close.then(|| signed(unix_micros) - signed(after.nanos / 1_000))
        })
    }
}

impl Clock {
    /// Starts counting.
    pub fn start() -> Self {
        Self::of(Source::System)
    }

    /// Starts counting on a clock that a simulation sets, and that never goes back. `wall`: since 1970.
    pub fn simulated(wall: Duration, nanos: Arc<AtomicU64>) -> Self {
        let micros = nanos.load(Relaxed) / 1_000;
        let wall_micros = u64::try_from(wall.as_micros()).unwrap_or(u64::MAX);
        let wall_ahead_micros = AtomicI64::new(signed(wall_micros) - signed(micros));
        Self::of(Source::Simulated { nanos, wall_ahead_micros })
    }

    fn of(source: Source) -> Self {
        let clock = Self {
            started: source.now(),
            source,
            first_secs: FIRST_SEC,
            // The first observation treats the wall clock as if it had just been set.
            zero_unix_micros: AtomicI64::new(i64::MIN),
            wall_ahead_secs: AtomicI32::new(0),
            #[cfg(debug_assertions)]
            adjustment: debug::Adjustment::default(),
        };
        clock.observe_wall();
        clock
    }

    /// The same clock, which began with this second.
    #[must_use]
    pub fn resume(self, first_secs: u32) -> Self {
        let clock = Self {
            first_secs: first_secs.max(FIRST_SEC),
            zero_unix_micros: AtomicI64::new(i64::MIN),
            ..self
        };
        clock.observe_wall();
        clock
    }

    /// Detects whether the wall clock was set. Returns the seconds by which it is ahead, for
    /// [`Engine::set_wall_ahead`](larder_engine::Engine::set_wall_ahead).
    pub fn observe_wall(&self) -> i32 {
        let known_micros = self.zero_unix_micros.load(Relaxed);
        let is_known = known_micros != i64::MIN;
        let ahead_micros = self.source.wall_ahead_micros(is_known);
        let started_micros = signed(self.started.nanos / 1_000) - i64::from(self.first_secs) * MICROS_PER_SEC;
        let zero_micros = ahead_micros.map(|ahead_micros| ahead_micros.saturating_add(started_micros));
        if let Some(zero_micros) = zero_micros.filter(|zero| zero.abs_diff(known_micros) >= STEP_MICROS_MIN) {
            self.zero_unix_micros.store(zero_micros, Relaxed);
            let ahead_secs = zero_micros.div_euclid(MICROS_PER_SEC) - WALL_ZERO_SECS;
            let ahead_secs = ahead_secs.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
            self.wall_ahead_secs.store(ahead_secs, Relaxed);
        }
        self.wall_ahead_secs.load(Relaxed)
    }

    /// Moves the wall clock of a simulation by `secs`, forwards or back.
    pub fn set_simulated_wall(&self, secs: i64) {
        if let Source::Simulated { wall_ahead_micros, .. } = &self.source {
            wall_ahead_micros.fetch_add(secs.saturating_mul(MICROS_PER_SEC), Relaxed);
        }
    }

    /// The time.
    pub fn now(&self) -> Now {
        self.at(self.source.now())
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
            _ => self.at_unix(exptime),
        }
    }

    /// The expiry for a Unix time.
    fn at_unix(&self, unix_secs: i64) -> Expiry {
        match clamp(unix_secs.saturating_sub(WALL_ZERO_SECS)) {
            // Such a time passed long ago.
            0 => Expiry::PAST,
            secs => Expiry::at_wall(secs),
        }
    }

    /// The second from which an item is expired, on the scale of [`Now::secs`] and by the current wall clock; `None`:
    /// never.
    pub fn secs_of(&self, expiry: Expiry) -> Option<u32> {
        expiry.secs_with(self.wall_ahead_secs.load(Relaxed))
    }

    /// True if an item with this expiry is expired.
    pub fn is_past(&self, expiry: Expiry, now: Now) -> bool {
        expiry.is_past_with(now, self.wall_ahead_secs.load(Relaxed))
    }

    /// When an expiry is, for stores and other sites: Unix time; 0: never.
    pub fn exptime_secs(&self, expiry: Expiry) -> u64 {
        if expiry == Expiry::NEVER {
            return 0;
        }
        self.observe_wall();
        // What has expired long ago may have been before 1970.
        self.unix_secs_of(expiry).map_or(0, |secs| u64::try_from(secs).unwrap_or(0).max(1))
    }

    /// The Unix time from which an item is expired; `None`: never.
    pub fn unix_secs_of(&self, expiry: Expiry) -> Option<i64> {
        let secs = expiry.secs()?;
        Some(if expiry.is_by_wall() { WALL_ZERO_SECS + i64::from(secs) } else { self.wall_secs(secs) })
    }

    /// The reverse of [`Clock::exptime_secs`]; `None`: the item has expired.
    pub fn unexpired(&self, exptime_secs: u64) -> Option<Expiry> {
        if exptime_secs == 0 {
            return Some(Expiry::NEVER);
        }
        self.observe_wall();
        let expiry = self.at_unix(i64::try_from(exptime_secs).unwrap_or(i64::MAX));
        (!self.is_past(expiry, self.now())).then_some(expiry)
    }

    /// True if this exptime is an absolute time before the cache's start, which flush_all ignores. memcached's time
    /// begins about a minute before its start.
    pub fn is_before_start(&self, exptime: i64) -> bool {
        exptime > RELATIVE_SECS_MAX && exptime <= self.wall_secs(FIRST_SEC) - 61
    }

    /// Unix time of a second on the scale of [`Now::secs`], by the current wall clock.
    pub fn wall_secs(&self, secs: u32) -> i64 {
        WALL_ZERO_SECS + i64::from(self.wall_ahead_secs.load(Relaxed)) + i64::from(secs)
    }

    /// The current Unix time in seconds.
    pub fn unix_secs(&self) -> u64 {
        self.observe_wall();
        u64::try_from(self.wall_secs(self.now().secs)).unwrap_or(0)
    }
}

/// Unix time now, on the wall clock.
pub(crate) fn unix_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn clamp(secs: i64) -> u32 {
    u32::try_from(secs.max(0)).unwrap_or(u32::MAX)
}

/// The second of the start. As in memcached, whose uptime begins at 2.
pub const FIRST_SEC: u32 = 2;
/// The longest exptime that counts from now: 30 days.
const RELATIVE_SECS_MAX: i64 = 60 * 60 * 24 * 30;
const NANOS_PER_SEC: u64 = 1_000_000_000;
const MICROS_PER_SEC: i64 = 1_000_000;
/// Unix time of the zero of [`Expiry::at_wall`]: the start of 2020. No future exptime is earlier; the latest is in
/// 2088.
const WALL_ZERO_SECS: i64 = 1_577_836_800;
/// The wall clock counts as set if it differs by at least this much from its expected value. NTP slews smaller offsets.
const STEP_MICROS_MIN: u64 = 500_000;
/// Two clocks count as read together if reading them takes no longer than this.
const READING_NANOS_MAX: u64 = 50_000_000;
const READINGS_MAX: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now { secs: 100, micros: 0 };

    /// A clock that stands still.
    fn started_at(unix_secs: u64) -> Clock {
        clock_at(unix_secs).0
    }

    fn clock_at(unix_secs: u64) -> (Clock, Arc<AtomicU64>) {
        let nanos = Arc::new(AtomicU64::new(77 * NANOS_PER_SEC));
        (Clock::simulated(Duration::from_secs(unix_secs), Arc::clone(&nanos)), nanos)
    }

    #[test]
    fn thirty_days_divide_relative_from_absolute() {
        let clock = started_at(1_800_000_000);
        assert_eq!(clock.expiry(0, NOW), Expiry::NEVER);
        assert_eq!(clock.expiry(-1, NOW), Expiry::PAST);
        assert_eq!(clock.expiry(i64::MIN, NOW), Expiry::PAST);
        assert_eq!(clock.expiry(2_592_000, NOW), Expiry::at(100 + 2_592_000));
        assert_eq!(clock.expiry(2_592_001, NOW), Expiry::PAST);
        assert!(clock.is_past(clock.expiry(1_800_000_000 - 60, NOW), NOW));
        assert_eq!(clock.secs_of(clock.expiry(1_800_000_098 + 7, NOW)), Some(107));
        assert!(clock.is_past(clock.expiry(1_800_000_098 - 7, NOW), NOW));
        assert_eq!(clock.expiry(i64::MAX, NOW), Expiry::at_wall(u32::MAX));
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
        assert_eq!(clock.secs_of(clock.expiry(1_800_000_110, now)), Some(112));
        assert!(clock.is_before_start(1_800_000_000 - 61) && !clock.is_before_start(1_800_000_000 - 60));
    }

    /// A time to live does not depend on the wall clock; a Unix time depends on nothing else.
    #[test]
    fn the_wall_clock_decides_on_unix_times_alone() {
        for step_secs in [3_600, -3_600, 1, -1] {
            let (clock, nanos) = clock_at(1_800_000_000);
            let (unix, counted) =
                (clock.expiry(1_800_005_000, clock.now()), clock.expiry(5_000, clock.now()));
            let left_secs =
                |expiry| clock.secs_of(expiry).map(|secs| i64::from(secs) - i64::from(clock.now().secs));
            assert_eq!((left_secs(unix), left_secs(counted)), (Some(5_000), Some(5_000)));
            clock.set_simulated_wall(step_secs);
            let before = clock.wall_secs(0);
            clock.observe_wall();
            assert_eq!(clock.wall_secs(0) - before, step_secs);
            assert_eq!((left_secs(unix), left_secs(counted)), (Some(5_000 - step_secs), Some(5_000)));
            assert_eq!(clock.unix_secs_of(unix), Some(1_800_005_000));
            assert_eq!(clock.exptime_secs(counted), (1_800_005_000 + step_secs) as u64);
            // A lock that is set to live for 31 s lives for 31 s.
            let wall_secs = 1_800_000_000 + step_secs;
            assert_eq!(left_secs(clock.expiry(wall_secs + 31, clock.now())), Some(31));
            let stored = clock.unexpired((wall_secs + 31) as u64).expect("it is to come");
            assert_eq!((clock.exptime_secs(stored), left_secs(stored)), ((wall_secs + 31) as u64, Some(31)));
            assert_eq!(clock.unexpired(wall_secs as u64), None);
            nanos.fetch_add(31 * NANOS_PER_SEC, Relaxed);
            assert!(clock.is_past(stored, clock.now()) && !clock.is_past(counted, clock.now()));
            assert_eq!(clock.unix_secs(), (wall_secs + 31) as u64);
        }
    }

    #[test]
    fn a_clock_that_is_set_far_off_ends_nothing() {
        for step_secs in [i64::MIN / 4_000_000, -1_799_999_990, 1 << 33, i64::MAX / 4_000_000] {
            let (clock, _) = clock_at(1_800_000_000);
            let expiry = clock.expiry(1_800_005_000, clock.now());
            clock.set_simulated_wall(step_secs);
            clock.observe_wall();
            assert_eq!(clock.is_past(expiry, clock.now()), step_secs > 0);
            assert_eq!(clock.expiry(60, clock.now()), Expiry::at(clock.now().secs + 60));
            let _ = (clock.unix_secs(), clock.unexpired(u64::MAX), clock.exptime_secs(expiry));
        }
    }

    /// Both clocks advance by the same amount, so the wall clock was not set.
    #[test]
    fn time_that_passes_is_no_step() {
        let clock = Clock::start();
        let ahead_secs = clock.observe_wall();
        assert!((0..1_000).all(|_| clock.observe_wall() == ahead_secs));
    }

    #[test]
    fn starts_at_second_two() {
        let clock = Clock::start();
        assert_eq!(clock.now().secs, 2);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map(|wall| wall.as_secs());
        assert!(clock.wall_secs(2).unsigned_abs().abs_diff(wall.unwrap_or_default()) <= 1);
    }
}
