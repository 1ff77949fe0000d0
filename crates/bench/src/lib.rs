//! The benchmark: what is asked of a server ([`Scenario`]), and what came of it ([`Outcome`]).
//!
//! ```text
//! scenario   what to ask: groups of connections, weighted commands, keys, values, rate, truth
//!            (TOML, presets, front ends)
//! run        asks: threads, each with an epoll loop, connections and a tally of its own
//! outcome    what came: histograms per command, failures by kind, the server's CPU and memory
//!
//! contestant who is asked: servers that run, servers that are started, the floor server
//! compare    several of them in turns: ratios, intervals, verdicts
//! sweep      the same with one thing changed step by step
//! search     the highest rate that keeps a latency
//! floor      a server that does no work                               calibrate   what this client can do against it
//! agent      one run on many machines
//! ```
//!
//! A run never shares a line of memory between its threads while it asks: each thread tallies for itself and hands its
//! figures over once a period.

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

/// What went wrong, in words for the person who asked.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
