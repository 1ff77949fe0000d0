//! Failures for some of many keys or servers: a tool processes the others, and fails at the end.

use std::fmt::Display;

use crate::Failure;

/// Failures so far. They are reported after the tool's output, in the order in which they came.
#[must_use]
pub(crate) struct Troubles {
    tool: &'static str,
    kept: Vec<Failure>,
    /// Highest exit code reported so far; 0 if none was.
    reported: u8,
}

impl Troubles {
    pub(crate) fn of(tool: &'static str) -> Self {
        Self { tool, kept: Vec::new(), reported: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.reported == 0
    }

    pub(crate) fn add(&mut self, failure: Failure) {
        self.kept.push(failure);
    }

    /// Adds a key that was not found.
    pub(crate) fn not_found(&mut self, key: impl Display) {
        self.add(Failure::Failed(format!("{key}: not found")));
    }

    /// Adds a failure and reports it at once, if the tool goes on for long.
    pub(crate) fn report(&mut self, failure: &Failure) {
        failure.report(self.tool);
        self.reported = self.reported.max(failure.exit_code());
    }

    /// Reports all failures. The highest exit code counts, whichever server or key came first.
    pub(crate) fn end(mut self) -> Result<(), Failure> {
        for failure in std::mem::take(&mut self.kept) {
            self.report(&failure);
        }
        match self.reported {
            0 => Ok(()),
            code => Err(Failure::Reported(code)),
        }
    }
}
