//! Side-by-side figures: larderd, memcached, and the floor server under the same load.

use std::fs;
use std::path::PathBuf;

use larder_conformance::{Result, server};
use lexopt::prelude::*;
use serde_json::Map;

pub(crate) use since::since_last_tag;

use rows::{Row, Work};
use speed::Bench;

mod clients;
mod embedded;
mod engine;
mod goal;
mod http;
mod idle;
mod large;
mod latency;
mod memory;
mod pinned;
mod redis;
mod replication;
mod rows;
mod since;
mod speed;
mod store;
mod summary;
mod working_set;

const HELP: &str = "\
Compares larderd with memcached and with the floor server (the same epoll, read and write with no cache behind).

usage: cargo xtask bench [options] [ROW...]
       cargo xtask bench clients [--help]    larder-client beside clients of Java, C and Rust
       cargo xtask bench embedded [--help]   the cache of Rust programs beside others; no server
       cargo xtask bench store [--help]      the durable store beside Redis (AOF) and memcached extstore
       cargo xtask bench replication [--help] what a peer costs, and how far behind it is
       cargo xtask bench since [--help]      larderd beside an earlier one: the last tag, or any commit

  --list           the rows, what they ask, and what larderd is to reach
  --quick          short rounds, for a first impression
  --rounds N       rounds of each row (default 5); the medians are printed
  --secs S         length of a round (default 2)
  --memory         the same as the row `memory`
  --json FILE      write the figures there, too
  --markdown FILE  write the table at the end there, too
  --server PATH    the larderd to measure (default: this workspace's)
  --reference PATH the memcached to compare with (default: the installed one)

Without a name, every row; `large` names all rows of large values.

Method. Every server runs with one worker thread (-t 1, -m 2048) pinned to one core of this machine; the load (larder bench),
one thread, is pinned to another. Keys have 24 bytes and are all present at the start; where all requests are sets, all keys are
stored as often as it takes to go through the server's memory once. Then a server is left alone until it does nothing by itself (takes
at most 1.5 % of a core for three seconds), for up to a minute: tables that grow, and memory that is moved to large pages, are
done with then. The load is a closed loop: every connection has a fixed number of requests in flight, and sends the next when an
answer has come. The servers take turns within each round, in an order that changes, so that whatever else the machine does
hits all of them. The figure to trust is the server's CPU time (user and system, all
of its threads) for a million operations, a get of n keys counted as n: it does not depend on how fast the load is. Behind
larderd's stands the interval of its ratio to memcached's and to the floor's, at 95 % (Student's t on the logarithms of the rounds' ratios).
Throughput is given as well; where the server's core is not busy all the time, it is the load's.

Large values (rows large-*) are measured with -m 256 -I 8m and without the floor server. Sets: keys of twice the
memory, all stored, then set once more at random before the first round, so that each set evicts. Gets: keys of half
the memory. 20 connections, one request in flight on each. Held: one and a half times what fits is stored (values of
30 % more or less, drawn anew with each store), then the newest 60 % of the keys are set at random, twice as often as
there are keys; then every key is got, and the bytes of the values are added up. In the rows of changing sizes, one
and a half times what fits is stored of each size in turn, under other keys, and nothing is overwritten. Resident:
2,000 values of 100 kB at -m 1024, then 4,000 sets of keys at random. Tail: gets of 100 bytes over 4 connections,
beside sets of 500 kB over 20, all in a closed loop.
The tables are printed as docs/benchmarks.md has them:
cargo xtask bench large --secs 0.5 takes about six minutes.";

/// Measures and prints. Errors: no such row, a server that does not start, or one that answers wrongly.
pub(crate) fn run(args: &[String]) -> Result<()> {
    if let Some((first, rest)) = args.split_first() {
        match first.as_str() {
            "clients" => return clients::run(rest),
            "embedded" => return embedded::run(rest),
            "store" => return store::run(rest),
            "replication" => return replication::run(rest),
            "since" => return since::run(rest),
            _ => {}
        }
    }
    let Some(options) = Options::parse(args)? else { return Ok(()) };
    let reference = options.reference.clone().map_or_else(server::memcached, Ok)?;
    let larderd = options.server.clone().map_or_else(server::larderd, Ok)?;
    for (name, path) in [("memcached", &reference), ("larderd", &larderd)] {
        println!("{name:<10} {} ({})", server::version(path).unwrap_or_default(), path.display());
    }
    println!("{:<10} no cache behind it", "floor");
    println!("{} rounds of {} s", options.rounds, options.round_secs);

    let bench = Bench::new(&reference, &larderd, options.rounds, options.round_secs)?;
    let mut figures = Map::new();
    let mut lines = Vec::new();
    for row in &options.rows {
        println!("\n{}: {}", row.name, row.what);
        let measured = measure(&bench, row)?;
        for line in &measured.lines {
            println!("  -> {line}");
        }
        lines.extend(measured.lines);
        figures.insert(row.name.into(), measured.figures);
        // After every row: what was measured is not lost with the next.
        if let Some(file) = &options.json {
            write(file, &(serde_json::to_string_pretty(&figures)? + "\n"))?;
        }
        if let Some(file) = &options.markdown {
            write(file, &summary::markdown(&lines))?;
        }
    }
    if !lines.is_empty() {
        println!("\n{}", summary::markdown(&lines));
    }
    Ok(())
}

/// What came of a row.
struct Measured {
    /// For programs.
    figures: serde_json::Value,
    /// For the table.
    lines: Vec<summary::Line>,
}

fn measure(bench: &Bench, row: &Row) -> Result<Measured> {
    match row.work {
        Work::Load(ref scenario) => speed::measure(bench, row, scenario),
        Work::Latency => latency::measure(bench, row),
        Work::Idle => idle::measure(bench, row),
        Work::WorkingSet => working_set::measure(bench, row),
        Work::Memory => memory::measure(bench, row),
        Work::Large(part) => large::measure(bench, row, part),
        Work::Http => http::measure(bench, row),
        Work::Redis => redis::measure(bench, row),
        Work::Engine(name) => engine::measure(name, row),
    }
}

fn write(file: &PathBuf, text: &str) -> Result<()> {
    Ok(fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))?)
}

struct Options {
    rounds: usize,
    round_secs: f64,
    rows: Vec<Row>,
    json: Option<PathBuf>,
    markdown: Option<PathBuf>,
    server: Option<PathBuf>,
    reference: Option<PathBuf>,
}

impl Options {
    /// `None`: what was asked for has been printed.
    fn parse(args: &[String]) -> Result<Option<Self>> {
        let mut options = Self {
            rounds: 5,
            round_secs: 2.0,
            rows: Vec::new(),
            json: None,
            markdown: None,
            server: None,
            reference: None,
        };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(arg) = parser.next()? {
            match arg {
                Long("quick") => {
                    options.rounds = 3;
                    options.round_secs = 0.5;
                }
                Long("rounds") => options.rounds = parser.value()?.parse::<usize>()?.max(1),
                Long("secs") => options.round_secs = parser.value()?.parse()?,
                Long("memory") => options.rows.push(rows::find("memory")?),
                Value(name) if name == "large" => options.rows.extend(rows::large()),
                Value(name) => options.rows.push(rows::find(&name.string()?)?),
                Long("json") => options.json = Some(parser.value()?.into()),
                Long("markdown") => options.markdown = Some(parser.value()?.into()),
                Long("server") => options.server = Some(parser.value()?.into()),
                Long("reference") => options.reference = Some(parser.value()?.into()),
                Long("list") => {
                    for row in rows::all() {
                        println!("{:<19} {} [{}]", row.name, row.what, row.goal);
                    }
                    return Ok(None);
                }
                Long("help") => {
                    println!("{HELP}");
                    return Ok(None);
                }
                _ => return Err(arg.unexpected().into()),
            }
        }
        if options.rows.is_empty() {
            options.rows = rows::all();
        }
        Ok(Some(options))
    }
}
