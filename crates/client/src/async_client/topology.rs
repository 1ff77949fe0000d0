//! The servers of a client at a moment, and the requests of keys to them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::attempts::Attempts;
use super::builder::Settings;
use super::near_cache::NearStore;
use super::observer;
use super::pool::Pool;
use super::reply::{Answer, Failure, Reply};
use super::request::Request;
use super::share::Delivery;
use super::warm_up::WarmUp;
use crate::policy::{FailurePolicy, Route, Router, is_failure};
use crate::{Error, Server};

/// The servers of a client at a moment.
#[derive(Debug)]
pub(super) struct Topology {
    pub router: Router,
    /// One for each server, in order.
    pub pools: Vec<Arc<Pool>>,
    pub warm_up: Option<WarmUp>,
    pub settings: Arc<Settings>,
    pub near: Option<Arc<NearStore>>,
}

impl Topology {
    /// Connections to servers that `known` has as well stay open.
    pub(super) fn new(router: Router, settings: Arc<Settings>, known: &[Arc<Pool>]) -> Self {
        let pool = |server: &Server| {
            let same = known.iter().find(|pool| pool.address == server.address);
            let new = || Arc::new(Pool::new(server.address.clone(), Arc::clone(&settings)));
            same.map_or_else(new, Arc::clone)
        };
        let pools = router.servers().iter().map(pool).collect();
        Self { router, pools, warm_up: None, settings, near: None }
    }

    /// A key is asked of this server. A near cache watches the key's own alone: what another one says, which may be old
    /// and changes unseen, is not kept.
    pub(super) fn note_place(&self, key: &[u8], server: usize) {
        if let Some(near) = self.near.as_ref().filter(|near| near.is_watching())
            && self.router.locator().server_of(key) != Some(server)
        {
            near.invalidate(key);
        }
    }

    /// Asks the server of a key, or another one if the policy says so. A refusal is an error.
    pub(super) async fn ask(
        self: &Arc<Self>,
        key: &[u8],
        request: &Arc<Request>,
        is_quiet: bool,
        deadline: Instant,
    ) -> Result<Reply, Error> {
        let asked = self.ask_one(key, request, is_quiet, deadline).await;
        match asked {
            Err(error) if self.hides(&error) && request.is_plain_get() => Ok(Reply::miss()),
            asked => asked,
        }
    }

    async fn ask_one(
        self: &Arc<Self>,
        key: &[u8],
        request: &Arc<Request>,
        is_quiet: bool,
        deadline: Instant,
    ) -> Result<Reply, Error> {
        let mut attempts = Attempts::new(self.settings.retries, request.is_read());
        loop {
            let server = self.route(key, &mut attempts)?;
            self.note_place(key, server);
            match self.ask_server(server, request, is_quiet, None, deadline).await {
                Ok(Reply { answer: Answer::Refused(kind, text), .. }) => {
                    return Err(Error::Refused { kind, text });
                }
                Ok(reply) => return Ok(reply),
                Err(failure) => self.again(&mut attempts, server, failure, deadline)?,
            }
        }
    }

    /// Asks a server, whatever its state.
    pub(super) async fn ask_directly(
        &self,
        server: usize,
        request: Request,
        deadline: Instant,
    ) -> Result<Reply, Error> {
        self.ask_until(server, &Arc::new(request), false, deadline).await
    }

    /// Asks a server, unless it is ejected.
    pub(super) async fn ask_place(
        &self,
        server: usize,
        request: &Arc<Request>,
        is_quiet: bool,
        deadline: Instant,
    ) -> Result<Reply, Error> {
        if self.router.is_ejected(server) {
            return Err(Error::Ejected(self.pools[server].address.clone()));
        }
        self.ask_until(server, request, is_quiet, deadline).await
    }

    async fn ask_until(
        &self,
        server: usize,
        request: &Arc<Request>,
        is_quiet: bool,
        deadline: Instant,
    ) -> Result<Reply, Error> {
        let mut attempts = Attempts::new(self.settings.retries, request.is_read());
        loop {
            match self.ask_server(server, request, is_quiet, None, deadline).await {
                Ok(Reply { answer: Answer::Refused(kind, text), .. }) => {
                    return Err(Error::Refused { kind, text });
                }
                Ok(reply) => return Ok(reply),
                Err(failure) => attempts.again(failure)?,
            }
        }
    }

    /// The server that a key's next attempt goes to.
    pub(super) fn route(self: &Arc<Self>, key: &[u8], attempts: &mut Attempts) -> Result<usize, Error> {
        self.probe();
        self.route_now(key, attempts)
    }

    /// [`Topology::route`], without a look for probes that are due.
    #[inline]
    pub(super) fn route_now(&self, key: &[u8], attempts: &mut Attempts) -> Result<usize, Error> {
        match self.router.route(key, &attempts.failed) {
            Route::Server(server) => Ok(server),
            // What came of the last one says more.
            Route::Ejected(server) => Err(attempts
                .last
                .take()
                .unwrap_or_else(|| Error::Ejected(self.pools[server].address.clone()))),
            Route::Nowhere => Err(Error::NoServers),
        }
    }

    /// Once, and notes how it went.
    pub(super) async fn ask_server(
        &self,
        server: usize,
        request: &Arc<Request>,
        is_quiet: bool,
        values: Option<Delivery>,
        deadline: Instant,
    ) -> Result<Reply, Failure> {
        if self.settings.is_observed() {
            observer::asked(&self.pools[server].address);
        }
        let asked = self.pools[server].ask(request, is_quiet, values, deadline).await;
        match &asked {
            Ok(_) => self.router.succeeded(server),
            Err(failure) if failure.counts => self.router.failed(server, Instant::now().into_std()),
            Err(_) => {}
        }
        asked
    }

    /// Whether a request that has failed at a server may be sent again, there or elsewhere: see [`Attempts::again`].
    pub(super) fn again(
        &self,
        attempts: &mut Attempts,
        server: usize,
        failure: Failure,
        deadline: Instant,
    ) -> Result<(), Error> {
        let may_move = self.router.policy() == FailurePolicy::Failover && Instant::now() < deadline;
        if may_move && is_failure(&failure.error) {
            attempts.elsewhere(server, failure)
        } else {
            attempts.again(failure)
        }
    }

    /// True if such an error of a read is no error.
    pub(super) fn hides(&self, error: &Error) -> bool {
        self.router.policy().hides(error)
    }

    /// Finds out whether servers are back, aside from the requests.
    pub(super) fn probe(self: &Arc<Self>) {
        if !self.router.is_troubled() {
            return;
        }
        if let Some(server) = self.router.claim_probe(Instant::now().into_std()) {
            let mut probe = Probe { topology: Arc::clone(self), server, is_told: false };
            tokio::spawn(async move { probe.make().await });
        }
    }
}

/// A probe that is under way. Its runtime may end before it, or end with each call.
struct Probe {
    topology: Arc<Topology>,
    server: usize,
    is_told: bool,
}

impl Probe {
    async fn make(&mut self) {
        let Topology { router, pools, settings, .. } = &*self.topology;
        let deadline = Instant::now() + settings.timeout.min(PROBE_TIME_MAX);
        let asked = pools[self.server].ask(&Arc::new(Request::Version), false, None, deadline).await;
        router.probed(self.server, asked.is_ok(), Instant::now().into_std());
        self.is_told = true;
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if !self.is_told {
            self.topology.router.probe_lost(self.server);
        }
    }
}

/// So long a probe waits at most.
const PROBE_TIME_MAX: Duration = Duration::from_secs(30);
