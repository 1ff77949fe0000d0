//! larderd, the server.

#![forbid(unsafe_code)]

pub mod clock;
pub mod counters;
pub mod execute;
pub mod options;
pub mod output;
pub mod session;
pub mod settings;
pub mod shared;
pub mod stats;
mod wake;

/// What `version` and `stats` report. Clients and tools compare versions to learn what a server understands (meta
/// commands, say), and read digits.digits.digits from its start: so it begins with the version of memcached whose
/// behaviour this one has.
pub const VERSION: &str = concat!("1.6.45-larder-", env!("CARGO_PKG_VERSION"));
