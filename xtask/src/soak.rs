//! The soak: clients that know what every reply may be, while the server evicts, expires and flushes.

mod client;
mod dialogue;
mod draw;
mod flushes;
mod judge;
mod model;
mod wire;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use larder_conformance::Result;
use larder_conformance::server::{self, Server};
use larder_conformance::stats::Stats;
use lexopt::prelude::*;

use client::{Client, Shared, Tally};
use flushes::Flushes;

const HELP: &str = "\
Runs a server under mixed load with values that can be checked, and fails at the first wrong reply.

usage: cargo xtask soak [options]

  --secs N         how long (default 600)
  --server PATH    the server to test (default: this workspace's larderd)
  --threads N      its worker threads (default 2)
  --memory-mib N   its -m (default 64: small, so that it evicts all the time)
  --clients N      client threads, one connection each (default 4)
  --seed N         of the random requests (default: random, and printed)
  --memcached      the server is memcached 1.6.18: leave out what it lacks, and report its memory without judging it

Every client has keys of its own, on which it knows the last value written: a read must give that or a miss, never an older,
torn or foreign value; what was deleted, flushed or missing once, or is past its time by more than a second, must be a miss;
counters are exact. Keys that all clients write must hold what one of them wrote, and not go back. All classic and meta
commands are mixed, with and without replies; flushes are immediate or delayed. Resident memory must stay within
    -m + 5 % + clients x 256 KiB (connection buffers) + 8 MiB (program, libraries, stacks).";

/// Soaks. Errors: the first wrong reply with the dialogue around it, too much memory, or a run in which nothing was
/// evicted or expired and which therefore shows little.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let Some(options) = Options::parse(args)? else {
        println!("{HELP}");
        return Ok(());
    };
    let program = options.server.clone().map_or_else(server::larderd, Ok)?;
    let server = Server::start(
        &program,
        &["-m", &options.memory_mib.to_string(), "-t", &options.threads.to_string()],
    )?;
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
        is_memcached: options.is_memcached,
    };
    thread::scope(|scope| {
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
        let watched = watch(&options, &server, &shared);
        shared.stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().map_err(|_| "a client panicked")??;
        }
        watched
    })
}

struct Options {
    time: Duration,
    server: Option<PathBuf>,
    threads: u32,
    memory_mib: u64,
    clients: usize,
    seed: u64,
    is_memcached: bool,
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
                Long("memcached") => options.is_memcached = true,
                Long("help") => return Ok(None),
                _ => return Err(arg.unexpected().into()),
            }
        }
        Ok(Some(options))
    }

    fn resident_bytes_max(&self) -> u64 {
        let budget = self.memory_mib << 20;
        budget + budget / 20 + self.clients as u64 * CONNECTION_BYTES + PROGRAM_BYTES
    }
}

/// Samples memory and reports progress until the time is over or a client has failed.
fn watch(options: &Options, server: &Server, shared: &Shared) -> Result<()> {
    let start = Instant::now();
    let mut resident_bytes_peak = 0;
    let mut next_report = PROGRESS_INTERVAL;
    while !shared.stop.load(Ordering::Relaxed) && start.elapsed() < options.time {
        thread::sleep(SAMPLE_INTERVAL);
        let resident_bytes = server.resident_bytes()?;
        resident_bytes_peak = resident_bytes_peak.max(resident_bytes);
        if resident_bytes > options.resident_bytes_max() && !options.is_memcached {
            return Err(format!(
                "resident memory is {} KiB, the limit {} KiB",
                resident_bytes >> 10,
                options.resident_bytes_max() >> 10
            )
            .into());
        }
        if start.elapsed() >= next_report {
            next_report += PROGRESS_INTERVAL;
            report(start, server, shared, resident_bytes)?;
        }
    }
    if start.elapsed() < options.time {
        return Ok(());
    }

    let evictions = report(start, server, shared, server.resident_bytes()?)?;
    println!(
        "soak: no wrong reply; resident memory at most {} KiB (limit {} KiB)",
        resident_bytes_peak >> 10,
        options.resident_bytes_max() >> 10
    );
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
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
/// What a connection may hold: the unread rest of a request, and replies that wait for the client.
const CONNECTION_BYTES: u64 = 256 * 1024;
/// The program's text, its libraries, and the stacks of its threads.
const PROGRAM_BYTES: u64 = 8 << 20;
