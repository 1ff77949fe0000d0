//! Datagrams that need more than a share of a round, and those that the same clients sent after them. Clients have
//! their turns one after the other; the datagrams of a client are served in order.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use super::Work;
use crate::conn::buffer_budget::{BufferBudget, BufferCharge};
use crate::heap;

/// The backlog of a socket.
#[derive(Default)]
pub(super) struct Backlog {
    clients: VecDeque<Client>,
    bytes: usize,
    charge: BufferCharge,
}

/// A client, and its datagrams: at least one.
pub(super) struct Client {
    pub(super) source: SocketAddr,
    datagrams: VecDeque<Vec<u8>>,
    /// What is left of the first one, once it was begun.
    work: Option<Work>,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// True if datagrams of this client are waiting.
    pub(super) fn has(&self, source: SocketAddr) -> bool {
        self.clients.iter().any(|client| client.source == source)
    }

    /// Adds a copy of a datagram behind those of its client. `work`: what is left of it, if it was begun; then none of
    /// its client is waiting. False: there is no room.
    #[must_use]
    pub(super) fn push(
        &mut self,
        source: SocketAddr,
        datagram: &[u8],
        work: Option<Work>,
        buffers: &Arc<BufferBudget>,
    ) -> bool {
        let at = self.clients.iter().position(|client| client.source == source);
        let bytes = self.bytes + cost(datagram);
        if bytes > BYTES_MAX || at.is_none() && self.clients.len() == CLIENTS_MAX {
            return false;
        }
        let Some(datagram) = heap::copy(datagram) else { return false };
        if !self.charge.resize(buffers, bytes) {
            return false;
        }
        self.bytes = bytes;
        match at {
            Some(at) => self.clients[at].datagrams.push_back(datagram),
            None => self.clients.push_back(Client { source, datagrams: [datagram].into(), work }),
        }
        true
    }

    /// The client whose turn it is. Give it back by [`Backlog::put_back`].
    pub(super) fn take(&mut self) -> Option<Client> {
        self.clients.pop_front()
    }

    /// Ends a client's turn. `work`: what is left of its first datagram; `None`: nothing is.
    pub(super) fn put_back(&mut self, mut client: Client, work: Option<Work>, buffers: &Arc<BufferBudget>) {
        if work.is_none()
            && let Some(served) = client.datagrams.pop_front()
        {
            self.bytes -= cost(&served);
            self.charge.force(buffers, self.bytes);
        }
        client.work = work;
        if !client.datagrams.is_empty() {
            self.clients.push_back(client);
        }
    }
}

impl Client {
    /// Its first datagram, and what is left of that if it was begun.
    pub(super) fn first(&mut self) -> (&[u8], Option<Work>) {
        (self.datagrams.front().map_or(b"", Vec::as_slice), self.work.take())
    }
}

/// With what the allocator and the queues add.
fn cost(datagram: &[u8]) -> usize {
    datagram.len() + 64
}

/// Sixteen of the longest datagrams.
const BYTES_MAX: usize = 1 << 20;
/// Few enough to look for a client among all.
const CLIENTS_MAX: usize = 64;
