//! Where lists of servers come from.
//!
//! A [`Discovery`] names a source; `AsyncClient::discover` reads it once, and `AsyncClient::watch_servers` again and
//! again. [`ClusterConfig`] is what a cluster of AWS ElastiCache says of itself, parsed without I/O.

mod cluster;

pub use cluster::{BadConfig, CLUSTER_REPLY_BYTES_MAX, ClusterConfig};

use crate::Address;

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
    /// A cluster of AWS ElastiCache: the configuration endpoint, or any node, is asked `config get cluster`, and if it
    /// does not know that, `get AmazonElastiCache:cluster`. Servers have the names of their hosts.
    Cluster(Address),
}
