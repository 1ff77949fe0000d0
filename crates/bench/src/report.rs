//! Outcomes for people and programs: tables, JSON, CSV, HDR logs, a page of HTML.
//!
//! | module | output |
//! |---|---|
//! | [`columns`] | rows of text in columns |
//! | [`table`] | the tables at the end of a run |
//! | [`memaslap`] | memaslap's tables, to compare with old ones |
//! | [`mod@json`] | a complete outcome, which can be read again |
//! | [`mod@csv`] | a line a period and command, for spreadsheets |
//! | [`hdr`] | a log for HdrHistogram's tools |
//! | [`mod@html`] | one page with charts |

pub mod columns;
pub mod csv;
pub mod hdr;
pub mod histogram;
pub mod html;
pub mod json;
pub mod memaslap;
pub mod table;
pub mod units;
pub mod words;

use std::io::{self, Write};

use serde_json::Value;

use crate::Outcome;

/// The final tables.
pub fn print(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    table::print(outcome, out)
}

/// A complete outcome; [`json::read`] reads it again.
pub fn json(outcome: &Outcome) -> Value {
    json::write(outcome)
}

/// One page with charts; for comparisons, sweeps and searches see [`mod@html`].
pub fn html(outcomes: &[Outcome]) -> String {
    html::outcomes(outcomes)
}

/// A line a period and command.
pub fn csv(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    csv::write(outcome, out)
}

/// Latencies of every period and command.
pub fn hdr_log(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    hdr::write(outcome, out)
}
