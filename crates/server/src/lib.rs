//! larderd, the server.

#![forbid(unsafe_code)]

pub mod address_space;
mod admin;
mod arrival;
pub mod attention;
mod batch;
pub mod buffers;
mod bursts;
pub mod clock;
pub mod confine;
mod connection;
pub mod control;
pub mod counters;
pub mod crawler;
pub mod crew;
pub mod daemon;
pub mod doorkeeper;
pub mod doors;
pub mod dump;
pub mod execute;
pub mod exposure;
pub mod forecast;
mod frame;
mod gets;
pub mod guard;
mod heap;
pub mod journal;
pub mod large_pages;
pub mod listen;
pub mod log;
mod login;
pub mod measure;
mod multiget;
pub mod numa;
mod observe;
pub mod options;
pub mod output;
mod patience;
pub mod prefixes;
pub mod privilege;
pub mod random;
pub mod roster;
mod round;
pub mod session;
mod sets;
pub mod settings;
pub mod shared;
pub mod signals;
pub mod stats;
pub mod systemd;
pub mod tls;
mod trace;
pub mod udp;
mod verdict;
mod wake;
pub mod web;
mod wire;
pub mod worker;

/// What `version` and `stats` report: the version of the memcached whose behaviour this server has. Clients and tools
/// compare versions to learn what a server understands (meta commands, say), and some refuse all but digits and dots:
/// so nothing stands behind it.
pub const MEMCACHED_VERSION: &str = "1.6.45";
/// larder's own: `larder_version` in `stats`, `-V`, metrics.
pub const LARDER_VERSION: &str = env!("CARGO_PKG_VERSION");
