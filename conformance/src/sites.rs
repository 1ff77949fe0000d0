//! Sites that replicate their stores and caches, as processes on this machine: clients of all of them change the same
//! keys by every command at full speed, while links are cut, slow or silent in one direction, sites are killed or stand
//! still, and one is removed and added again. Then all is healed, and each key is compared: between the sites, and with
//! what clients were told ([`ledger`], [`caches`]).

mod ask;
mod books;
mod caches;
mod client;
mod cluster;
mod faults;
mod keys;
mod ledger;
pub mod link;

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::crash::Durability;
use books::Books;
use client::Client;
use cluster::Cluster;
use faults::break_things;
pub use keys::KEYS;
use ledger::Seen;

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How often all is healed and compared.
    pub rounds: usize,
    /// Of requests and faults, but for the time.
    pub seed: u64,
    /// How many sites there are: two or three.
    pub sites: usize,
    /// How the servers are started.
    pub durability: Durability,
    /// What is expected of them: another durability shows that the test can fail.
    pub promised: Durability,
    /// How long a round's load and faults last.
    pub load: Duration,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Rounds in which all was as it must be.
    pub rounds: usize,
    /// Changes that were sent and were, or may have been, carried out.
    pub changes: usize,
    /// Items that were found in the end, of all rounds.
    pub items: usize,
    /// Keys that two sites changed at once, as far as the sites know.
    pub conflicts: u64,
    /// Items of caches that were found in the end, at all sites.
    pub cached: usize,
    /// Deaths of sites.
    pub kills: usize,
    /// Sites that were removed and added again.
    pub joins: usize,
    /// What a site took at most at the end of a round: resident memory, and the disk.
    pub sizes_mib_max: [u64; 2],
    /// Times that links were made to fail, or a site to stand still.
    pub faults: usize,
    /// From when all was healed until all sites had all marks, at most.
    pub heal_max: Duration,
}

/// Lets them fight. Errors: what is not as it must be, with the seed and the directory, which is kept.
pub fn run(program: &Path, options: &Options) -> Result<Report> {
    let mut report = Report::default();
    let mut seed = options.seed;
    while report.rounds < options.rounds {
        let rounds = (options.rounds - report.rounds).min(ROUNDS_OF_A_CLUSTER);
        let log_mib = if fastrand::Rng::with_seed(seed).bool() { LOG_MIB } else { LITTLE_LOG_MIB };
        let cluster = Cluster::start(program, options.sites, options.durability, log_mib)?;
        let mut series = Series::new(cluster, options, seed);
        if let Err(error) = series.run(rounds, &mut report) {
            let directory = series.cluster.keep();
            return Err(format!(
                "{} sites, durability {}, seed {seed}, round {} of {rounds}: {error}\n\
                 stores and logs are kept in {}; again with `cargo xtask sites --sites {} --durability {} \
                 --seed {seed} --rounds {rounds}`",
                options.sites,
                options.durability.name(),
                series.round,
                directory.display(),
                options.sites,
                options.durability.name(),
            )
            .into());
        }
        seed = seed.wrapping_add(1);
    }
    Ok(report)
}

/// The number of a round, in the marks.
type Step = usize;

/// Rounds over one cluster.
struct Series<'o> {
    options: &'o Options,
    cluster: Cluster<'o>,
    clients: Vec<Client>,
    random: fastrand::Rng,
    round: Step,
    books: Books,
}

impl<'o> Series<'o> {
    fn new(cluster: Cluster<'o>, options: &'o Options, seed: u64) -> Self {
        let clients = (0..options.sites * CLIENTS_OF_A_SITE)
            .map(|id| Client::new(id as u64, id / CLIENTS_OF_A_SITE, seed, options.promised.may_lose()))
            .collect();
        let random = fastrand::Rng::with_seed(!seed);
        Self { options, cluster, clients, random, round: 0, books: Books::new() }
    }

    fn run(&mut self, rounds: usize, report: &mut Report) -> Result<()> {
        for _ in 0..rounds {
            self.round += 1;
            // All have the same: so nothing is lost with it.
            let removed =
                (self.cluster.sites() > 2 && self.random.bool()).then_some(self.cluster.sites() - 1);
            removed.map_or(Ok(()), |site| self.cluster.remove(site))?;
            self.fight(removed, report)?;
            self.cluster.heal()?;
            let healed = Instant::now();
            self.cluster.wait_until_all_are_in()?;
            self.meet()?;
            report.heal_max = report.heal_max.max(healed.elapsed());
            report.changes +=
                self.clients.iter_mut().map(|client| client.tell(&mut self.books)).sum::<usize>();
            let sites = self.agree()?;
            report.items += sites[0][..KEYS].iter().flatten().count();
            report.cached += sites.iter().flat_map(|found| &found[KEYS..]).flatten().count();
            self.books.begin_with(&sites[0]);
            self.measure(report)?;
            report.rounds += 1;
        }
        Ok(())
    }

    /// Counts conflicts, and looks what the sites take.
    fn measure(&self, report: &mut Report) -> Result<()> {
        let maxima = self.cluster.sizes_mib_max();
        for site in 0..self.cluster.sites() {
            report.conflicts += ask::figure(self.cluster.address(site)?, ":conflicts")?;
            let sizes = self.cluster.sizes_mib(site)?;
            if sizes.iter().zip(&maxima).any(|(size, max)| size > max) {
                let site = site + 1;
                return Err(
                    format!("site {site} takes {sizes:?} MiB of memory and disk, not {maxima:?}").into()
                );
            }
            for (max, size) in report.sizes_mib_max.iter_mut().zip(sizes) {
                *max = size.max(*max);
            }
        }
        Ok(())
    }

    /// Clients at full speed, and faults.
    /// A removed site has no clients.
    fn fight(&mut self, removed: Option<usize>, report: &mut Report) -> Result<()> {
        let is_over = AtomicBool::new(false);
        let Self { cluster, clients, random, options, .. } = self;
        // Clients look where their site is while it dies and comes back.
        let addresses: Vec<_> = (0..cluster.sites()).map(|site| cluster.shared_address(site)).collect();
        thread::scope(|scope| {
            let load: Vec<_> = clients
                .iter_mut()
                .enumerate()
                .filter(|(at, _)| Some(at / CLIENTS_OF_A_SITE) != removed)
                .map(|(at, client)| {
                    let (address, is_over) = (&addresses[at / CLIENTS_OF_A_SITE], &is_over);
                    scope.spawn(move || client.run(address, is_over))
                })
                .collect();
            let broken = break_things(cluster, random, options.load, report);
            is_over.store(true, Relaxed);
            // Clients of a site that is down or stands still end as well.
            let healed = cluster.heal();
            for client in load {
                client.join().map_err(|_| "a client panicked")??;
            }
            broken.and(healed)
        })
    }

    /// Until each site has what each other one has done.
    fn meet(&self) -> Result<()> {
        for site in 0..self.cluster.sites() {
            ask::mark(self.cluster.address(site)?, site, self.round)?;
        }
        let deadline = Instant::now() + PATIENCE;
        for site in 0..self.cluster.sites() {
            while !ask::has_marks(self.cluster.address(site)?, self.cluster.sites(), self.round)? {
                if Instant::now() > deadline {
                    let figures = (0..self.cluster.sites())
                        .map(|site| ask::figures(self.cluster.address(site)?))
                        .collect::<Result<String>>()?;
                    let site = site + 1;
                    return Err(format!("site {site} lacks changes after a minute\n{figures}").into());
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }

    /// What all sites have. Errors: they do not have the same, or not what clients were told.
    fn agree(&self) -> Result<Vec<Vec<Option<Seen>>>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let sites = (0..self.cluster.sites())
                .map(|site| ask::look(self.cluster.address(site)?))
                .collect::<Result<Vec<_>>>()?;
            let Err(error) = books::agree(&sites).and_then(|()| self.judge(&sites)) else { return Ok(sites) };
            // What caches tell each other is not in the order of the marks.
            if Instant::now() > deadline {
                return Err(error.into());
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn judge(&self, sites: &[Vec<Option<Seen>>]) -> std::result::Result<(), String> {
        let now = client::now_micros();
        let wrong: Vec<_> = (0..keys::ALL_KEYS)
            .filter_map(|key| {
                let error = self.books.check(key, sites, now).err()?;
                let each: Vec<_> = sites.iter().map(|found| &found[key]).collect();
                Some(format!("\n  {}: {error}; it is {each:?}", keys::name(key)))
            })
            .collect();
        if wrong.is_empty() {
            return Ok(());
        }
        let (count, first) = (wrong.len(), wrong.iter().take(10).map(String::as_str).collect::<String>());
        Err(format!("{count} keys are not as clients were told, such as{first}"))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, changes, items, conflicts, cached, kills, joins, faults, .. } = self;
        let (healed_millis, [memory_mib, disk_mib]) = (self.heal_max.as_millis(), self.sizes_mib_max);
        write!(
            f,
            "{rounds} rounds, {changes} changes, {kills} deaths, {faults} faults, {joins} removals, {conflicts} \
             conflicts; no key differs, {items} items are as clients were told, and {cached} in caches; together \
             again in {healed_millis} ms, memory {memory_mib} MiB, disk {disk_mib} MiB at most"
        )
    }
}

const CLIENTS_OF_A_SITE: usize = 2;
/// Then all begins anew.
const ROUNDS_OF_A_CLUSTER: usize = 5;
/// For an event, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Of the log, for sites that are away: more than a round writes, and less.
const LOG_MIB: u64 = 1024;
const LITTLE_LOG_MIB: u64 = 4;
