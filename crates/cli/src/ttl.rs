//! Times to live, as users write them.

use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

/// A time to live: without limit, or so many seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ttl {
    secs: u64,
}

impl Ttl {
    /// The protocol's exptime: up to 30 days unchanged, longer times as a Unix time. (The server would take a longer
    /// number of seconds for a time in 1970, and the item would be expired.)
    pub(crate) fn exptime(self) -> i64 {
        let secs = i64::try_from(self.secs).unwrap_or(i64::MAX);
        if secs <= RELATIVE_SECS_MAX { secs } else { unix_now_secs().saturating_add(secs) }
    }
}

/// Seconds since 1970.
pub(crate) fn unix_now_secs() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

impl FromStr for Ttl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit_secs) = match text.char_indices().last() {
            Some((at, 's')) => (&text[..at], 1),
            Some((at, 'm')) => (&text[..at], 60),
            Some((at, 'h')) => (&text[..at], 3_600),
            Some((at, 'd')) => (&text[..at], 86_400),
            _ => (text, 1),
        };
        let wrong = || "a number of seconds, or 5m, 2h, 90d; 0 is for ever".to_owned();
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let secs = number.checked_mul(unit_secs).filter(|secs| *secs <= TTL_SECS_MAX).ok_or_else(wrong)?;
        Ok(Self { secs })
    }
}

/// protocol.txt: 60*60*24*30.
const RELATIVE_SECS_MAX: i64 = 2_592_000;
/// Fits a server's 32-bit clock, and is longer than anybody needs.
const TTL_SECS_MAX: u64 = 10 * 366 * 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_times_are_sent_as_moments() {
        let exptime = |text: &str| text.parse::<Ttl>().map(Ttl::exptime);
        assert_eq!(exptime("0"), Ok(0));
        assert_eq!(exptime("90"), Ok(90));
        assert_eq!(exptime("5m"), Ok(300));
        assert_eq!(exptime("30d"), Ok(2_592_000));
        let days_31 = exptime("31d").expect("it is a time") - unix_now_secs();
        assert!((2_678_399..=2_678_400).contains(&days_31), "{days_31}");
        for wrong in ["", "m", "-1", "1w", "1.5", "99999999999999999999", "9999d", "5é"] {
            assert!(exptime(wrong).is_err(), "{wrong}");
        }
    }
}
