//! The servers of a client, and what is known of them.

use std::sync::{Arc, PoisonError};

use super::topology::Topology;
use super::udp::UdpServers;
use super::warm_up::WarmUp;
use super::{AsyncClient, TopologyEpoch};
use crate::policy::ServerState;
use crate::{Error, Protocol, Server, Servers};

impl AsyncClient {
    /// The servers, in order.
    pub fn servers(&self) -> Vec<Server> {
        self.shared.topology().router.servers().to_vec()
    }

    /// The server of a key, if all are up. `None`: there is no server.
    pub fn server_of(&self, key: impl AsRef<[u8]>) -> Option<Server> {
        let topology = self.shared.topology();
        let router = &topology.router;
        router.locator().server_of(key.as_ref()).and_then(|server| router.servers().get(server).cloned())
    }

    /// Whether requests go to each server, in order, and how it failed: see [`crate::policy`].
    pub fn server_states(&self) -> Vec<ServerState> {
        self.shared.topology().router.snapshot()
    }

    /// Replaces the servers, for all clones. Requests that are under way finish where they were sent; connections to
    /// servers that stay are kept. What is known of a server that stays is known still.
    ///
    /// With [`AsyncBuilder::warm_up`](super::AsyncBuilder::warm_up), values of keys that have moved are still found for
    /// a while.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use larder_client::{AsyncClient, Distribution};
    ///
    /// let builder = AsyncClient::builder().servers("10.0.1.1, 10.0.1.2".parse()?);
    /// let client = builder.distribution(Distribution::Ketama).warm_up(Duration::from_secs(600)).build();
    /// // Values of keys that belong to the third server now are found at the others for ten minutes.
    /// client.set_servers(&"10.0.1.1, 10.0.1.2, 10.0.1.3".parse()?)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A server that has been in the list before may have old values: flush it before it comes back.
    ///
    /// # Errors
    /// [`Error::Unsupported`]: a warm-up is set, and the protocol cannot have one, or items are replicated; or the
    /// client has UDP, and the list a unix socket; or the ring is too large
    /// ([`Placement::check`](crate::Placement::check)). Nothing has changed.
    pub fn set_servers(&self, servers: &Servers) -> Result<(), Error> {
        let settings = &self.shared.settings;
        if settings.warm_up.is_some() && settings.protocol != Protocol::Meta {
            return Err(Error::Unsupported(
                "only the meta protocol tells times to live: there is no warm-up",
            ));
        }
        if settings.warm_up.is_some() && settings.replication.is_some() {
            return Err(Error::Unsupported("there is no warm-up of replicated items"));
        }
        self.shared.topology().router.locator().placement().check(&servers.0)?;
        // Requests go on while the new list is made, which may take a while.
        let _setting = self.shared.setting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(udp) = &self.shared.udp {
            UdpServers::check_list(&servers.0)?;
            udp.keep(&servers.0);
        }
        let (old, stay) = {
            let current = self.shared.current.read().unwrap_or_else(PoisonError::into_inner);
            (Arc::clone(&current.topology), current.stay.subscribe())
        };
        if old.router.servers()[..] == servers.0[..] {
            return Ok(());
        }
        let mut topology =
            Topology::new(old.router.with_servers(&servers.0), Arc::clone(settings), &old.pools);
        topology.near.clone_from(&self.shared.near);
        let earlier = old.warm_up.iter().flat_map(WarmUp::undrained);
        let undrained = earlier.chain([stay]).collect();
        topology.warm_up = settings.warm_up.map(|time| {
            // Without what that one has replaced.
            let router = old.router.with_servers(old.router.servers());
            let old = Topology::new(router, Arc::clone(settings), &old.pools);
            WarmUp::new(Arc::new(old), time, undrained)
        });
        let new = TopologyEpoch::new(topology);
        let mut current = self.shared.current.write().unwrap_or_else(PoisonError::into_inner);
        let replaced = std::mem::replace(&mut *current, new);
        drop(current);
        drop(replaced);
        self.clear_near();
        Ok(())
    }
}
