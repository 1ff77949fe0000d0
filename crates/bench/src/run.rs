//! Asks what a scenario says, and counts what comes.

use std::sync::atomic::AtomicBool;
use std::{fmt, io};

use crate::outcome::Watcher;
use crate::{Outcome, Scenario};

/// Runs `scenario` until it is over, or until `stop` is set: what was asked until then still counts.
///
/// A server that fails, hangs or closes connections while the run goes on does not end it: that is counted
/// ([`crate::outcome::Failure`]).
///
/// # Errors
/// The scenario cannot be run, a file cannot be read, or a server cannot be reached at the start.
pub fn run(scenario: &Scenario, watcher: &mut dyn Watcher, stop: &AtomicBool) -> Result<Outcome, RunError> {
    let _ = (watcher, stop);
    Err(RunError::Scenario { field: scenario.name.clone(), reason: "not built yet".into() })
}

/// Why a run did not take place.
#[derive(Debug)]
pub enum RunError {
    /// The scenario asks for what cannot be.
    Scenario {
        /// Path of the field as in the file: `group[0].commands`.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A server cannot be reached, or refuses the login.
    Server {
        /// As in the scenario.
        address: String,
        /// What it said, or the system.
        reason: String,
    },
    /// A file that the scenario names cannot be read.
    File {
        /// Its path.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The system refuses a thread or a poll.
    System(io::Error),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scenario { field, reason } => write!(f, "{field}: {reason}"),
            Self::Server { address, reason } => write!(f, "{address}: {reason}"),
            Self::File { path, reason } => write!(f, "{path}: {reason}"),
            Self::System(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for RunError {}

impl From<io::Error> for RunError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}
