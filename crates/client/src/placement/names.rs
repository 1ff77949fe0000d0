//! Names of servers on a ring.

use std::sync::Arc;

use crate::Address;
use crate::address::DEFAULT_PORT;

/// What a client takes for the name of a server: a ring depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Names {
    /// `host:port`, or the path of a socket: dalli, pymemcache, uhashring, Whalin's client, and spymemcached for IPv4
    /// addresses.
    HostPort,
    /// `host` if the port is 11211, else `host:port`; `path:0` for a socket: libmemcached, pylibmc; without the sockets
    /// spymemcached with `KetamaNodeKeyFormatter.Format.LIBMEMCACHED`.
    Libmemcached,
    /// The same, but the path alone for a socket: PHP's memcached.
    PhpMemcached,
    /// The same, but `path:` for a socket: twemproxy.
    Twemproxy,
    /// `/host:port`, `/path:0`: libmemcached's `CONSISTENT_KETAMA_SPY`.
    LibmemcachedSpy,
    /// `host:port`, `unix://path:0`: PHP's memcache.
    PhpMemcache,
    /// These, in the order of the servers; one that is missing is empty. twemproxy's names in its configuration;
    /// spymemcached's of servers whose names it has resolved: `localhost/127.0.0.1:11211`.
    Given(Arc<[String]>),
}

impl Names {
    /// The name of the server at a position.
    pub(super) fn name(&self, position: usize, address: &Address) -> String {
        if let Self::Given(names) = self {
            return names.get(position).cloned().unwrap_or_default();
        }
        let omits_default_port = matches!(self, Self::Libmemcached | Self::PhpMemcached | Self::Twemproxy);
        match address {
            Address::Inet { host, port: DEFAULT_PORT } if omits_default_port => host.clone(),
            Address::Inet { host, port } if *self == Self::LibmemcachedSpy => format!("/{host}:{port}"),
            Address::Inet { host, port } => format!("{host}:{port}"),
            Address::Unix(path) => {
                let path = path.display();
                match self {
                    Self::Libmemcached => format!("{path}:0"),
                    Self::Twemproxy => format!("{path}:"),
                    Self::LibmemcachedSpy => format!("/{path}:0"),
                    Self::PhpMemcache => format!("unix://{path}:0"),
                    _ => path.to_string(),
                }
            }
        }
    }
}
