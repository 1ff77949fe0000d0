//! Where lists of servers come from.
//!
//! A [`Discovery`] names a source. `Client::discover` and `AsyncClient::discover` read it once,
//! `AsyncClient::watch_servers` again and again. [`ClusterConfig`] is what a cluster of AWS ElastiCache says of itself,
//! parsed without I/O.

mod cluster;
mod name_server;
mod srv;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::SocketAddr;

pub use cluster::{BadConfig, CLUSTER_REPLY_BYTES_MAX, ClusterConfig};
pub(crate) use name_server::srv_servers;

use crate::{Address, Error, Server};

/// Where a list of servers comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Discovery {
    /// All IP addresses that a name has, A and AAAA, each of them a server at this port: a headless service of
    /// Kubernetes. They are sorted, so that keys do not move because a resolver turns its answer.
    Dns {
        /// The name.
        host: String,
        /// The port of each.
        port: u16,
    },
    /// The SRV records of a name: hosts, with ports and weights. A headless service of Kubernetes has them, and Consul.
    /// Of several priorities the best one counts, which is the lowest number: what it names is the list, and
    /// [`FailurePolicy`](crate::FailurePolicy) says what happens while a server is away. Records' weights are servers'
    /// weights, which [`Distribution::KetamaWeighted`](crate::Distribution) and others use; 0 counts as 1. Servers are
    /// sorted by host and port. More than 1,024 records are an error.
    Srv {
        /// The whole name, such as `_memcached._tcp.cache.default.svc.cluster.local`: no domain is searched.
        name: String,
        /// Whom to ask. `None`: the name servers of `/etc/resolv.conf`.
        name_server: Option<SocketAddr>,
    },
    /// A cluster of AWS ElastiCache: the configuration endpoint, or any node, is asked `config get cluster`, and if it
    /// does not know that, `get AmazonElastiCache:cluster`. Servers have the names of their hosts.
    Cluster(Address),
}

/// The servers of a name's addresses.
pub(crate) fn servers_at(
    host: &str,
    port: u16,
    addresses: io::Result<Vec<SocketAddr>>,
) -> Result<Vec<Server>, Error> {
    let mut found = addresses.map_err(|error| Error::Discovery(format!("{host}: {error}")))?;
    found.sort_unstable();
    found.dedup();
    if found.is_empty() {
        return Err(Error::Discovery(format!("{host} has no address")));
    }
    let server = |address: SocketAddr| Server::from(Address::Inet { host: address.ip().to_string(), port });
    Ok(found.into_iter().map(server).collect())
}

/// A number that others cannot foresee.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
