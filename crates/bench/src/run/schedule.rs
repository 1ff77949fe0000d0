//! When requests are due, where that is planned.

use fastrand::Rng;

use crate::scenario::{Arrival, Spacing};

/// A fixed schedule, drawn as it goes. A request that is not taken stays due.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    /// Requests a second at the start, and how many more with every second.
    rate_per_sec: f64,
    slope_per_sec2: f64,
    spacing: Spacing,
    /// Requests that should have been sent by the time of the next one: the rate's integral.
    expected: f64,
    begin_nanos: u64,
    next_nanos: u64,
    random: Rng,
}

impl Schedule {
    /// A thread's share, from 0 to 1, of what `arrival` plans for a group. `None`: nothing, as in a closed loop. A ramp
    /// comes to its end after `ramp_secs`; without, the rate stays as it is at the start. `offset`, from 0 to 1, sets
    /// even schedules of several threads between each other.
    pub(crate) fn of(
        arrival: Arrival,
        share: f64,
        ramp_secs: Option<f64>,
        offset: f64,
        begin_nanos: u64,
        random: Rng,
    ) -> Option<Self> {
        let (rate_per_sec, ramp, spacing) = match arrival {
            _ if share == 0.0 => return None,
            Arrival::Closed => return None,
            Arrival::Paced { rate_per_sec } => (rate_per_sec, None, Spacing::Even),
            Arrival::Open { rate_per_sec, rate_end_per_sec, spacing } => {
                (rate_per_sec, rate_end_per_sec.map(|rate| rate * share).zip(ramp_secs), spacing)
            }
        };
        Some(Self::new(rate_per_sec * share, ramp, spacing, offset, begin_nanos, random))
    }

    /// `ramp`: the rate at the end, and after how many seconds that is.
    fn new(
        rate_per_sec: f64,
        ramp: Option<(f64, f64)>,
        spacing: Spacing,
        offset: f64,
        begin_nanos: u64,
        random: Rng,
    ) -> Self {
        let slope_per_sec2 = ramp.map_or(0.0, |(end_per_sec, secs)| (end_per_sec - rate_per_sec) / secs);
        let mut schedule = Self {
            rate_per_sec,
            slope_per_sec2,
            spacing,
            expected: offset,
            begin_nanos,
            next_nanos: begin_nanos,
            random,
        };
        if spacing == Spacing::Poisson {
            schedule.expected = schedule.gap();
        }
        schedule.next_nanos = schedule.at(schedule.expected);
        schedule
    }

    /// When the next request is due, on the clock of the run. `u64::MAX`: never.
    #[inline]
    pub(crate) fn next_nanos(&self) -> u64 {
        self.next_nanos
    }

    /// Takes the next request.
    #[inline]
    pub(crate) fn take(&mut self) -> u64 {
        let due = self.next_nanos;
        self.expected += self.gap();
        self.next_nanos = self.at(self.expected);
        due
    }

    /// Forgets what should have been sent before `nanos`: a paced loop does not make up for time that the server took.
    pub(crate) fn skip_to(&mut self, nanos: u64) {
        if self.next_nanos < nanos {
            self.begin_nanos += nanos - self.next_nanos;
            self.next_nanos = nanos;
        }
    }

    /// Requests due until `nanos` that nobody took.
    pub(crate) fn overdue(&mut self, nanos: u64) -> u64 {
        let mut count = 0;
        while self.next_nanos < nanos {
            self.take();
            count += 1;
        }
        count
    }

    fn gap(&mut self) -> f64 {
        match self.spacing {
            Spacing::Even => 1.0,
            // In (0, 1]: its logarithm is finite.
            Spacing::Poisson => -(1.0 - self.random.f64()).ln(),
        }
    }

    /// When the integral of the rate reaches `expected`: t with r t + s t^2 / 2 = expected.
    #[inline]
    fn at(&self, expected: f64) -> u64 {
        let (rate, slope) = (self.rate_per_sec, self.slope_per_sec2);
        let secs = if slope == 0.0 {
            expected / rate
        } else {
            let root = rate * rate + 2.0 * slope * expected;
            // A falling ramp has a last request.
            if root < 0.0 {
                return u64::MAX;
            }
            // The form that loses no digits while the slope is small.
            2.0 * expected / (rate + root.sqrt())
        };
        self.begin_nanos.saturating_add((secs * 1e9) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: u64 = 1_000_000_000;

    fn schedule(rate: f64, ramp: Option<(f64, f64)>, spacing: Spacing) -> Schedule {
        Schedule::new(rate, ramp, spacing, 0.0, 5 * SEC, Rng::with_seed(9))
    }

    fn due_within(schedule: &mut Schedule, begin_nanos: u64, end_nanos: u64) -> Vec<u64> {
        schedule.overdue(begin_nanos);
        let mut due = Vec::new();
        while schedule.next_nanos() < end_nanos {
            due.push(schedule.take());
        }
        due
    }

    #[test]
    fn even_gaps_are_even() {
        let due = due_within(&mut schedule(1000.0, None, Spacing::Even), 5 * SEC, 7 * SEC);
        assert_eq!(due.len(), 2000);
        assert!(due.windows(2).all(|pair| (pair[1] - pair[0]).abs_diff(1_000_000) <= 1));
    }

    #[test]
    fn poisson_gaps_are_exponential_at_the_right_rate() {
        let due = due_within(&mut schedule(10_000.0, None, Spacing::Poisson), 5 * SEC, 15 * SEC);
        // 100,000 expected, with a standard deviation of 316.
        assert!((98_500..101_500).contains(&due.len()), "{}", due.len());
        let gaps: Vec<f64> = due.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        // Half of the gaps are below ln 2 times the mean.
        let below = gaps.iter().filter(|&&gap| gap < mean * 2f64.ln()).count() as f64 / gaps.len() as f64;
        assert!((below - 0.5).abs() < 0.01, "{below}");
    }

    #[test]
    fn a_ramp_has_the_area_below_it() {
        for (from, to) in [(1000.0, 3000.0), (3000.0, 1000.0), (1000.0, 1000.0), (2000.0, 1.0)] {
            let mut schedule = schedule(from, Some((to, 10.0)), Spacing::Even);
            let rate = |secs: f64| from + (to - from) * secs / 10.0;
            for second in 0..10 {
                let begin = (5 + second) * SEC;
                let expected = rate(second as f64 + 0.5);
                let due = due_within(&mut schedule, begin, begin + SEC).len() as f64;
                assert!(
                    (due - expected).abs() <= 1.5,
                    "{from} to {to}, second {second}: {due} of {expected}"
                );
            }
        }
    }

    #[test]
    fn a_thread_has_its_share_of_a_group() {
        let of = |arrival, share, ramp_secs| {
            Schedule::of(arrival, share, ramp_secs, 0.0, 5 * SEC, Rng::with_seed(9))
        };
        let paced = Arrival::Paced { rate_per_sec: 1000.0 };
        let ramp =
            Arrival::Open { rate_per_sec: 1000.0, rate_end_per_sec: Some(3000.0), spacing: Spacing::Even };
        assert!(of(Arrival::Closed, 1.0, None).is_none());
        assert!(of(paced, 0.0, None).is_none());
        // A quarter, in 10 s: of 1000 a second; of a ramp with 2000 in the middle; of that ramp before it begins.
        for (arrival, ramp_secs, expected) in
            [(paced, None, 2500), (ramp, Some(10.0), 5000), (ramp, None, 2500)]
        {
            let due = of(arrival, 0.25, ramp_secs).expect("it plans").overdue(15 * SEC);
            assert!(due.abs_diff(expected) <= 1, "{due} of {expected}");
        }
    }

    #[test]
    fn a_schedule_does_not_wait_but_a_pace_does() {
        let mut open = schedule(100.0, None, Spacing::Even);
        assert_eq!(open.overdue(8 * SEC), 300);
        let mut paced = schedule(100.0, None, Spacing::Even);
        paced.skip_to(8 * SEC);
        assert_eq!(due_within(&mut paced, 8 * SEC, 9 * SEC).len(), 100);
    }
}
