//! Who may come in: files of passwords, checks that tell nothing by the time they take, and SASL's mechanisms PLAIN and
//! SCRAM-SHA-256 as a server speaks them.
//!
//! No I/O, no clock, and randomness is given (`Secret`). Not here: how a protocol carries a login, and what a client
//! may do before it (the server's `login`).

#![forbid(unsafe_code)]

mod exchange;
mod file;
mod keyed;
mod plain;
mod scram;
mod table;
mod verifier;

pub use exchange::{Exchange, MECHANISM_BYTES_MAX, MECHANISMS, Outcome};
pub use file::{ENTRIES_MAX, Entry, LINE_BYTES_MAX, Malformed, Password, is_user, parse, render};
pub use keyed::Secret;
pub use table::Table;
pub use verifier::{ITERATIONS_DEFAULT, ITERATIONS_MAX, ITERATIONS_MIN, SALT_BYTES, Verifier};
