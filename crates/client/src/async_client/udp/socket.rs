//! A UDP socket that many gets share.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_protocol::udp::{COOKIE_MARK, DATAGRAM_BYTES_MAX, Header, split_cookie};
use tokio::net::UdpSocket;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::Counters;
use crate::udp::{Doubtful, Message};

/// A socket connected to a server, and the gets that wait for datagrams on it. A number is used once: a datagram that
/// comes late finds nobody. When all are used, the next socket has another port.
#[derive(Debug)]
pub(super) struct DatagramSocket {
    shared: Arc<Shared>,
    receiver: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    socket: UdpSocket,
    state: Mutex<State>,
    counters: Arc<Counters>,
}

#[derive(Debug)]
struct State {
    waiting: HashMap<u16, Waiting>,
    next_id: u16,
    ids_left: u32,
    cookie: Option<u64>,
}

#[derive(Debug)]
struct Waiting {
    message: Message,
    done: oneshot::Sender<Received>,
}

/// What came of a get.
#[derive(Debug)]
pub(super) enum Received {
    /// The bytes of a reply.
    Reply(Vec<u8>),
    /// larderd wants the request with its cookie.
    Challenge,
    /// Something that is not to be used.
    Doubtful,
}

/// The right to the datagrams of a number. Dropped, they are of nobody.
#[derive(Debug)]
pub(super) struct Ticket {
    shared: Arc<Shared>,
    pub id: u16,
    pub done: oneshot::Receiver<Received>,
}

impl DatagramSocket {
    /// Any local port; the system passes on datagrams of this server alone.
    pub(super) async fn open(server: SocketAddr, counters: Arc<Counters>) -> io::Result<Self> {
        let any: SocketAddr = if server.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
        let socket = UdpSocket::bind(any).await?;
        socket.connect(server).await?;
        // Not guessable by those who could forge the server's address.
        let next_id = crate::discovery::random() as u16;
        let state = Mutex::new(State { waiting: HashMap::new(), next_id, ids_left: 1 << 16, cookie: None });
        let shared = Arc::new(Shared { socket, state, counters });
        let receiver = tokio::spawn(receive(Arc::clone(&shared))).abort_handle();
        Ok(Self { shared, receiver })
    }

    /// A number that no other request of this socket has had. `None`: there are no more, or nobody receives.
    pub(super) fn number(&self) -> Option<u16> {
        if self.receiver.is_finished() { None } else { self.shared.state().number() }
    }

    /// The same, with the right to the datagrams of that number.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        if self.receiver.is_finished() {
            return None;
        }
        let (sender, done) = oneshot::channel();
        let mut state = self.shared.state();
        let id = state.number()?;
        state.waiting.insert(id, Waiting { message: Message::default(), done: sender });
        drop(state);
        Some(Ticket { shared: Arc::clone(&self.shared), id, done })
    }

    pub(super) fn cookie(&self) -> Option<u64> {
        self.shared.state().cookie
    }

    /// Sends a datagram. An error that an earlier one has met is not its own.
    pub(super) async fn send(&self, datagram: &[u8]) -> io::Result<()> {
        match self.shared.socket.send(datagram).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.shared.socket.send(datagram).await.map(drop)
            }
            sent => sent.map(drop),
        }
    }
}

impl Drop for DatagramSocket {
    fn drop(&mut self) {
        self.receiver.abort();
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.shared.state().waiting.remove(&self.id);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, datagram: &[u8]) {
        let mut state = self.state();
        let split = Header::split(datagram);
        let Some((header, payload)) =
            split.filter(|(header, _)| state.waiting.contains_key(&header.request_id))
        else {
            self.counters.stray.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if header.reserved == COOKIE_MARK
            && header.total == 0
            && let Some((cookie, _)) = split_cookie(payload)
        {
            state.cookie = Some(cookie);
            return state.answer(header.request_id, Received::Challenge);
        }
        let Some(waiting) = state.waiting.get_mut(&header.request_id) else { return };
        match waiting.message.take(header, payload) {
            Ok(None) => {}
            Ok(Some(reply)) => state.answer(header.request_id, Received::Reply(reply)),
            Err(Doubtful) => state.answer(header.request_id, Received::Doubtful),
        }
    }
}

impl State {
    fn number(&mut self) -> Option<u16> {
        self.ids_left = self.ids_left.checked_sub(1)?;
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        Some(id)
    }

    fn answer(&mut self, id: u16, received: Received) {
        if let Some(waiting) = self.waiting.remove(&id) {
            let _ = waiting.done.send(received);
        }
    }
}

async fn receive(shared: Arc<Shared>) {
    // A longer one is longer than any of memcached's, and is seen to be.
    let mut buffer = [0; DATAGRAM_BYTES_MAX + 1];
    loop {
        match shared.socket.recv(&mut buffer).await {
            Ok(bytes) => shared.take(&buffer[..bytes]),
            // Nobody listens there: who waits need not wait longer.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => shared.state().waiting.clear(),
            Err(_) => break,
        }
    }
    shared.state().waiting.clear();
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[tokio::test]
    async fn a_number_is_used_once() {
        let server = UdpSocket::bind("127.0.0.1:0").await.expect("a port is free");
        let server = server.local_addr().expect("it is bound");
        let socket = DatagramSocket::open(server, Arc::default()).await.expect("it is local");
        let ids: HashSet<_> =
            std::iter::repeat_with(|| socket.ticket()).map_while(|ticket| Some(ticket?.id)).collect();
        assert_eq!(ids.len(), 1 << 16);
        assert!(socket.ticket().is_none() && socket.shared.state().waiting.is_empty());
    }
}
