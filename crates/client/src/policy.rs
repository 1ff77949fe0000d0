//! What becomes of requests while their server is away. Pure computation, without I/O and clock: both clients have it,
//! and others can.
//!
//! A [`Router`] says where the request of a key goes, and is told how it went. After
//! [`failure_limit`](CircuitBreaker::failure_limit) failures in a row a server is *ejected*: for a time nothing is sent
//! to it, so that it costs no more timeouts. Then a single probe finds out whether it is back; if not, the next one
//! waits twice as long.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use larder_client::policy::{CircuitBreaker, FailurePolicy, Route, Router};
//! use larder_client::{Distribution, Servers};
//!
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let servers: Servers = "10.0.1.1, 10.0.1.2, 10.0.1.3".parse()?;
//! let breaker = CircuitBreaker { failure_limit: 1, ..CircuitBreaker::default() };
//! let router = Router::new(&servers.0, Distribution::Ketama, FailurePolicy::Eject, Some(breaker));
//! let now = Instant::now();
//! let Route::Server(own) = router.route(b"colour", &[]) else { panic!("all are up") };
//! router.failed(own, now);
//! assert!(matches!(router.route(b"colour", &[]), Route::Server(other) if other != own));
//! assert_eq!(router.claim_probe(now), None);
//! assert_eq!(router.claim_probe(now + Duration::from_secs(1)), Some(own));
//! router.probed(own, true, now);
//! assert_eq!(router.route(b"colour", &[]), Route::Server(own));
//! # Ok(())
//! # }
//! # example().unwrap();
//! ```
//!
//! # What other clients call it
//!
//! | client | its options | here |
//! |---|---|---|
//! | libmemcached | `AUTO_EJECT_HOSTS`, `REMOVE_FAILED_SERVERS` | [`FailurePolicy::Eject`] |
//! | | `SERVER_FAILURE_LIMIT`, `RETRY_TIMEOUT`, `DEAD_TIMEOUT` | [`CircuitBreaker`] |
//! | twemproxy | `auto_eject_hosts`, `server_failure_limit`, `server_retry_timeout` | the same |
//! | spymemcached | `FailureMode.Redistribute` | [`FailurePolicy::Failover`] |
//! | | `FailureMode.Cancel` | [`FailurePolicy::Error`] |
//! | dalli, Whalin's client, PHP's memcache | `failover`, `allow_failover` | [`FailurePolicy::Failover`] |
//! | pymemcache | `ignore_exc` | [`FailurePolicy::Miss`], for reads |

mod breaker;
mod router;

use std::time::{Duration, Instant};

pub use router::{Route, Router};

use crate::{Error, Server};

/// What becomes of a request while its server is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailurePolicy {
    /// It fails.
    #[default]
    Error,
    /// A read finds nothing, as if the key did not exist; a change fails.
    Miss,
    /// The server leaves the placement until it is back, so that its keys go to the others. Values that are changed
    /// there meanwhile are old on the server that comes back.
    Eject,
    /// It goes to the next place of its key ([`Locator::failover`](crate::placement::Locator::failover)); a change only
    /// if nothing of it was sent. The servers stay in the placement. Values that are changed elsewhere meanwhile are
    /// old on the server that comes back.
    Failover,
}

impl FailurePolicy {
    /// The breaker where this one is set, or none.
    pub(crate) fn breaker(self, set: Option<CircuitBreaker>) -> Option<CircuitBreaker> {
        set.or_else(|| (self != Self::Error).then(CircuitBreaker::default))
    }

    /// True if such an error of a read is no error.
    pub(crate) fn hides(self, error: &Error) -> bool {
        let is_away = is_failure(error) || matches!(error, Error::Ejected(_) | Error::Interrupted(_));
        self == Self::Miss && is_away
    }
}

/// When a server is ejected, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitBreaker {
    /// So many failures in a row eject a server. At least 1. A failure is a connection that could not be opened, a
    /// request without a reply in time, a connection that broke, or a reply that breaks the protocol; not what
    /// finds no room in time on the client's side, for requests or for values that nobody takes.
    pub failure_limit: u32,
    /// The time until the first probe, at most: at least half of it, at random, so that many clients do not probe at
    /// once. Each probe that fails doubles it.
    pub retry_after: Duration,
    /// It grows to this.
    pub retry_after_max: Duration,
}

impl Default for CircuitBreaker {
    /// Two failures, as in twemproxy; a second, growing to a minute.
    fn default() -> Self {
        Self {
            failure_limit: 2,
            retry_after: Duration::from_secs(1),
            retry_after_max: Duration::from_secs(60),
        }
    }
}

/// Whether requests go to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// They do.
    Up,
    /// None do until a probe succeeds; it is due at this time.
    Ejected {
        /// When.
        until: Instant,
    },
    /// None do, and a probe is under way.
    Probing,
}

/// What is known of a server at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerState {
    /// The server.
    pub server: Server,
    /// Whether requests go to it.
    pub health: Health,
    /// Failures in a row.
    pub failures: u32,
    /// How often it was ejected.
    pub ejections: u64,
}

/// True if a server that answers so is away, or may be: this counts as a failure of it.
pub fn is_failure(error: &Error) -> bool {
    match error {
        Error::Unknown(reason) => is_failure(reason),
        Error::Connect(_) | Error::Io(_) | Error::Timeout | Error::Closed | Error::Violation(_) => true,
        _ => false,
    }
}
