//! The end of a run: after some time, after so many requests, or at the end of its traces.

use serde::{Deserialize, Serialize};

/// When a run ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Until {
    /// After so many seconds, warm-up not counted.
    pub secs: Option<f64>,
    /// After so many requests of all groups together.
    pub requests: Option<u64>,
    /// When every trace has been replayed to its end.
    pub trace_ends: bool,
}
