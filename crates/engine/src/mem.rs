//! Address space, pages and tables: memory that knows nothing of items.

pub(crate) mod budget;
pub(crate) mod cache_padded;
#[cfg_attr(miri, path = "mem/file_miri.rs")]
pub(crate) mod file;
pub(crate) mod heap;
pub(crate) mod lines;
pub(crate) mod numa;
pub(crate) mod poison;
pub(crate) mod region;
pub(crate) mod table;
