//! What a cache can tell of itself for next to nothing.
//!
//! | module | what it answers | cost |
//! |---|---|---|
//! | [`histogram`] | how long did requests take? | two stores a batch of requests |
//! | [`sampler`] | which requests are looked at closely? | a subtraction a request |
//! | [`top`] | which keys, which prefixes are asked for most? | one sampled request in many |
//! | [`curve`] | what would the hit ratio be with half, twice, four times the memory? | one key in many, on another thread |
//!
//! Nothing here knows sockets, clocks, threads or the engine: it is told what happened, and when.

#![forbid(unsafe_code)]

pub mod curve;
pub mod histogram;
mod mini;
pub mod sampler;
pub mod top;

pub use curve::{Access, Curve, Footprint};
pub use histogram::{Histogram, Snapshot};
pub use sampler::Sampler;
pub use top::Top;
