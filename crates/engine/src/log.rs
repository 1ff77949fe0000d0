//! Where items lie: segments, the runs of large items, and the allocator that appends.
//!
//! Knows `mem` and `epoch`; nothing of keys, policy, reclaiming or handles.

pub(crate) mod adoption;
pub(crate) mod allocator;
pub(crate) mod arena;
mod extents;
pub(crate) mod fresh;
pub(crate) mod holes;
pub(crate) mod item;
pub(crate) mod large_pages;
pub(crate) mod leases;
pub(crate) mod offset;
pub(crate) mod runs;
pub(crate) mod segment;
pub(crate) mod segment_sums;
pub(crate) mod superblock;
pub(crate) mod walk;
