//! Requests over UDP, and gets that fall back to TCP.

mod server;
mod socket;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use server::UdpServer;
use tokio::time::Instant;

use super::builder::Settings;
use super::reply::{Answer, Reply};
use super::request::Request;
use super::topology::Topology;
use super::{AsyncClient, impossible};
use crate::policy::Route;
use crate::udp::{Udp, UdpCounts, refusal};
use crate::{Address, Error, Server};

/// The UDP of a client.
#[derive(Debug)]
pub(super) struct UdpServers {
    mode: Udp,
    refusal: Option<&'static str>,
    known: Mutex<HashMap<Address, Arc<UdpServer>>>,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    asked: AtomicU64,
    answered: AtomicU64,
    stray: AtomicU64,
}

impl AsyncClient {
    /// What became of gets over UDP so far.
    pub fn udp_counts(&self) -> UdpCounts {
        self.shared.udp.as_ref().map_or_else(UdpCounts::default, |udp| udp.counters.get())
    }

    /// True if changes whose answers nobody needs are sent without a reply.
    pub(super) fn is_fire_and_forget(&self) -> bool {
        self.shared.udp.as_ref().is_some_and(|udp| udp.mode == Udp::FireAndForget)
    }
}

impl UdpServers {
    pub(super) fn new(mode: Udp, servers: &[Server], settings: &Settings) -> Self {
        let mut refusal = refusal(servers, settings.tls.as_ref(), settings.login.as_ref());
        if settings.replication.is_some() {
            refusal = refusal.or(Some("there are no copies over UDP"));
        }
        if settings.warm_up.is_some() && mode == Udp::FireAndForget {
            // Whether the old place has deleted a key has to be known before the new one gets it.
            refusal = refusal.or(Some("there is no warm-up with changes over UDP"));
        }
        Self { mode, refusal, known: Mutex::default(), counters: Arc::default() }
    }

    /// Checks another list of servers.
    pub(super) fn check(servers: &[Server]) -> Result<(), Error> {
        refusal(servers, None, None).map_or(Ok(()), |reason| Err(Error::Unsupported(reason)))
    }

    /// Forgets servers that are not in the list.
    pub(super) fn keep(&self, servers: &[Server]) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|address, _| servers.iter().any(|server| server.address == *address));
    }

    /// Asks the server of a key. `None`: TCP is to be asked.
    pub(super) async fn ask(
        &self,
        topology: &Topology,
        key: &[u8],
        request: &Request,
        is_quiet: bool,
        deadline: Instant,
    ) -> Result<Option<Reply>, Error> {
        if let Some(reason) = self.refusal {
            return Err(Error::Unsupported(reason));
        }
        let server = match topology.router.route(key, &[]) {
            Route::Server(position) => {
                topology.pools.get(position).map(|pool| (position, self.server(&pool.address)))
            }
            _ => None,
        };
        match self.mode {
            Udp::FireAndForget => {
                if !is_quiet {
                    return Err(Error::Unsupported(ANSWERLESS));
                }
                let (_, server) = server.ok_or(Error::NoServers)?;
                server.send(request, topology.settings.protocol, deadline).await.map(Some)
            }
            Udp::Gets { wait } => {
                let Some((position, server)) = server.filter(|_| !is_quiet && request.is_plain_get()) else {
                    return Ok(None);
                };
                topology.note_place(key, position);
                // TCP needs time as well.
                let now = Instant::now();
                let until = now + deadline.saturating_duration_since(now) / 2;
                let reply = server.get(request, &topology.settings, wait, until).await;
                let is_final = |reply: &Reply| reply.found.is_some() || !topology.may_be_at_old_place(key);
                Ok(reply.filter(is_final))
            }
        }
    }

    /// Sends a request to every server, if none has to be answered. `None`: TCP is to be asked.
    pub(super) async fn ask_server(
        &self,
        address: &Address,
        request: &Request,
        settings: &Settings,
        deadline: Instant,
    ) -> Result<Option<Reply>, Error> {
        match (self.refusal, self.mode) {
            (Some(reason), _) => Err(Error::Unsupported(reason)),
            (None, Udp::Gets { .. }) => Ok(None),
            (None, Udp::FireAndForget) if matches!(request, Request::FlushAll { .. }) => {
                self.server(address).send(request, settings.protocol, deadline).await.map(Some)
            }
            (None, Udp::FireAndForget) => Err(Error::Unsupported(ANSWERLESS)),
        }
    }

    fn server(&self, address: &Address) -> Arc<UdpServer> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = known.get(address) {
            return Arc::clone(server);
        }
        let server = Arc::new(UdpServer::new(address.clone(), Arc::clone(&self.counters)));
        known.insert(address.clone(), Arc::clone(&server));
        server
    }
}

impl Counters {
    fn get(&self) -> UdpCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        UdpCounts { asked: of(&self.asked), answered: of(&self.answered), stray: of(&self.stray) }
    }
}

/// Of a change that may have gone without a reply: it was made, or sent.
pub(super) fn made_or_sent(reply: &Reply, made: impl Fn(&Answer) -> bool) -> Result<(), Error> {
    if matches!(reply.answer, Answer::Sent) || made(&reply.answer) { Ok(()) } else { Err(impossible()) }
}

const ANSWERLESS: &str = "this client sends over UDP and receives nothing: what needs an answer needs a client over \
     TCP, and other changes go by `noreply`";
