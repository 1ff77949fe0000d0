//! Random draws, for workloads that are made elsewhere.

pub use crate::run::mix;
pub use crate::run::zipf::Zipf;
