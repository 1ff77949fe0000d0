//! A client of memcached's protocols.
//!
//! | module | what it is |
//! |---|---|
//! | [`codec`] | requests to bytes and bytes to answers, for the text, meta and binary protocols; no I/O |
//! | [`address`] | where a server listens |
//! | [`server`] | a list of servers, from `MEMCACHED_SERVERS` for instance |
//! | [`ring`] | which server a key belongs to: libmemcached's modula and ketama |
//! | [`stream`] | a connection: TCP, TLS, unix socket |
//! | [`login`] | name and password |
//! | [`error`] | what can go wrong |

#![forbid(unsafe_code)]

pub mod address;
pub mod codec;
pub mod error;
pub mod login;
pub mod ring;
pub mod server;
pub mod stream;

pub use address::Address;
pub use codec::Pipeline;
pub use error::Error;
pub use login::Login;
pub use ring::Distribution;
pub use server::{Server, Servers};
pub use stream::{Stream, Tls};
