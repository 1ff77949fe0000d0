//! Shuffles numbers without a table: a bijection of `0..count`, so that hot ranks are spread over all key numbers.

use super::mix;

/// A bijection on `0..count`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shuffle {
    count: u64,
    /// One less than the power of two at or above `count`.
    mask: u64,
    shift: u32,
    multipliers: [u64; 2],
}

impl Shuffle {
    /// Another bijection for each seed. `count` is at least 1 and at most 2^63.
    pub(crate) fn new(count: u64, seed: u64) -> Self {
        let size = count.next_power_of_two();
        Self {
            count,
            mask: size - 1,
            shift: (size.trailing_zeros() / 2).max(1),
            multipliers: [mix(seed) | 1, mix(seed ^ 1) | 1],
        }
    }

    /// Where `number` goes. Each step is a bijection of the power of two; what lands beyond `count` takes another round
    /// ("cycle walking"), less than one on average.
    #[inline]
    pub(crate) fn of(&self, number: u64) -> u64 {
        let mut x = number;
        loop {
            for multiplier in self.multipliers {
                x = x.wrapping_mul(multiplier) & self.mask;
                x ^= x >> self.shift;
            }
            // Zero would stay zero.
            x = x.wrapping_add(self.multipliers[0] >> 1) & self.mask;
            if x < self.count {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_a_bijection() {
        for count in [1, 2, 3, 5, 7, 64, 65, 1000, 1023, 65_537] {
            for seed in 0..3 {
                let shuffle = Shuffle::new(count, seed);
                let mut seen = vec![false; count as usize];
                for number in 0..count {
                    let to = shuffle.of(number) as usize;
                    assert!(!std::mem::replace(&mut seen[to], true), "{to} twice, of {count}");
                }
            }
        }
    }

    #[test]
    fn neighbours_are_torn_apart() {
        let count = 1_000_000;
        let shuffle = Shuffle::new(count, 1);
        // The mean distance of two random numbers below n is n / 3.
        let sum: u64 = (0..1000).map(|n| shuffle.of(n).abs_diff(shuffle.of(n + 1))).sum();
        let mean = sum / 1000;
        assert!((count / 4..count / 2).contains(&mean), "{mean}");
    }
}
