//! The clients that are connected, for `stats conns` and for watchers.

use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::conn::client::{Client, tcp_name};
use crate::net::listeners::Listener;
use crate::net::udp;

/// The clients of all workers.
#[derive(Debug, Default)]
pub struct ConnectionTable {
    sockets: Mutex<Vec<ServerSocket>>,
    /// By descriptor.
    clients: Mutex<Vec<Option<Arc<Client>>>>,
}

/// A socket of the server itself.
#[derive(Clone, Debug)]
pub struct ServerSocket {
    /// Its descriptor.
    pub fd: RawFd,
    /// What it is bound to, in memcached's notation.
    pub address: String,
    /// Receives datagrams; else connections.
    pub is_udp: bool,
}

impl ConnectionTable {
    /// Adds the sockets that clients connect or send to.
    pub fn add_sockets(&self, listeners: &[Listener], udp: &[Vec<udp::Socket>]) {
        let listeners = listeners.iter().map(|listener| ServerSocket {
            fd: listener.fd.as_raw_fd(),
            address: listener.address.to_string(),
            is_udp: false,
        });
        let udp = udp.iter().flatten().map(|socket| ServerSocket {
            fd: socket.as_fd().as_raw_fd(),
            address: tcp_name(socket.address()).replacen("tcp", "udp", 1),
            is_udp: true,
        });
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.extend(listeners.chain(udp));
    }

    pub(crate) fn sockets(&self) -> Vec<ServerSocket> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn enter(&self, client: Arc<Client>) {
        let at = client.fd as usize;
        let mut clients = self.clients_mut();
        if clients.len() <= at {
            clients.resize_with(at + 1, || None);
        }
        clients[at] = Some(client);
    }

    /// Call before closing the descriptor, which another client may get at once.
    pub(crate) fn leave(&self, client: &Client) {
        if let Some(place) = self.clients_mut().get_mut(client.fd as usize) {
            *place = None;
        }
    }

    /// All clients, by descriptor.
    pub(crate) fn clients(&self) -> Vec<Arc<Client>> {
        self.clients_mut().iter().flatten().cloned().collect()
    }

    fn clients_mut(&self) -> MutexGuard<'_, Vec<Option<Arc<Client>>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
