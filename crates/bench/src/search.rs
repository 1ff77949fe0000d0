//! The highest rate at which a server still keeps a latency.

use serde::{Deserialize, Serialize};

use crate::Scenario;

/// What must hold, such as `p99 < 1ms`: of the latency from the time at which a request was due, all commands together.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Goal {
    /// 0 to 100.
    pub percentile: f64,
    /// What it must stay below.
    pub latency_micros: f64,
}

/// What came of a search.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Search {
    /// What was asked, but for its rate.
    pub scenario: Scenario,
    /// Who was asked.
    pub server: String,
    /// Wall clock at the start, seconds since 1970.
    pub started_unix_secs: u64,
    /// What had to hold.
    pub goal: Goal,
    /// How far the rate found may lie below the lowest that failed, as a share of it.
    pub tolerance: f64,
    /// The highest rate that held, requests a second. `None`: not even the lowest did.
    pub rate_per_sec: Option<f64>,
    /// The lowest rate that failed. `None`: the ceiling of the search held.
    pub failed_rate_per_sec: Option<f64>,
    /// In the order in which they were made.
    pub steps: Vec<Step>,
}

/// One rate, and what was seen at it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Step {
    /// Requests a second that were asked for.
    pub rate_per_sec: f64,
    /// One run, or three where the first was near the edge.
    pub probes: Vec<Probe>,
    /// Whether most of them held.
    pub holds: bool,
}

/// One short run.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Probe {
    /// Requests a second that were answered.
    pub answered_per_sec: f64,
    /// The goal's percentile.
    pub latency_micros: f64,
    /// Share of the requests that the client sent late because no connection was free.
    pub sent_late: f64,
    /// Answers that were wrong.
    pub failures: u64,
    /// Whether the latency was kept, the rate was kept, and nothing failed.
    pub holds: bool,
}
