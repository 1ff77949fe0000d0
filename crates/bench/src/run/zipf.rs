//! Ranks by Zipf's law: rank r with weight 1 / r^s.
//!
//! Rejection-inversion after W. Hörmann and G. Derflinger, "Rejection-inversion to generate variates from monotone
//! discrete distributions" (1996): exact, without tables, and in constant time for any number of ranks and any
//! exponent, 1 included.

use fastrand::Rng;

/// Draws ranks, see the module.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    ranks: f64,
    exponent: f64,
    /// Integrals of the hat at both ends.
    first: f64,
    last: f64,
    /// What lies closer than this below its rank is accepted without a look.
    squeeze: f64,
}

impl Zipf {
    /// For ranks 1 to `ranks` (at least 1), and an exponent above zero.
    pub fn new(ranks: u64, exponent: f64) -> Self {
        let ranks = ranks as f64;
        Self {
            ranks,
            exponent,
            first: integral(1.5, exponent) - 1.0,
            last: integral(ranks + 0.5, exponent),
            squeeze: 2.0 - integral_inverse(integral(2.5, exponent) - weight(2.0, exponent), exponent),
        }
    }

    /// A rank, from 1.
    #[inline]
    pub fn draw(&self, random: &mut Rng) -> u64 {
        loop {
            let area = self.last + random.f64() * (self.first - self.last);
            let x = integral_inverse(area, self.exponent);
            let rank = (x + 0.5).floor().clamp(1.0, self.ranks);
            if rank - x <= self.squeeze
                || area >= integral(rank + 0.5, self.exponent) - weight(rank, self.exponent)
            {
                return rank as u64;
            }
        }
    }
}

fn weight(x: f64, exponent: f64) -> f64 {
    (-exponent * x.ln()).exp()
}

/// The integral of `weight` from 1 to `x`: (x^(1-s) - 1) / (1-s), which is ln x where s is 1.
fn integral(x: f64, exponent: f64) -> f64 {
    let log = x.ln();
    let t = (1.0 - exponent) * log;
    log * if t.abs() > 1e-8 { t.exp_m1() / t } else { 1.0 + t / 2.0 }
}

fn integral_inverse(area: f64, exponent: f64) -> f64 {
    // Below -1 there is no logarithm; only rounding goes there.
    let t = (area * (1.0 - exponent)).max(-1.0);
    (area * if t.abs() > 1e-8 { t.ln_1p() / t } else { 1.0 - t / 2.0 }).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The formula itself, against a million draws.
    fn check(ranks: u64, exponent: f64) {
        let sum: f64 = (1..=ranks).map(|rank| (rank as f64).powf(-exponent)).sum();
        let zipf = Zipf::new(ranks, exponent);
        let mut random = Rng::with_seed(3);
        let draws = 1_000_000;
        let mut counts = vec![0u32; ranks as usize];
        for _ in 0..draws {
            counts[zipf.draw(&mut random) as usize - 1] += 1;
        }
        for (at, &count) in counts.iter().enumerate() {
            let expected = ((at + 1) as f64).powf(-exponent) / sum * f64::from(draws);
            // Six standard deviations, and a few for the rare ranks, whose counts are not normal.
            let slack = 6.0 * expected.sqrt() + 6.0;
            assert!((f64::from(count) - expected).abs() <= slack, "rank {}: {count} of {expected}", at + 1);
        }
    }

    #[test]
    fn frequencies_follow_the_formula() {
        check(1000, 0.99);
        check(1000, 1.0);
        check(1000, 1.4);
        check(1000, 0.2);
        check(1000, 0.01);
        check(10, 2.0);
        check(2, 0.5);
        check(1, 0.99);
    }

    #[test]
    fn billions_of_ranks_need_no_table() {
        let zipf = Zipf::new(10_000_000_000, 0.99);
        let mut random = Rng::with_seed(4);
        let draws: Vec<u64> = (0..100_000).map(|_| zipf.draw(&mut random)).collect();
        assert!(draws.iter().all(|&rank| (1..=10_000_000_000).contains(&rank)));
        assert!(draws.iter().any(|&rank| rank > 1_000_000_000));
    }
}
