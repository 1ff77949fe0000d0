//! The servers of a client, and what is known of them.

use std::sync::{Arc, PoisonError};

use super::AsyncClient;
use super::topology::Topology;
use crate::policy::ServerState;
use crate::{Server, Servers};

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
    pub fn set_servers(&self, servers: &Servers) {
        let mut current = self.shared.topology.write().unwrap_or_else(PoisonError::into_inner);
        if current.router.servers()[..] == servers.0[..] {
            return;
        }
        let router = current.router.with_servers(&servers.0);
        *current = Arc::new(Topology::new(router, Arc::clone(&self.shared.settings), &current.pools));
    }
}
