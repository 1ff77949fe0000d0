//! The order in which a client has its servers.

use std::cmp::Ordering;

use crate::{Address, Server};

/// Servers are counted in this order by the distributions that count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// As they are listed.
    #[default]
    Listed,
    /// By host, then by port: `MEMCACHED_BEHAVIOR_SORT_HOSTS`.
    Hosts,
    /// By the length of the name, then by the name: twemproxy.
    Names,
}

impl Order {
    /// Compares two servers, given with their names.
    pub(super) fn compare(self, a: (&Server, &str), b: (&Server, &str)) -> Ordering {
        match self {
            Self::Listed => Ordering::Equal,
            Self::Hosts => host_and_port(a.0).cmp(&host_and_port(b.0)),
            Self::Names => (a.1.len(), a.1).cmp(&(b.1.len(), b.1)),
        }
    }
}

fn host_and_port(server: &Server) -> (&[u8], u16) {
    match &server.address {
        Address::Inet { host, port } => (host.as_bytes(), *port),
        Address::Unix(path) => (path.as_os_str().as_encoded_bytes(), 0),
    }
}
