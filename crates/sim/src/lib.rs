//! larderd with a store, simulated: one thread, one seed, the same run each time.
//!
//! What runs is the server's own code: connections, sessions, commands, engine, journal, committer, readers, and the
//! store in memory. What is simulated is around it: clients, sockets, the scheduler, the clock, the disk's faults, the
//! end of the process. No socket, no thread, no real time.
//!
//! A [`Scenario`] follows from a seed. In its run a scheduler chooses, step by step and from the same seed, what
//! happens next: bytes arrive in pieces, a worker executes, the committer appends or begins a sync, a sync ends, a
//! reader begins or ends, a parked connection is woken, time passes, the disk is full, an fsync fails, the process is
//! killed or the power fails.
//!
//! The witness (`witness.rs`) stands between the engine and the journal, and notes each change of each key in the order
//! that the engine gives them. That order is a certificate of linearizability: the checks (`check.rs`) show that every
//! reply is the one of a moment between its request and itself, that each change was asked for by one request and is
//! what this asked for, and that what survives a crash is a prefix of that order with all that anybody was shown.
//!
//! Bugs are planted ([`Bug`]) from outside, around the journal and the store, to see that the checks find them.

#![forbid(unsafe_code)]

mod backing;
mod check;
mod client;
mod clock;
mod disk;
mod observer;
mod request;
mod rng;
mod scenario;
pub mod shared_client;
mod sim;
mod site;
mod socket;
mod witness;

pub use scenario::{Bug, Scenario};
pub use sim::Run;
