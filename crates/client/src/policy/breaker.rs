//! The circuit breaker of one server.

use std::time::{Duration, Instant};

use super::{CircuitBreaker, Health};

/// The circuit breaker of one server.
#[derive(Clone, Debug, Default)]
pub(super) struct Breaker {
    /// In a row.
    pub failures: u32,
    pub ejections: u64,
    ejected: Option<Ejected>,
}

#[derive(Clone, Copy, Debug)]
struct Ejected {
    /// When the next probe is due; while one is under way, when it counts as lost.
    until: Instant,
    /// How long a probe waited, without chance.
    wait: Duration,
    is_probing: bool,
}

impl Breaker {
    pub(super) fn is_ejected(&self) -> bool {
        self.ejected.is_some()
    }

    /// True if nothing has to be remembered of it.
    pub(super) fn is_untroubled(&self) -> bool {
        self.failures == 0 && self.ejected.is_none()
    }

    pub(super) fn health(&self) -> Health {
        match self.ejected {
            None => Health::Up,
            Some(Ejected { is_probing: true, .. }) => Health::Probing,
            Some(Ejected { until, .. }) => Health::Ejected { until },
        }
    }

    pub(super) fn succeed(&mut self) {
        self.failures = 0;
        self.ejected = None;
    }

    /// Counts a failure. True: that has ejected it. Requests that were under way when it was ejected change nothing.
    pub(super) fn fail(&mut self, settings: &CircuitBreaker, now: Instant, chance: f64) -> bool {
        self.failures = self.failures.saturating_add(1);
        if self.is_ejected() || self.failures < settings.failure_limit.max(1) {
            return false;
        }
        self.ejections += 1;
        let wait = settings.retry_after.min(settings.retry_after_max);
        self.eject(wait, now, chance);
        true
    }

    /// For another router, which does not hear of a probe that is under way: the next one is due.
    pub(super) fn without_probe(&self, settings: &CircuitBreaker) -> Self {
        let mut breaker = self.clone();
        if let Some(ejected) = breaker.ejected.as_mut().filter(|ejected| ejected.is_probing) {
            ejected.is_probing = false;
            ejected.until = ejected.until.checked_sub(lost_after(settings)).unwrap_or(ejected.until);
        }
        breaker
    }

    /// Since when a probe is due.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        self.ejected.map(|ejected| ejected.until).filter(|until| *until <= now)
    }

    /// True: a probe is due, and the caller is to make it.
    pub(super) fn claim_probe(&mut self, settings: &CircuitBreaker, now: Instant) -> bool {
        let Some(ejected) = &mut self.ejected else { return false };
        if now < ejected.until {
            return false;
        }
        ejected.is_probing = true;
        // Whoever makes it may vanish.
        ejected.until = after(now, lost_after(settings));
        true
    }

    /// A probe has failed: the next one waits longer.
    pub(super) fn probe_failed(&mut self, settings: &CircuitBreaker, now: Instant, chance: f64) {
        self.failures = self.failures.saturating_add(1);
        if let Some(ejected) = self.ejected {
            let wait = ejected.wait.saturating_mul(2).min(settings.retry_after_max);
            self.eject(wait, now, chance);
        }
    }

    /// A probe was given up. Requests find out, and the first that fails ejects again.
    pub(super) fn probe_lost(&mut self) {
        self.ejected = self.ejected.filter(|ejected| !ejected.is_probing);
    }

    /// `chance`: from 0 to 1.
    fn eject(&mut self, wait: Duration, now: Instant, chance: f64) {
        let half = wait / 2;
        let until = after(now, half + half.mul_f64(chance.clamp(0.0, 1.0)));
        self.ejected = Some(Ejected { until, wait, is_probing: false });
    }
}

fn after(now: Instant, time: Duration) -> Instant {
    now + time.min(WAIT_MAX)
}

/// A probe that has told nothing for so long is lost.
fn lost_after(settings: &CircuitBreaker) -> Duration {
    settings.retry_after_max.clamp(PROBE_TIME_MIN, PROBE_TIME_MAX)
}

const PROBE_TIME_MIN: Duration = Duration::from_secs(60);
const PROBE_TIME_MAX: Duration = Duration::from_secs(60 * 60);
/// Every clock can tell a time that is so much later.
const WAIT_MAX: Duration = Duration::from_secs(60 * 60 * 24 * 365);

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: CircuitBreaker = CircuitBreaker {
        failure_limit: 3,
        retry_after: Duration::from_secs(2),
        retry_after_max: Duration::from_secs(10),
    };

    fn until(breaker: &Breaker, start: Instant) -> Duration {
        match breaker.health() {
            Health::Ejected { until } => until - start,
            health => panic!("{health:?}"),
        }
    }

    #[test]
    fn failures_in_a_row_eject() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        for _ in 0..2 {
            assert!(!breaker.fail(&SETTINGS, now, 1.0) && !breaker.fail(&SETTINGS, now, 1.0));
            breaker.succeed();
        }
        assert!(!breaker.fail(&SETTINGS, now, 1.0) && !breaker.fail(&SETTINGS, now, 1.0));
        assert!(breaker.fail(&SETTINGS, now, 1.0));
        assert_eq!(until(&breaker, now), Duration::from_secs(2));
        // The rest of what was under way.
        assert!(!breaker.fail(&SETTINGS, now + Duration::from_secs(1), 1.0));
        assert_eq!((until(&breaker, now), breaker.ejections), (Duration::from_secs(2), 1));
    }

    #[test]
    fn probes_come_one_by_one_and_wait_longer_and_longer() {
        let mut now = Instant::now();
        let mut breaker = Breaker::default();
        assert_eq!([(); 3].map(|()| breaker.fail(&SETTINGS, now, 1.0)), [false, false, true]);
        for wait_secs in [2, 4, 8, 10, 10] {
            let due = now + Duration::from_secs(wait_secs);
            assert!(!breaker.claim_probe(&SETTINGS, due - Duration::from_nanos(1)));
            assert!(breaker.claim_probe(&SETTINGS, due));
            assert_eq!(breaker.health(), Health::Probing);
            assert!(!breaker.claim_probe(&SETTINGS, due + Duration::from_secs(59)));
            now = due;
            breaker.probe_failed(&SETTINGS, now, 1.0);
        }
        breaker.succeed();
        assert!(breaker.is_untroubled());
        // A probe that is never told of is made again.
        assert_eq!([(); 3].map(|()| breaker.fail(&SETTINGS, now, 0.0)), [false, false, true]);
        assert_eq!(until(&breaker, now), Duration::from_secs(1));
        assert!(breaker.claim_probe(&SETTINGS, now + Duration::from_secs(1)));
        assert!(breaker.claim_probe(&SETTINGS, now + Duration::from_secs(61)));
    }

    /// A time that clocks cannot tell is long, and not over at once.
    #[test]
    fn times_without_end_are_long() {
        let now = Instant::now();
        for retry_after in [Duration::from_secs(2), Duration::MAX] {
            let settings = CircuitBreaker { failure_limit: 1, retry_after, retry_after_max: Duration::MAX };
            let mut breaker = Breaker::default();
            assert!(breaker.fail(&settings, now, 1.0));
            assert!(!breaker.claim_probe(&settings, now));
            let due = now + Duration::from_secs(2 * 365 * 86_400);
            assert!(breaker.claim_probe(&settings, due));
            assert!(!breaker.claim_probe(&settings, due + Duration::from_secs(59)));
            // It is lost.
            assert!(breaker.without_probe(&settings).claim_probe(&settings, due));
            assert!(breaker.claim_probe(&settings, due + Duration::from_secs(3600)));
        }
    }
}
