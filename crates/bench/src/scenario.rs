//! What is asked of a server, in the form of a TOML file.
//!
//! A scenario has one or more groups of connections. All groups run at the same time; each has commands, keys and
//! values of its own. Every field has a default, so that a file says only what is unlike the default.
//!
//! ```text
//! target    whom to ask
//! until     when to stop
//! truth     what to check
//! group     connections that ask the same
//!   arrival   when they send
//!   command   what they ask, each command with its share
//!   keys      which keys, and each how often
//!   values    what is stored; sizes: how long keys and values are
//!   trace     a recording, instead of drawing all that
//! ```

mod arrival;
mod command;
mod group;
mod keys;
mod sizes;
mod target;
mod trace;
mod truth;
mod until;
mod values;

use serde::{Deserialize, Serialize};

pub use arrival::{Arrival, Spacing};
pub use command::{Command, Kind, Ttl};
pub use group::{Group, Order, Protocol, Transport};
pub use keys::{Keys, Popularity};
pub use sizes::{Distribution, SizeRange, Sizes};
pub use target::{Login, Target, Tls};
pub use trace::{Trace, TraceFormat};
pub use truth::Truth;
pub use until::Until;
pub use values::{Content, Values};

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// What it is called in tables and reports.
    pub name: String,
    /// What it is for, in a line or two.
    pub description: String,
    /// Where the servers are, and how they are spoken to.
    pub target: Target,
    /// When to stop. Whatever comes first; without any, after ten seconds.
    pub until: Until,
    /// Load threads; each has a share of every group's connections. 0: one for every core but the first.
    pub threads: usize,
    /// Seconds of load before the clock starts.
    pub warm_up_secs: f64,
    /// Length of a period, the step of tables and charts.
    pub period_secs: f64,
    /// What draws keys, sizes and commands begins from this number. Two runs with the same seed ask the same.
    pub seed: u64,
    /// What is checked of the answers.
    pub truth: Truth,
    /// Flush the servers first.
    pub flush: bool,
    /// Store every key of every group once before the clock starts.
    pub fill: bool,
    /// Connections and what they ask.
    #[serde(rename = "group")]
    pub groups: Vec<Group>,
}

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// What is wrong, and in which line, for a person.
    pub fn from_toml(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    /// Writes a scenario file. A password is left out.
    ///
    /// # Panics
    /// Never: every field has a form in TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).unwrap_or_else(|error| panic!("a scenario as TOML: {error}"))
    }
}
