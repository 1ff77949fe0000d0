//! larderd, the server.

#![forbid(unsafe_code)]

pub mod clock;
pub mod conn;
pub mod control;
pub mod exec;
pub(crate) mod heap;
pub mod net;
pub mod observe;
pub mod shared;
pub mod startup;
pub mod web;

/// What `version` and `stats` report: the version of the memcached whose behaviour this server has. Clients and tools
/// compare versions to learn what a server understands (meta commands, say), and some refuse all but digits and dots:
/// so nothing stands behind it.
pub const MEMCACHED_VERSION: &str = "1.6.45";
/// larder's own: `larder_version` in `stats`, `-V`, metrics.
pub const LARDER_VERSION: &str = env!("CARGO_PKG_VERSION");
