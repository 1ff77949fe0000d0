//! A client of memcached's protocols.
//!
//! | module | what it is |
//! |---|---|
//! | [`codec`] | requests to bytes and bytes to answers, for the text, meta and binary protocols; no I/O |

#![forbid(unsafe_code)]

pub mod codec;

pub use codec::Pipeline;
