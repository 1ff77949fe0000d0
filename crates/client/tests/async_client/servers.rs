//! Servers, and clients of them.

use larder_client::async_client::AsyncBuilder;
use larder_client::{Address, AsyncClient, Protocol};
use larder_conformance::server::{Server, larderd, reference};
use std::time::Duration;

/// larderd, and memcached where it is installed, each started with these options.
pub(crate) fn start_each(args: &[&str]) -> Vec<Server> {
    let programs = [Some(larderd().expect("it builds")), reference()];
    programs.iter().flatten().map(|program| Server::start(program, args).expect("it starts")).collect()
}

pub(crate) fn start_larderd(args: &[&str]) -> Server {
    Server::start(&larderd().expect("it builds"), args).expect("larderd starts")
}

pub(crate) fn address(server: &Server) -> Address {
    server.address().to_string().parse().expect("an address")
}

/// A client that waits for a minute, as tests do on a busy machine.
pub(crate) fn patient(protocol: Protocol) -> AsyncBuilder {
    let minute = Duration::from_secs(60);
    AsyncClient::builder().protocol(protocol).timeout(minute).connect_timeout(minute)
}

pub(crate) const PROTOCOLS: [Protocol; 3] = [Protocol::Text, Protocol::Meta, Protocol::Binary];
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
