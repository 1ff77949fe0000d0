//! Operations on items.

pub(crate) mod backing;
pub(crate) mod cas;
pub(crate) mod change;
pub(crate) mod digits;
pub(crate) mod get;
pub(crate) mod prefetch;
pub(crate) mod store;
pub(crate) mod upload;
