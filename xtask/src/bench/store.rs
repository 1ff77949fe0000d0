//! `cargo xtask bench store`: the durable store and the warm restart beside a cache, Redis (AOF) and memcached with
//! extstore and with `-e`.
//!
//! One load for all: a thread for each connection, one request in flight. Servers of a table take turns in each round.

mod backup;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use larder_bench::statistics::median;
use larder_conformance::folder::Folder;
use larder_conformance::{Result, server};

use super::pinned::{Pinned, cpu_secs, on_core};
use crate::cores::Cores;
use crate::needs;

const HELP: &str = "\
Measures larderd --store and larderd -e beside a cache, Redis (appendfsync always and everysec) and memcached with
extstore and with -e.

usage: cargo xtask bench store [options]

  --rounds N       rounds of each table (default 3); medians are printed
  --secs S         length of a round (default 2)
  --mib M          data of the tables that exceed memory, and of the restart (default 256)
  --table NAME     this table only: memory, sync, beyond, written (with the restart), backup, warm
  --server PATH    the larderd to measure (default: this workspace's)

Method. Each server has one worker (Redis: its default), pinned with all its threads to one core of this machine; the
load is pinned to the other. A connection has one request in flight. Values have 1 KiB. CPU is that of all threads of
the server, user and system; written bytes are those of /proc/PID/io. Servers of a table take turns in each round.";

/// Measures and prints.
pub(super) fn run(args: &[String]) -> Result<()> {
    let (mut rounds, mut secs, mut mib, mut larderd, mut table) = (3, 2, 256, None, None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--rounds" => rounds = value()?.parse()?,
            "--secs" => secs = value()?.parse()?,
            "--mib" => mib = value()?.parse()?,
            "--table" => table = Some(value()?.clone()),
            "--server" => larderd = Some(value()?.into()),
            "--help" | "-h" => {
                println!("{HELP}");
                return Ok(());
            }
            _ => return Err(format!("no such option: {arg}").into()),
        }
    }
    needs::install_extra(&["redis-server", "memcached"])?;
    let larderd = larderd.map_or_else(server::larderd, Ok)?;
    let cores = Cores::choose()?;
    pin_to(cores.load)?;
    let secs = Duration::from_secs(secs);
    let items = mib * 1024;
    let bench = Bench { larderd: &larderd, core: cores.server, rounds, secs, items };
    let is_wanted = |name: &str| table.as_deref().is_none_or(|table| table == name);
    if !TABLES.iter().any(|name| is_wanted(name)) {
        return Err(format!("no such table: {}", table.unwrap_or_default()).into());
    }
    TABLES.iter().filter(|name| is_wanted(name)).try_for_each(|name| bench.measure(name))
}

struct Bench<'b> {
    larderd: &'b Path,
    core: usize,
    rounds: usize,
    secs: Duration,
    /// Of the tables that exceed memory.
    items: u64,
}

/// A server under measurement.
struct Contestant {
    name: &'static str,
    process: Pinned,
    address: SocketAddr,
    is_redis: bool,
    folder: Folder,
}

/// What a load did.
struct Outcome {
    operations: u64,
    misses: u64,
    cpu_micros: f64,
    per_sec: f64,
    latencies_micros: Vec<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Get,
    Set,
}

const TABLES: [&str; 6] = ["memory", "sync", "beyond", "written", "backup", "warm"];

impl Bench<'_> {
    fn measure(&self, table: &str) -> Result<()> {
        match table {
            "memory" => self.in_memory(),
            "sync" => self.sync(),
            "beyond" => self.beyond_memory(),
            "written" => self.written(),
            "backup" => self.backup(),
            _ => self.warm(),
        }
    }

    fn in_memory(&self) -> Result<()> {
        let items = 100_000;
        println!(
            "\nIn memory: {items} items of 1 KiB, 16 connections; CPU us an operation (median of {})",
            self.rounds
        );
        let contestants = [
            self.larderd("larderd, cache", &["-m", "1024"], false)?,
            self.larderd("larderd, store interval", &["-m", "1024", "--durability", "interval"], true)?,
            self.larderd_warm(&["-m", "1024"], Folder::create_in_memory())?,
            self.memcached("memcached extstore", "1024")?,
            self.memcached_warm("1024", Folder::create_in_memory())?,
            self.redis("redis everysec", "everysec")?,
        ];
        contestants.iter().try_for_each(|contestant| contestant.fill(items))?;
        println!("  {:<26} {:>10} {:>10} {:>12}", "", "get", "set", "sets/s");
        let mut cpu = vec![[Vec::new(), Vec::new()]; contestants.len()];
        let mut rates = vec![Vec::new(); contestants.len()];
        for _ in 0..self.rounds {
            for (at, contestant) in contestants.iter().enumerate() {
                cpu[at][0].push(contestant.load(16, self.secs, What::Get, items)?.cpu_micros);
                let set = contestant.load(16, self.secs, What::Set, items)?;
                cpu[at][1].push(set.cpu_micros);
                rates[at].push(set.per_sec);
            }
        }
        for (at, contestant) in contestants.iter().enumerate() {
            let [get, set] = [0, 1].map(|what| median(cpu[at][what].iter().copied()));
            let rate = median(rates[at].iter().copied());
            println!("  {:<26} {get:>10.2} {set:>10.2} {rate:>12.0}", contestant.name);
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        println!("\nsync: a set is answered once it is on disk; 1 KiB");
        let folder = Folder::create();
        let mut fsyncs = own_fsyncs(folder.path())?;
        let (p50, p99) = (quantile(&mut fsyncs, 0.5), quantile(&mut fsyncs, 0.99));
        println!("  the disk's own: append 1 KiB, fdatasync: p50 {p50:.0} us, p99 {p99:.0} us");
        let contestants = [
            self.larderd("larderd, store sync", &["-m", "256"], true)?,
            self.redis("redis always", "always")?,
        ];
        println!("  {:<26} {:>12} {:>10} {:>10} {:>10}", "", "connections", "sets/s", "p50 us", "p99 us");
        for connections in [1, 16, 64] {
            let mut outcomes: Vec<Vec<Outcome>> = contestants.iter().map(|_| Vec::new()).collect();
            for _ in 0..self.rounds {
                for (contestant, outcomes) in contestants.iter().zip(&mut outcomes) {
                    outcomes.push(contestant.load(connections, self.secs, What::Set, 50_000)?);
                }
            }
            for (contestant, outcomes) in contestants.iter().zip(&mut outcomes) {
                let rate = median(outcomes.iter().map(|outcome| outcome.per_sec));
                let mut of =
                    |share| median(outcomes.iter_mut().map(|o| quantile(&mut o.latencies_micros, share)));
                let (p50, p99) = (of(0.5), of(0.99));
                println!("  {:<26} {connections:>12} {rate:>10.0} {p50:>10.0} {p99:>10.0}", contestant.name);
            }
        }
        Ok(())
    }

    fn beyond_memory(&self) -> Result<()> {
        let items = self.items;
        let memory_mib = (items / 1024 / 4).max(16).to_string();
        println!(
            "\nMore data than memory: {} MiB of data, -m {memory_mib}; uniform gets, 16 connections",
            items / 1024
        );
        let contestants = [
            self.larderd("larderd, store interval", &["-m", &memory_mib, "--durability", "interval"], true)?,
            self.memcached("memcached extstore", &memory_mib)?,
        ];
        println!(
            "  {:<26} {:>8} {:>8} {:>9} {:>9} {:>9} {:>10}",
            "", "CPU us", "gets/s", "p50 us", "p99.9 us", "misses", "reads/get"
        );
        contestants.iter().try_for_each(|contestant| contestant.fill(items))?;
        for contestant in &contestants {
            let reads = contestant.stat("stats store", "disk_reads")?;
            let mut outcome = contestant.load(16, self.secs * 2, What::Get, items)?;
            let read = contestant.stat("stats store", "disk_reads")?.zip(reads);
            let reads = read.map_or_else(
                || "-".into(),
                |(now, then)| format!("{:.2}", (now - then) / outcome.operations as f64),
            );
            let [p50, p999] = [0.5, 0.999].map(|share| quantile(&mut outcome.latencies_micros, share));
            println!(
                "  {:<26} {:>8.1} {:>8.0} {p50:>9.0} {p999:>9.0} {:>8.1}% {reads:>10}",
                contestant.name,
                outcome.cpu_micros,
                outcome.per_sec,
                outcome.misses as f64 / outcome.operations as f64 * 100.0
            );
        }
        Ok(())
    }

    fn written(&self) -> Result<()> {
        let items = self.items;
        let stored = (items * (1024 + KEY_BYTES)) as f64;
        println!(
            "\nWritten bytes for each stored byte, and the disk: {} MiB, then twice as many random sets",
            items / 1024
        );
        println!("  {:<26} {:>8} {:>12} {:>12}", "", "stored", "overwritten", "disk / live");
        let contestants = [
            self.larderd("larderd, store interval", &["-m", "64", "--durability", "interval"], true)?,
            self.redis("redis everysec", "everysec")?,
        ];
        for contestant in &contestants {
            let before = contestant.written_bytes()?;
            contestant.fill(items)?;
            std::thread::sleep(Duration::from_secs(2));
            let once = contestant.written_bytes()?;
            let sets = contestant.sets(items, 2 * items)?;
            self.settle(contestant)?;
            let twice = contestant.written_bytes()?;
            let overwritten = (sets * (1024 + KEY_BYTES)) as f64;
            println!(
                "  {:<26} {:>8.2} {:>12.2} {:>12.2}",
                contestant.name,
                (once - before) / stored,
                (twice - once) / overwritten,
                disk_bytes(contestant.folder.path())? as f64 / stored
            );
        }
        let [larderd, _] = contestants;
        self.restart(larderd, items)
    }

    /// Until cleaning has nothing to do.
    fn settle(&self, contestant: &Contestant) -> Result<()> {
        for _ in 0..60 {
            std::thread::sleep(Duration::from_millis(500));
            if contestant.stat("stats store", "cleaning_debt_bytes")?.unwrap_or(0.0) == 0.0 {
                break;
            }
        }
        Ok(())
    }

    fn restart(&self, larderd: Contestant, items: u64) -> Result<()> {
        let folder = larderd.stop("-TERM")?;
        let began = Instant::now();
        let again = self.larderd_in("larderd", &["-m", "64"], Some(folder))?;
        let found = again.ask(What::Get, items / 2, &mut again.connect()?, &mut Vec::new())?;
        println!(
            "\nRestart after a clean stop, {} MiB: first get after {:.0} ms ({})",
            items / 1024,
            began.elapsed().as_secs_f64() * 1e3,
            if found { "found" } else { "NOT FOUND" }
        );
        Ok(())
    }

    /// Both servers keep a million items over a clean stop.
    fn warm(&self) -> Result<()> {
        let items = 1_000_000;
        println!("\nWarm restart: {items} items of 1 KiB in a file in memory; SIGUSR1, 2 s, start");
        println!("  {:<26} {:>14} {:>12}", "", "first get, ms", "found");
        self.measure_warm(items, |folder| self.larderd_warm(&["-m", "2048"], folder))?;
        self.measure_warm(items, |folder| self.memcached_warm("2048", folder))
    }

    fn measure_warm(&self, items: u64, start: impl Fn(Folder) -> Result<Contestant>) -> Result<()> {
        let contestant = start(Folder::create_in_memory())?;
        contestant.fill(items)?;
        let (name, folder) = (contestant.name, contestant.stop("-USR1")?);
        // memcached refuses its file in the second in which it stopped.
        std::thread::sleep(Duration::from_secs(2));
        let began = Instant::now();
        let again = start(folder)?;
        let (mut stream, mut bytes) = (again.connect()?, Vec::new());
        again.ask(What::Get, 0, &mut stream, &mut bytes)?;
        let millis = began.elapsed().as_secs_f64() * 1e3;
        let mut found = 0;
        for item in 0..items / 100 {
            found += u64::from(again.ask(What::Get, item * 100, &mut stream, &mut bytes)?);
        }
        println!("  {name:<26} {millis:>14.0} {:>11.2}%", found as f64 / (items / 100) as f64 * 100.0);
        Ok(())
    }

    fn larderd_warm(&self, options: &[&str], folder: Folder) -> Result<Contestant> {
        let mut command = on_core(self.core, self.larderd);
        command.args(["-u", "root", "-l", "127.0.0.1", "-t", "1"]).args(options);
        command.arg("-e").arg(folder.path().join("memory"));
        Contestant::start("larderd, warm", command, "-p", false, folder)
    }

    fn memcached_warm(&self, memory_mib: &str, folder: Folder) -> Result<Contestant> {
        let mut command = on_core(self.core, server::memcached()?);
        command.args(["-u", "root", "-l", "127.0.0.1", "-t", "1", "-m", memory_mib]);
        command.arg("-e").arg(folder.path().join("memory"));
        Contestant::start("memcached -e", command, "-p", false, folder)
    }

    fn larderd(&self, name: &'static str, options: &[&str], is_stored: bool) -> Result<Contestant> {
        self.larderd_in(name, options, is_stored.then(Folder::create))
    }

    fn larderd_in(&self, name: &'static str, options: &[&str], store: Option<Folder>) -> Result<Contestant> {
        let mut command = on_core(self.core, self.larderd);
        command.args(["-u", "root", "-l", "127.0.0.1", "-t", "1"]).args(options);
        if let Some(folder) = &store {
            command.arg("--store").arg(folder.path());
        }
        Contestant::start(name, command, "-p", false, store.unwrap_or_else(Folder::create))
    }

    fn memcached(&self, name: &'static str, memory_mib: &str) -> Result<Contestant> {
        let folder = Folder::create();
        let mut command = on_core(self.core, server::memcached()?);
        command.args(["-u", "root", "-l", "127.0.0.1", "-t", "1", "-m", memory_mib]);
        command.arg("-o").arg(format!("ext_path={}/ext:4G,ext_item_age=0", folder.path().display()));
        Contestant::start(name, command, "-p", false, folder)
    }

    fn redis(&self, name: &'static str, fsync: &str) -> Result<Contestant> {
        let folder = Folder::create();
        let mut command = on_core(self.core, "redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--appendfsync", fsync]);
        command.arg("--dir").arg(folder.path());
        Contestant::start(name, command, "--port", true, folder)
    }
}

impl Contestant {
    fn start(
        name: &'static str,
        mut command: Command,
        port_option: &str,
        is_redis: bool,
        folder: Folder,
    ) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server::free_port()));
        command.args([port_option, &address.port().to_string()]);
        let contestant = Self { name, process: Pinned::start(command)?, address, is_redis, folder };
        server::eventually(|| server::connect(contestant.address).is_ok());
        Ok(contestant)
    }

    /// Ends it with a signal that lets it keep its data. Returns where they are.
    fn stop(self, signal: &str) -> Result<Folder> {
        let Self { process, folder, .. } = self;
        let pid = process.pid();
        Command::new("kill").args([signal, &pid.to_string()]).status()?;
        // A process that has ended and was not waited for has no memory.
        server::eventually(|| server::resident_bytes(pid).unwrap_or(0) == 0);
        drop(process);
        Ok(folder)
    }

    fn connect(&self) -> Result<BufReader<TcpStream>> {
        let stream = server::connect(self.address)?;
        stream.set_nodelay(true)?;
        Ok(BufReader::new(stream))
    }

    /// Stores all items once, 64 in flight.
    fn fill(&self, items: u64) -> Result<()> {
        let mut stream = self.connect()?;
        let mut next = 0;
        while next < items {
            let batch = next..(next + 64).min(items);
            let mut bytes = Vec::new();
            batch.clone().for_each(|item| self.request(What::Set, item, &mut bytes));
            stream.get_mut().write_all(&bytes)?;
            for _ in batch.clone() {
                self.reply(What::Set, &mut stream, &mut bytes)?;
            }
            next = batch.end;
        }
        Ok(())
    }

    /// So many random sets, 64 in flight. Returns their number.
    fn sets(&self, items: u64, sets: u64) -> Result<u64> {
        let mut stream = self.connect()?;
        let mut random = fastrand::Rng::with_seed(7);
        let mut bytes = Vec::new();
        for _ in 0..sets / 64 {
            bytes.clear();
            (0..64).for_each(|_| self.request(What::Set, random.u64(..items), &mut bytes));
            stream.get_mut().write_all(&bytes)?;
            for _ in 0..64 {
                self.reply(What::Set, &mut stream, &mut bytes)?;
            }
        }
        Ok(sets / 64 * 64)
    }

    fn load(&self, connections: u64, length: Duration, what: What, items: u64) -> Result<Outcome> {
        let is_over = AtomicBool::new(false);
        let begin_cpu_secs = cpu_secs(self.process.pid())?;
        let begin = Instant::now();
        let work = |seed: u64| -> std::result::Result<(u64, Vec<f64>), String> {
            let mut stream = self.connect().map_err(|error| error.to_string())?;
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut misses, mut latencies, mut bytes) = (0, Vec::new(), Vec::new());
            while !is_over.load(Relaxed) {
                let began = Instant::now();
                let item = random.u64(..items);
                let found =
                    self.ask(what, item, &mut stream, &mut bytes).map_err(|error| error.to_string())?;
                latencies.push(began.elapsed().as_secs_f64() * 1e6);
                misses += u64::from(!found);
            }
            Ok((misses, latencies))
        };
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..connections).map(|seed| scope.spawn(move || work(seed))).collect();
            std::thread::sleep(length);
            is_over.store(true, Relaxed);
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err("a panic".into())))
                .collect()
        });
        let took_secs = begin.elapsed().as_secs_f64();
        let cpu_secs = cpu_secs(self.process.pid())? - begin_cpu_secs;
        let (mut misses, mut latencies_micros) = (0, Vec::new());
        for result in results {
            let (missed, latencies) = result?;
            misses += missed;
            latencies_micros.extend(latencies);
        }
        let operations = latencies_micros.len() as u64;
        Ok(Outcome {
            operations,
            misses,
            cpu_micros: cpu_secs * 1e6 / operations.max(1) as f64,
            per_sec: operations as f64 / took_secs,
            latencies_micros,
        })
    }

    fn request(&self, what: What, item: u64, bytes: &mut Vec<u8>) {
        let command = match (what, self.is_redis) {
            (What::Get, false) => format!("get key:{item:012}\r\n"),
            (What::Get, true) => format!("GET key:{item:012}\r\n"),
            (What::Set, false) => format!("set key:{item:012} 0 0 1024\r\n"),
            (What::Set, true) => format!("*3\r\n$3\r\nSET\r\n$16\r\nkey:{item:012}\r\n$1024\r\n"),
        };
        bytes.extend_from_slice(command.as_bytes());
        if what == What::Set {
            bytes.extend_from_slice(&[b'v'; 1024]);
            bytes.extend_from_slice(b"\r\n");
        }
    }

    /// True unless a get missed.
    fn ask(
        &self,
        what: What,
        item: u64,
        stream: &mut BufReader<TcpStream>,
        bytes: &mut Vec<u8>,
    ) -> Result<bool> {
        bytes.clear();
        self.request(what, item, bytes);
        stream.get_mut().write_all(bytes)?;
        self.reply(what, stream, bytes)
    }

    fn reply(&self, what: What, stream: &mut BufReader<TcpStream>, bytes: &mut Vec<u8>) -> Result<bool> {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        match (what, line.trim_end()) {
            (What::Set, "STORED" | "+OK") => Ok(true),
            (What::Get, "END" | "$-1") => Ok(false),
            (What::Get, head) if head.starts_with("VALUE ") || head == "$1024" => {
                let rest = if self.is_redis { 1026 } else { 1026 + "END\r\n".len() };
                bytes.resize(rest, 0);
                stream.read_exact(bytes)?;
                Ok(true)
            }
            (_, other) => Err(format!("{} answers {other:?}", self.name).into()),
        }
    }

    /// A line of statistics, as a number; `None`: the server has none of that name.
    fn stat(&self, command: &str, name: &str) -> Result<Option<f64>> {
        if self.is_redis {
            return Ok(None);
        }
        Ok(self.text_stat(command, name)?.and_then(|value| value.parse().ok()))
    }

    fn text_stat(&self, command: &str, name: &str) -> Result<Option<String>> {
        let mut stream = self.connect()?;
        stream.get_mut().write_all(format!("{command}\r\n").as_bytes())?;
        let mut found = None;
        loop {
            let mut line = String::new();
            stream.read_line(&mut line)?;
            let words: Vec<_> = line.split_whitespace().collect();
            match words[..] {
                ["STAT", known, value] if known == name => found = Some(value.to_owned()),
                ["STAT", ..] => {}
                _ => return Ok(found),
            }
        }
    }

    /// Given to the disk by this process.
    fn written_bytes(&self) -> Result<f64> {
        let io = fs::read_to_string(format!("/proc/{}/io", self.process.pid()))?;
        let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        Ok(line.ok_or("no write_bytes")?.trim().parse()?)
    }
}

/// How long this disk takes to append a kilobyte durably, in microseconds.
pub(super) fn own_fsyncs(folder: &Path) -> Result<Vec<f64>> {
    let mut file = fs::File::create(folder.join("fsync"))?;
    let mut micros = Vec::new();
    for _ in 0..500 {
        let began = Instant::now();
        file.write_all(&[b'v'; 1024])?;
        file.sync_data()?;
        micros.push(began.elapsed().as_secs_f64() * 1e6);
    }
    Ok(micros)
}

pub(super) fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let at = ((values.len() as f64 * share).ceil() as usize).clamp(1, values.len().max(1));
    values.get(at - 1).copied().unwrap_or(f64::NAN)
}

/// Blocks that the files of a folder and of those in it take.
pub(super) fn disk_bytes(folder: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { disk_bytes(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(bytes)
}

/// This process, and its threads to come, run on one core.
pub(super) fn pin_to(core: usize) -> Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

const KEY_BYTES: u64 = 16;
