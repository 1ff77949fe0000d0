//! How long an item lives, and how memcached is told so.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long an item lives. A [`Duration`] is one.
///
/// memcached's number for it has traps: 0 is for ever, a number over 30 days is not a duration but a Unix time, and
/// many servers read 32 bits. Here nothing but [`Ttl::Never`] is for ever.
///
/// ```
/// use std::time::Duration;
/// use larder_client::Ttl;
///
/// let an_hour = Ttl::from(Duration::from_secs(3600));
/// assert_eq!(an_hour, Ttl::After(Duration::from_secs(3600)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// Until it is evicted.
    Never,
    /// From now on. Rounded up to seconds; zero is expired at once. Over 30 days it is sent as a Unix time, by this
    /// machine's clock, and at most the largest that every server reads: 2^31 - 1, in January 2038.
    After(Duration),
    /// Until this moment, by the server's clock. Rounded up to seconds; one that is over is expired at once.
    At(SystemTime),
}

impl From<Duration> for Ttl {
    fn from(ttl: Duration) -> Self {
        Self::After(ttl)
    }
}

impl Ttl {
    /// memcached's number: 0 is never, up to 30 days is seconds from now, more is a Unix time, negative is expired.
    pub fn exptime(self) -> i64 {
        self.exptime_at(SystemTime::now())
    }

    fn exptime_at(self, now: SystemTime) -> i64 {
        let unix_secs = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, secs_rounded_up);
        let now_secs = unix_secs(now);
        match self {
            Self::Never => 0,
            Self::After(Duration::ZERO) => EXPIRED,
            Self::After(ttl) => match secs_rounded_up(ttl) {
                secs if secs <= RELATIVE_SECS_MAX => secs,
                secs if now_secs <= UNIX_SECS_MAX - RELATIVE_SECS_MAX => {
                    now_secs.saturating_add(secs).min(UNIX_SECS_MAX)
                }
                _ => RELATIVE_SECS_MAX,
            },
            Self::At(time) if time <= now => EXPIRED,
            Self::At(time) => match unix_secs(time) {
                secs if secs <= RELATIVE_SECS_MAX => EXPIRED,
                secs => secs.min(UNIX_SECS_MAX),
            },
        }
    }
}

/// Whole seconds, as far as they can be counted.
pub(crate) fn secs_rounded_up(duration: Duration) -> i64 {
    let secs = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
    secs.try_into().unwrap_or(i64::MAX)
}

/// The longest time from now; memcached's `REALTIME_MAXDELTA`.
pub(crate) const RELATIVE_SECS_MAX: i64 = 60 * 60 * 24 * 30;
/// The latest Unix time: memcached parses 32 bits with a sign.
const UNIX_SECS_MAX: i64 = i32::MAX as i64;
/// Expired at once.
const EXPIRED: i64 = -1;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_SECS: u64 = 1_800_000_000;

    fn exptime(ttl: impl Into<Ttl>) -> i64 {
        ttl.into().exptime_at(UNIX_EPOCH + Duration::from_secs(NOW_SECS))
    }

    #[test]
    fn durations_up_to_thirty_days_are_relative() {
        assert_eq!(exptime(Duration::from_secs(1)), 1);
        assert_eq!(exptime(Duration::from_secs(2_592_000)), 2_592_000);
        assert_eq!(exptime(Duration::from_secs(2_592_001)), 1_802_592_001);
        assert_eq!(exptime(Duration::new(2_592_000, 1)), 1_802_592_001);
    }

    #[test]
    fn parts_of_a_second_are_rounded_up() {
        assert_eq!(exptime(Duration::from_nanos(1)), 1);
        assert_eq!(exptime(Duration::from_millis(999)), 1);
        assert_eq!(exptime(Duration::from_millis(1001)), 2);
        assert_eq!(exptime(Ttl::At(UNIX_EPOCH + Duration::from_millis(NOW_SECS * 1000 + 1))), 1_800_000_001);
    }

    #[test]
    fn nothing_but_never_is_for_ever() {
        assert_eq!(exptime(Ttl::Never), 0);
        assert_eq!(exptime(Duration::ZERO), -1);
        assert_eq!(exptime(Ttl::At(UNIX_EPOCH)), -1);
        assert_eq!(exptime(Ttl::At(UNIX_EPOCH + Duration::from_secs(NOW_SECS))), -1);
        assert_eq!(exptime(Ttl::At(UNIX_EPOCH - Duration::from_secs(1))), -1);
    }

    #[test]
    fn no_time_is_beyond_what_servers_read() {
        assert_eq!(exptime(Duration::from_secs(u32::MAX.into())), 2_147_483_647);
        assert_eq!(exptime(Duration::MAX), 2_147_483_647);
        assert_eq!(exptime(Ttl::At(UNIX_EPOCH + Duration::from_secs(1 << 40))), 2_147_483_647);
        // Where no such time is left, as late as can be told.
        let late = UNIX_EPOCH + Duration::from_secs(2_147_483_000);
        assert_eq!(Ttl::After(Duration::MAX).exptime_at(late), 2_592_000);
    }
}
