//! Kills larderd under load (`SIGKILL`), starts it again over the same store, and looks whether all is there that was
//! promised: after each of many rounds, what a client knows of its keys is compared with what they hold.
//!
//! A few clients change keys of their own by every command there is, in bursts, and check every reply. Changes are in
//! one order in the log, so what is found must be as after some moment of each client's history ([`history`]): with
//! `sync` not before the last acknowledged change, with `interval` not before the interval.

mod client;
mod draw;
mod history;
mod item;
pub mod power_loss;
mod recording;

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use larder_store::{LogOptions, LogStore, Store as _};

use crate::folder::Folder;
use crate::server::Server;
use crate::wire::Wire;
use crate::{Error, Result};
use client::{Client, End, Load};
use history::Survived;

/// When a change is on disk: `--durability`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Before its reply.
    Sync,
    /// Within [`INTERVAL`].
    Interval,
    /// When the system writes it. The death of a process loses what it had not passed to the system.
    Os,
}

impl Durability {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Sync, Self::Interval, Self::Os];

    /// The one of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|durability| durability.name() == name)
    }

    /// As the option has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Interval => "interval",
            Self::Os => "os",
        }
    }

    pub(crate) fn may_lose(self) -> Duration {
        match self {
            Self::Sync => Duration::ZERO,
            // With room for a machine on which the server does not run for long. What was lost is in the report.
            Self::Interval | Self::Os => INTERVAL + Duration::from_secs(5),
        }
    }
}

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How often the server is killed.
    pub rounds: usize,
    /// Of all that is random, but for the time. The same seed makes the same requests.
    pub seed: u64,
    /// How the server is started.
    pub durability: Durability,
    /// What is expected of it: another durability shows that the test can fail.
    pub promised: Durability,
    /// How long the load lasts at most before the server is killed.
    pub load_max: Duration,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Rounds in which all was as it must be.
    pub rounds: usize,
    /// Changes that were sent.
    pub changes: usize,
    /// Items that were found.
    pub items: usize,
    /// Changes that were acknowledged and were not there, where that is allowed.
    pub lost: usize,
    /// How long before the end of a process the oldest of them was acknowledged, at most.
    pub lost_max: Duration,
    /// Changes that were on their way and were there.
    pub unacknowledged: usize,
}

/// Kills and looks. Errors: what is not as it must be, with the seed and the directory, which is kept.
pub fn run(program: &Path, options: &Options) -> Result<Report> {
    let mut report = Report::default();
    let mut seed = options.seed;
    while report.rounds < options.rounds {
        let rounds = (options.rounds - report.rounds).min(ROUNDS_OF_A_STORE);
        let folder = Folder::create();
        let mut series = Series::new(program, &folder, options, seed);
        if let Err(error) = series.run(rounds, &mut report) {
            let directory = folder.keep();
            return Err(format!(
                "durability {}, seed {seed}, round {} of {rounds} over one store: {error}\n\
                 the directory {} is kept; look with `larderd {}`, again with `cargo xtask crash --durability {} \
                 --seed {seed} --rounds {rounds}`",
                options.durability.name(),
                series.round,
                directory.display(),
                series.arguments.join(" "),
                options.durability.name(),
            )
            .into());
        }
        seed = seed.wrapping_add(1);
    }
    Ok(report)
}

/// Rounds over one store.
struct Series<'o> {
    program: &'o Path,
    options: &'o Options,
    arguments: Vec<String>,
    clients: Vec<Client>,
    random: fastrand::Rng,
    round: usize,
}

impl<'o> Series<'o> {
    fn new(program: &'o Path, folder: &Folder, options: &'o Options, seed: u64) -> Self {
        let stores_large = seed.is_multiple_of(2);
        let (memory_mib, item) = if stores_large { ("20", "8m") } else { ("6", "1m") };
        let interval_millis = INTERVAL.as_millis().to_string();
        let store = folder.arg("store");
        let arguments = [
            "-m",
            memory_mib,
            "-I",
            item,
            "-t",
            "2",
            "--store",
            &store,
            "--durability",
            options.durability.name(),
            "--sync-interval",
            &interval_millis,
            "--store-segment-kib",
            "4096",
        ];
        let load = Load { keys: 300, value_bytes_max: 600_000, stores_large, flushes: false };
        let clients =
            (0..CLIENTS).map(|id| Client::new(id, seed, options.promised.may_lose(), load)).collect();
        Self {
            program,
            options,
            arguments: arguments.map(str::to_owned).to_vec(),
            clients,
            random: fastrand::Rng::with_seed(seed),
            round: 0,
        }
    }

    fn run(&mut self, rounds: usize, report: &mut Report) -> Result<()> {
        for _ in 0..rounds {
            self.round += 1;
            let (crashed, changes) = self.load()?;
            report.changes += changes;
            self.look(crashed, report)?;
            report.rounds += 1;
        }
        Ok(())
    }

    /// Load until the server is killed. Returns when that was, and how many changes were sent.
    fn load(&mut self) -> Result<(Instant, usize)> {
        let server = Server::start(self.program, &self.arguments)?;
        let address = server.address();
        let lasts =
            Duration::from_micros(self.random.u64(
                MIN_LOAD_MICROS..=u64::try_from(self.options.load_max.as_micros())?.max(MIN_LOAD_MICROS),
            ));
        // In some rounds all is flushed; in half of these the server dies while it flushes, or soon after.
        let flushes = (self.random.u8(0..3) == 0).then(|| {
            let after = lasts.mul_f64(self.random.f64());
            let left = lasts.saturating_sub(after);
            (after, if self.random.bool() { left } else { Duration::from_micros(self.random.u64(0..3_000)) })
        });
        let before: usize = self.clients.iter().map(|client| client.history.len()).sum();
        let flushing = RwLock::new(Flushes::default());
        let crashed = thread::scope(|scope| {
            let load: Vec<_> = self
                .clients
                .iter_mut()
                .map(|client| scope.spawn(|| client.run(address, &flushing)))
                .collect();
            match flushes {
                None => thread::sleep(lasts),
                Some((after, left)) => {
                    thread::sleep(after);
                    scope.spawn(|| flush(address, &flushing));
                    thread::sleep(left);
                }
            }
            let crashed = Instant::now();
            server.kill()?;
            for client in load {
                match client.join().map_err(|_| "a client panicked")? {
                    End::Closed => {}
                    End::Wrong(what) => return Err(Error::from(what)),
                }
            }
            Ok(crashed)
        })?;
        let flushes = flushing.into_inner().map_err(|_| "a client panicked")?;
        self.clients.iter_mut().for_each(|client| client.end(flushes));
        let after: usize = self.clients.iter().map(|client| client.history.len()).sum();
        Ok((crashed, after - before))
    }

    /// Starts again, and compares all keys of all clients.
    fn look(&mut self, crashed: Instant, report: &mut Report) -> Result<()> {
        let server = Server::start(self.program, &self.arguments)?;
        let address = server.address();
        for client in &mut self.clients {
            let found = client.look(address)?;
            report.items += found.iter().flatten().count();
            let names: Vec<String> = (0..found.len()).map(|key| client.describe(key)).collect();
            let survived = client
                .history
                .check(&found, crashed, item::unix_secs(), |key| names[key].clone())
                .map_err(Error::from)?;
            report.add(survived, crashed);
        }
        // Asking has changed marks of items, which must stay as well: so it stops in order.
        if !server.stop()?.success() {
            return Err("larderd did not end well".into());
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, changes, items, lost, lost_max, unacknowledged } = self;
        write!(
            f,
            "{rounds} rounds, {changes} changes, {items} items found; {lost} acknowledged changes were lost, the \
             oldest {} ms before the end; {unacknowledged} that were on their way were there",
            lost_max.as_millis()
        )
    }
}

impl Report {
    fn add(&mut self, survived: Survived, crashed: Instant) {
        self.lost += survived.lost;
        self.unacknowledged += survived.unacknowledged;
        if let Some(since) = survived.lost_since {
            self.lost_max = self.lost_max.max(crashed.saturating_duration_since(since));
        }
    }
}

/// Flushes of a round.
#[derive(Clone, Copy, Debug, Default)]
struct Flushes {
    sent: usize,
    acknowledged: usize,
}

/// Flushes all keys while nothing else is on its way, so that the flush has a place in everybody's history.
fn flush(address: SocketAddr, flushing: &RwLock<Flushes>) {
    let Ok(mut wire) = Wire::connect(address) else { return };
    let mut flushes = flushing.write().unwrap_or_else(PoisonError::into_inner);
    flushes.sent += 1;
    if wire.send(b"flush_all\r\n").is_ok() && wire.line().is_ok_and(|line| line == "OK") {
        flushes.acknowledged += 1;
    }
}

/// What lives in the store of a directory, with its headers, in bytes. Nobody else has it open.
pub fn live_bytes(directory: &Path) -> Result<u64> {
    Ok(LogStore::open(directory, LogOptions::default())?.stats().live_bytes)
}

const CLIENTS: usize = 4;
/// `--sync-interval`, of rounds without an fsync before each reply.
pub const INTERVAL: Duration = Duration::from_millis(200);
/// Then the store is a new one: what has a TTL must not expire.
const ROUNDS_OF_A_STORE: usize = 10;
const MIN_LOAD_MICROS: u64 = 20_000;
