//! The time of a run as a load thread divides it: the warm-up, then periods, of which each is handed over when it ends.

/// Times are on the clock of the run, in nanoseconds.
#[derive(Debug)]
pub(crate) struct Periods {
    /// When counting begins, and when asking ends. `u64::MAX`: that is not known yet.
    pub(crate) begin_nanos: u64,
    pub(crate) end_nanos: u64,
    period_nanos: u64,
    /// How many have been handed over.
    pub(super) count: usize,
}

impl Periods {
    pub(super) fn new(period_secs: f64) -> Self {
        Self {
            begin_nanos: u64::MAX,
            end_nanos: u64::MAX,
            period_nanos: (period_secs * 1e9) as u64,
            count: 0,
        }
    }

    /// It is known when counting begins.
    #[inline]
    pub(super) fn is_set(&self) -> bool {
        self.begin_nanos != u64::MAX
    }

    /// The warm-up is over, and counting has not begun: nobody asks.
    #[inline]
    pub(super) fn is_between(&self, now: u64) -> bool {
        self.is_set() && now < self.begin_nanos
    }

    /// How many are over, if that is news. What is answered after the end belongs to the last one, so that is never
    /// over.
    #[inline]
    pub(super) fn over(&self, now: u64) -> Option<usize> {
        (now >= self.next_nanos() && self.count < self.last()).then(|| {
            let over = ((now - self.begin_nanos) / self.period_nanos) as usize;
            over.min(self.last())
        })
    }

    /// When the next one to be handed over ends.
    #[inline]
    pub(super) fn next_nanos(&self) -> u64 {
        self.begin_nanos.saturating_add(self.period_nanos.saturating_mul(self.count as u64 + 1))
    }

    /// Index of the last one.
    fn last(&self) -> usize {
        match self.end_nanos {
            u64::MAX => usize::MAX,
            end => (end - self.begin_nanos).div_ceil(self.period_nanos) as usize - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: u64 = 1_000_000_000;

    /// Of a second each, from 10 s on.
    fn periods(end_nanos: u64) -> Periods {
        Periods { begin_nanos: 10 * SEC, end_nanos, ..Periods::new(1.0) }
    }

    #[test]
    fn the_warm_up_has_no_periods() {
        let periods = Periods::new(1.0);
        assert!(!periods.is_set() && !periods.is_between(5 * SEC));
        assert_eq!(periods.over(u64::MAX - 1), None);
    }

    #[test]
    fn each_is_over_once_and_several_may_be_at_once() {
        let mut periods = periods(u64::MAX);
        assert!(periods.is_between(10 * SEC - 1) && !periods.is_between(10 * SEC));
        assert_eq!(periods.over(11 * SEC - 1), None);
        assert_eq!(periods.over(11 * SEC), Some(1));
        periods.count = 1;
        assert_eq!((periods.over(11 * SEC), periods.next_nanos()), (None, 12 * SEC));
        assert_eq!(periods.over(14 * SEC + 1), Some(4));
    }

    #[test]
    fn what_is_answered_after_the_end_belongs_to_the_last_one() {
        // Two and a half: the third is the last.
        let mut periods = periods(12 * SEC + SEC / 2);
        assert_eq!(periods.over(20 * SEC), Some(2));
        periods.count = 2;
        assert_eq!(periods.over(20 * SEC), None);
        periods = self::periods(12 * SEC);
        assert_eq!(periods.over(20 * SEC), Some(1));
    }
}
