//! A client that many tasks share: for services, on tokio.
//!
//! ```no_run
//! use std::time::Duration;
//! use larder_client::{AsyncClient, Servers};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let servers: Servers = "10.0.1.1, 10.0.1.2".parse()?;
//! let client = AsyncClient::builder().servers(servers).timeout(Duration::from_millis(200)).build();
//! client.set("colour", "green", Duration::from_secs(3600)).await?;
//!
//! // Cheap: all clones share the connections.
//! let other = client.clone();
//! let found = tokio::spawn(async move { other.get("colour").await }).await??;
//! assert_eq!(found.map(|item| item.value), Some(b"green".to_vec()));
//! # Ok(())
//! # }
//! ```
//!
//! # Connections
//!
//! A server has a few connections ([`AsyncBuilder::connections`]), and each carries the requests of many tasks, one
//! right after the other, without waiting for replies. What a connection holds is bounded: requests in flight, their
//! bytes, values that nobody has taken (but see [`GetMany`]), and the size of a value. Who finds no room waits for it,
//! within its time.
//!
//! # Never a wrong answer
//!
//! Replies are matched with requests by their order, and in the meta and binary protocols also by a number that each
//! request carries and its reply repeats. A connection is closed, and never used again, as soon as it is in doubt:
//!
//! - a request had no reply in time,
//! - a future was dropped after its request was or may have been sent, in the text protocol or of many keys,
//! - the server closed it in the middle of a reply, or sent what is no reply to the request,
//! - the server refused a request that it may have read only a part of.
//!
//! All other requests on that connection are then told ([`Error::Interrupted`]), and those that may be are sent again
//! on another one: reads, and changes of which nothing was sent. A change that was or may have been sent fails with
//! [`Error::Unknown`]: it may have been made, or may still be made. Every other error of a change says that it was not
//! made.
//!
//! What no number protects: lines that report an error, and the replies to `flush_all`, `flush_prefix`, `version` and
//! `stats`, have none in the meta protocol, and nothing has one in the text protocol, where values have their keys.
//!
//! # Cancelling
//!
//! Dropping a future is safe. If its request has been sent, a task takes the reply, which its number tells; if that
//! does not come within the time of the operation, the connection ends. In the text protocol, and for many keys, a
//! connection ends at once. Where such futures are dropped often, as at the end of a client of a web service, give the
//! operation a task of its own:
//!
//! ```no_run
//! # async fn example(client: larder_client::AsyncClient) -> Result<(), Box<dyn std::error::Error>> {
//! let found = tokio::spawn(async move { client.get("colour").await }).await??;
//! # Ok(())
//! # }
//! ```
//!
//! # What is slow to make, or read all the time
//!
//! [`AsyncClient::get_or_compute`] has a missing value computed by one of all tasks and processes that want it, and
//! [`AsyncBuilder::near_cache`] keeps values in the process.
//!
//! # Metrics and traces
//!
//! An [`Observer`] is told of each operation. With the feature `tracing` each is a span, with OpenTelemetry's names for
//! clients of databases. Neither has keys, values or words of a server, but for the key of a span where
//! `AsyncBuilder::trace_keys` asks for it. Without them an operation pays for a few comparisons.

mod arrival;
mod attempts;
mod batch;
mod builder;
mod bulk;
mod changes;
mod compute;
mod computed;
mod connection;
mod connector;
mod discovery;
mod driver;
mod end;
mod every_server;
mod flight;
mod get_many;
mod hooks;
mod key;
mod leases;
mod near_cache;
mod noreply;
mod observer;
mod pool;
mod reads;
mod recache;
mod replicas;
mod reply;
mod request;
mod servers;
mod share;
mod socket;
mod topology;
mod udp;
mod values;
mod warm_up;

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

pub use builder::AsyncBuilder;
use builder::Settings;
pub use changes::StoreOptions;
pub use computed::{ComputeError, ComputeOptions, Computed};
pub use connector::{Connecting, Connector, Transport};
pub use discovery::ServerWatch;
use flight::Flights;
pub use get_many::{BulkFailure, Found, GetMany};
use key::WireKey;
use leases::TakenLeases;
use near_cache::NearStore;
pub use near_cache::{Coherence, NearCache, NearCacheStats};
pub use noreply::Noreply;
pub use observer::{Computation, ComputationResult, Observer, Operation, Outcome};
pub use recache::{MetaItem, Recache};
pub use replicas::{ReadRule, Replication, WriteRule};
use reply::{Answer, Reply};
use request::Request;
use topology::Topology;
use udp::UdpServers;
pub use values::Values;

use crate::codec::{Protocol, Violation, ViolationKind};
use crate::{Address, Error};

/// A client of any number of servers. All clones share its connections, which are closed with the last of them.
///
/// Its futures run on tokio with time and I/O enabled, and each can be dropped at any time: see
/// [the module](crate::async_client).
///
/// Keys have 1 to 250 bytes, and neither spaces nor control characters: else [`Error::InvalidKey`], and nothing is
/// sent. Binary keys are possible in the binary protocol, and in the meta protocol up to 186 bytes: they are sent in
/// base64.
#[derive(Clone, Debug)]
pub struct AsyncClient {
    shared: Arc<Shared>,
    timeout: Duration,
}

#[derive(Debug)]
struct Shared {
    settings: Arc<Settings>,
    current: RwLock<Arc<TopologyEpoch>>,
    /// Who replaces `current` has it.
    setting: Mutex<()>,
    near: Option<Arc<NearStore>>,
    flights: Flights,
    leases: TakenLeases,
    udp: Option<UdpServers>,
}

/// The servers at a moment. While somebody has it, requests over them may be under way.
#[derive(Debug)]
struct TopologyEpoch {
    topology: Arc<Topology>,
    /// Closed with the last epoch.
    stay: Arc<watch::Sender<()>>,
}

impl Shared {
    /// For a request, which is made before this is dropped.
    fn enter(&self) -> Arc<TopologyEpoch> {
        // Nothing under the lock panics.
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// For what need not be waited for.
    fn topology(&self) -> Arc<Topology> {
        Arc::clone(&self.enter().topology)
    }
}

impl TopologyEpoch {
    fn new(topology: Topology) -> Arc<Self> {
        Arc::new(Self { topology: Arc::new(topology), stay: Arc::new(watch::Sender::new(())) })
    }
}

impl AsyncClient {
    /// A builder, with all settings at their defaults.
    pub fn builder() -> AsyncBuilder {
        AsyncBuilder::default()
    }

    /// A client of one server, with all other settings at their defaults.
    pub fn of(address: Address) -> Self {
        Self::builder().server(address).build()
    }

    /// The same client, with another limit for the time of each operation.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { shared: Arc::clone(&self.shared), timeout }
    }

    fn protocol(&self) -> Protocol {
        self.shared.settings.protocol
    }

    /// When an operation that begins now has to be over.
    fn deadline(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(self.timeout.min(TIMEOUT_MAX)).unwrap_or(now)
    }

    fn key(&self, key: &[u8]) -> Result<WireKey, Error> {
        WireKey::new(key, self.protocol())
    }

    /// Asks the server of a key. A refusal is an error.
    async fn ask(&self, key: &[u8], request: Request) -> Result<Reply, Error> {
        self.ask_until(self.deadline(), key, request, false).await
    }

    async fn ask_until(
        &self,
        deadline: Instant,
        key: &[u8],
        request: Request,
        is_quiet: bool,
    ) -> Result<Reply, Error> {
        if request.changes_value() {
            self.shared.flights.outdate(key, request.is_plain_set());
        }
        self.ask_hooked(deadline, key, request, is_quiet).await
    }

    async fn ask_servers(
        &self,
        deadline: Instant,
        key: &[u8],
        request: Request,
        is_quiet: bool,
    ) -> Result<Reply, Error> {
        let epoch = self.shared.enter();
        if let Some(udp) = &self.shared.udp {
            let asked = udp.ask(&epoch.topology, key, &request, is_quiet, deadline);
            if let Some(reply) = Box::pin(asked).await? {
                return Ok(reply);
            }
        }
        if let Some(replication) = self.shared.settings.replication {
            let asked = epoch.topology.ask_replicas(replication, key, request, is_quiet, deadline);
            return Box::pin(asked).await;
        }
        let request = Arc::new(request);
        if epoch.topology.warming().is_none() {
            return epoch.topology.ask(key, &request, is_quiet, deadline).await;
        }
        Box::pin(epoch.topology.ask_and_warm(key, &request, is_quiet, &epoch.stay, deadline)).await
    }
}

/// An answer that the codec does not give to such a request.
fn impossible() -> Error {
    Violation::new(ViolationKind::WrongForm, b"").into()
}

/// As good as no limit: tokio's clock counts to it everywhere.
const TIMEOUT_MAX: Duration = Duration::from_secs(60 * 60 * 24 * 365);
