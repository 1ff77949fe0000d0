//! Which requests are looked at closely: about one in so many, at irregular steps, so that no pattern of the
//! requests can hide from it or stand out by it.

/// Picks about one in `interval`.
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
}
