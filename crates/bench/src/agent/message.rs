//! What agents and collector say to each other once they have proven themselves.

use serde::{Deserialize, Serialize};

use crate::Outcome;
use crate::outcome::{Period, Phase};
use crate::scenario::Scenario;

/// From the collector.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Order {
    /// Tell what your clock shows.
    Clock,
    /// Get ready for this.
    Run {
        scenario: Box<Scenario>,
        /// The password of `target.login`, which a scenario does not show.
        password: Option<String>,
    },
    /// Begin when your clock shows this many nanoseconds.
    Start { at_nanos: u64 },
    /// End the run now; what was asked until then counts.
    Stop,
    /// Still here.
    Beat,
}

/// From an agent.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Report {
    /// What its clock shows: nanoseconds since some moment.
    Clock { nanos: u64 },
    /// How far it has come.
    Phase(Phase),
    /// Everything is connected, stored and warmed up.
    Ready,
    /// The clock of the run has started, so much later than it should have.
    Begun { late_nanos: u64 },
    /// A period is over.
    Period(Box<Period>),
    /// The run is over.
    Done(Box<Outcome>),
    /// There is no run, or no more, because of this.
    Failed { reason: String },
    /// Still here.
    Beat,
}
