//! Replication between masters that converge: what two sites that hold the same data tell each other, and what they
//! make of it.
//!
//! Every site takes writes, and pulls the log of each other site. What is logged are resulting states with versions,
//! not operations, and of two states the one with the higher version stays: in any order, repeated, or over any way,
//! all sites end with the same data. Here is all of that but the I/O: no socket, no thread, no clock, no store.
//!
//! | module | contains |
//! |---|---|
//! | [`version`] | the order of changes: time and site in one number |
//! | [`state`] | what is known of a key, and how two states become one |
//! | [`flushes`] | which keys were flushed, up to which version |
//! | [`entry`] | what goes from one site to another, and its bytes |
//! | [`lineage`] | which positions of the own log others can have |
//! | [`members`] | how far this site is in the others' logs, and what everybody has |
//! | [`merge`](mod@merge) | entries of another site and a site's data: the changes to append |
//! | [`compare`] | what got lost silently: found by digests of ranges of keys, and mended |
//! | [`told`] | what caches tell each other of their keys |
//! | [`bytes`] | reading little-endian fields |
//! | [`wire`] | frames, messages, compression, the proof of the token |
//! | [`link`] | the two ends of a connection, as state machines |
//!
//! `docs/replication-protocol.md` has the rules and the bytes. The simulator in `tests/sim` runs clusters of these
//! parts through crashes, partitions and wrong clocks.

#![forbid(unsafe_code)]

pub mod bytes;
pub mod compare;
pub mod entry;
pub mod flushes;
pub mod lineage;
pub mod link;
pub mod members;
pub mod merge;
pub mod state;
pub mod told;
pub mod version;
pub mod wire;
