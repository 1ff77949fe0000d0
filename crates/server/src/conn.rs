//! One client: bytes in, bytes out.

pub mod authenticator;
pub(crate) mod batch;
pub mod buffer_budget;
pub mod client;
pub mod connection;
mod dependents;
pub(crate) mod login;
pub(crate) mod login_queue;
pub mod output;
pub mod parked;
pub(crate) mod query;
pub mod session;
pub(crate) mod upload;
pub mod waiter;
