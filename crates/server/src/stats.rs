//! `stats` and its sub-commands.

use crate::shared::Shared;

/// What `stats` answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// `STAT name value` lines, in order, then `END`.
    Lines(Vec<(String, String)>),
    /// `RESET`.
    Reset,
    /// No such sub-command: `ERROR`.
    Unknown,
}

/// Answers `stats <words>`.
pub fn answer(_shared: &Shared, _words: &[&[u8]]) -> Answer {
    Answer::Unknown
}
