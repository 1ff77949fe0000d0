//! Servers, which of them are away, and where keys go meanwhile.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::breaker::Breaker;
use super::{CircuitBreaker, FailurePolicy, ServerState, is_failure};
use crate::placement::{Locator, Placement};
use crate::{Error, Server, split_mix};

/// Servers, which of them are away, and where keys go meanwhile. While all is well it costs no lock.
#[derive(Debug)]
pub struct Router {
    servers: Arc<[Server]>,
    locator: Locator,
    policy: FailurePolicy,
    settings: Option<CircuitBreaker>,
    /// A server has failed, and has not succeeded since.
    is_troubled: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    breakers: Vec<Breaker>,
    /// The placement without those that are ejected. `None`: none is.
    live: Option<Locator>,
    random: u64,
}

/// Where the request of a key goes. Numbers are positions in the list of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Route {
    /// To this server.
    Server(usize),
    /// Nowhere: this server of the key is ejected, and the policy has no other.
    Ejected(usize),
    /// Nowhere: the key has no server.
    Nowhere,
}

impl Router {
    /// All servers are up. Without a circuit breaker they always are.
    pub fn new(
        servers: &[Server],
        placement: impl Into<Placement>,
        policy: FailurePolicy,
        breaker: Option<CircuitBreaker>,
    ) -> Self {
        let state = State {
            breakers: vec![Breaker::default(); servers.len()],
            live: None,
            random: RandomState::new().build_hasher().finish(),
        };
        Self {
            servers: servers.into(),
            locator: Locator::new(servers, placement),
            policy,
            settings: breaker,
            is_troubled: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    /// The same with a seed for the time until probes, for runs that can be repeated.
    #[must_use]
    pub fn seeded(self, seed: u64) -> Self {
        self.state().random = seed;
        self
    }

    /// The same over other servers. What is known of a server is known still, by its address.
    #[must_use]
    pub fn with_servers(&self, servers: &[Server]) -> Self {
        let new = Self::new(servers, self.locator.placement().clone(), self.policy, self.settings);
        {
            let (old, mut state) = (self.state(), new.state());
            state.random = old.random.wrapping_add(1);
            for (server, breaker) in servers.iter().zip(&mut state.breakers) {
                let known = self.servers.iter().position(|known| known.address == server.address);
                if let Some(known) = known.and_then(|position| old.breakers.get(position)) {
                    *breaker = match &self.settings {
                        Some(settings) => known.without_probe(settings),
                        None => known.clone(),
                    };
                }
            }
            new.note(&mut state);
        }
        new
    }

    /// The servers, in order.
    pub fn servers(&self) -> &Arc<[Server]> {
        &self.servers
    }

    /// The placement of all servers.
    pub fn locator(&self) -> &Locator {
        &self.locator
    }

    /// What becomes of requests while their server is away.
    pub fn policy(&self) -> FailurePolicy {
        self.policy
    }

    /// Where the request of a key goes, after it has failed at these servers.
    #[inline]
    pub fn route(&self, key: &[u8], failed: &[usize]) -> Route {
        if failed.is_empty() && !self.is_troubled() {
            return self.locator.server_of(key).map_or(Route::Nowhere, Route::Server);
        }
        let state = self.state();
        let is_ejected = |server: usize| state.breakers.get(server).is_some_and(Breaker::is_ejected);
        let own = || self.locator.server_of(key);
        let found = match self.policy {
            FailurePolicy::Error | FailurePolicy::Miss => own().filter(|server| !is_ejected(*server)),
            FailurePolicy::Eject => state.live.as_ref().unwrap_or(&self.locator).server_of(key),
            FailurePolicy::Failover => {
                self.locator.failover(key).find(|server| !failed.contains(server) && !is_ejected(*server))
            }
        };
        match found {
            Some(server) => Route::Server(server),
            None => own().map_or(Route::Nowhere, Route::Ejected),
        }
    }

    /// True: nothing is to be sent to this server but a probe.
    pub fn is_ejected(&self, server: usize) -> bool {
        self.is_troubled() && self.state().breakers.get(server).is_some_and(Breaker::is_ejected)
    }

    /// False: nothing has failed. No probe can be due then.
    pub fn is_troubled(&self) -> bool {
        self.is_troubled.load(Ordering::Relaxed)
    }

    /// A server that the caller is to probe now, and nobody else: by a request that changes nothing, whose result it
    /// tells [`Router::probed`].
    pub fn claim_probe(&self, now: Instant) -> Option<usize> {
        if !self.is_troubled() {
            return None;
        }
        let settings = self.settings?;
        let mut state = self.state();
        let due = |(server, breaker): (usize, &Breaker)| Some((breaker.due(now)?, server));
        // Each has its turn, even if the first is due again before each request.
        let (_, server) = state.breakers.iter().enumerate().filter_map(due).min()?;
        state.breakers.get_mut(server)?.claim_probe(&settings, now).then_some(server)
    }

    /// Tells of the result of a probe.
    pub fn probed(&self, server: usize, is_up: bool, now: Instant) {
        let Some(settings) = self.settings else { return };
        if is_up {
            return self.succeeded(server);
        }
        let mut state = self.state();
        let chance = state.chance();
        if let Some(breaker) = state.breakers.get_mut(server) {
            breaker.probe_failed(&settings, now, chance);
        }
    }

    /// Tells of a probe that was given up, without a result. Requests are sent again; the first that fails ejects.
    pub fn probe_lost(&self, server: usize) {
        let mut state = self.state();
        if let Some(breaker) = state.breakers.get_mut(server) {
            breaker.probe_lost();
            self.note(&mut state);
        }
    }

    /// Tells of a request that a server has answered. A refusal is an answer.
    pub fn succeeded(&self, server: usize) {
        if !self.is_troubled() {
            return;
        }
        let mut state = self.state();
        if let Some(breaker) = state.breakers.get_mut(server)
            && !breaker.is_untroubled()
        {
            breaker.succeed();
            self.note(&mut state);
        }
    }

    /// Tells of a request by what came of it.
    pub(crate) fn told(&self, server: usize, asked: Result<(), &Error>) {
        match asked {
            Ok(()) => self.succeeded(server),
            Err(error) if is_failure(error) => self.failed(server, Instant::now()),
            Err(_) => {}
        }
    }

    /// Tells of a request that failed because its server is away: [`is_failure`].
    pub fn failed(&self, server: usize, now: Instant) {
        let Some(settings) = self.settings else { return };
        let mut state = self.state();
        let chance = state.chance();
        let Some(breaker) = state.breakers.get_mut(server) else { return };
        if breaker.fail(&settings, now, chance) {
            self.note(&mut state);
        }
        self.is_troubled.store(true, Ordering::Relaxed);
    }

    /// What is known of each server, in order.
    pub fn snapshot(&self) -> Vec<ServerState> {
        let state = self.state();
        let of = |(server, breaker): (&Server, &Breaker)| ServerState {
            server: server.clone(),
            health: breaker.health(),
            failures: breaker.failures,
            ejections: breaker.ejections,
        };
        self.servers.iter().zip(&state.breakers).map(of).collect()
    }

    /// Rebuilds the placement without the ejected servers.
    fn note(&self, state: &mut State) {
        let is_ejected = |(position, breaker): (usize, &Breaker)| breaker.is_ejected().then_some(position);
        let ejected: Vec<_> = state.breakers.iter().enumerate().filter_map(is_ejected).collect();
        let has_ring = self.policy == FailurePolicy::Eject && !ejected.is_empty();
        state.live = has_ring.then(|| self.locator.without(&ejected));
        self.is_troubled.store(!state.breakers.iter().all(Breaker::is_untroubled), Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A number from 0 to 1.
    fn chance(&mut self) -> f64 {
        split_mix::next(&mut self.random) as f64 / u64::MAX as f64
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Distribution, Servers};

    fn router(policy: FailurePolicy) -> Router {
        let servers: Servers = "a,b,c,d".parse().expect("servers");
        let breaker = CircuitBreaker { failure_limit: 1, ..CircuitBreaker::default() };
        Router::new(&servers.0, Distribution::Ketama, policy, Some(breaker)).seeded(1)
    }

    fn own(router: &Router, key: &str) -> usize {
        router.locator().server_of(key.as_bytes()).expect("there are servers")
    }

    fn keys() -> impl Iterator<Item = String> {
        (0..1000).map(|n| format!("key:{n}"))
    }

    #[test]
    fn an_ejected_server_is_as_one_that_is_not_there() {
        let router = router(FailurePolicy::Eject);
        let now = Instant::now();
        router.failed(1, now);
        let others = router.locator().without(&[1]);
        for key in keys() {
            let expected = others.server_of(key.as_bytes()).map_or(Route::Nowhere, Route::Server);
            assert_eq!(router.route(key.as_bytes(), &[]), expected);
        }
        // All are away: the own server of the key is named.
        [0, 2, 3].iter().for_each(|server| router.failed(*server, now));
        assert_eq!(router.route(b"k", &[]), Route::Ejected(own(&router, "k")));
        (0..4).for_each(|server| router.succeeded(server));
        assert!(!router.is_troubled());
        assert_eq!(router.route(b"k", &[]), Route::Server(own(&router, "k")));
    }

    #[test]
    fn failover_moves_only_keys_of_servers_that_are_away() {
        let router = router(FailurePolicy::Failover);
        router.failed(1, Instant::now());
        for key in keys() {
            let (own, route) = (own(&router, &key), router.route(key.as_bytes(), &[]));
            assert!(matches!(route, Route::Server(server) if (server == own) == (own != 1)), "{route:?}");
            let Route::Server(first) = route else { continue };
            let second = router.route(key.as_bytes(), &[first]);
            assert!(matches!(second, Route::Server(server) if server != first && server != 1), "{second:?}");
        }
        assert_eq!(router.route(b"k", &[0, 2, 3]), Route::Ejected(own(&router, "k")));
    }

    #[test]
    fn other_policies_wait_for_the_server() {
        for policy in [FailurePolicy::Error, FailurePolicy::Miss] {
            let router = router(policy);
            router.failed(1, Instant::now());
            for key in keys() {
                let own = own(&router, &key);
                let expected = if own == 1 { Route::Ejected(1) } else { Route::Server(own) };
                assert_eq!(router.route(key.as_bytes(), &[]), expected);
            }
        }
    }

    #[test]
    fn what_is_known_of_a_server_outlives_a_change_of_the_list() {
        let old = router(FailurePolicy::Eject);
        let now = Instant::now();
        old.failed(1, now);
        let servers: Servers = "b,e,a".parse().expect("servers");
        let new = old.with_servers(&servers.0);
        let failures: Vec<_> = new.snapshot().iter().map(|state| state.failures).collect();
        assert_eq!(failures, [1, 0, 0]);
        assert!((0..100).all(|n| new.route(format!("{n}").as_bytes(), &[]) != Route::Server(0)));
        assert_eq!(new.claim_probe(now + Duration::from_secs(1)), Some(0));
    }

    #[test]
    fn the_probe_that_is_due_longest_comes_first() {
        let router = router(FailurePolicy::Eject);
        let mut now = Instant::now();
        [0, 1].iter().for_each(|server| router.failed(*server, now));
        let claimed = [(); 4].map(|()| {
            // All are due.
            now += Duration::from_secs(600);
            let server = router.claim_probe(now).expect("one is due");
            router.probed(server, false, now);
            server
        });
        assert!(claimed[0] != claimed[1] && claimed[..2] == claimed[2..], "{claimed:?}");
    }

    #[test]
    fn without_a_breaker_nothing_is_ever_away() {
        let servers: Servers = "a".parse().expect("servers");
        let router = Router::new(&servers.0, Distribution::Modula, FailurePolicy::Error, None);
        (0..100).for_each(|_| router.failed(0, Instant::now()));
        assert_eq!(router.route(b"k", &[]), Route::Server(0));
    }
}
