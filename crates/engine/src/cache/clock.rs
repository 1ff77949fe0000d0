//! The time of a cache inside a program: the only clock of this crate. The engine is told the time.
//!
//! A reading of the coarse clock costs a fifth of an exact one. It is the exact time at the last tick of the kernel:
//! never ahead, and behind by one tick at most. So the coarse time serves for nearly everything, and an exact reading
//! is needed only next to a deadline.

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::request::{Expiry, Now};

const MICROS_PER_SEC: u64 = 1_000_000;
/// The coarse clock is behind by less than this. The slowest kernels tick a hundred times a second.
const COARSE_MICROS_MAX: u64 = 20_000;

/// Microseconds since the second in which the cache was made. The clock is monotonic: setting the wall clock does not
/// affect it, and time spent suspended does not count, as with the standard library's `Instant`.
pub(super) struct Clock {
    /// A whole second, so that the coarse time needs no division.
    origin_secs: i64,
    /// In tests the time is what they say.
    #[cfg(test)]
    pub(super) manual_micros: Option<std::sync::Arc<std::sync::atomic::AtomicU64>>,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self {
            origin_secs: clock_gettime(ClockId::MonotonicCoarse).tv_sec,
            #[cfg(test)]
            manual_micros: None,
        }
    }

    /// The engine's time: coarse, so that all threads see the same seconds.
    #[inline]
    pub(super) fn now(&self) -> Now {
        let (secs, micros) = self.read(ClockId::MonotonicCoarse);
        Now { secs: engine_secs(secs), micros }
    }

    /// The exact time.
    #[inline]
    pub(super) fn exact_micros(&self) -> u64 {
        self.read(ClockId::Monotonic).1
    }

    /// True from the deadline on, exactly. `now` was read before.
    #[inline]
    pub(super) fn is_past(&self, deadline_micros: u64, now: Now) -> bool {
        deadline_micros <= now.micros
            || deadline_micros < now.micros + COARSE_MICROS_MAX && deadline_micros <= self.exact_micros()
    }

    /// Whole seconds, and microseconds in all.
    #[inline]
    fn read(&self, clock: ClockId) -> (u64, u64) {
        #[cfg(test)]
        if let Some(manual) = &self.manual_micros {
            let micros = manual.load(std::sync::atomic::Ordering::SeqCst);
            return (micros / MICROS_PER_SEC, micros);
        }
        let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
        let secs = (tv_sec - self.origin_secs) as u64;
        (secs, secs * MICROS_PER_SEC + tv_nsec as u64 / 1_000)
    }
}

/// Whole seconds since the start, on the engine's scale, which begins at 1.
#[inline]
fn engine_secs(secs: u64) -> u32 {
    u32::try_from(secs + 1).unwrap_or(u32::MAX)
}

/// When an entry expires: the second from which the engine takes its memory, and the microsecond from which it is not
/// found any more, which lies within the second before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deadline {
    /// On the engine's scale.
    pub(super) secs: u32,
    /// 1 to 1,000,000: from the beginning of the second before `secs`.
    pub(super) micros: u32,
}

impl Deadline {
    /// `None`: so far ahead that it is never.
    pub(super) fn at(micros: u64) -> Option<Self> {
        let micros = micros.max(1);
        let end_secs = micros.div_ceil(MICROS_PER_SEC);
        let secs = u32::try_from(end_secs + 1).ok().filter(|&secs| secs < Expiry::SECS_MAX)?;
        Some(Self { secs, micros: (micros - (end_secs - 1) * MICROS_PER_SEC) as u32 })
    }

    /// Microseconds since the start.
    #[inline]
    pub(super) fn total_micros(self) -> u64 {
        u64::from(self.secs.saturating_sub(2)) * MICROS_PER_SEC + u64::from(self.micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_kept_to_the_microsecond() {
        for micros in
            [1, 2, 999_999, 1_000_000, 1_000_001, 86_400_000_000, 2_000_000_000 * MICROS_PER_SEC + 7]
        {
            let deadline = Deadline::at(micros).unwrap();
            assert_eq!(deadline.total_micros(), micros);
            assert!((1..=1_000_000).contains(&deadline.micros));
            // The engine takes it at the first whole second from the deadline on, no sooner.
            assert!(deadline.secs > engine_secs((micros - 1) / MICROS_PER_SEC));
            assert_eq!(deadline.secs, engine_secs(micros.div_ceil(MICROS_PER_SEC)));
        }
        assert_eq!(Deadline::at(0), Deadline::at(1));
        assert_eq!(Deadline::at(u64::MAX), None);
    }

    #[test]
    fn the_coarse_clock_is_never_ahead() {
        let clock = Clock::start();
        for _ in 0..if cfg!(miri) { 10 } else { 10_000 } {
            let coarse = clock.now().micros;
            assert!(coarse <= clock.exact_micros());
        }
    }
}
