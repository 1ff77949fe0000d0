//! Against a real memcached: every request in every protocol.

mod commands;
mod server;
