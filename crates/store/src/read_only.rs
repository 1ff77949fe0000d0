//! Whether a store still writes.

use std::sync::OnceLock;

use crate::error::{Error, Result};

/// Empty while a store writes; then, until it is opened again, why it does not any more.
#[derive(Debug, Default)]
pub(crate) struct ReadOnly(OnceLock<String>);

impl ReadOnly {
    /// True if nothing is written any more.
    pub(crate) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    /// Errors: `ReadOnly`, nothing is written any more.
    pub(crate) fn check(&self) -> Result<()> {
        match self.0.get() {
            Some(reason) => Err(Error::ReadOnly { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// From now on nothing is written. Returns what to answer: the first reason counts.
    pub(crate) fn set(&self, reason: String) -> Error {
        Error::ReadOnly { reason: self.0.get_or_init(|| reason).clone() }
    }
}
