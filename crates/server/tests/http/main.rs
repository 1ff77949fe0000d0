//! Items over HTTP: who is let in, what becomes of connections, and the examples of docs/http.md. What requests are
//! answered is in `session_split/http.rs`.

mod access;
mod connections;
mod examples;
mod server;
mod tls;
