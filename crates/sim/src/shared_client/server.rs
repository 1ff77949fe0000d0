//! A larderd without a store, which executes what arrives.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fastrand::Rng;
use larder_engine::LargePages;
use larder_server::clock::Clock;
use larder_server::conn::parked::Parked;
use larder_server::conn::session::Next;
use larder_server::namespaces::{self, NamespacesFile, Plan, WarmCaches};
use larder_server::observe::measure::Measured;
use larder_server::shared::Shared;
use larder_server::startup::settings::Settings;

use crate::site::Worker;
use crate::socket::Socket;

pub(super) struct Server {
    shared: Arc<Shared>,
    worker: Worker,
    nanos: Arc<AtomicU64>,
}

impl Server {
    pub(super) fn start(seed: u64) -> io::Result<Self> {
        let settings = Settings {
            threads: 1,
            memory_bytes: MEMORY_BYTES,
            measured: Measured::default(),
            large_pages: LargePages::Never,
            ..Settings::default()
        };
        let refused = |refusal: larder_server::startup::options::Refusal| io::Error::other(refusal.message);
        let nanos = Arc::new(AtomicU64::new(FIRST_NANOS));
        let clock = Arc::new(Clock::simulated(START_UNIX, Arc::clone(&nanos)));
        let file = NamespacesFile::read(&settings).map_err(refused)?;
        let plan = Plan::new(file, &settings, &settings.engine_config([seed, 1])).map_err(refused)?;
        let built = namespaces::build(plan, &settings, None, WarmCaches::default()).map_err(refused)?;
        let shared = Arc::new(Shared::new(built, settings, clock)?);
        let no_handle = || io::Error::other("no engine handle left");
        let handles = shared.namespaces.handles_of(0).ok_or_else(no_handle)?;
        let worker = Worker { handles, recorder: shared.recorder(0), parked: Parked::default() };
        Ok(Self { shared, worker, nanos })
    }

    /// The server's end of a connection.
    pub(super) fn accept(&self, number: usize) -> Socket {
        Socket::new(0, number, self.shared.clock.now().secs)
    }

    /// Executes all that the socket has received. Returns what it answers, and whether the connection goes on.
    pub(super) fn execute(&mut self, socket: &mut Socket, rng: &mut Rng, time: Duration) -> (Vec<u8>, bool) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.store(FIRST_NANOS.saturating_add(nanos), Relaxed);
        let mut replies = Vec::new();
        loop {
            let (next, sent) = socket.exchange(&self.shared, &mut self.worker, rng, true, |_| {});
            replies.extend(sent);
            match next {
                Next::Read if socket.inbox.is_empty() && socket.connection.poll_output().is_none() => {
                    return (replies, true);
                }
                Next::Read | Next::Send | Next::Wait(_) => {}
                Next::Close(_) | Next::Watch(_) => return (replies, false),
            }
        }
    }

    pub(super) fn evictions(&self) -> u64 {
        self.shared.namespaces.stats().evictions
    }
}

/// All values fit.
const MEMORY_BYTES: u64 = 4 << 20;
const FIRST_NANOS: u64 = 1_000_000_000;
/// In 2027.
const START_UNIX: Duration = Duration::from_secs(1_800_000_000);
