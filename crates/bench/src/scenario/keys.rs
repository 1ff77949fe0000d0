//! Keys, and the distribution of requests over them.

use serde::{Deserialize, Serialize};

use super::Sizes;

/// The keys of a group.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Keys {
    /// Number of keys, numbered from `first`.
    pub count: u64,
    /// Number of the first key.
    pub first: u64,
    /// Prefix of every key.
    pub prefix: String,
    /// Length of a key. A key always has the same length, at least that of its prefix and number.
    pub bytes: Sizes,
    /// The distribution of requests.
    pub popularity: Popularity,
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            count: 1_000_000,
            first: 0,
            prefix: "key:".into(),
            bytes: Sizes::Fixed(24),
            popularity: Popularity::default(),
        }
    }
}

/// The distribution of requests over keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(tag = "spread", rename_all = "lowercase", deny_unknown_fields)]
pub enum Popularity {
    /// Uniform.
    #[default]
    Uniform,
    /// The key of rank r with weight 1 / r^exponent. Ranks are shuffled over the key numbers.
    Zipf {
        /// The exponent, from 0.01; 0.99 is YCSB's.
        exponent: f64,
    },
    /// Around the middle of the keys.
    Gaussian {
        /// Standard deviation, in shares of the number of keys.
        deviation: f64,
    },
    /// One after the other; each connection has its own part.
    Sequential,
    /// As `Sequential`, from the last to the first.
    Reverse,
    /// A share of the requests goes to a few hot keys, which change with time.
    Hotspot {
        /// Hot keys, as a fraction of the number of keys.
        hot_keys: f64,
        /// Share of the requests for them.
        hot_requests: f64,
        /// Seconds after which the hot keys change. 0: never.
        moves_every_secs: f64,
    },
    /// memaslap's: each connection owns a part of the keys, stores them one after the other, and requests random keys
    /// of those that it stored last. A window of the whole part counts as stored: see
    /// [`Scenario::fill`](crate::Scenario::fill).
    Window {
        /// Keys in the window of each connection.
        keys: u64,
        /// Share of the sets that overwrite a key of the window, instead of storing the next one.
        overwrite: f64,
    },
}
