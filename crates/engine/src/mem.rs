//! Address space, pages and tables: memory that knows nothing of items.

pub(crate) mod budget;
pub(crate) mod cache_padded;
pub(crate) mod file;
pub(crate) mod heap;
pub(crate) mod lines;
pub(crate) mod numa;
pub(crate) mod poison;
pub(crate) mod region;
pub(crate) mod table;
