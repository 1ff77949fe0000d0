//! Side-by-side figures: larderd, memcached, and the floor server under the same load.

use std::fs;
use std::path::PathBuf;

use larder_bench::Scenario;
use larder_conformance::{Result, server};
use lexopt::prelude::*;

mod memory;
mod scenarios;
mod speed;

const HELP: &str = "\
Compares larderd with memcached and with the floor server (the same epoll, read and write with no cache behind).

usage: cargo xtask bench [options]

  --quick          short rounds, for a first impression
  --rounds N       rounds of each scenario (default 5); the medians are printed
  --secs S         length of a round (default 2)
  --scenario NAME  only this one (may repeat): get get-hot get-pipelined get-udp multiget set mixed olio-100 olio-2048
                   olio-4096
  --memory         memory per item, and items held at -m 1024 before the first eviction, instead of speed
  --json FILE      write the figures there, too
  --server PATH    the larderd to measure (default: this workspace's)
  --reference PATH the memcached to compare with (default: the installed one)

Method. Every server runs with one worker thread (-t 1, -m 2048) pinned to one core of this machine; the load (larder bench),
one thread, is pinned to another. Keys have 24 bytes and are all present at the start; where all requests are sets, all keys are
stored as often as it takes to go through the server's memory once. The load is a closed loop: every connection has a fixed number of
requests in flight, and sends the next when an answer has come. The servers take turns within each round, in an order that
changes, so that whatever else the machine does hits all of them. The figure to trust is the server's CPU time (user and system, all
of its threads) for a million operations, a get of n keys counted as n: it does not depend on how fast the load is. Behind
larderd's stands the interval of its ratio to memcached's, at 95 % (Student's t on the logarithms of the rounds' ratios). Throughput is
given as well; where the server's core is not busy all the time, it is the load's.";

/// Measures and prints. Errors: no such scenario, a server that does not start, or one that answers wrongly.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let Some(options) = Options::parse(args)? else {
        println!("{HELP}");
        return Ok(());
    };
    let reference = options.reference.clone().map_or_else(server::memcached, Ok)?;
    let larderd = options.server.clone().map_or_else(server::larderd, Ok)?;
    for (name, path) in [("memcached", &reference), ("larderd", &larderd)] {
        println!("{name:<10} {} ({})", server::version(path).unwrap_or_default(), path.display());
    }

    let figures = if options.memory {
        memory::measure([("memcached", &reference), ("larderd", &larderd)])?
    } else {
        speed::measure(&options, &reference, &larderd)?
    };
    if let Some(file) = &options.json {
        let text = serde_json::to_string_pretty(&figures)? + "\n";
        fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(())
}

struct Options {
    rounds: usize,
    round_secs: f64,
    scenarios: Vec<Scenario>,
    memory: bool,
    json: Option<PathBuf>,
    server: Option<PathBuf>,
    reference: Option<PathBuf>,
}

impl Options {
    /// `None`: help was asked for.
    fn parse(args: &[String]) -> Result<Option<Self>> {
        let mut options = Self {
            rounds: 5,
            round_secs: 2.0,
            scenarios: Vec::new(),
            memory: false,
            json: None,
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
                Long("scenario") => {
                    let name = parser.value()?.string()?;
                    let known = scenarios::all().into_iter().find(|scenario| scenario.name == name);
                    options.scenarios.push(known.ok_or_else(|| format!("no scenario is called {name:?}"))?);
                }
                Long("memory") => options.memory = true,
                Long("json") => options.json = Some(parser.value()?.into()),
                Long("server") => options.server = Some(parser.value()?.into()),
                Long("reference") => options.reference = Some(parser.value()?.into()),
                Long("help") => return Ok(None),
                _ => return Err(arg.unexpected().into()),
            }
        }
        if options.scenarios.is_empty() {
            options.scenarios = scenarios::all();
        }
        Ok(Some(options))
    }
}
