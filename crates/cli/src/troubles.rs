//! Failures for some of many keys or servers: a tool processes the others, and fails at the end.

use std::fmt::Display;

use crate::Failure;
use crate::failure::EXIT_FAILURE;

/// Failures so far. All but one are reported; that one becomes the tool's failure.
#[must_use]
pub(crate) struct Troubles {
    tool: &'static str,
    kept: Option<Failure>,
}

impl Troubles {
    pub(crate) fn of(tool: &'static str) -> Self {
        Self { tool, kept: None }
    }

    /// Adds a failure. An unreachable server determines the exit code rather than a missing key.
    pub(crate) fn add(&mut self, failure: Failure) {
        match (&self.kept, &failure) {
            (Some(Failure::Reported(kept)), Failure::Reported(code)) if kept > code => {}
            (None | Some(Failure::Reported(_)), _) => self.kept = Some(failure),
            (Some(_), _) => {
                failure.report(self.tool);
            }
        }
    }

    /// Adds a failure and reports it at once, if the tool goes on for long.
    pub(crate) fn report(&mut self, failure: &Failure) {
        failure.report(self.tool);
        self.add(Failure::Reported(failure.exit_code()));
    }

    /// Adds a key that was not found, and reports it.
    pub(crate) fn not_found(&mut self, key: impl Display) {
        eprintln!("larder {}: {key}: not found", self.tool);
        self.add(Failure::Reported(EXIT_FAILURE));
    }

    pub(crate) fn end(self) -> Result<(), Failure> {
        self.kept.map_or(Ok(()), Err)
    }
}
