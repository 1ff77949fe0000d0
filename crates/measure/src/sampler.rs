//! Which requests are looked at closely: about one in so many, at irregular steps, so that no pattern of the
//! requests can hide from it or stand out by it.

/// Picks about one in `interval`, which follows the rate of requests if it is told the time.
#[derive(Clone, Debug)]
pub struct Sampler {
    interval: u32,
    left: u32,
    random: fastrand::Rng,
}

impl Sampler {
    /// One in `interval` on average; at least 1. `seed` tells samplers of several threads apart.
    pub fn new(interval: u32, seed: u64) -> Self {
        let mut sampler = Self { interval: interval.max(1), left: 0, random: fastrand::Rng::with_seed(seed) };
        sampler.left = sampler.step();
        sampler
    }

    /// How many requests a picked one stands for.
    pub fn interval(&self) -> u32 {
        self.interval
    }

    /// Changes the interval so that about `wanted_per_sec` are picked: `picked` were, within `nanos`. At most by a
    /// factor of four at once, and never beyond [`Sampler::INTERVAL_MAX`].
    pub fn adapt(&mut self, picked: u32, nanos: u64, wanted_per_sec: u32) {
        let wanted = u128::from(wanted_per_sec) * u128::from(nanos.max(1));
        let ideal =
            (u128::from(self.interval) * u128::from(picked) * 1_000_000_000 + wanted / 2) / wanted.max(1);
        let ideal = u32::try_from(ideal).unwrap_or(u32::MAX);
        let (least, most) = (self.interval / 4, self.interval.saturating_mul(4));
        self.interval = ideal.clamp(least, most).clamp(1, Self::INTERVAL_MAX);
    }

    /// The longest interval that [`Sampler::adapt`] chooses.
    pub const INTERVAL_MAX: u32 = 1 << 20;

    /// Is the next request picked?
    #[inline]
    pub fn pick(&mut self) -> bool {
        self.left -= 1;
        if self.left > 0 {
            return false;
        }
        self.left = self.step();
        true
    }

    /// Between 1 and twice the interval less 1: the interval on average.
    fn step(&mut self) -> u32 {
        self.random.u32(1..self.interval.saturating_mul(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_picks_as_many_as_it_says() {
        for interval in [1, 2, 64, 1000] {
            let mut sampler = Sampler::new(interval, 7);
            let picked = (0..1_000_000).filter(|_| sampler.pick()).count() as f64;
            let expected = 1_000_000.0 / f64::from(interval);
            // Five standard deviations of a sum of even steps.
            assert!((picked - expected).abs() <= 5.0 * expected.sqrt(), "{interval}: {picked}");
        }
    }

    #[test]
    fn it_adapts_to_the_rate() {
        let mut sampler = Sampler::new(1, 7);
        for (requests_per_sec, interval) in [(1_000, 1), (4_000_000, 1_000), (40_000, 10), (1, 1)] {
            for _ in 0..12 {
                // As many picks as such a rate gives in a second.
                sampler.adapt(requests_per_sec / sampler.interval(), 1_000_000_000, 4_000);
            }
            assert_eq!(sampler.interval(), interval);
        }
    }
}
