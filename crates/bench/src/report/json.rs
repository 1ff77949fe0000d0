//! An outcome as JSON, and back. Histograms are text ([`super::histogram`]), so that reports can be merged without
//! loss.

use serde_json::{Error, Value};

use crate::Outcome;

/// All of an outcome.
pub fn write(outcome: &Outcome) -> Value {
    // Every map has keys that are words, and a histogram is written to memory: nothing that serde_json or HDR could
    // refuse.
    serde_json::to_value(outcome).unwrap_or_else(|_| unreachable!())
}

/// The outcome that `write` wrote, but for passwords.
pub fn read(value: Value) -> Result<Outcome, Error> {
    serde_json::from_value(value)
}
