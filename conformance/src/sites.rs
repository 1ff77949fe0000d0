//! Sites that replicate their stores, as processes on this machine: clients of all of them change the same keys by
//! every command at full speed, while links are cut, slow or silent in one direction and sites are killed or stand
//! still. Then all is healed, and each key is compared: between the sites, and with what clients were told
//! ([`ledger`]).

mod client;
mod cluster;
mod ledger;
pub mod link;

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::crash::Durability;
use client::Client;
use cluster::Cluster;
use ledger::{Ledger, Seen};
use link::Link;

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
    /// Deaths of sites.
    pub kills: usize,
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
        let cluster = Cluster::start(program, options.sites, options.durability)?;
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
    /// What all sites had at the end of the last round.
    found: Vec<Option<Seen>>,
}

impl<'o> Series<'o> {
    fn new(cluster: Cluster<'o>, options: &'o Options, seed: u64) -> Self {
        let clients = (0..options.sites * CLIENTS_OF_A_SITE)
            .map(|id| Client::new(id as u64, seed, options.promised.may_lose()))
            .collect();
        let random = fastrand::Rng::with_seed(!seed);
        Self { options, cluster, clients, random, round: 0, found: vec![None; KEYS] }
    }

    fn run(&mut self, rounds: usize, report: &mut Report) -> Result<()> {
        for _ in 0..rounds {
            self.round += 1;
            self.fight(report)?;
            self.cluster.heal()?;
            let healed = Instant::now();
            self.meet()?;
            report.heal_max = report.heal_max.max(healed.elapsed());
            let found = self.agree()?;
            self.judge(&found, report)?;
            for site in 0..self.cluster.sites() {
                report.conflicts += client::figure(self.cluster.address(site)?, ":conflicts")?;
            }
            self.found = found;
            report.rounds += 1;
        }
        Ok(())
    }

    /// Clients at full speed, and faults.
    fn fight(&mut self, report: &mut Report) -> Result<()> {
        let is_over = AtomicBool::new(false);
        let Self { cluster, clients, random, options, .. } = self;
        // Clients look where their site is while it dies and comes back.
        let addresses: Vec<_> = (0..cluster.sites()).map(|site| cluster.shared_address(site)).collect();
        thread::scope(|scope| {
            let load: Vec<_> = clients
                .iter_mut()
                .enumerate()
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
            client::mark(self.cluster.address(site)?, site, self.round)?;
        }
        let deadline = Instant::now() + PATIENCE;
        for site in 0..self.cluster.sites() {
            while !client::has_marks(self.cluster.address(site)?, self.cluster.sites(), self.round)? {
                if Instant::now() > deadline {
                    let figures = (0..self.cluster.sites())
                        .map(|site| client::figures(self.cluster.address(site)?))
                        .collect::<Result<String>>()?;
                    let site = site + 1;
                    return Err(format!("site {site} lacks changes after a minute\n{figures}").into());
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }

    /// What all sites have. Errors: they do not have the same.
    fn agree(&self) -> Result<Vec<Option<Seen>>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = (0..self.cluster.sites())
                .map(|site| client::look(self.cluster.address(site)?))
                .collect::<Result<Vec<_>>>()?;
            let (first, others) = found.split_first().ok_or("there are no sites")?;
            let differs = |key: &usize| others.iter().any(|other| !are_same(first, other, *key));
            let differing: Vec<usize> = (0..KEYS).filter(differs).collect();
            let Some(key) = differing.first() else { return Ok(first.clone()) };
            if Instant::now() > deadline {
                let each: Vec<_> = found.iter().map(|found| &found[*key]).collect();
                let count = differing.len();
                return Err(format!("{count} keys differ, such as {}: {each:?}", client::name(*key)).into());
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn judge(&mut self, found: &[Option<Seen>], report: &mut Report) -> Result<()> {
        let mut ledgers: Vec<_> = self.found.iter().map(|found| Ledger::of(found.as_ref())).collect();
        report.changes += self.clients.iter_mut().map(|client| client.tell(&mut ledgers)).sum::<usize>();
        report.items += found.iter().flatten().count();
        let now_secs = client::now_micros() / 1_000_000;
        let wrong: Vec<_> = (0..KEYS)
            .filter_map(|key| {
                let error = ledgers[key].check(found[key].as_ref(), now_secs).err()?;
                Some(format!("\n  {}: {error}; it is {:?}", client::name(key), found[key]))
            })
            .collect();
        if wrong.is_empty() {
            return Ok(());
        }
        let (count, first) = (wrong.len(), wrong.iter().take(10).map(String::as_str).collect::<String>());
        Err(format!("{count} keys are not as clients were told, such as{first}").into())
    }
}

/// Whether two sites show the same of a key, but for what expires while they are asked.
fn are_same(one: &[Option<Seen>], other: &[Option<Seen>], key: usize) -> bool {
    match (&one[key], &other[key]) {
        (Some(one), Some(other)) => {
            let exptimes = match (one.exptime_secs, other.exptime_secs) {
                (Some(one), Some(other)) => one.abs_diff(other) <= 2,
                (one, other) => one == other,
            };
            exptimes && (&one.value, one.flags, one.version) == (&other.value, other.flags, other.version)
        }
        (one, other) => one == other,
    }
}

/// Lets links and sites fail for so long.
fn break_things(
    cluster: &mut Cluster<'_>,
    random: &mut fastrand::Rng,
    length: Duration,
    report: &mut Report,
) -> Result<()> {
    let end = Instant::now() + length;
    // What comes back, and when.
    let mut down: Vec<(usize, Instant)> = Vec::new();
    let mut paused: Vec<(usize, Instant)> = Vec::new();
    while Instant::now() < end {
        thread::sleep(Duration::from_millis(random.u64(30..500)));
        let now = Instant::now();
        for (site, _) in down.extract_if(.., |(_, until)| *until <= now) {
            cluster.start_site(site)?;
        }
        for (site, _) in paused.extract_if(.., |(_, until)| *until <= now) {
            cluster.pause(site, false)?;
        }
        let (site, other) = (random.usize(..cluster.sites()), random.usize(..cluster.sites()));
        let link = Link::ALL[random.usize(..Link::ALL.len())];
        let until = now + Duration::from_millis(random.u64(..1_500));
        match random.u8(..10) {
            0..4 => cluster.link(site, other).set(link),
            4..6 => cluster.set_links_of(site, link),
            6 => cluster.link(site, other).reset(),
            7 if paused.is_empty() => {
                cluster.pause(site, true)?;
                paused.push((site, until));
            }
            7 => {}
            _ => {
                cluster.kill(site)?;
                report.kills += 1;
                down.push((site, until));
            }
        }
        report.faults += 1;
    }
    Ok(())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, changes, items, conflicts, kills, faults, heal_max } = self;
        write!(
            f,
            "{rounds} rounds, {changes} changes, {kills} deaths, {faults} faults, {conflicts} conflicts; no key \
             differs, {items} items are as clients were told; together again in {} ms at most",
            heal_max.as_millis()
        )
    }
}

/// That all clients change.
pub const KEYS: usize = 10_000;
/// Namespaces, each of which is flushed by itself.
const PREFIXES: usize = 8;
const CLIENTS_OF_A_SITE: usize = 2;
/// Then all begins anew.
const ROUNDS_OF_A_CLUSTER: usize = 5;
/// For an event, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
