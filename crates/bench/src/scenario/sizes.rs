//! Lengths of keys and values.

use serde::{Deserialize, Serialize};

/// Lengths in bytes.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sizes {
    /// One length. In a file, a plain number.
    #[serde(untagged)]
    Fixed(u64),
    /// Ranges with weights; uniform within a range.
    #[serde(untagged)]
    Ranges(Vec<SizeRange>),
    /// A named distribution.
    #[serde(untagged)]
    Distribution(Distribution),
    /// A file with a `bytes weight` pair on each line; `#` begins a comment.
    #[serde(untagged)]
    File {
        /// Its path.
        file: String,
    },
}

/// Lengths from `min` to `max`, inclusive, with a weight.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SizeRange {
    /// Least length.
    pub min: u64,
    /// Greatest length.
    pub max: u64,
    /// Its share is its weight divided by the sum of all weights.
    pub weight: f64,
}

/// A distribution with parameters, clamped to `min..=max`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "distribution", rename_all = "lowercase", deny_unknown_fields)]
pub enum Distribution {
    /// Normal.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        deviation: f64,
        /// Cut.
        min: u64,
        /// Cut.
        max: u64,
    },
    /// Exponential.
    Exponential {
        /// Mean.
        mean: f64,
        /// Cut.
        min: u64,
        /// Cut.
        max: u64,
    },
    /// Generalised Pareto, as Atikoglu et al. (SIGMETRICS 2012) fitted ETC's values.
    Pareto {
        /// Location.
        location: f64,
        /// Scale.
        scale: f64,
        /// Shape.
        shape: f64,
        /// Cut.
        min: u64,
        /// Cut.
        max: u64,
    },
    /// Generalised extreme value, as the same paper fitted ETC's keys.
    Gev {
        /// Location.
        location: f64,
        /// Scale.
        scale: f64,
        /// Shape.
        shape: f64,
        /// Cut.
        min: u64,
        /// Cut.
        max: u64,
    },
}
