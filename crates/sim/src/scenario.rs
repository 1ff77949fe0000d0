//! What is simulated, as a seed has it.

use std::fmt;

use fastrand::Rng;
use larder_policy::Durability;
use larder_seeds::{Failure, Trace};

use crate::rng::Choose as _;
use crate::sim::{Run, run};

/// A bug on purpose, planted around the server's code, not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Replies are sent before what they show is durable.
    ReplyBeforeCommit,
    /// A look-up ignores that a change of its key is on its way to the store.
    LookPastJournal,
    /// What was read from the store is put into memory although the key has changed since.
    UncheckedFill,
    /// The store keeps no flush.
    LostFlush,
    /// The store forgets the flushes that are due later when it is opened.
    LostPendingFlush,
    /// The store does not know its highest version when it is opened.
    ForgottenVersions,
    /// A change is dropped if its item is evicted before it was appended.
    DroppedWhenEvicted,
    /// A sync gets the outcome of one that had begun before it.
    StaleSync,
}

impl larder_seeds::Bug for Bug {
    const ALL: &'static [Self] = &[
        Self::ReplyBeforeCommit,
        Self::LookPastJournal,
        Self::UncheckedFill,
        Self::LostFlush,
        Self::LostPendingFlush,
        Self::ForgottenVersions,
        Self::DroppedWhenEvicted,
        Self::StaleSync,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::ReplyBeforeCommit => "reply-before-commit",
            Self::LookPastJournal => "look-past-journal",
            Self::UncheckedFill => "unchecked-fill",
            Self::LostFlush => "lost-flush",
            Self::LostPendingFlush => "lost-pending-flush",
            Self::ForgottenVersions => "forgotten-versions",
            Self::DroppedWhenEvicted => "dropped-when-evicted",
            Self::StaleSync => "stale-sync",
        }
    }
}

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed of all choices.
    pub seed: u64,
    /// Workers.
    pub workers: usize,
    /// Readers of the store.
    pub readers: usize,
    /// Clients, each with one connection at a time.
    pub clients: usize,
    /// Of the one namespace.
    pub durability: Durability,
    /// See [`larder_server::persistence::StoreSettings::interval`].
    pub interval_micros: u64,
    /// Requests of all clients together.
    pub requests: u32,
    /// Requests that a client sends before it waits for replies.
    pub pipelined_max: usize,
    /// Keys that everybody uses, and keys that fill the memory.
    pub keys_hot: u32,
    /// See above.
    pub keys_filler: u32,
    /// There is far more data than memory.
    pub evicts: bool,
    /// The disk is full at times.
    pub fills_up: bool,
    /// An fsync fails.
    pub fails_sync: bool,
    /// The process ends so often, by power loss or a kill.
    pub crashes: u32,
    /// The wall clock is set at a restart.
    pub sets_clock: bool,
    /// Clients send `flush_all`.
    pub flushes: bool,
    /// A planted bug.
    pub bug: Option<Bug>,
}

impl larder_seeds::Scenario for Scenario {
    type Bug = Bug;
    type Run = Run;

    const COMMAND: &str = "cargo run -p larder-sim --";

    fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let evicts = rng.percent(40);
        let durability = if rng.percent(70) { Durability::Sync } else { Durability::Interval };
        Self {
            seed,
            workers: rng.usize(1..=3),
            readers: rng.usize(1..=3),
            clients: rng.usize(2..=6),
            durability,
            interval_micros: [1_000, 50_000, 1_000_000][rng.usize(..3)],
            requests: if evicts { rng.u32(600..=1600) } else { rng.u32(60..=240) },
            pipelined_max: rng.usize(1..=8),
            keys_hot: rng.u32(1..=4),
            keys_filler: if evicts { rng.u32(60..=200) } else { rng.u32(8..=80) },
            evicts,
            fills_up: rng.percent(30),
            fails_sync: rng.percent(10),
            crashes: if rng.percent(70) { rng.u32(1..=if evicts { 2 } else { 3 }) } else { 0 },
            sets_clock: rng.percent(40),
            flushes: rng.percent(50),
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

impl Scenario {
    /// True if a reply waits until what it shows is durable.
    pub(crate) fn is_sync(&self) -> bool {
        self.durability == Durability::Sync
    }

    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}: {} workers, {} readers, {} clients, {} requests, {}",
            self.seed,
            self.workers,
            self.readers,
            self.clients,
            self.requests,
            self.durability.name()
        )
    }
}
