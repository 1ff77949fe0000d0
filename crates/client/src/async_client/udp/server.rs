//! A server over UDP.

use std::io::ErrorKind::ConnectionRefused;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::Counters;
use super::socket::{DatagramSocket, Received};
use crate::async_client::builder::Settings;
use crate::async_client::reply::{Answer, FoundItem, Reply};
use crate::async_client::request::Request;
use crate::client::Item;
use crate::codec::{Event, Pipeline, Protocol};
use crate::policy::{CircuitBreaker, FailurePolicy, Router};
use crate::udp::{set_id, write_datagram};
use crate::{Address, Distribution, Error};

/// A server over UDP. What it is asked at once is bounded, and so are the datagrams that are kept.
#[derive(Debug)]
pub(super) struct UdpServer {
    address: Address,
    socket: Mutex<Option<Arc<DatagramSocket>>>,
    /// Which of the addresses of the host is next.
    turn: AtomicUsize,
    room: Semaphore,
    /// Whether anything comes back from it.
    reach: Router,
    counters: Arc<Counters>,
}

/// Why a get has no reply.
enum Missed {
    /// It was sent, and nothing came in the full wait, or nobody listens there.
    Silence,
    /// It was not sent, or its time was over before: this says nothing of the server.
    Untold,
    /// The server said what TCP has to clear up.
    Doubtful,
}

impl UdpServer {
    pub(super) fn new(address: Address, counters: Arc<Counters>) -> Self {
        let reach =
            Router::new(&[address.clone().into()], Distribution::Modula, FailurePolicy::Error, Some(SILENCE));
        Self {
            address,
            socket: Mutex::default(),
            turn: AtomicUsize::new(0),
            room: Semaphore::new(GETS_AT_ONCE),
            reach,
            counters,
        }
    }

    /// Sends a request that nobody answers.
    pub(super) async fn send(
        &self,
        request: &Request,
        protocol: Protocol,
        deadline: Instant,
    ) -> Result<Reply, Error> {
        let mut pipeline = Pipeline::new(protocol);
        let number = |socket: &DatagramSocket| socket.number().map(|id| (id, ()));
        let sent = timeout_at(deadline, self.send_numbered(request, &mut pipeline, None, number));
        sent.await.unwrap_or(Err(Error::Timeout))?;
        Ok(Reply::of(Answer::Sent))
    }

    /// Gets a key. `None`: there is no reply that could be used. `wait`: for the datagram to be sent, and then for the
    /// reply, both until `until` at the most.
    pub(super) async fn get(
        &self,
        request: &Request,
        settings: &Settings,
        wait: Duration,
        until: Instant,
    ) -> Option<Reply> {
        let _room = self.room.try_acquire().ok()?;
        let is_silent = self.reach.is_ejected(0);
        if is_silent && self.reach.claim_probe(Instant::now().into_std()).is_none() {
            return None;
        }
        let asked = self.exchange(request, settings, wait, until).await;
        let now = Instant::now().into_std();
        match asked {
            Ok(reply) => {
                self.reach.succeeded(0);
                self.counters.answered.fetch_add(1, Ordering::Relaxed);
                return Some(reply);
            }
            Err(Missed::Doubtful) => self.reach.succeeded(0),
            Err(_) if is_silent => self.reach.probed(0, false, now),
            Err(Missed::Silence) => self.reach.failed(0, now),
            Err(Missed::Untold) => {}
        }
        if self.reach.is_ejected(0)
            && let Ok(mut current) = self.socket.try_lock()
        {
            // Its name may have another address by now.
            *current = None;
        }
        None
    }

    async fn exchange(
        &self,
        request: &Request,
        settings: &Settings,
        wait: Duration,
        until: Instant,
    ) -> Result<Reply, Missed> {
        let end = |begin: Instant| begin.checked_add(wait).map_or(until, |end| end.min(until));
        // Less is the fault of who has so little time.
        let full_wait = wait.min(settings.timeout / 4);
        // A challenge is met once.
        for _ in 0..2 {
            let mut pipeline = Pipeline::with_opaques(settings.protocol);
            let number = |socket: &DatagramSocket| socket.ticket().map(|ticket| (ticket.id, ticket));
            let sent = self.send_numbered(request, &mut pipeline, Some(()), number);
            // The receiver ends with the socket.
            let (_socket, mut ticket) = match timeout_at(end(Instant::now()), sent).await {
                Ok(Ok(sent)) => sent,
                Ok(Err(Error::Io(error))) if error.kind() == ConnectionRefused => {
                    return Err(Missed::Silence);
                }
                Ok(Err(_)) | Err(_) => return Err(Missed::Untold),
            };
            self.counters.asked.fetch_add(1, Ordering::Relaxed);
            let sent_at = Instant::now();
            match timeout_at(end(sent_at), &mut ticket.done).await {
                Ok(Ok(Received::Reply(bytes))) => {
                    return read(&mut pipeline, &bytes, settings.value_bytes_max).ok_or(Missed::Doubtful);
                }
                Ok(Ok(Received::Challenge)) => {}
                Ok(Ok(Received::Doubtful)) => return Err(Missed::Doubtful),
                Err(_) if sent_at.elapsed() < full_wait => return Err(Missed::Untold),
                Ok(Err(_)) | Err(_) => return Err(Missed::Silence),
            }
        }
        Err(Missed::Doubtful)
    }

    /// Sends a request as one datagram. `number` takes its number from a socket, with what is to be kept; `None`: the
    /// socket has no more.
    async fn send_numbered<N>(
        &self,
        request: &Request,
        pipeline: &mut Pipeline<()>,
        tag: Option<()>,
        number: impl Fn(&DatagramSocket) -> Option<(u16, N)>,
    ) -> Result<(Arc<DatagramSocket>, N), Error> {
        loop {
            let socket = self.socket().await.map_err(Error::Connect)?;
            let Some((id, kept)) = number(&socket) else {
                self.retire(&socket).await;
                continue;
            };
            let write =
                |pipeline: &mut Pipeline<()>, output: &mut Vec<u8>| request.write(pipeline, output, tag);
            let mut datagram = write_datagram(socket.cookie(), pipeline, write)?;
            set_id(&mut datagram, id);
            if let Err(error) = socket.send(&datagram).await {
                self.retire(&socket).await;
                return Err(Error::Io(error));
            }
            return Ok((socket, kept));
        }
    }

    /// The socket for the next request.
    async fn socket(&self) -> std::io::Result<Arc<DatagramSocket>> {
        let mut current = self.socket.lock().await;
        if let Some(socket) = &*current {
            return Ok(Arc::clone(socket));
        }
        let Address::Inet { host, port } = &self.address else {
            return Err(std::io::ErrorKind::Unsupported.into());
        };
        let mut addresses: Vec<_> = lookup_host((host.as_str(), *port)).await?.collect();
        if addresses.is_empty() {
            return Err(std::io::ErrorKind::NotFound.into());
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % addresses.len();
        let socket =
            Arc::new(DatagramSocket::open(addresses.swap_remove(turn), Arc::clone(&self.counters)).await?);
        *current = Some(Arc::clone(&socket));
        Ok(socket)
    }

    /// The next request has another socket than this one.
    async fn retire(&self, socket: &Arc<DatagramSocket>) {
        let mut current = self.socket.lock().await;
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, socket)) {
            *current = None;
        }
    }
}

/// The reply to a get, which these bytes are and nothing more. `None`: they are not, or say that the get has failed.
fn read(pipeline: &mut Pipeline<()>, bytes: &[u8], value_bytes_max: usize) -> Option<Reply> {
    let mut rest = bytes;
    let mut found = None;
    loop {
        match pipeline.receive(&mut rest).ok()?? {
            Event::Value(value) if value.bytes.len() <= value_bytes_max => {
                found = Some(FoundItem { item: Item::of(&value), meta_flags: value.meta_flags.to_vec() });
            }
            Event::Done((), crate::codec::Outcome::Found { .. }) if rest.is_empty() => {
                return Some(Reply { found, ..Reply::miss() });
            }
            _ => return None,
        }
    }
}

/// Gets of a server that are under way: their replies fit into a socket's buffer, if they are small.
const GETS_AT_ONCE: usize = 64;
/// After so many gets without any reply TCP alone is asked for a while: no network loses so much.
const SILENCE: CircuitBreaker = CircuitBreaker {
    failure_limit: 8,
    retry_after: Duration::from_secs(1),
    retry_after_max: Duration::from_secs(60),
};

#[cfg(test)]
mod tests {
    use tokio::net::UdpSocket;

    use super::*;

    #[tokio::test]
    async fn changes_go_on_when_all_numbers_of_a_socket_are_used() {
        let listener = UdpSocket::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound").to_string().parse().expect("an address");
        let server = UdpServer::new(address, Arc::default());
        let first = server.socket().await.expect("it is local");
        while first.number().is_some() {}
        let deadline = Instant::now() + Duration::from_secs(60);
        let flush = Request::FlushAll { delay_secs: 0 };
        let sent = server.send(&flush, Protocol::Text, deadline).await;
        assert!(matches!(sent, Ok(Reply { answer: Answer::Sent, .. })), "{sent:?}");
        let mut datagram = [0; 100];
        let (bytes, _) = listener.recv_from(&mut datagram).await.expect("it was sent");
        assert_eq!(datagram[8..bytes], *b"flush_all noreply\r\n");
        assert!(!Arc::ptr_eq(&first, &server.socket().await.expect("it is local")));
    }
}
