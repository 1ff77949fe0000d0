//! What is fuzzed: functions that take any bytes, and panic if larder does with them what it must not do.
//!
//! cargo-fuzz calls them with bytes that it makes up (`fuzz_targets/`, nightly only; `cargo xtask fuzz`); the test in
//! `tests/` calls them with the bytes that were worth keeping (`corpus/`).

#![allow(clippy::unwrap_used)]

mod conversation;
mod dialects;
mod logins;
mod tls;
mod udp;

pub use conversation::session;
pub use dialects::{binary, meta, text};
pub use logins::{passwords, sasl};
pub use tls::tls;
pub use udp::udp;

/// A function under test.
pub type Target = fn(&[u8]);

/// All of them, by the names of their folders in `corpus/`.
pub const TARGETS: [(&str, Target); 8] = [
    ("binary", binary),
    ("meta", meta),
    ("passwords", passwords),
    ("sasl", sasl),
    ("session", session),
    ("text", text),
    ("tls", tls),
    ("udp", udp),
];
