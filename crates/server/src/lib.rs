//! larderd, the server.

#![forbid(unsafe_code)]

pub mod access;
pub mod clock;
pub mod conn;
pub mod control;
pub mod exec;
pub(crate) mod heap;
pub mod namespaces;
pub mod net;
pub mod observe;
pub mod persistence;
pub mod replication;
pub mod shared;
pub mod startup;
pub mod web;

/// The version in `version` and `stats`: that of the memcached whose behaviour this server has. Clients and tools
/// derive features from it (meta commands, for instance), and some accept only digits and dots, so nothing follows it.
pub const MEMCACHED_VERSION: &str = "1.6.45";
/// larder's own: `larder_version` in `stats`, `-V`, metrics.
pub const LARDER_VERSION: &str = env!("CARGO_PKG_VERSION");
