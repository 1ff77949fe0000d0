//! Which key is asked for next.

use fastrand::Rng;

use super::shuffle::Shuffle;
use super::sizes::normal;
use super::zipf::Zipf;
use crate::scenario::{Keys, Popularity};

/// Draws keys, by their index from 0. One for each connection.
#[derive(Clone, Debug)]
pub(crate) struct Picker {
    count: u64,
    rule: Rule,
}

#[derive(Clone, Debug)]
enum Rule {
    Uniform,
    Zipf {
        zipf: Zipf,
        shuffle: Shuffle,
    },
    Gaussian {
        deviation: f64,
    },
    /// From `next` on, through `part`, and again.
    Sequential {
        part: Part,
        next: u64,
        reverse: bool,
    },
    Hotspot {
        hot_keys: u64,
        hot_requests: f64,
        moves_every_nanos: u64,
        shuffle: Shuffle,
    },
    Window(Window),
}

/// A connection's own part of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) begin: u64,
    /// Behind the last.
    pub(crate) end: u64,
}

/// The window of memaslap: the most recently stored keys of the part. It is empty at first, unless it covers the whole
/// part, which is then filled before the run. The part is a ring.
#[derive(Clone, Debug)]
struct Window {
    part: Part,
    /// Keys in the window when it is full.
    keys: u64,
    /// Keys stored so far, those that were overwritten not counted: the next new one.
    stored: u64,
    overwrite: f64,
}

/// Which of the connections that share a server's keys among them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// From 0.
    pub(crate) index: u64,
    /// How many there are.
    pub(crate) of: u64,
}

impl Picker {
    /// For one connection.
    pub(crate) fn new(keys: &Keys, seed: u64, share: Share) -> Self {
        let count = keys.count;
        let part = Part::new(count, share);
        let rule = match keys.popularity {
            Popularity::Uniform => Rule::Uniform,
            Popularity::Zipf { exponent } => {
                Rule::Zipf { zipf: Zipf::new(count, exponent), shuffle: Shuffle::new(count, seed) }
            }
            Popularity::Gaussian { deviation } => Rule::Gaussian { deviation: deviation * count as f64 },
            Popularity::Sequential => Rule::Sequential { part, next: part.begin, reverse: false },
            Popularity::Reverse => Rule::Sequential { part, next: part.end - 1, reverse: true },
            Popularity::Hotspot { hot_keys, hot_requests, moves_every_secs } => Rule::Hotspot {
                hot_keys: ((hot_keys * count as f64).round() as u64).clamp(1, count),
                hot_requests,
                moves_every_nanos: (moves_every_secs * 1e9) as u64,
                shuffle: Shuffle::new(count, seed),
            },
            Popularity::Window { keys, overwrite } => {
                let keys = keys.min(part.end - part.begin);
                let stored = if part.end - part.begin == keys { keys } else { 0 };
                Rule::Window(Window { part, keys, stored, overwrite })
            }
        };
        Self { count, rule }
    }

    /// The next key, `elapsed_nanos` after the start. `stores`: it will be stored.
    #[inline]
    pub(crate) fn next(&mut self, random: &mut Rng, elapsed_nanos: u64, stores: bool) -> u64 {
        match &mut self.rule {
            Rule::Uniform => random.u64(0..self.count),
            Rule::Zipf { zipf, shuffle } => shuffle.of(zipf.draw(random) - 1),
            Rule::Gaussian { deviation } => loop {
                let x = self.count as f64 / 2.0 + *deviation * normal(random);
                if x >= 0.0 && x < self.count as f64 {
                    break x as u64;
                }
            },
            Rule::Sequential { part, next, reverse } => {
                let now = *next;
                *next = match (*reverse, now) {
                    (false, last) if last + 1 == part.end => part.begin,
                    (false, _) => now + 1,
                    (true, first) if first == part.begin => part.end - 1,
                    (true, _) => now - 1,
                };
                now
            }
            Rule::Hotspot { hot_keys, hot_requests, moves_every_nanos, shuffle } => {
                let moves = elapsed_nanos.checked_div(*moves_every_nanos).unwrap_or(0);
                let first = moves.wrapping_mul(*hot_keys) % self.count;
                let is_hot = *hot_keys == self.count || random.f64() < *hot_requests;
                let place = if is_hot { random.u64(0..*hot_keys) } else { random.u64(*hot_keys..self.count) };
                shuffle.of((first + place) % self.count)
            }
            Rule::Window(window) => window.next(random, stores),
        }
    }
}

impl Picker {
    /// True if nothing has been stored in the window yet, so that no get can find anything.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self.rule, Rule::Window(Window { stored: 0, .. }))
    }
}

impl Part {
    pub(crate) fn new(count: u64, share: Share) -> Self {
        let at = |index: u64| (u128::from(count) * u128::from(index) / u128::from(share.of)) as u64;
        let (begin, end) = (at(share.index), at(share.index + 1));
        // More connections than keys: some share one.
        Self { begin: begin.min(count - 1), end: end.max(begin.min(count - 1) + 1) }
    }
}

impl Window {
    fn next(&mut self, random: &mut Rng, stores: bool) -> u64 {
        let in_window = self.stored.min(self.keys);
        let is_new = in_window == 0 || stores && random.f64() >= self.overwrite;
        let number = if is_new { self.stored } else { self.stored - 1 - random.u64(0..in_window) };
        self.stored += u64::from(is_new && stores);
        self.part.begin + number % (self.part.end - self.part.begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Share = Share { index: 0, of: 1 };

    fn picker(count: u64, popularity: Popularity, share: Share) -> Picker {
        Picker::new(&Keys { count, popularity, ..Keys::default() }, 1, share)
    }

    fn draw(picker: &mut Picker, draws: usize, elapsed_nanos: u64) -> Vec<u64> {
        let mut random = Rng::with_seed(2);
        (0..draws).map(|_| picker.next(&mut random, elapsed_nanos, false)).collect()
    }

    fn counts(drawn: &[u64], count: u64) -> Vec<u64> {
        let mut counts = vec![0; count as usize];
        drawn.iter().for_each(|&key| counts[key as usize] += 1);
        counts
    }

    #[test]
    fn uniform_draws_all_alike() {
        let drawn = draw(&mut picker(100, Popularity::Uniform, ALONE), 100_000, 0);
        // 1000 each, with a standard deviation of 31.
        assert!(counts(&drawn, 100).iter().all(|count| (840..1160).contains(count)));
    }

    #[test]
    fn zipf_scatters_its_ranks() {
        let drawn = draw(&mut picker(1000, Popularity::Zipf { exponent: 1.0 }, ALONE), 100_000, 0);
        let counts = counts(&drawn, 1000);
        let mut sorted = counts.clone();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        // Rank 1 has 1/H(1000) = 13.36 % of them.
        assert!((13_000..13_700).contains(&sorted[0]), "{}", sorted[0]);
        let hottest: Vec<usize> = (0..1000).filter(|&key| counts[key] >= sorted[9]).collect();
        assert!(hottest.windows(2).any(|pair| pair[1] - pair[0] > 20), "{hottest:?}");
    }

    #[test]
    fn gaussian_lies_around_the_middle() {
        let drawn = draw(&mut picker(1000, Popularity::Gaussian { deviation: 0.1 }, ALONE), 100_000, 0);
        let within = drawn.iter().filter(|key| (400..600).contains(*key)).count();
        // 68.27 % lie within one standard deviation.
        assert!((67_500..69_000).contains(&within), "{within}");
    }

    #[test]
    fn sequences_share_the_keys_out() {
        for popularity in [Popularity::Sequential, Popularity::Reverse] {
            let mut all = Vec::new();
            for index in 0..3 {
                let mut picker = picker(10, popularity, Share { index, of: 3 });
                let part = Part::new(10, Share { index, of: 3 });
                let round = draw(&mut picker, (part.end - part.begin) as usize, 0);
                assert!(round.is_sorted() == (popularity == Popularity::Sequential));
                assert_eq!(draw(&mut picker, round.len(), 0), round);
                all.extend(round);
            }
            all.sort_unstable();
            assert_eq!(all, (0..10).collect::<Vec<u64>>());
        }
    }

    #[test]
    fn the_hot_spot_moves() {
        let hot = Popularity::Hotspot { hot_keys: 0.01, hot_requests: 0.9, moves_every_secs: 2.0 };
        let mut picker = picker(1000, hot, ALONE);
        let hottest = |drawn: &[u64]| {
            let counts = counts(drawn, 1000);
            (0..1000u64).filter(|&key| counts[key as usize] > 500).collect::<Vec<_>>()
        };
        let first = hottest(&draw(&mut picker, 10_000, 0));
        assert_eq!(first.len(), 10);
        assert_eq!(first, hottest(&draw(&mut picker, 10_000, 1_900_000_000)));
        let second = hottest(&draw(&mut picker, 10_000, 2_100_000_000));
        assert_eq!(second.len(), 10);
        assert!(first.iter().all(|key| !second.contains(key)));
    }

    #[test]
    fn a_window_asks_for_what_it_owns() {
        let window = Popularity::Window { keys: 100, overwrite: 0.5 };
        let mut picker = picker(1000, window, Share { index: 1, of: 2 });
        let mut random = Rng::with_seed(2);
        // Nothing is stored yet. Half of the sets bring a new key: 400 sets, about 200 new ones.
        let stored: Vec<u64> = (0..400).map(|_| picker.next(&mut random, 0, true)).collect();
        let last = *stored.iter().max().expect("there are some");
        assert!((650..750).contains(&last), "{last}");
        assert_eq!(stored.iter().min(), Some(&500));
        let asked = draw(&mut picker, 10_000, 0);
        assert_eq!((asked.iter().min(), asked.iter().max()), (Some(&(last - 99)), Some(&last)));
    }

    #[test]
    fn a_window_of_all_keys_is_full() {
        let mut picker =
            picker(100, Popularity::Window { keys: 50, overwrite: 0.0 }, Share { index: 1, of: 2 });
        let asked = draw(&mut picker, 10_000, 0);
        assert_eq!((asked.iter().min(), asked.iter().max()), (Some(&50), Some(&99)));
    }
}
