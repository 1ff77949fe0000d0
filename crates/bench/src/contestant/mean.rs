//! How long a value is on average: the floor server answers with values of one length.

use statrs::function::gamma::gamma;

use crate::scenario::{Distribution, Scenario, SizeRange, Sizes};

/// Mean length of a scenario's values, each group counted by its connections. Lengths of a file count as 100 bytes: it
/// is read when the load is run, not here.
pub(super) fn mean_value_bytes(scenario: &Scenario) -> u64 {
    let connections: usize = scenario.groups.iter().map(|group| group.connections).sum();
    let sum: f64 =
        scenario.groups.iter().map(|group| group.connections as f64 * mean(&group.values.bytes)).sum();
    (sum / connections.max(1) as f64).round() as u64
}

fn mean(sizes: &Sizes) -> f64 {
    match sizes {
        Sizes::Fixed(bytes) => *bytes as f64,
        Sizes::Ranges(ranges) => {
            let weighted =
                |range: &SizeRange| range.weight * f64::midpoint(range.min as f64, range.max as f64);
            let weights: f64 = ranges.iter().map(|range| range.weight).sum();
            ranges.iter().map(weighted).sum::<f64>() / weights
        }
        Sizes::Distribution(distribution) => mean_of(distribution),
        Sizes::File { .. } => 100.0,
    }
}

/// The mean without the cut, which moves it little, and between its ends.
fn mean_of(distribution: &Distribution) -> f64 {
    match *distribution {
        Distribution::Normal { mean, min, max, .. } | Distribution::Exponential { mean, min, max } => {
            cut(mean, min, max)
        }
        // From a shape of 1 on, either has no mean: the cut is what ends it.
        Distribution::Pareto { location, scale, shape, min, max } => {
            let mean = if shape < 1.0 { location + scale / (1.0 - shape) } else { f64::INFINITY };
            cut(mean, min, max)
        }
        Distribution::Gev { location, scale, shape, min, max } => {
            let mean = match shape {
                0.0 => location + scale * EULER_GAMMA,
                _ if shape < 1.0 => location + scale * (gamma(1.0 - shape) - 1.0) / shape,
                _ => f64::INFINITY,
            };
            cut(mean, min, max)
        }
    }
}

fn cut(mean: f64, min: u64, max: u64) -> f64 {
    // Not `clamp`, which panics where a file has both the wrong way round.
    mean.min(max as f64).max(min as f64)
}

/// The mean of Gumbel's distribution.
const EULER_GAMMA: f64 = 0.577_215_664_901_532_9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Group, Values};

    #[test]
    fn ranges_count_by_their_weights() {
        let range = |min, max, weight| SizeRange { min, max, weight };
        // Olio's: 0.76 * 52 + 0.095 * 1536 + 0.145 * 12800 = 2041.
        let ranges = vec![range(4, 100, 76.0), range(1024, 2048, 9.5), range(5120, 20480, 14.5)];
        let values = Values { bytes: Sizes::Ranges(ranges), ..Values::default() };
        let mut scenario =
            Scenario { groups: vec![Group { values, ..Group::default() }], ..Scenario::default() };
        assert_eq!(mean_value_bytes(&scenario), 2041);
        // As many connections with values of 41 bytes.
        let values = Values { bytes: Sizes::Fixed(41), ..Values::default() };
        scenario.groups.push(Group { values, ..Group::default() });
        assert_eq!(mean_value_bytes(&scenario), 1041);
    }

    #[test]
    fn distributions_have_the_means_of_the_textbooks() {
        let about = |distribution: Distribution, expected: f64| {
            let mean = mean_of(&distribution);
            assert!((mean - expected).abs() < 0.01 * expected, "{distribution:?}: {mean}");
        };
        // ETC's values (Atikoglu et al. 2012): 214.476 / (1 - 0.348238) = 329.07.
        about(
            Distribution::Pareto { location: 0.0, scale: 214.476, shape: 0.348_238, min: 1, max: 1 << 20 },
            329.07,
        );
        // Gamma(1/2) is the root of pi.
        let half = Distribution::Gev { location: 10.0, scale: 1.0, shape: 0.5, min: 0, max: 100 };
        about(half, 10.0 + (std::f64::consts::PI.sqrt() - 1.0) / 0.5);
        about(Distribution::Pareto { location: 0.0, scale: 1.0, shape: 2.0, min: 1, max: 500 }, 500.0);
    }
}
