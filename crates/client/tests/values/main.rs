//! Values as other clients keep them: what those clients stored, and what they make of ours.

mod chunked;
mod clients;
mod hostile;
#[cfg(all(feature = "serde", feature = "tokio"))]
mod typed;
mod vector;
mod vectors;
#[cfg(feature = "zstd")]
mod zstd;

use larder_client::Client;
use larder_conformance::server::{Server, any};

/// The memcached that is installed, or else larderd, and a client of it.
fn start() -> (Server, Client) {
    let args: [&str; 0] = [];
    let server = Server::start(&any().expect("it builds"), &args).expect("it starts");
    let client = Client::of(server.address().to_string().parse().expect("an address"));
    (server, client)
}
