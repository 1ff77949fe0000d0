//! Items over HTTP: who is let in, what becomes of connections, and the examples of docs/http.md. What requests are
//! answered is in `session_split/http.rs`.

mod access;
mod connections;
mod examples;
mod server;
mod tls;

use larder_conformance::server::again_by_uring;

#[test]
fn by_uring() {
    again_by_uring(&["connections::"]);
}
