//! Where items lie: segments, the runs of large items, and the writers that append.

pub(crate) mod holes;
pub(crate) mod item;
pub(crate) mod leases;
pub(crate) mod runs;
pub(crate) mod segment;
pub(crate) mod segment_sums;
pub(crate) mod writer;
