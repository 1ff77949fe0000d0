//! Requests over UDP, and gets that fall back to TCP.

mod server;
mod socket;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use server::UdpServer;
use tokio::time::Instant;

use super::AsyncClient;
use super::builder::Settings;
use super::reply::Reply;
use super::request::Request;
use super::topology::Topology;
use crate::policy::Route;
use crate::udp::{Udp, UdpCounts};
use crate::{Address, Error, Server};

/// The UDP of a client.
#[derive(Debug)]
pub(super) struct UdpServers {
    mode: Udp,
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
    pub(super) fn new(mode: Udp) -> Self {
        Self { mode, known: Mutex::default(), counters: Arc::default() }
    }

    /// Checks whether a client of these servers, with these settings, can have UDP.
    pub(super) fn check(&self, servers: &[Server], settings: &Settings) -> Result<(), Error> {
        let reason = if settings.tls.is_some() || settings.login.is_some() {
            "there are neither TLS nor logins over UDP"
        } else if settings.connector.is_some() {
            "datagrams of UDP do not go through a connector"
        } else if settings.replication.is_some() {
            "there are no copies over UDP"
        } else if settings.warm_up.is_some() && self.mode == Udp::FireAndForget {
            // Whether the old place has deleted a key has to be known before the new one gets it.
            "there is no warm-up with changes over UDP"
        } else {
            return Self::check_list(servers);
        };
        Err(Error::Unsupported(reason))
    }

    /// Checks a list of servers.
    pub(super) fn check_list(servers: &[Server]) -> Result<(), Error> {
        let has_unix = servers.iter().any(|server| matches!(server.address, Address::Unix(_)));
        let reason = "a client over UDP has no unix sockets";
        if has_unix { Err(Error::Unsupported(reason)) } else { Ok(()) }
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
        self.check(topology.router.servers(), &topology.settings)?;
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
        topology: &Topology,
        server: usize,
        request: &Request,
        deadline: Instant,
    ) -> Result<Option<Reply>, Error> {
        self.check(topology.router.servers(), &topology.settings)?;
        match self.mode {
            Udp::Gets { .. } => Ok(None),
            Udp::FireAndForget if matches!(request, Request::FlushAll { .. }) => {
                let server = self.server(&topology.pools[server].address);
                server.send(request, topology.settings.protocol, deadline).await.map(Some)
            }
            Udp::FireAndForget => Err(Error::Unsupported(ANSWERLESS)),
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

const ANSWERLESS: &str = "this client sends over UDP and receives nothing: what needs an answer needs a client over \
     TCP, and other changes go by `noreply`";
