//! What went wrong with some of many: a tool goes on with the others, and fails in the end.

use std::fmt::Display;

use crate::Failure;

/// Failures so far. All are told but one, which is the tool's own in the end.
#[must_use]
pub(crate) struct Troubles {
    tool: &'static str,
    kept: Option<Failure>,
}

impl Troubles {
    pub(crate) fn of(tool: &'static str) -> Self {
        Self { tool, kept: None }
    }

    /// One more. A server that cannot be reached says more about the exit code than a key that is not there.
    pub(crate) fn add(&mut self, failure: Failure) {
        match &self.kept {
            None | Some(Failure::Told) => self.kept = Some(failure),
            Some(_) => {
                failure.report(self.tool);
            }
        }
    }

    /// Notes that a key was not found, and tells.
    pub(crate) fn not_found(&mut self, key: impl Display) {
        eprintln!("larder {}: {key}: not found", self.tool);
        self.add(Failure::Told);
    }

    pub(crate) fn end(self) -> Result<(), Failure> {
        self.kept.map_or(Ok(()), Err)
    }
}
