//! When requests are sent: closed, paced and open loops.

use serde::{Deserialize, Serialize};

/// When requests are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(tag = "loop", rename_all = "lowercase", deny_unknown_fields)]
pub enum Arrival {
    /// Send the next request when the last one is answered, as fast as the server answers. With a `pipeline` of n, send
    /// n requests in one write, and the next n when all of them are answered.
    #[default]
    Closed,
    /// A closed loop with at most so many requests a second in the whole group. Latency counts from the send: see
    /// `Open`.
    Paced {
        /// Requests a second.
        rate_per_sec: f64,
    },
    /// A fixed schedule, whether or not earlier requests are answered. Latency counts from the scheduled time, so a
    /// stall of the server counts for every request that it delays (Tene's "coordinated omission").
    Open {
        /// Requests a second in the whole group, at the start.
        rate_per_sec: f64,
        /// The rate at the end: it changes evenly over the run (a ramp). `None`: it stays.
        #[serde(default)]
        rate_end_per_sec: Option<f64>,
        /// The gaps between requests.
        #[serde(default)]
        spacing: Spacing,
    },
}

/// The gaps between requests of an open loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Spacing {
    /// Exponential gaps, as of independent clients.
    #[default]
    Poisson,
    /// Equal gaps.
    Even,
}
