//! Outcomes for people and for programs: tables, JSON, CSV, HDR logs, one page of HTML.

pub mod histogram;
pub mod json;

use serde_json::Value;

use crate::Outcome;

/// All of an outcome; [`json::read`] makes an outcome of it again.
pub fn json(outcome: &Outcome) -> Value {
    json::write(outcome)
}
