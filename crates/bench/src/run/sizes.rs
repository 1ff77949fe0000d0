//! Draws lengths.

use std::fs;

use fastrand::Rng;

use super::RunError;
use super::alias::Alias;
use super::mix;
use crate::scenario::{Distribution, SizeRange, Sizes};

/// Lengths in bytes, ready to be drawn.
#[derive(Clone, Debug)]
pub(crate) enum Lengths {
    Fixed(u64),
    /// Even between both ends, which are included.
    Ranges(Alias, Vec<(u64, u64)>),
    Distribution(Distribution),
}

impl Lengths {
    /// Reads the file if there is one. `field` names it in an error.
    pub(crate) fn new(sizes: &Sizes, field: &str) -> Result<Self, RunError> {
        Ok(match sizes {
            Sizes::Fixed(bytes) => Self::Fixed(*bytes),
            Sizes::Ranges(ranges) => Self::ranges(ranges, field)?,
            Sizes::Distribution(distribution) => Self::Distribution(*distribution),
            Sizes::File { file } => {
                let failed = |reason: String| RunError::File { path: file.clone(), reason };
                let text = fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
                Self::ranges(&parse(&text).map_err(failed)?, field)?
            }
        })
    }

    fn ranges(ranges: &[SizeRange], field: &str) -> Result<Self, RunError> {
        let fail = |reason: String| Err(RunError::Scenario { field: field.into(), reason });
        if ranges.is_empty() {
            return fail("no length is given".into());
        }
        for range in ranges {
            if range.min > range.max {
                return fail(format!("{} to {} is no range", range.min, range.max));
            }
            if !(range.weight >= 0.0 && range.weight.is_finite()) {
                return fail(format!("a weight of {}", range.weight));
            }
        }
        let weights: Vec<f64> = ranges.iter().map(|range| range.weight).collect();
        if weights.iter().sum::<f64>() <= 0.0 {
            return fail("the weights sum up to nothing".into());
        }
        Ok(Self::Ranges(Alias::new(&weights), ranges.iter().map(|range| (range.min, range.max)).collect()))
    }

    /// The longest that can be drawn.
    pub(crate) fn max(&self) -> u64 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Ranges(_, ranges) => ranges.iter().map(|&(_, max)| max).max().unwrap_or(0),
            Self::Distribution(distribution) => cut(distribution).1,
        }
    }

    /// The shortest that can be drawn.
    pub(crate) fn min(&self) -> u64 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Ranges(_, ranges) => ranges.iter().map(|&(min, _)| min).min().unwrap_or(0),
            Self::Distribution(distribution) => cut(distribution).0,
        }
    }

    /// A length.
    #[inline]
    pub(crate) fn draw(&self, random: &mut Rng) -> u64 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Ranges(alias, ranges) => {
                let (min, max) = ranges[alias.draw(random)];
                random.u64(min..=max)
            }
            Self::Distribution(distribution) => draw(distribution, random),
        }
    }

    /// The length of thing number `number`, always the same.
    #[inline]
    pub(crate) fn of(&self, number: u64) -> u64 {
        match self {
            Self::Fixed(bytes) => *bytes,
            _ => self.draw(&mut Rng::with_seed(mix(number))),
        }
    }
}

fn parse(text: &str) -> Result<Vec<SizeRange>, String> {
    let mut ranges = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let wrong = || format!("line {}: not `bytes weight`: {line}", at + 1);
        match words[..] {
            [] => {}
            [bytes, weight] => {
                let bytes = bytes.parse().map_err(|_| wrong())?;
                let weight = weight.parse().map_err(|_| wrong())?;
                ranges.push(SizeRange { min: bytes, max: bytes, weight });
            }
            _ => return Err(wrong()),
        }
    }
    Ok(ranges)
}

fn cut(distribution: &Distribution) -> (u64, u64) {
    match *distribution {
        Distribution::Normal { min, max, .. }
        | Distribution::Exponential { min, max, .. }
        | Distribution::Pareto { min, max, .. }
        | Distribution::Gev { min, max, .. } => (min, max),
    }
}

fn draw(distribution: &Distribution, random: &mut Rng) -> u64 {
    // In (0, 1]: its logarithm is finite.
    let mut unit = || 1.0 - random.f64();
    let x = match *distribution {
        Distribution::Normal { mean, deviation, .. } => mean + deviation * normal(random),
        Distribution::Exponential { mean, .. } => -mean * unit().ln(),
        // Both by inversion; a shape of zero is the limit.
        Distribution::Pareto { location, scale, shape, .. } => {
            let log = -unit().ln();
            location + scale * if shape == 0.0 { log } else { (shape * log).exp_m1() / shape }
        }
        Distribution::Gev { location, scale, shape, .. } => {
            let log = (-unit().ln()).max(f64::MIN_POSITIVE).ln();
            location + scale * if shape == 0.0 { -log } else { (-shape * log).exp_m1() / shape }
        }
    };
    let (min, max) = cut(distribution);
    (x.round().max(0.0) as u64).clamp(min, max)
}

/// A standard normal number: Marsaglia's polar method.
pub(crate) fn normal(random: &mut Rng) -> f64 {
    loop {
        let (x, y) = (random.f64() * 2.0 - 1.0, random.f64() * 2.0 - 1.0);
        let square = x * x + y * y;
        if square > 0.0 && square < 1.0 {
            return x * (-2.0 * square.ln() / square).sqrt();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u32 = 200_000;

    fn drawn(lengths: &Lengths) -> Vec<u64> {
        let mut random = Rng::with_seed(5);
        (0..DRAWS).map(|_| lengths.draw(&mut random)).collect()
    }

    /// Share of `drawn` at or below `bytes`.
    fn share_up_to(drawn: &[u64], bytes: u64) -> f64 {
        drawn.iter().filter(|&&n| n <= bytes).count() as f64 / drawn.len() as f64
    }

    fn distribution(distribution: Distribution) -> Lengths {
        Lengths::new(&Sizes::Distribution(distribution), "").unwrap()
    }

    #[test]
    fn ranges_have_their_shares_and_are_even_inside() {
        let ranges = vec![
            SizeRange { min: 10, max: 19, weight: 0.25 },
            SizeRange { min: 100, max: 100, weight: 0.5 },
            SizeRange { min: 1000, max: 2000, weight: 0.25 },
        ];
        let lengths = Lengths::new(&Sizes::Ranges(ranges), "").unwrap();
        assert_eq!((lengths.min(), lengths.max()), (10, 2000));
        let drawn = drawn(&lengths);
        assert!((share_up_to(&drawn, 19) - 0.25).abs() < 0.01);
        assert!((share_up_to(&drawn, 14) - 0.125).abs() < 0.01);
        assert!((share_up_to(&drawn, 999) - 0.75).abs() < 0.01);
        assert!((share_up_to(&drawn, 1500) - 0.875).abs() < 0.01);
    }

    #[test]
    fn distributions_have_their_quantiles() {
        let drawn_normal =
            drawn(&distribution(Distribution::Normal { mean: 1000.0, deviation: 100.0, min: 0, max: 9000 }));
        for (z, share) in [(-2.0, 0.02275), (-1.0, 0.15866), (0.0, 0.5), (1.0, 0.84134)] {
            let bytes = (1000.0 + 100.0 * z) as u64;
            assert!((share_up_to(&drawn_normal, bytes) - share).abs() < 0.01, "{z}");
        }
        let drawn_exponential =
            drawn(&distribution(Distribution::Exponential { mean: 1000.0, min: 0, max: 1_000_000 }));
        assert!((share_up_to(&drawn_exponential, 1000) - (1.0 - (-1.0f64).exp())).abs() < 0.01);
        // ETC's values: F(x) = 1 - (1 + k (x - location) / scale)^(-1/k).
        let (scale, shape) = (214.476, 0.348238);
        let drawn_pareto =
            drawn(&distribution(Distribution::Pareto { location: 0.0, scale, shape, min: 1, max: 1 << 20 }));
        for x in [50.0f64, 200.0, 1000.0] {
            let share = 1.0 - (1.0 + shape * x / scale).powf(-1.0 / shape);
            assert!((share_up_to(&drawn_pareto, x as u64) - share).abs() < 0.01, "{x}");
        }
        // ETC's keys: F(x) = exp(-(1 + k (x - location) / scale)^(-1/k)).
        let (location, scale, shape) = (30.7984, 8.20449, 0.078688);
        let drawn_gev = drawn(&distribution(Distribution::Gev { location, scale, shape, min: 1, max: 250 }));
        for x in [25.0f64, 35.0, 50.0] {
            // Lengths are rounded, so that up to x means below x + 1/2.
            let share = (-(1.0 + shape * (x + 0.5 - location) / scale).powf(-1.0 / shape)).exp();
            assert!((share_up_to(&drawn_gev, x as u64) - share).abs() < 0.01, "{x}");
        }
    }

    #[test]
    fn a_file_of_lengths_is_read() {
        let ranges = parse("# sizes\n10 1\n\n20 3 # most\n").unwrap();
        assert_eq!(ranges.len(), 2);
        assert_eq!((ranges[1].min, ranges[1].max, ranges[1].weight), (20, 20, 3.0));
        assert!(parse("10").is_err());
        assert!(parse("ten 1").is_err());
    }

    #[test]
    fn a_key_keeps_its_length() {
        let lengths = distribution(Distribution::Exponential { mean: 100.0, min: 1, max: 1000 });
        assert!((0..100).all(|number| lengths.of(number) == lengths.of(number)));
        assert!((0..100).any(|number| lengths.of(number) != lengths.of(number + 1)));
    }
}
