//! Other lists of servers.

use std::io::{Read, Write};
use std::net::ToSocketAddrs;
use std::time::Instant;

use super::connection::connect;
use super::{Client, Node};
use crate::discovery::{BadConfig, ClusterConfig, Discovery, servers_at, srv_servers};
use crate::{Address, Error, Server, Servers};

impl Client {
    /// Replaces the servers. Connections to servers that stay are kept, and what is known of them is known still.
    ///
    /// Keys that belong to another server now are not found there, or are old if it has been in the list before: flush
    /// such a server. `AsyncClient` can move their values.
    ///
    /// The size of the ring is not limited here: see [`Placement::check`](crate::Placement::check) for lists from
    /// elsewhere.
    pub fn set_servers(&mut self, servers: &Servers) {
        self.router = self.router.with_servers(&servers.0);
        let mut old = std::mem::take(&mut self.nodes);
        let node = |server: &Server| {
            let known = old.iter_mut().find(|node| node.server.address == server.address);
            Node { server: server.clone(), idle: known.and_then(|node| node.idle.take()) }
        };
        self.nodes = servers.0.iter().map(node).collect();
    }

    /// Looks the list of servers up, and sets it ([`Client::set_servers`]). The list stays as it is if that fails. To
    /// follow it, call this now and then.
    ///
    /// # Errors
    /// [`Error::Discovery`], those of a connection, and that of [`Placement::check`](crate::Placement::check).
    pub fn discover(&mut self, source: &Discovery) -> Result<(), Error> {
        let servers = match source {
            Discovery::Dns { host, port } => {
                servers_at(host, *port, (host.as_str(), *port).to_socket_addrs().map(Iterator::collect))?
            }
            Discovery::Srv { name, name_server } => {
                let deadline = self.settings.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
                srv_servers(name, *name_server, deadline)?
            }
            Discovery::Cluster(address) => self.cluster(address)?,
        };
        self.router.locator().placement().check(&servers)?;
        self.set_servers(&Servers(servers));
        Ok(())
    }

    fn cluster(&self, address: &Address) -> Result<Vec<Server>, Error> {
        let config = match self.ask_cluster(address, ClusterConfig::REQUEST)? {
            // Servers before 1.4.14.
            Err(BadConfig::Refused(_)) => self.ask_cluster(address, ClusterConfig::OLD_REQUEST)?,
            config => config,
        };
        let config = config.map_err(|bad| Error::Discovery(format!("{address}: {bad}")))?;
        Ok(config.servers)
    }

    /// On a connection of its own.
    fn ask_cluster(
        &self,
        address: &Address,
        request: &[u8],
    ) -> Result<Result<ClusterConfig, BadConfig>, Error> {
        let mut stream = connect(address, &self.settings)?;
        stream.begin().map_err(Error::Io)?;
        stream.write_all(request).and_then(|()| stream.flush()).map_err(Error::of_io)?;
        let (mut reply, mut part) = (Vec::new(), [0; 4096]);
        loop {
            let bytes = stream.read(&mut part).map_err(Error::of_io)?;
            if bytes == 0 {
                return Err(Error::Closed);
            }
            reply.extend_from_slice(&part[..bytes]);
            match ClusterConfig::parse(&reply) {
                Ok(None) => {}
                Ok(Some(config)) => return Ok(Ok(config)),
                Err(bad) => return Ok(Err(bad)),
            }
        }
    }
}
