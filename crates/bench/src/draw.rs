//! What is drawn at random, for workloads made elsewhere.

pub use crate::run::mix;
pub use crate::run::zipf::Zipf;
