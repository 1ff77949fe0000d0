//! Counters, measurements, statistics and logs of the server.

pub mod counters;
pub mod forecast;
pub mod journal;
pub mod measure;
pub mod observer_flags;
pub mod prefixes;
pub(crate) mod process;
pub(crate) mod request_events;
pub(crate) mod sample_tap;
pub mod stats;
pub(crate) mod trace;
pub mod watch;
