//! A server over UDP.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::Counters;
use super::socket::{DatagramSocket, Received};
use crate::async_client::builder::Settings;
use crate::async_client::reply::{Answer, Found, Reply};
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
    /// Nothing came.
    Silence,
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
        let sent = timeout_at(deadline, async {
            let mut pipeline = Pipeline::new(protocol);
            let mut datagram = write_datagram(None, &mut pipeline, |pipeline, output| {
                request.write(pipeline, output, None)
            })?;
            let socket = self.socket().await.map_err(Error::Connect)?;
            let Some(ticket) = socket.ticket() else {
                *self.socket.lock().await = None;
                return Err(Error::Closed);
            };
            set_id(&mut datagram, ticket.id);
            socket.send(&datagram).await.map_err(Error::Io)
        });
        sent.await.unwrap_or(Err(Error::Timeout))?;
        Ok(Reply { answer: Answer::Sent, found: None, stats: Vec::new() })
    }

    /// Gets a key. `None`: there is no reply that could be used.
    pub(super) async fn get(&self, request: &Request, settings: &Settings, until: Instant) -> Option<Reply> {
        let now = Instant::now().into_std();
        let is_silent = self.reach.is_ejected(0);
        if is_silent && self.reach.claim_probe(now).is_none() {
            return None;
        }
        let asked = timeout_at(until, self.exchange(request, settings)).await;
        let now = Instant::now().into_std();
        match asked.unwrap_or(Err(Missed::Silence)) {
            Ok(reply) => {
                self.reach.succeeded(0);
                self.counters.answered.fetch_add(1, Ordering::Relaxed);
                Some(reply)
            }
            Err(Missed::Doubtful) => {
                self.reach.succeeded(0);
                None
            }
            Err(Missed::Silence) => {
                if is_silent {
                    self.reach.probed(0, false, now);
                } else {
                    self.reach.failed(0, now);
                }
                if self.reach.is_ejected(0) {
                    // Its name may have another address by now.
                    *self.socket.lock().await = None;
                }
                None
            }
        }
    }

    async fn exchange(&self, request: &Request, settings: &Settings) -> Result<Reply, Missed> {
        let _room = self.room.acquire().await.map_err(|_| Missed::Silence)?;
        // A challenge is met once.
        for _ in 0..2 {
            let socket = self.socket().await.map_err(|_| Missed::Silence)?;
            let Some(mut ticket) = socket.ticket() else {
                self.retire(&socket).await;
                continue;
            };
            let mut pipeline = Pipeline::with_opaques(settings.protocol);
            let write = |pipeline: &mut Pipeline<()>, output: &mut Vec<u8>| {
                request.write(pipeline, output, Some(()));
            };
            let mut datagram =
                write_datagram(socket.cookie(), &mut pipeline, write).map_err(|_| Missed::Doubtful)?;
            set_id(&mut datagram, ticket.id);
            self.counters.asked.fetch_add(1, Ordering::Relaxed);
            socket.send(&datagram).await.map_err(|_| Missed::Silence)?;
            match (&mut ticket.done).await {
                Ok(Received::Reply(bytes)) => {
                    return read(&mut pipeline, &bytes, settings.value_bytes_max).ok_or(Missed::Doubtful);
                }
                Ok(Received::Challenge) => {}
                Ok(Received::Doubtful) => return Err(Missed::Doubtful),
                Err(_) => return Err(Missed::Silence),
            }
        }
        Err(Missed::Doubtful)
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
                found = Some(Found { item: Item::of(&value), meta_flags: value.meta_flags.to_vec() });
            }
            Event::Done((), crate::codec::Outcome::Found { .. }) if rest.is_empty() => {
                return Some(Reply { answer: Answer::Found, found, stats: Vec::new() });
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
