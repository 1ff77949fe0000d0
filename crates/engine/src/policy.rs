//! What is kept, and for how long.

pub(crate) mod ghost;
pub(crate) mod priority;
pub(crate) mod queues;
