//! Sockets: workers and what they poll, listeners, TLS, datagrams.

pub(crate) mod accept;
pub mod connection_limiter;
pub mod connection_table;
pub mod listeners;
pub mod poller;
pub(crate) mod socket;
pub mod tls;
pub mod udp;
pub(crate) mod wake;
pub mod worker;
pub mod worker_pool;
