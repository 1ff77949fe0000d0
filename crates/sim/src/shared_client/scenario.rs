//! What is simulated, as a seed has it.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use larder_client::{FailurePolicy, Protocol};
use larder_seeds::{Failure, Trace};

use super::{Run, run};
use crate::rng::Choose as _;

/// A bug on purpose, planted around the client, not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A connection is used again after a timeout or a cancelled future.
    ReusedConnection,
    /// The number of a reply is not compared with that of its request.
    UncheckedOpaque,
    /// What was sent is sent again, although it is a change.
    RepeatedChange,
    /// An operation goes on after its deadline.
    LateTimeout,
    /// A change that may have been made is told as not made.
    CertainFailure,
    /// The warm-up of one process is far shorter than that of the others.
    ShortWarmUp,
}

impl larder_seeds::Bug for Bug {
    const ALL: &'static [Self] = &[
        Self::ReusedConnection,
        Self::UncheckedOpaque,
        Self::RepeatedChange,
        Self::LateTimeout,
        Self::CertainFailure,
        Self::ShortWarmUp,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::ReusedConnection => "reused-connection",
            Self::UncheckedOpaque => "unchecked-opaque",
            Self::RepeatedChange => "repeated-change",
            Self::LateTimeout => "late-timeout",
            Self::CertainFailure => "certain-failure",
            Self::ShortWarmUp => "short-warm-up",
        }
    }
}

/// Tasks that share a client, a network, and servers.
#[derive(Clone, Debug)]
pub struct ClientScenario {
    /// The seed of all choices.
    pub seed: u64,
    /// Of the client.
    pub protocol: Protocol,
    /// Of the client.
    pub policy: FailurePolicy,
    /// Servers, each a larderd without a store.
    pub servers: usize,
    /// Tasks.
    pub tasks: usize,
    /// Operations of each task.
    pub operations: u32,
    /// Keys with values, and as many with numbers.
    pub keys: usize,
    /// Connections to a server.
    pub connections_max: usize,
    /// Of an operation.
    pub timeout: Duration,
    /// The longest time that bytes are under way, if nothing is wrong.
    pub latency_ms: u64,
    /// One connection in a hundred of these is cut, silent, or has late or repeated replies.
    pub faults_percent: u32,
    /// Futures are dropped.
    pub cancels: bool,
    /// Processes, each with a client of its own. With more than one, their lists of servers change, with a warm-up, and
    /// nothing else is wrong.
    pub processes: usize,
    /// A planted bug.
    pub bug: Option<Bug>,
}

impl larder_seeds::Scenario for ClientScenario {
    type Bug = Bug;
    type Run = Run;

    const COMMAND: &str = "cargo run -p larder-sim --example client --";

    fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let policies =
            [FailurePolicy::Error, FailurePolicy::Eject, FailurePolicy::Failover, FailurePolicy::Miss];
        let servers = rng.usize(1..=3);
        let processes = if rng.percent(10) { rng.usize(2..=3) } else { 1 };
        let policy =
            if processes > 1 || rng.percent(60) { FailurePolicy::Error } else { policies[rng.usize(..4)] };
        Self {
            seed,
            // Only the meta protocol has a warm-up.
            protocol: match rng.u32(..4) {
                _ if processes > 1 => Protocol::Meta,
                0 => Protocol::Binary,
                1 => Protocol::Text,
                _ => Protocol::Meta,
            },
            policy,
            servers: if processes > 1 { servers + 1 } else { servers },
            tasks: rng.usize(2..=5),
            operations: rng.u32(12..=18),
            keys: rng.usize(1..=5),
            connections_max: rng.usize(1..=3),
            timeout: Duration::from_millis(rng.u64(10..100)),
            latency_ms: rng.u64(0..6),
            faults_percent: [0, 30, 60, 90][rng.usize(..4)],
            cancels: rng.percent(50),
            processes,
            bug: None,
        }
    }

    fn with_bug(self, bug: Option<Bug>) -> Self {
        Self { bug, ..self }
    }

    fn run(&self, trace: Option<Trace<'_>>) -> Result<Run, Failure> {
        run(self, trace)
    }
}

impl ClientScenario {
    pub(super) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// True if a key may be at several servers, which know nothing of each other.
    pub(super) fn moves_keys(&self) -> bool {
        self.servers > 1 && matches!(self.policy, FailurePolicy::Eject | FailurePolicy::Failover)
    }
}

impl fmt::Display for ClientScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}: {:?}, {:?}, {} servers, {} tasks of {} operations",
            self.seed, self.protocol, self.policy, self.servers, self.tasks, self.operations
        )
    }
}
