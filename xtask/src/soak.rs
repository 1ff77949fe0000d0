//! The soak: clients that know what every reply may be, while the server evicts, expires and flushes.

mod backups;
mod client;
mod dialogue;
mod draw;
mod flushes;
mod judge;
mod limit;
mod model;
mod quota;
mod round;
mod sizes;
mod wire;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use larder_conformance::Result;
use larder_conformance::folder::Folder;
use larder_conformance::server::{self, Server};
use larder_conformance::stats::Stats;
use lexopt::prelude::*;

use backups::{Backups, Compared};
use client::{Client, Shared, Tally};
use flushes::Flushes;
use limit::Limit;
use round::Rounds;
use sizes::Sizes;
use wire::Wire;

const HELP: &str = "\
Runs a server under mixed load with values that can be checked, and fails at the first wrong reply.

usage: cargo xtask soak [options]

  --secs N         how long (default 600)
  --server PATH    the server to test (default: this workspace's larderd)
  --threads N      its worker threads (default 2)
  --memory-mib N   its -m (default 64: small, so that it evicts all the time; with a store 24)
  --clients N      client threads, one connection each (default 4; with a store 6)
  --seed N         of the random requests (default: random, and printed)
  --keep store     it keeps its items in a store: what was stored and has not expired must be there, and the disk must
                   not have more than 1.5 times what lives, and 6 files of 4 MiB. Two namespaces have quotas of memory,
                   one of them a TTL; a third has a quota of disk that is always reached, which holds within 2 % and
                   refuses nobody else. Every few seconds a backup is taken (full, incremental, as a stream), restored to
                   another larderd, and compared: all that was acknowledged before and not changed meanwhile is there
                   with value, flags, time and CAS value, and nothing that was gone. From 300 s on there must have been
                   four times as much data as memory
  --large          values of 100 B to 8 MB, small ones, then large ones, and back within a minute, at -I 8m and -m 256;
                   every 7 s cache_memlimit lowers -m to a quarter, or raises it again
  --memcached      the server is memcached 1.6.18: leave out what it lacks, and report its memory without judging it

Every client has keys of its own, on which it knows the last value written: a read must give that or a miss, never an older,
torn or foreign value; what was deleted, flushed or missing once, or is past its time by more than a second, must be a miss;
counters are exact. Keys that all clients write must hold what one of them wrote, and not go back. All classic and meta
commands are mixed, with and without replies; flushes are immediate or delayed. Resident memory must stay within
    -m + 5 % + clients x 256 KiB (connection buffers) + 9 MiB (program, libraries, stacks);
    with a store 32 MiB more (changes on their way to it, its index, and what it reads);
    with --large, -m is the highest one until a lowered one is kept, a minute at most, and the 5 % are of the
    highest one, whose tables stay.";

/// Soaks. Errors: the first wrong reply with the dialogue around it, too much memory, or a run in which nothing was
/// evicted or expired and which therefore shows little.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let Some(options) = Options::parse(args)? else {
        println!("{HELP}");
        return Ok(());
    };
    let program = options.server.clone().map_or_else(server::larderd, Ok)?;
    let folder = Folder::create();
    let store = folder.arg("store");
    let (memory_mib, threads) = (options.memory_mib.to_string(), options.threads.to_string());
    folder.write(NAMESPACES_FILE, NAMESPACES);
    folder.write("token", backups::TOKEN);
    let (namespaces, token, directory) =
        (folder.arg(NAMESPACES_FILE), folder.arg("token"), folder.arg(backups::DIRECTORY));
    let mut args = vec!["-m", &memory_mib, "-t", &threads];
    if options.is_large {
        args.extend(["-I", "8m"]);
    }
    if options.keeps {
        args.extend(["-u", "root", "--store", &store, "--store-segment-kib", SEGMENT_KIB]);
        args.extend(["--namespaces", &namespaces, "--backup-dir", &directory]);
        args.extend(["--backup-token-file", &token, "--admin-listen", "127.0.0.1:0"]);
    }
    let server = Server::start(&program, &args)?;
    println!(
        "soak: {} for {} s, seed {}, {} clients, -m {} -t {}",
        program.display(),
        options.time.as_secs(),
        options.seed,
        options.clients,
        options.memory_mib,
        options.threads
    );

    let shared = Shared {
        address: server.address(),
        stop: AtomicBool::new(false),
        tally: Tally::default(),
        flushes: Mutex::new(Flushes::default()),
        rounds: Rounds::default(),
        sizes: if options.is_large { Sizes::Shifting(options.time.min(SIZES_CYCLE)) } else { Sizes::Mixed },
        is_memcached: options.is_memcached,
        keeps: options.keeps,
    };
    let soaked = thread::scope(|scope| {
        let clients: Vec<_> = (0..options.clients)
            .map(|id| {
                let (shared, seed) = (&shared, options.seed);
                scope.spawn(move || {
                    let ended = Client::new(shared, id, seed).and_then(Client::run);
                    // One violation is enough: the others would only drown it.
                    shared.stop.store(true, Ordering::Relaxed);
                    ended
                })
            })
            .collect();
        let is_over = AtomicBool::new(false);
        let backups = server.admin_address().map(|admin| {
            let (program, folder, clients) = (&*program, &folder, options.clients);
            Backups { shared: &shared, program, folder, admin, clients, is_over: &is_over }
        });
        thread::scope(|scope| {
            let backups = backups.map(|backups| {
                scope.spawn(move || {
                    let compared = backups.run();
                    if compared.is_err() {
                        backups.shared.stop.store(true, Ordering::Relaxed);
                    }
                    compared
                })
            });
            let quota = options.keeps.then(|| {
                let (shared, seed) = (&shared, options.seed);
                scope.spawn(move || {
                    let report = quota::run(shared, seed);
                    if report.is_err() {
                        shared.stop.store(true, Ordering::Relaxed);
                    }
                    report
                })
            });
            let watched = watch(&options, &server, &shared, || {
                is_over.store(true, Ordering::Relaxed);
                backups.as_ref().is_none_or(|backups| backups.is_finished())
            });
            shared.stop.store(true, Ordering::Relaxed);
            for client in clients {
                client.join().map_err(|_| "a client panicked")??;
            }
            // Backups also end, with an error, for what another has found: that one says more.
            let compared =
                backups.map(|backups| backups.join().map_err(|_| "the backups panicked")).transpose()?;
            let quota = quota.map(|quota| quota.join().map_err(|_| "the quota panicked")).transpose()?;
            watched?;
            if let Some(quota) = quota {
                report_quota(&quota?);
            }
            if let Some(compared) = compared {
                report_backups(&compared?);
            }
            Ok(())
        })
    });
    if !options.keeps {
        return soaked;
    }
    if let Err(error) = soaked {
        server.kill()?;
        return Err(format!("{error}\nthe store is kept in {}", folder.keep().display()).into());
    }
    judge_disk(server, Path::new(&store))
}

/// A number of `stats store`.
fn statistic(server: &Server, name: &str) -> Result<u64> {
    let mut stream = TcpStream::connect(server.address())?;
    stream.write_all(b"stats store\r\nquit\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let value =
        text.lines().find_map(|line| line.strip_prefix("STAT ")?.strip_prefix(name)?.strip_prefix(' '));
    Ok(value.ok_or_else(|| format!("stats store has no {name}"))?.parse()?)
}

/// Whether the disk has no more than it may have of what lives.
fn judge_disk(server: Server, store: &Path) -> Result<()> {
    let mut disk_bytes = 0;
    // Cleaning has a bounded rate, and a flush has just killed much at once, perhaps.
    server::eventually(|| statistic(&server, "cleaning_debt_bytes").is_ok_and(|debt| debt == 0));
    server.stop()?;
    for entry in fs::read_dir(store)? {
        disk_bytes += entry?.metadata()?.blocks() * 512;
    }
    let live_bytes = larder_conformance::crash::live_bytes(store)?;
    let bound_bytes = live_bytes * 3 / 2 + 6 * (SEGMENT_KIB.parse::<u64>()? << 10);
    println!(
        "soak: {} KiB on the disk, {} KiB live, bound {} KiB",
        disk_bytes >> 10,
        live_bytes >> 10,
        bound_bytes >> 10
    );
    if disk_bytes <= bound_bytes { Ok(()) } else { Err("the disk has too much of what is dead".into()) }
}

struct Options {
    time: Duration,
    server: Option<PathBuf>,
    threads: u32,
    memory_mib: u64,
    clients: usize,
    seed: u64,
    is_memcached: bool,
    keeps: bool,
    is_large: bool,
}

impl Options {
    /// `None`: help was asked for.
    fn parse(args: &[String]) -> Result<Option<Self>> {
        let mut options = Self {
            time: Duration::from_secs(600),
            server: None,
            threads: 2,
            memory_mib: 64,
            clients: 4,
            seed: fastrand::u64(..),
            is_memcached: false,
            keeps: false,
            is_large: false,
        };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(arg) = parser.next()? {
            match arg {
                Long("secs") => options.time = Duration::from_secs(parser.value()?.parse()?),
                Long("server") => options.server = Some(parser.value()?.into()),
                Long("threads") => options.threads = parser.value()?.parse()?,
                Long("memory-mib") => options.memory_mib = parser.value()?.parse()?,
                Long("clients") => options.clients = parser.value()?.parse()?,
                Long("seed") => options.seed = parser.value()?.parse()?,
                Long("keep") => match parser.value()?.string()?.as_str() {
                    "cache" => options.keeps = false,
                    "store" => (options.keeps, options.memory_mib, options.clients) = (true, 24, 6),
                    place => return Err(format!("--keep {place}: cache or store").into()),
                },
                Long("large") => (options.is_large, options.memory_mib) = (true, 256),
                Long("memcached") => options.is_memcached = true,
                Long("help") => return Ok(None),
                _ => return Err(arg.unexpected().into()),
            }
        }
        if options.is_large && options.keeps {
            return Err("--large: not with a store".into());
        }
        Ok(Some(options))
    }

    /// Under this limit.
    fn resident_bytes_max(&self, limit_mib: u64) -> u64 {
        // Tables that are as long as the highest limit wants stay.
        let budget = (limit_mib << 20) + (self.memory_mib << 20) / 20;
        let store_bytes = if self.keeps { STORE_BYTES } else { 0 };
        budget + self.clients as u64 * CONNECTION_BYTES + PROGRAM_BYTES + store_bytes
    }
}

/// Samples memory and reports progress until the time is over and nothing else goes on, or a client has failed.
fn watch(options: &Options, server: &Server, shared: &Shared, is_idle: impl Fn() -> bool) -> Result<()> {
    let start = Instant::now();
    let (mut resident_bytes_peak, mut live_bytes_peak) = (0, 0);
    let mut next_report = PROGRESS_INTERVAL;
    let wire = options.is_large.then(|| Wire::connect(server.address())).transpose()?;
    let mut limit = Limit::new(options.memory_mib, wire);
    while !shared.stop.load(Ordering::Relaxed) && (start.elapsed() < options.time || !is_idle()) {
        thread::sleep(SAMPLE_INTERVAL);
        limit.go_on()?;
        let bytes_max = |mib| options.resident_bytes_max(mib);
        let resident_bytes = server.resident_bytes()?;
        resident_bytes_peak = resident_bytes_peak.max(resident_bytes);
        let resident_bytes_max = bytes_max(limit.judging_mib(resident_bytes, bytes_max)?);
        if resident_bytes > resident_bytes_max && !options.is_memcached {
            return Err(format!(
                "resident memory is {} KiB, the limit {} KiB",
                resident_bytes >> 10,
                resident_bytes_max >> 10
            )
            .into());
        }
        if start.elapsed() >= next_report {
            next_report += PROGRESS_INTERVAL;
            report(start, server, shared, resident_bytes)?;
            if options.keeps {
                live_bytes_peak = live_bytes_peak.max(statistic(server, "live_bytes")?);
            }
        }
    }
    if start.elapsed() < options.time {
        return Ok(());
    }

    let evictions = report(start, server, shared, server.resident_bytes()?)?;
    println!(
        "soak: no wrong reply; resident memory at most {} KiB (limit {} KiB){}",
        resident_bytes_peak >> 10,
        options.resident_bytes_max(options.memory_mib) >> 10,
        limit.report()
    );
    if options.keeps {
        let times = live_bytes_peak as f64 / (options.memory_mib << 20) as f64;
        println!("soak: at most {} MiB lived, {times:.1} times the memory", live_bytes_peak >> 20);
        if options.time >= FULL_TIME && times < 4.0 {
            return Err("there was less than four times as much data as memory".into());
        }
    }
    let tally = &shared.tally;
    let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    if of(&tally.out_of_memory) > of(&tally.requests) / 1000 {
        return Err("more than one request in a thousand found no memory, though the server may evict".into());
    }
    if evictions == 0 || of(&tally.expired) == 0 || of(&tally.hits) == 0 {
        return Err("nothing was evicted, expired or read: too short a soak to show anything".into());
    }
    Ok(())
}

fn report_backups(compared: &Compared) {
    println!(
        "soak: {} backups of {} MiB together, restored: {} items as they were, {} keys gone as they were",
        compared.backups,
        compared.bytes >> 20,
        compared.present,
        compared.absent,
    );
}

fn report_quota(report: &quota::Report) {
    println!(
        "soak: of a quota of {} KiB of disk at most {} KiB were used, {} KiB in the end; {} sets stored, {} refused",
        quota::QUOTA_BYTES >> 10,
        report.used_bytes_max >> 10,
        report.left_bytes >> 10,
        report.stored,
        report.refused,
    );
}

/// Prints a line of progress; returns the number of evictions.
fn report(start: Instant, server: &Server, shared: &Shared, resident_bytes: u64) -> Result<u64> {
    let stats = Stats::of(server.address())?;
    let evictions = stats.get("evictions")?;
    let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let tally = &shared.tally;
    println!(
        "{:>5} s  {} requests, {} hits, {} misses, {} expired or flushed, {} flushes, {} out of memory; \
         {} items, {evictions} evictions, {} KiB resident",
        start.elapsed().as_secs(),
        of(&tally.requests),
        of(&tally.hits),
        of(&tally.misses),
        of(&tally.expired),
        of(&tally.flushes),
        of(&tally.out_of_memory),
        stats.get("curr_items")?,
        resident_bytes >> 10,
    );
    Ok(evictions)
}

const SAMPLE_INTERVAL: Duration = Duration::from_millis(200);
/// A soak of so long has to have had much data.
const FULL_TIME: Duration = Duration::from_secs(300);
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
/// With `--large`, values become larger and smaller again in this time.
const SIZES_CYCLE: Duration = Duration::from_secs(60);
/// What a connection may hold: the unread rest of a request, and replies that wait for the client.
const CONNECTION_BYTES: u64 = 256 * 1024;
/// The program's text (6 MiB), its libraries (2), and the stacks of its threads.
const PROGRAM_BYTES: u64 = 9 << 20;
/// Changes on their way to the store, its index, and what it reads.
const STORE_BYTES: u64 = 32 << 20;
const SEGMENT_KIB: &str = "4096";
const NAMESPACES_FILE: &str = "namespaces.toml";
/// Of a soak with a store: quotas of memory and disk, and TTLs.
const NAMESPACES: &str = r#"
[default]
keep = "store"

[namespace."client0:"]
keep = "store"
memory = "4m"

[namespace."shared:"]
keep = "store"
memory = "4m"
ttl_default = "5s"
ttl_max = "10s"

[namespace."quota:"]
keep = "store"
memory = "2m"
disk = "8m"
"#;
