//! What "compatible with memcached" means, runnable.
//!
//! - `scripts/`: golden wire scripts, readable as documentation. Their expected replies were taken from a real
//!   memcached; [`suite`] plays them against any server, in one piece, byte by byte and split at random.
//! - `clients/`: smoke programs with real clients as they come from their registries (run by `cargo xtask test`).
//! - [`diff`]: random requests to larderd and a real memcached, side by side.
//! - [`crash`]: kills larderd under load, and looks what of its store is there afterwards.
//! - [`sites`]: sites that replicate their stores over links that fail, compared with what clients know.
//! - [`server`]: starts a server of either kind on a port of its own, for every test that needs one.
//! - [`client`]: asks it; [`wire`]: the same with errors instead of panics.
//! - [`folder`]: a directory that is gone when dropped, likewise.

pub mod cargo;
pub mod client;
pub mod crash;
pub mod diff;
pub mod folder;
pub mod notation;
pub mod play;
pub mod script;
pub mod server;
pub mod sites;
pub mod stats;
pub mod suite;
pub mod wire;

/// Errors of a test tool: a sentence for the person who reads the test's output.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A result whose error is such a sentence.
pub type Result<T> = std::result::Result<T, Error>;
