//! The placement of keys as [`Client`](crate::Client) uses it.

pub use crate::placement::Distribution;
pub(crate) use crate::placement::Locator as Ring;
