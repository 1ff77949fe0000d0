//! The operator's side over HTTP: who is let in, what is told, and what never is.

mod backup;
mod door;
mod keys;
mod metrics;
mod namespaces;
mod peers;
mod security;
mod server;
mod tls;
mod views;
