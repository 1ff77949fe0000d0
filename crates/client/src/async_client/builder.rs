//! Settings of a client.

use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use super::connector::Connector;
use super::flight::Flights;
use super::leases::TakenLeases;
use super::near_cache::{NearCache, NearStore};
use super::observer::Observer;
use super::replicas::Replication;
use super::topology::Topology;
use super::udp::UdpServers;
use super::{AsyncClient, Shared, TopologyEpoch};
use crate::codec::Protocol;
use crate::policy::{CircuitBreaker, FailurePolicy, Router};
use crate::{Distribution, Login, Placement, Server, Servers, Tls, Udp};

/// Builds an [`AsyncClient`].
#[derive(Clone, Debug, Default)]
pub struct AsyncBuilder {
    servers: Vec<Server>,
    placement: Placement,
    policy: FailurePolicy,
    breaker: Option<CircuitBreaker>,
    udp: Option<Udp>,
    seed: Option<u64>,
    settings: Settings,
}

/// Settings for all servers.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub protocol: Protocol,
    pub timeout: Duration,
    pub connect_timeout: Duration,
    pub retries: u32,
    pub connections_max: usize,
    pub limits: Limits,
    pub value_bytes_max: usize,
    pub warm_up: Option<Duration>,
    pub replication: Option<Replication>,
    pub near_cache: Option<NearCache>,
    pub observer: Option<Arc<dyn Observer>>,
    #[cfg(feature = "tracing")]
    pub traces_keys: bool,
    pub tls: Option<Tls>,
    pub login: Option<Login>,
    pub connector: Option<Arc<dyn Connector>>,
}

/// What a connection holds at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Requests in flight or waiting to be sent.
    pub requests: usize,
    /// Bytes of these requests, and as many of values that nobody has taken.
    pub buffered_bytes: u32,
    /// Replies repeat the numbers of requests.
    pub has_numbers: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            protocol: Protocol::Meta,
            timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(1),
            retries: 2,
            connections_max: 2,
            limits: Limits { requests: 1024, buffered_bytes: 16 << 20, has_numbers: true },
            value_bytes_max: 64 << 20,
            warm_up: None,
            replication: None,
            near_cache: None,
            observer: None,
            #[cfg(feature = "tracing")]
            traces_keys: false,
            tls: None,
            login: None,
            connector: None,
        }
    }
}

impl AsyncBuilder {
    /// Adds a server.
    #[must_use]
    pub fn server(mut self, server: impl Into<Server>) -> Self {
        self.servers.push(server.into());
        self
    }

    /// Adds servers.
    #[must_use]
    pub fn servers(mut self, servers: Servers) -> Self {
        self.servers.extend(servers.0);
        self
    }

    /// Sets how keys are distributed over the servers. Default: [`Distribution::Modula`].
    #[must_use]
    pub fn distribution(self, distribution: Distribution) -> Self {
        self.placement(distribution)
    }

    /// Sets how keys are placed, as [another client](crate::placement) places them. It sets the distribution as well.
    #[must_use]
    pub fn placement(mut self, placement: impl Into<Placement>) -> Self {
        self.placement = placement.into();
        self
    }

    /// Sets what becomes of requests while their server is away. Default: [`FailurePolicy::Error`]. With any other a
    /// server that fails is ejected for a while, as [`AsyncBuilder::circuit_breaker`] says.
    #[must_use]
    pub fn failure_policy(mut self, policy: FailurePolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets when a server is ejected, and for how long, so that one that is away does not cost each request its time.
    /// Default: [`CircuitBreaker::default`] with a [failure policy](AsyncBuilder::failure_policy), and none without.
    /// The probe is the request `version`, aside from other requests. Futures that are dropped before their time tell
    /// nothing of a server: rather set [`AsyncBuilder::timeout`].
    #[must_use]
    pub fn circuit_breaker(mut self, breaker: CircuitBreaker) -> Self {
        self.breaker = Some(breaker);
        self
    }

    /// For so long after [`AsyncClient::set_servers`] values are looked for at the old places of keys as well, so that
    /// new servers do not begin with misses. Only in the meta protocol. Default: not at all.
    ///
    /// A get that finds nothing at the new place of a key moves the value from the old one, with its flags and the rest
    /// of its time to live. A change deletes at the old place first. An old server is asked no more after the first
    /// request to it has failed. So no old value is read by this client during the warm-up. A flush ends it. A key that
    /// returns to a server when a list shrinks again may be old there: flush such a server.
    ///
    /// Other processes should get the new list at about the same time: before all have it, a process with the old list
    /// reads and changes the old places alone. Nothing old comes back at the end if the lists of all changed within
    /// this time, since changes delete at the old place for twice the time; then the old servers are let go, with the
    /// next request. The time has to be the same for all, and the next list should come after twice the time.
    ///
    /// Processes that have the list are safe from each other, but for what no request of memcached's protocols can tie
    /// together, since it is at two servers. A value that one moves while another deletes it can be read until the
    /// first has looked at the old place once more: at most as long as the operation that moves it may take. If that
    /// second look fails, or its process dies before, the value stays, until it expires. An `add` whose reply is lost
    /// may come after a later delete. An old server that one process cannot reach and another can keeps what the first
    /// deletes, and so does one that left the list when it is flushed.
    #[must_use]
    pub fn warm_up(mut self, time: Duration) -> Self {
        self.settings.warm_up = Some(time).filter(|time| !time.is_zero());
        self
    }

    /// Keeps copies of each item on several servers. Default: one. In place of
    /// [`FailurePolicy::Eject`] and [`FailurePolicy::Failover`]: places of keys stay what they are, and those that are
    /// [ejected](AsyncBuilder::circuit_breaker) are left out. There is no warm-up with it. Changes that depend on the
    /// item need the meta protocol, or lose what the first place has lost: see [`Replication`].
    #[must_use]
    pub fn replication(mut self, replication: Replication) -> Self {
        self.settings.replication = Some(replication);
        self
    }

    /// Keeps values in the process as well. Default: none.
    #[must_use]
    pub fn near_cache(mut self, near_cache: NearCache) -> Self {
        self.settings.near_cache = Some(near_cache);
        self
    }

    /// Sets who is told how operations went. Default: nobody.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.settings.observer = Some(observer);
        self
    }

    /// Writes the key of an operation into its span, as `db.query.text`. Default: no span has a key, since keys may be
    /// secret. No span has a value.
    #[cfg(feature = "tracing")]
    #[must_use]
    pub fn trace_keys(mut self, traces_keys: bool) -> Self {
        self.settings.traces_keys = traces_keys;
        self
    }

    /// Sets the protocol. Default: [`Protocol::Meta`], for larderd and memcached 1.6.18 or later. memcached of
    /// early 2022 repeats no number where a key is missing, which is a violation here. For such servers:
    /// [`Protocol::Binary`], which numbers its requests as well, or [`Protocol::Text`].
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.settings.protocol = protocol;
        self.settings.limits.has_numbers = protocol != Protocol::Text;
        self
    }

    /// Limits the time of each operation: waiting for room, connecting, logging in, sending, waiting for the reply, and
    /// trying again. Default: 1 second. [`AsyncClient::with_timeout`] changes it for some operations.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Limits the time for opening a connection: name, TCP, TLS and login. Operations that wait for it keep to their
    /// own limit as well. Default: 1 second.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// Sets how often a request is sent again, within its time, if its connection ends: a read, or a change of which
    /// nothing was sent. Default: 2.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.settings.retries = retries;
        self
    }

    /// Sets how many connections a server has at most. More than one is opened only while requests are under way.
    /// Default: 2. At least 1.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Self {
        self.settings.connections_max = connections.max(1);
        self
    }

    /// Limits the requests that are in flight on a connection or wait to be sent; others wait for a place. Default:
    /// 1024. At least 1.
    #[must_use]
    pub fn requests_in_flight(mut self, requests: usize) -> Self {
        self.settings.limits.requests = requests.clamp(1, REQUESTS_MAX);
        self
    }

    /// Limits the bytes of the requests of a connection, so that others wait for room, and the bytes of values of gets
    /// of many keys that nobody has taken, so that nothing more is read. A larger request waits until it is alone.
    /// Default: 16 MiB. At least 64 KiB, and less than 512 MiB.
    #[must_use]
    pub fn buffered_bytes(mut self, bytes: usize) -> Self {
        let bytes = bytes.clamp(BUFFERED_BYTES_MIN, BUFFERED_BYTES_MAX);
        self.settings.limits.buffered_bytes = bytes as u32;
        self
    }

    /// Limits the size of a value that is sent or accepted. Default: 64 MiB.
    #[must_use]
    pub fn value_bytes_max(mut self, bytes: usize) -> Self {
        self.settings.value_bytes_max = bytes.min(VALUE_BYTES_MAX);
        self
    }

    /// Sends gets, or changes that nobody needs answers of, over UDP: see [`crate::udp`]. Default: all over TCP. Not
    /// with TLS, logins, connectors, copies and unix sockets, and [`Udp::FireAndForget`] not with
    /// [`AsyncBuilder::warm_up`], since deleted values would come back from old places: requests are
    /// [`Error::Unsupported`](crate::Error::Unsupported) then.
    #[must_use]
    pub fn udp(mut self, udp: Udp) -> Self {
        self.udp = Some(udp);
        self
    }

    /// Enables TLS.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.settings.tls = Some(tls);
        self
    }

    /// Sets a login for every connection: SASL's PLAIN in the binary protocol, else memcached's ASCII authentication.
    #[must_use]
    pub fn login(mut self, login: Login) -> Self {
        self.settings.login = Some(login);
        self
    }

    /// Sets what opens connections in place of the system. It has to encrypt by itself: with [`AsyncBuilder::tls`] as
    /// well, connecting fails. There is no [UDP](AsyncBuilder::udp) with it. Names of lists of servers are looked up by
    /// the system all the same.
    #[must_use]
    pub fn connector(mut self, connector: impl Connector + 'static) -> Self {
        self.settings.connector = Some(Arc::new(connector));
        self
    }

    /// Makes the time until a server is probed follow from this number, for runs that can be repeated.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Builds the client. It connects at the first request.
    pub fn build(self) -> AsyncClient {
        let breaker = self.policy.breaker(self.breaker);
        let router = Router::new(&self.servers, self.placement, self.policy, breaker);
        let udp = self.udp.map(UdpServers::new);
        let router = match self.seed {
            Some(seed) => router.seeded(seed),
            None => router,
        };
        let settings = Arc::new(self.settings);
        let timeout = settings.timeout;
        let near = settings.near_cache.map(|limits| Arc::new(NearStore::new(limits)));
        let mut topology = Topology::new(router, Arc::clone(&settings), &[]);
        topology.near.clone_from(&near);
        let current = RwLock::new(TopologyEpoch::new(topology));
        let (flights, leases) = (Flights::default(), TakenLeases::default());
        let shared = Shared { settings, current, setting: Mutex::default(), near, flights, leases, udp };
        AsyncClient { shared: Arc::new(shared), timeout }
    }
}

/// What a semaphore can count everywhere: 32-bit machines have 2^29 - 1.
const REQUESTS_MAX: usize = (1 << 29) - 1;
/// See [`REQUESTS_MAX`].
const BUFFERED_BYTES_MAX: usize = (1 << 29) - 1;
/// The longest request of many keys fits.
const BUFFERED_BYTES_MIN: usize = 64 << 10;
/// What every protocol can announce.
const VALUE_BYTES_MAX: usize = 1 << 30;
