//! The result of a run: exact counts, histograms, failures by kind, and the cost on both sides.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::scenario::{Kind, Scenario};

/// A finished run.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Outcome {
    /// The load.
    pub scenario: Scenario,
    /// Wall clock at the start, seconds since 1970.
    pub started_unix_secs: u64,
    /// From the end of the warm-up to the last reply, and at least `until.secs` if that ended the run.
    pub elapsed_secs: f64,
    /// The whole run.
    pub total: Tally,
    /// Period by period.
    pub periods: Vec<Period>,
    /// One for each server, in the order of the scenario.
    pub servers: Vec<ServerCost>,
    /// The cost of the load itself.
    pub client: ClientCost,
    /// Where the load ran: [`Environment::here`].
    #[serde(default)]
    pub environment: Environment,
}

/// Figures of one period.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Period {
    /// Since the start of the run.
    pub begins_secs: f64,
    /// Its length.
    pub secs: f64,
    /// Counts and histograms of the period.
    pub tally: Tally,
    /// CPU seconds that all servers used in it. `None` if the CPU of one of them cannot be
    /// read (another machine, for instance).
    pub server_cpu_secs: Option<f64>,
}

/// Counts and histograms. [`Tally::add`] adds those of threads, machines and periods.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Tally {
    /// By command.
    pub commands: BTreeMap<Kind, CommandTally>,
    /// By kind. Empty without failures.
    pub failures: BTreeMap<Failure, u64>,
    /// The first few as messages: at most [`EXAMPLES_MAX`].
    pub examples: Vec<String>,
    /// Connections that were opened again, for any reason.
    pub reconnects: u64,
    /// Connection attempts that had to be repeated before the run.
    pub connect_retries: u64,
    /// Bytes sent to the servers.
    pub sent_bytes: u64,
    /// Bytes received from them.
    pub received_bytes: u64,
    /// UDP: requests without a reply.
    pub datagrams_lost: u64,
    /// UDP: datagrams of a reply that overtook another.
    pub datagrams_disordered: u64,
    /// Open loop: requests that were sent later than planned by more than a millisecond because no connection was free.
    pub sent_late: u64,
    /// Open loop: requests that were sent late although a connection was free, because the load generator was late.
    pub client_late: u64,
    /// Open loop: requests that were due and never sent, since no connection was free until the end. They are in no
    /// histogram, so the percentiles of a run with such requests are too low.
    pub unsent: u64,
    /// Values that were checked. Values of keys that this run has not stored are not checked.
    pub verified: u64,
    /// Gets with a checked expiry.
    pub expiry_verified: u64,
    /// Keys that were compared between replicas.
    pub compared: u64,
}

/// Failures that are kept as examples.
pub const EXAMPLES_MAX: usize = 20;

/// Figures of one command.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct CommandTally {
    /// Requests that were answered, or sent if they have no reply. A get of n keys is one.
    pub requests: u64,
    /// Requested keys: n for a get of n keys.
    pub keys: u64,
    /// Keys that were found, for commands that look them up.
    pub hits: u64,
    /// Keys that were not.
    pub misses: u64,
    /// Bytes of values, sent or received.
    pub value_bytes: u64,
    /// Nanoseconds from when a request was due (open loop) or sent (closed) to the last byte of its reply; three
    /// significant digits, up to [`LATENCY_MAX_NANOS`].
    #[serde(with = "crate::report::histogram")]
    pub latency_nanos: Histogram<u64>,
    /// Nanoseconds from when it was sent: in an open loop, the server's part.
    #[serde(with = "crate::report::histogram")]
    pub service_nanos: Histogram<u64>,
}

/// The greatest latency in a histogram: an hour.
pub const LATENCY_MAX_NANOS: u64 = 3_600_000_000_000;

/// Kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// `SERVER_ERROR`, `CLIENT_ERROR`, `ERROR`, or a binary status that is not a normal outcome.
    ErrorReply,
    /// `SERVER_ERROR out of memory ...` or binary 0x82.
    OutOfMemory,
    /// Bytes that are not a reply to the request: another key, another form, or no request was sent.
    Protocol,
    /// No reply for `truth.timeout_secs`.
    Timeout,
    /// The server closed the connection.
    Closed,
    /// A connection could not be opened.
    Connect,
    /// A value that was never stored: wrong key, checksum, length or flags.
    WrongValue,
    /// A value older than one that was acknowledged before the request.
    StaleValue,
    /// A key that must exist is missing.
    Lost,
    /// Found after its expiry.
    ExpiredLate,
    /// Missing before its expiry.
    ExpiredEarly,
    /// Replicas differ.
    ReplicasDiffer,
}

/// Resources that a server used during a run, from its /proc and its `stats`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct ServerCost {
    /// As in the scenario.
    pub address: String,
    /// Its reply to `version`.
    pub version: String,
    /// The program and its version, `larderd 0.1.0`; what it replies to `version` if the program is not known.
    #[serde(default)]
    pub software: String,
    /// User and system CPU seconds of the run without its warm-up. From /proc if it runs here, else from `stats`.
    pub cpu_user_secs: Option<f64>,
    /// See `cpu_user_secs`.
    pub cpu_system_secs: Option<f64>,
    /// Resident bytes at the end, if it runs here.
    pub resident_bytes: Option<u64>,
    /// Page faults of the run, minor and major ones, if it runs here.
    #[serde(default)]
    pub page_faults: Option<u64>,
    /// Why a field is missing.
    #[serde(default)]
    pub unwatched: Option<String>,
    /// Every numeric `stats` line that changed: its increase.
    pub stats_deltas: BTreeMap<String, f64>,
}

/// Resources that the load itself used.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct ClientCost {
    /// Load threads.
    pub threads: usize,
    /// Their total CPU seconds.
    pub cpu_secs: f64,
    /// The busiest thread's CPU seconds divided by the run's length: near 1, the client was the limit.
    pub busiest_thread_share: f64,
    /// CPU time that everything on this machine used, as a share of all of its processors: at 1, nothing was left.
    /// `None`: not known.
    #[serde(default)]
    pub host_cpu_share: Option<f64>,
    /// Requests a second that this client reached against the floor server with the same scenario, if measured.
    pub floor_requests_per_sec: Option<f64>,
    /// Warnings, if the client was the limit.
    pub warnings: Vec<String>,
}

impl CommandTally {
    /// An empty tally.
    pub fn new() -> Self {
        let histogram = || {
            // It grows as needed, because a long run has one for each period. The library supports three digits.
            Histogram::new(3).unwrap_or_else(|_| unreachable!())
        };
        Self {
            requests: 0,
            keys: 0,
            hits: 0,
            misses: 0,
            value_bytes: 0,
            latency_nanos: histogram(),
            service_nanos: histogram(),
        }
    }

    /// Adds another tally.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.keys += other.keys;
        self.hits += other.hits;
        self.misses += other.misses;
        self.value_bytes += other.value_bytes;
        // One read from a report does not grow by default. If it may, nothing is out of range.
        self.latency_nanos.auto(true);
        self.service_nanos.auto(true);
        let _ = self.latency_nanos.add(&other.latency_nanos);
        let _ = self.service_nanos.add(&other.service_nanos);
    }
}

impl Default for CommandTally {
    fn default() -> Self {
        Self::new()
    }
}

impl Tally {
    /// Adds another tally.
    pub fn add(&mut self, other: &Self) {
        for (&kind, figures) in &other.commands {
            self.commands.entry(kind).or_default().add(figures);
        }
        for (&failure, count) in &other.failures {
            *self.failures.entry(failure).or_default() += count;
        }
        let room = EXAMPLES_MAX.saturating_sub(self.examples.len());
        self.examples.extend(other.examples.iter().take(room).cloned());
        self.reconnects += other.reconnects;
        self.connect_retries += other.connect_retries;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.datagrams_lost += other.datagrams_lost;
        self.datagrams_disordered += other.datagrams_disordered;
        self.sent_late += other.sent_late;
        self.client_late += other.client_late;
        self.unsent += other.unsent;
        self.verified += other.verified;
        self.expiry_verified += other.expiry_verified;
        self.compared += other.compared;
    }

    /// All commands together.
    pub fn all(&self) -> CommandTally {
        let mut all = CommandTally::new();
        for figures in self.commands.values() {
            all.add(figures);
        }
        all
    }

    /// Requests of all commands together, a get of n keys counted as n.
    pub fn operations(&self) -> u64 {
        self.commands.values().map(|figures| figures.requests.max(figures.keys)).sum()
    }

    /// True if a check failed.
    pub fn has_failed(&self) -> bool {
        self.failures.values().any(|&count| count > 0)
    }
}

/// Observes a run: the live screen, or an agent that reports to its collector.
pub trait Watcher {
    /// One of several runs begins: a server's turn in a round (from 1), or a step of a sweep or a search.
    fn turn(&mut self, _server: &str, _round: usize, _rounds: usize) {}

    /// The phase has changed or progressed.
    fn phase(&mut self, phase: Phase);

    /// Everything is connected, stored and warmed up; the clock starts when this returns.
    fn ready(&mut self) {}

    /// A period is over. `so_far`: the run until now, including this period.
    fn period(&mut self, period: &Period, so_far: &Tally);
}

/// No observer.
impl Watcher for () {
    fn phase(&mut self, _phase: Phase) {}

    fn period(&mut self, _period: &Period, _so_far: &Tally) {}
}

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Opens connections, logs in, flushes if asked for.
    Connecting,
    /// Stores every key once.
    Filling {
        /// Keys stored.
        done: u64,
        /// Keys to store.
        of: u64,
    },
    /// Sends load without counting.
    WarmingUp,
    /// Sends load and counts.
    Running,
    /// Compares replicas at the end.
    Checking,
}
