//! The load on a server, in the form of a TOML file.
//!
//! A scenario has one or more groups of connections. All groups run at the same time; each has its own commands, keys
//! and values. Every field has a default, so a file contains only the differences.
//!
//! ```text
//! target    the servers
//! until     when to stop
//! truth     checks of replies
//! group     connections with the same load
//!   arrival   when they send requests
//!   command   their commands, with weights
//!   keys      the keys, and the distribution of requests
//!   values    the values; sizes: lengths of keys and values
//!   trace     a recording to replay instead
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
    /// Its name in tables and reports.
    pub name: String,
    /// Its purpose, in a line or two.
    pub description: String,
    /// The servers, and how to connect to them.
    pub target: Target,
    /// When to stop: at the first of these, or by default after ten seconds.
    pub until: Until,
    /// Load threads; each has a share of every group's connections. 0: one for every core but the first.
    pub threads: usize,
    /// Seconds of load before the clock starts.
    pub warm_up_secs: f64,
    /// Length of a period, the step of tables and charts.
    pub period_secs: f64,
    /// Seed of keys, sizes and commands. Two runs with the same seed send the same requests.
    pub seed: u64,
    /// Checks of the replies.
    pub truth: Truth,
    /// Flush the servers first.
    pub flush: bool,
    /// Store every key of every group once before the clock starts.
    pub fill: bool,
    /// Connections and their requests.
    #[serde(rename = "group")]
    pub groups: Vec<Group>,
}

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// The error and its line, as a message.
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
