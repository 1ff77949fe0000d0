//! The benchmark: from a load ([`Scenario`]) to its result ([`Outcome`]).
//!
//! ```text
//! scenario   the load: groups of connections, weighted commands, keys, values, rate, checks
//!            (TOML, presets, front ends)
//! run        sends it: threads, each with its own epoll loop, connections and tally
//! outcome    the result: histograms per command, failures by kind, the server's CPU and memory
//!
//! contestant a server: running, started for the run, or the floor server
//! compare    several servers, interleaved: ratios, intervals, verdicts
//! sweep      the same with one parameter changed step by step
//! search     the highest rate that meets a latency goal
//! floor      a server that does no work                               calibrate   the client's limit against it
//! agent      one run on many machines
//! ```
//!
//! The threads of a run share no cache line while they send: each counts separately, and hands its figures over once a
//! period.

#![forbid(unsafe_code)]

pub mod agent;
pub mod calibrate;
pub mod compare;
pub mod contestant;
pub mod draw;
pub mod environment;
pub mod floor;
pub mod frontend;
pub mod outcome;
pub mod presets;
mod rate;
pub mod report;
pub mod run;
pub mod scenario;
pub mod screen;
pub mod search;
pub mod statistics;
pub mod sweep;
pub mod watch;

pub use outcome::Outcome;
pub use run::trace::{Record, Recording};
pub use run::{RunError, run};
pub use scenario::Scenario;

/// An error message for the user.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
