//! Sends the load of a scenario, and counts the replies.
//!
//! ```text
//! check       is the scenario valid?
//! plan        tables that all threads read
//! thread      a load thread: epoll loop, lanes, sockets, tally
//!   dispatch    which lane sends next, and when: at once, or by a schedule
//!   periods     the warm-up, and the steps in which tallies are handed over
//!   lane        a client: draws its requests (popularity, sizes, schedule), or replays them (trace)
//!   ask         writes a request: key, value, command; asked: the request until its reply
//!   socket      bytes out, bytes in
//!   answer      parses replies and counts them
//!   verify      checks them: stamp identifies a value, ledger has the versions that it may have
//!   upkeep      sockets that fail, and the end
//! replicas    compares them at the end
//! control     messages between the main thread and the load threads
//! ```

mod alias;
mod answer;
mod ask;
mod asked;
mod check;
mod collect;
mod control;
mod fill;
mod keys;
mod lane;
mod ledger;
mod memory;
mod plan;
mod popularity;
mod replicas;
pub(crate) mod roads;
mod schedule;
mod shuffle;
mod sizes;
mod socket;
mod stamp;
mod tally;
mod thread;
pub(crate) mod trace;
mod upkeep;
mod values;
mod verify;
pub(crate) mod zipf;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fmt, io, thread as std_thread};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::outcome::Watcher;
use crate::{Outcome, Scenario};

use collect::Collector;
use control::Control;
use plan::Plan;
use thread::Thread;

/// Runs `scenario` until it is over, or until `stop` is set. The requests until then still count.
///
/// A server that fails, hangs or closes connections during the run does not end it: these failures are counted
/// ([`crate::outcome::Failure`]).
///
/// # Errors
/// The scenario is invalid, a file cannot be read, or a server cannot be reached at the start.
pub fn run(scenario: &Scenario, watcher: &mut dyn Watcher, stop: &AtomicBool) -> Result<Outcome, RunError> {
    let scenario = check::check(scenario)?;
    allow_descriptors();
    let plan = Arc::new(Plan::new(&scenario)?);
    let control = Arc::new(Control::new(&scenario));
    let (reports, received) = mpsc::channel();
    let mut threads = Vec::new();
    let mut hands = Vec::new();
    for index in 0..plan.threads {
        let (orders, ordered) = mpsc::channel();
        let (tallies, returned) = mpsc::channel();
        let thread = Thread::new(index, plan.clone(), control.clone(), reports.clone(), returned)?;
        let builder = std_thread::Builder::new().name(format!("load-{index}"));
        threads.push(builder.spawn(move || thread.run(&ordered))?);
        hands.push(collect::Hand { orders, tallies });
    }
    drop(reports);
    let started_unix_secs = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let collector = Collector::new(&plan, &control, received, hands, stop);
    let outcome = collector.collect(watcher, started_unix_secs);
    // Threads that wait for an order end once `collect` has dropped the sender.
    control.stop();
    for thread in threads {
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
    outcome
}

/// Raises the limit of open files as far as the process may. A shell's limit is often 1024, and each connection needs
/// one descriptor.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum {
        // If that is refused, the connection that finds no descriptor reports it.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}

/// Why a run did not start.
#[derive(Debug)]
pub enum RunError {
    /// The scenario is invalid.
    Scenario {
        /// Path of the field as in the file: `group[0].commands`.
        field: String,
        /// The reason.
        reason: String,
    },
    /// A server cannot be reached, or refuses the login.
    Server {
        /// As in the scenario.
        address: String,
        /// The server's or the system's message.
        reason: String,
    },
    /// A file of the scenario cannot be read.
    File {
        /// Its path.
        path: String,
        /// The reason.
        reason: String,
    },
    /// The system has no thread or poll left.
    System(io::Error),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scenario { field, reason } => write!(f, "{field}: {reason}"),
            Self::Server { address, reason } => write!(f, "{address}: {reason}"),
            Self::File { path, reason } => write!(f, "{path}: {reason}"),
            Self::System(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for RunError {}

impl From<io::Error> for RunError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// A pseudo-random number, always the same for the same `x`: the finalizer of SplitMix64.
#[inline]
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
