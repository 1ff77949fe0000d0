//! `cargo xtask bench replication`: what it costs that another site has the same data, and how far behind that one is.

mod site;

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use larder_bench::statistics::median;
use larder_conformance::folder::Folder;
use larder_conformance::sites::link::Link;
use larder_conformance::{Result, server};

use super::pinned::cpu_secs;
use super::store::{own_fsyncs, pin_to, quantile};
use crate::cores::Cores;
use site::{Pair, Site};

const HELP: &str = "\
Measures replication between two larderd on this machine, and a store without a peer beside them.

usage: cargo xtask bench replication [options]

  --rounds N       rounds of the tables in which servers take turns (default 5); medians are printed
  --secs S         length of such a round (default 2)
  --table NAME     this table only: cpu, lag, catch-up, copy, dead
  --server PATH    the larderd to measure (default: this workspace's)

Method. --durability interval, but for the lag, which is also measured with the default. Each server has one worker;
the one that takes the writes is pinned with all its
threads to one core of this machine, its peer and the load to the other. The peer connects through a proxy of this
program, which passes everything on at once. CPU is that of all threads of the server that takes the writes, user and
system.
cpu: a set of 1 KiB over 16 connections, one request in flight in each, and with 16 sets in one write; servers take
turns.
lag: while one connection sets nothing, or 2,000 or 10,000 keys a second, 100 bytes each, 500 keys more are set, one
after the other, and looked for at the peer without a pause: from before the set was sent until the peer has answered
with it. With the default, --durability sync, a set takes an fsync at each of the two: a connection that waits for its
replies sets what it can.
catch-up: 200,000 keys of 100 bytes are set while the link is cut; from when it is open again until the peer has the
last one.
copy: a site with nothing connects to one that has 1,000,000 keys of 100 bytes, while both serve 1,000 gets or sets a
second.
dead: 1,000,000 sets of 1 KiB to 50,000 keys while the peer is dead; resident memory, and what the store takes on the
disk.";

/// Measures and prints.
pub(super) fn run(args: &[String]) -> Result<()> {
    let (mut rounds, mut secs, mut table, mut larderd) = (5, 2, None, None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--rounds" => rounds = value()?.parse()?,
            "--secs" => secs = value()?.parse()?,
            "--table" => table = Some(value()?.clone()),
            "--server" => larderd = Some(value()?.into()),
            "--help" | "-h" => {
                println!("{HELP}");
                return Ok(());
            }
            _ => return Err(format!("no such option: {arg}").into()),
        }
    }
    let larderd: PathBuf = larderd.map_or_else(server::larderd, Ok)?;
    let bench = Bench { larderd, cores: Cores::choose()?, rounds, secs: Duration::from_secs(secs) };
    pin_to(bench.cores.load)?;
    let is_wanted = |name: &str| table.as_deref().is_none_or(|table| table == name);
    if !TABLES.iter().any(|(name, _)| is_wanted(name)) {
        return Err(format!("no such table: {}", table.unwrap_or_default()).into());
    }
    TABLES.iter().filter(|(name, _)| is_wanted(name)).try_for_each(|(_, measure)| measure(&bench))
}

struct Bench {
    larderd: PathBuf,
    cores: Cores,
    rounds: usize,
    secs: Duration,
}

type Measure = fn(&Bench) -> Result<()>;

const TABLES: [(&str, Measure); 5] = [
    ("cpu", Bench::cpu),
    ("lag", Bench::lag),
    ("catch-up", Bench::catch_up),
    ("copy", Bench::copy),
    ("dead", Bench::dead),
];

impl Bench {
    fn pair(&self) -> Result<Pair> {
        Pair::start(&self.larderd, "interval", &self.cores)
    }

    fn alone(&self) -> Result<Site> {
        Site::start(&self.larderd, "interval", self.cores.server, None)
    }

    fn cpu(&self) -> Result<()> {
        println!("\nServer CPU of a set of 1 KiB, us (median of {} rounds of {:?})", self.rounds, self.secs);
        let (alone, pair) = (self.alone()?, self.pair()?);
        let mut deserted = self.pair()?;
        deserted.kill_second();
        let contestants = [
            ("store", &alone),
            ("store with a peer", pair.first()),
            ("store with a dead peer", deserted.first()),
        ];
        println!("  {:<26} {:>12} {:>12}", "", "one a write", "16 a write");
        let mut costs = [const { [const { Vec::new() }; 2] }; 3];
        for (_, site) in contestants {
            site.client()?.set_all(0..CPU_KEYS, 1024)?;
        }
        for _ in 0..self.rounds {
            for (at, (_, site)) in contestants.into_iter().enumerate() {
                for (batch, costs) in [1, 16].into_iter().zip(&mut costs[at]) {
                    costs.push(self.cost_of_a_set(site, batch)?);
                    // What is still to be done for the last round is not the next one's.
                    pair.wait_for_second()?;
                }
            }
        }
        let medians = costs.map(|costs| costs.map(median));
        for ((name, _), costs) in contestants.into_iter().zip(medians) {
            let percent = |at: usize| (costs[at] / medians[0][at] - 1.0) * 100.0;
            println!(
                "  {name:<26} {:>12.2} {:>12.2}   {:+.0} %, {:+.0} %",
                costs[0],
                costs[1],
                percent(0),
                percent(1)
            );
        }
        Ok(())
    }

    /// Microseconds of the server for a set; `batch` sets are sent in one write.
    fn cost_of_a_set(&self, site: &Site, batch: u64) -> Result<f64> {
        let mut clients = (0..16).map(|_| site.client()).collect::<Result<Vec<_>>>()?;
        let (began, cpu_before) = (Instant::now(), cpu_secs(site.pid())?);
        let mut sets = 0;
        let mut random = fastrand::Rng::new();
        while began.elapsed() < self.secs {
            for client in &mut clients {
                let keys: Vec<u64> = (0..batch).map(|_| random.u64(..CPU_KEYS)).collect();
                client.send_sets(&keys, 1024)?;
            }
            for client in &mut clients {
                client.stored(batch)?;
            }
            sets += batch * clients.len() as u64;
        }
        Ok((cpu_secs(site.pid())? - cpu_before) * 1e6 / sets as f64)
    }

    fn lag(&self) -> Result<()> {
        println!("\nLag: from a set at one site until the other one answers with it, us");
        let mut fsyncs = own_fsyncs(Folder::create().path())?;
        let [p50, p99] = [0.5, 0.99].map(|share| quantile(&mut fsyncs, share));
        println!("  a change is sent once it is on disk, which takes this disk: p50 {p50:.0}, p99 {p99:.0}");
        println!("  {:<34} {:>10} {:>10} {:>10}", "--durability", "p50", "p99", "sets/s");
        for (durability, per_sec) in ["sync", "interval"]
            .into_iter()
            .flat_map(|durability| [0, 2_000, 10_000].map(|per_sec| (durability, per_sec)))
        {
            let pair = Pair::start(&self.larderd, durability, &self.cores)?;
            let load = Load::start(pair.first(), per_sec)?;
            let (mut set, mut get) = (pair.first().client()?, pair.second()?.client()?);
            let mut lags = Vec::new();
            for probe in 0..PROBES {
                let began = Instant::now();
                set.set_probe(probe)?;
                while !get.has_probe(probe)? {
                    if began.elapsed() > PATIENCE {
                        return Err("the peer does not have it after a minute".into());
                    }
                }
                lags.push(began.elapsed().as_secs_f64() * 1e6);
                thread::sleep(Duration::from_micros(fastrand::u64(..4_000)));
            }
            let reached = load.stop()?;
            let [p50, p99] = [0.5, 0.99].map(|share| quantile(&mut lags, share));
            let row = format!("{durability}, {per_sec} sets/s beside");
            println!("  {row:<34} {p50:>10.0} {p99:>10.0} {reached:>10.0}");
        }
        Ok(())
    }

    fn catch_up(&self) -> Result<()> {
        println!("\nCatching up {MISSED} writes of 100 bytes after a cut (median of {})", self.rounds);
        let (mut secs, mut first_cpu, mut second_cpu) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.rounds {
            let pair = self.pair()?;
            pair.set_links(Link::Cut);
            pair.first().client()?.set_all(0..MISSED, 100)?;
            let cpu = [cpu_secs(pair.first().pid())?, cpu_secs(pair.second()?.pid())?];
            let began = Instant::now();
            pair.set_links(Link::Open);
            let mut client = pair.second()?.client()?;
            client.wait_for(MISSED - 1)?;
            secs.push(began.elapsed().as_secs_f64());
            first_cpu.push(cpu_secs(pair.first().pid())? - cpu[0]);
            second_cpu.push(cpu_secs(pair.second()?.pid())? - cpu[1]);
            if client.count(0..MISSED)? != MISSED {
                return Err("the last one is there, and not all".into());
            }
        }
        let [secs, first_cpu, second_cpu] = [secs, first_cpu, second_cpu].map(median);
        println!(
            "  {secs:.2} s; CPU {first_cpu:.2} s of the site that was written to, {second_cpu:.2} s of its peer"
        );
        Ok(())
    }

    fn copy(&self) -> Result<()> {
        println!("\nA copy of {COPIED} items of 100 bytes for a new site, while both serve");
        let mut pair = Pair::start_first(&self.larderd, "interval", &self.cores)?;
        pair.first().client()?.set_all(0..COPIED, 100)?;
        let load = Load::start(pair.first(), 1_000)?;
        let cpu = cpu_secs(pair.first().pid())?;
        let began = Instant::now();
        pair.start_second()?;
        let second = pair.second()?;
        let mut client = second.client()?;
        let mut slowest = Duration::ZERO;
        // It serves reads meanwhile.
        while client.sum("stats replication", ":cursor")? == 0 || client.is_copying()? {
            let asked = Instant::now();
            client.has_probe(0)?;
            slowest = slowest.max(asked.elapsed());
            if began.elapsed() > PATIENCE * 3 {
                return Err("the copy is not done after three minutes".into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        let secs = began.elapsed().as_secs_f64();
        let reached = load.stop()?;
        let found = client.count(0..COPIED)?;
        println!(
            "  {secs:.2} s; {found} of them are there; CPU {:.2} s of the site that was copied, {:.2} s of the new one",
            cpu_secs(pair.first().pid())? - cpu,
            cpu_secs(second.pid())?
        );
        println!(
            "  meanwhile: {reached:.0} sets/s at the first; a get at the second took {slowest:.1?} at most"
        );
        Ok(())
    }

    fn dead(&self) -> Result<()> {
        println!("\nA dead peer: {DEAD_SETS} sets of 1 KiB to {DEAD_KEYS} keys; MiB");
        println!("  {:<26} {:>10} {:>10} {:>10} {:>10}", "", "memory", "after", "disk", "after");
        let alone = self.alone()?;
        let mut deserted = self.pair()?;
        deserted.kill_second();
        for (name, site) in [("store", &alone), ("store with a dead peer", deserted.first())] {
            let mut client = site.client()?;
            client.set_all(0..DEAD_KEYS, 1024)?;
            site.settle()?;
            let before = [server::resident_bytes(site.pid())?, site.disk_bytes()?];
            for _ in 0..DEAD_SETS / DEAD_KEYS {
                client.set_all(0..DEAD_KEYS, 1024)?;
            }
            site.settle()?;
            let after = [server::resident_bytes(site.pid())?, site.disk_bytes()?];
            let mib = |bytes: u64| bytes >> 20;
            println!(
                "  {name:<26} {:>10} {:>10} {:>10} {:>10}",
                mib(before[0]),
                mib(after[0]),
                mib(before[1]),
                mib(after[1])
            );
        }
        Ok(())
    }
}

/// Sets at a steady pace, in a thread of its own.
struct Load {
    is_over: std::sync::Arc<std::sync::atomic::AtomicBool>,
    thread: thread::JoinHandle<Result<f64>>,
}

impl Load {
    fn start(site: &Site, per_sec: u64) -> Result<Self> {
        let mut client = site.client()?;
        let is_over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let stops = std::sync::Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let began = Instant::now();
            let mut sets = 0;
            while !stops.load(std::sync::atomic::Ordering::Relaxed) {
                let due = (began.elapsed().as_secs_f64() * per_sec as f64) as u64;
                let keys: Vec<u64> =
                    (sets..due.min(sets + 1_000)).map(|set| LOAD_KEYS + set % 100_000).collect();
                client.send_sets(&keys, 100)?;
                client.stored(keys.len() as u64)?;
                sets += keys.len() as u64;
                thread::sleep(Duration::from_millis(1));
            }
            Ok(sets as f64 / began.elapsed().as_secs_f64())
        });
        Ok(Self { is_over, thread })
    }

    /// Returns how many a second it came to.
    fn stop(self) -> Result<f64> {
        self.is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        self.thread.join().map_err(|_| "the load panicked")?
    }
}

const CPU_KEYS: u64 = 50_000;
const PROBES: u64 = 500;
const MISSED: u64 = 200_000;
const COPIED: u64 = 1_000_000;
const DEAD_KEYS: u64 = 50_000;
const DEAD_SETS: u64 = 1_000_000;
/// Those of the load begin here.
const LOAD_KEYS: u64 = 10_000_000;
const PATIENCE: Duration = Duration::from_secs(60);
