//! The client that tasks share ([`AsyncClient`]), simulated: the same run each time.
//!
//! What runs is the client's own code and the server's, in one thread, on tokio's paused clock, which goes on when
//! nobody has anything to do. Between them is a network of the simulator's ([`network`]): a [`Connector`] takes the
//! place of sockets. By the seed it delays, cuts and resets connections, is silent, refuses, and repeats and swaps
//! replies.
//!
//! Each value is written once. So of every answer it is known which changes it may come from ([`history`]): one that
//! was not told as not made, and that no other change which has been acknowledged since comes after. Numbers are
//! counted up by one: each acknowledgement shows another, and in the end they have counted each change that was
//! acknowledged, and none that was told as not made. No operation goes on after its deadline, to the millisecond.
//!
//! Some seeds are of several processes whose lists of servers change ([`warm_up`]).
//!
//! [`Connector`]: larder_client::async_client::Connector
//! [`network`]: self::network
//! [`history`]: self::history
//! [`warm_up`]: self::warm_up

mod history;
mod network;
mod plan;
mod reply;
mod scenario;
mod server;
mod task;
mod warm_up;
mod wire;

use std::ops::AddAssign;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::{Either, select};
use larder_client::async_client::AsyncBuilder;
use larder_client::policy::CircuitBreaker;
use larder_client::{AsyncClient, FailurePolicy, Ttl};
use larder_seeds::{Failure, Trace};
use tokio::time::Instant;

pub use self::scenario::{Bug, ClientScenario};

use self::history::{History, counter_name, key_name};
use self::network::{Counts, Log, Network, address};
use self::task::{Task, Verdict};
use self::wire::{Board, SimConnector};
use crate::backing::lock;

/// What a run did, if nothing was wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// What tasks asked.
    pub totals: Totals,
    /// Connections.
    pub connections: u64,
    /// Bytes that arrived, and connections that opened or ended.
    pub events: u64,
    /// Stands for all that happened: equal runs have equal ones.
    pub digest: u64,
}

/// Operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// All of them.
    pub operations: u64,
    /// With an answer.
    pub right: u64,
    /// With an error.
    pub failed: u64,
    /// Dropped.
    pub cancelled: u64,
}

impl AddAssign for Run {
    fn add_assign(&mut self, other: Self) {
        let Self { totals, connections, events, digest } = other;
        self.totals.operations += totals.operations;
        self.totals.right += totals.right;
        self.totals.failed += totals.failed;
        self.totals.cancelled += totals.cancelled;
        self.connections += connections;
        self.events += events;
        self.digest ^= digest;
    }
}

/// Runs a scenario to its end. Errors: the first thing that is wrong.
fn run(scenario: &ClientScenario, trace: Option<Trace<'_>>) -> Result<Run, Failure> {
    let log = Log(trace.is_some().then(Arc::default));
    let failed = |step: u64, what: String| Failure { seed: scenario.seed, step, what };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| failed(0, format!("there is no runtime: {error}")))?;
    let (counts, result) = runtime.block_on(async {
        let network = match Network::new(scenario, log.clone()) {
            Ok(network) => network,
            Err(error) => return (Arc::default(), Err(format!("a server does not start: {error}"))),
        };
        let counts = Arc::clone(&network.counts);
        let asked = Box::pin(ask(scenario, network.board(), Arc::clone(&counts), log.clone()));
        let result = match select(asked, Box::pin(network.run())).await {
            Either::Left((result, _)) => result,
            Either::Right(((), _)) => Err("the network ends".to_owned()),
        };
        (counts, result)
    });
    if let (Some(trace), Some(lines)) = (trace, &log.0) {
        lock(lines).iter().for_each(|line| trace(format_args!("{line}")));
    }
    let counts = lock(&counts);
    match result {
        Ok(totals) if counts.evictions == 0 => {
            Ok(Run { totals, connections: counts.links, events: counts.events, digest: counts.digest })
        }
        Ok(_) => Err(failed(counts.events, "the servers are too small".to_owned())),
        Err(what) => Err(failed(counts.events, what)),
    }
}

/// All that the tasks ask, and what is true in the end.
async fn ask(
    scenario: &ClientScenario,
    board: Arc<Board>,
    counts: Arc<Mutex<Counts>>,
    log: Log,
) -> Result<Totals, String> {
    if scenario.processes > 1 {
        return warm_up::ask_in_turn(scenario, &board, log).await;
    }
    let hides_values = scenario.policy == FailurePolicy::Miss;
    let history = History::new(scenario.keys, scenario.moves_keys(), hides_values);
    let started = Instant::now();
    let client = builder(scenario, &board).build();
    let all = Task {
        number: 0,
        scenario: Arc::new(scenario.clone()),
        client,
        history: Arc::new(Mutex::new(history)),
        totals: Arc::default(),
        log,
        started,
    };
    let patient = builder(scenario, &board).failure_policy(FailurePolicy::Error).timeout(MINUTE);
    let patient = patient.connect_timeout(MINUTE).build();
    for key in 0..scenario.keys {
        let stored = patient.set(counter_name(key), "0", Ttl::Never).await;
        stored.map_err(|error| format!("nothing can be stored: {error}"))?;
    }
    lock(&counts).is_faulty = true;
    let mut rng = Rng::with_seed(scenario.seed ^ 0x9E37_79B9_7F4A_7C15);
    let tasks: Vec<_> = (0..scenario.tasks)
        .map(|number| tokio::spawn(Task { number, ..all.clone() }.run(rng.fork())))
        .collect();
    for task in tasks {
        task.await.map_err(|error| format!("a task panics: {error}"))??;
    }
    lock(&counts).is_faulty = false;
    // All that is under way arrives.
    tokio::time::sleep(MINUTE).await;
    let last = Task { client: patient.clone(), ..all.clone() };
    for key in 0..scenario.keys {
        if last.get(key).await? != Verdict::Right {
            return Err(format!("{} cannot be read in the end", key_name(key)));
        }
        let shown = patient.incr(counter_name(key), 0).await;
        let shown = shown.map_err(|error| format!("no counter can be read in the end: {error}"))?;
        let shown = shown.ok_or_else(|| format!("{} is gone", counter_name(key)))?;
        lock(&all.history).check_counter(key, shown)?;
    }
    let totals = *lock(&all.totals);
    Ok(totals)
}

fn builder(scenario: &ClientScenario, board: &Arc<Board>) -> AsyncBuilder {
    let extra = if scenario.has(Bug::LateTimeout) { Duration::from_millis(20) } else { Duration::ZERO };
    let short = scenario.timeout / 4;
    let breaker = CircuitBreaker { failure_limit: 3, retry_after: short, retry_after_max: short };
    let mut builder = AsyncClient::builder()
        .protocol(scenario.protocol)
        .failure_policy(scenario.policy)
        .connections(scenario.connections_max)
        .timeout(scenario.timeout + extra)
        .connect_timeout(scenario.timeout)
        .connector(SimConnector(Arc::clone(board)))
        .seed(scenario.seed);
    if scenario.policy != FailurePolicy::Error {
        builder = builder.circuit_breaker(breaker);
    }
    (0..scenario.servers).fold(builder, |builder, server| builder.server(address(server)))
}

const MINUTE: Duration = Duration::from_secs(60);
