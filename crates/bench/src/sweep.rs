//! The same load with one thing changed step by step.

use serde::{Deserialize, Serialize};

use crate::compare::Comparison;

/// What is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// Load threads.
    Threads,
    /// Connections of every group.
    Connections,
    /// Requests in flight on each connection.
    Pipeline,
    /// Length of every value.
    ValueBytes,
    /// Requests a second of every group that has a rate; a group in a closed loop gets an open one.
    RatePerSec,
    /// Keys in every get.
    KeysPerGet,
}

/// An axis and the values along it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Range {
    /// What is changed.
    pub axis: Axis,
    /// In the order in which they are measured.
    pub values: Vec<u64>,
}

/// What came of it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Sweep {
    /// What was changed.
    pub axis: Axis,
    /// Value by value.
    pub steps: Vec<Step>,
}

/// All servers at one value. With a single server there are figures and no ratios.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Step {
    /// The value of the axis.
    pub value: u64,
    /// What was measured there.
    pub comparison: Comparison,
}
