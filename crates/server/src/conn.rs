//! One client: bytes in, bytes out.

pub mod authenticator;
pub(crate) mod batch;
pub mod buffer_budget;
pub(crate) mod connection;
pub(crate) mod feed_status;
pub(crate) mod frame;
pub(crate) mod gets;
pub(crate) mod login;
pub(crate) mod multiget;
pub mod output;
pub(crate) mod retry_deadline;
pub mod session;
pub(crate) mod sets;
pub(crate) mod upload;
