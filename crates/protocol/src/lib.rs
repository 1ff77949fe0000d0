//! Bytes to [`Request`]s and [`Reply`]s to bytes, for the dialects that memcached speaks, and for HTTP.
//!
//! All dialects meet in one [`Command`]. A request borrows from the bytes it was read from, and carries the [`Form`]
//! its reply has to take; the module that parses a dialect also encodes its replies. No I/O, no clock, no heap.
//!
//! Not here: what a command does (the server's `execute`), and where values wait until they are sent (its `output`).

#![forbid(unsafe_code)]

pub mod admin;
pub mod binary;
pub mod command;
pub mod dialect;
pub mod dump;
pub mod error;
pub mod http;
pub mod key;
pub mod meta;
pub mod number;
pub mod reply;
pub mod text;
pub mod udp;

pub use command::{Command, Parsed, Request};
pub use dialect::Dialect;
pub use error::Error;
pub use key::{KEY_BYTES_MAX, Key, KeyBuffer, Keys};
pub use reply::{Form, Reply, Sink};
