//! Side-by-side figures: larderd, memcached, and the floor server under the same load.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use larder_conformance::server::{self, Server};
use larder_conformance::stats::Stats;
use larder_conformance::{Error, Result};
use lexopt::prelude::*;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::load::{self, Keys, Load, Spread, Until};

const HELP: &str = "\
Compares larderd with memcached and with the floor server (the same epoll, read and writev with no cache behind).

usage: cargo xtask bench [options]

  --quick          short rounds, for a first impression
  --rounds N       rounds of each scenario (default 5); the medians are printed
  --secs S         length of a round (default 2)
  --scenario NAME  only this one (may repeat): get get-hot get-pipelined multiget set mixed
  --memory         memory per item, and items held at -m 1024 before the first eviction, instead of speed
  --json FILE      write the figures there, too
  --server PATH    the larderd to measure (default: this workspace's)
  --reference PATH the memcached to compare with (default: the installed one)

Method. Every server runs with one worker thread (-t 1, -m 2048) pinned to one core of this machine; the load, one thread,
is pinned to another. Keys have 24 bytes and are all present at the start; where there are sets, all keys are stored as often
as it takes to go through the server's memory once. The load is a closed loop: every connection
sends a batch of requests, waits for all replies, sends the next. The servers take turns within each round, so that
whatever else the machine does hits all of them. The figure to trust is the server's CPU time (user and system, all of its
threads) for a million operations, a get of n keys counted as n: it does not depend on how fast the load is. Throughput
is given as well; where the server's core is not busy all the time, it is the load's.";

/// Measures and prints. Errors: no such scenario, a server that does not start, or one that answers wrongly.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let Some(options) = Options::parse(args)? else {
        println!("{HELP}");
        return Ok(());
    };
    let cores = Cores::choose()?;
    let servers = Program::all(&options)?;
    for program in &servers {
        println!("{:<10} {}", program.name, program.description);
    }

    let json = if options.memory {
        memory(&servers, &cores)?
    } else {
        println!("{} rounds of {} s\n", options.rounds, options.round.as_secs_f64());
        speed(&options, &servers, &cores)?
    };
    if let Some(file) = &options.json {
        fs::write(file, json).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(())
}

struct Options {
    rounds: usize,
    round: Duration,
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
            round: Duration::from_secs(2),
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
                    options.round = Duration::from_millis(500);
                }
                Long("rounds") => options.rounds = parser.value()?.parse::<usize>()?.max(1),
                Long("secs") => {
                    let secs = parser.value()?.parse_with(|text| text.parse::<f64>())?;
                    options.round = Duration::try_from_secs_f64(secs)?;
                }
                Long("scenario") => {
                    let name = parser.value()?.string()?;
                    let known = SCENARIOS.iter().find(|scenario| scenario.name == name);
                    options.scenarios.push(*known.ok_or_else(|| format!("no scenario is called {name:?}"))?);
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
            options.scenarios = SCENARIOS.to_vec();
        }
        Ok(Some(options))
    }
}

#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    description: &'static str,
    load: Load,
}

/// What the scenarios vary.
const PLAIN_GETS: Load = Load {
    connections: 50,
    depth: 1,
    keys: 1_000_000,
    spread: Spread::Uniform,
    set_percent: 0,
    value_bytes: 100,
    keys_per_get: 1,
};

const SCENARIOS: [Scenario; 6] = [
    Scenario { name: "get", description: "get, 100 B, 1 M keys, 50 connections", load: PLAIN_GETS },
    Scenario {
        name: "get-hot",
        description: "get, 100 B, 100 keys, 50 connections",
        load: Load { keys: 100, ..PLAIN_GETS },
    },
    Scenario {
        name: "get-pipelined",
        description: "get, 100 B, 1 M keys, 50 connections, 32 in flight on each",
        load: Load { depth: 32, ..PLAIN_GETS },
    },
    Scenario {
        name: "multiget",
        description: "get of 100 keys, 100 B, 1 M keys, 50 connections",
        load: Load { keys_per_get: 100, ..PLAIN_GETS },
    },
    Scenario {
        name: "set",
        description: "set, 1 KiB, 1 M keys, 50 connections, 32 in flight on each",
        load: Load { depth: 32, set_percent: 100, value_bytes: 1024, ..PLAIN_GETS },
    },
    Scenario {
        name: "mixed",
        description: "90 % get, 10 % set, 1 KiB, 1 M keys (Zipf 0.99), 50 connections",
        load: Load {
            spread: Spread::Zipf { exponent: 0.99 },
            set_percent: 10,
            value_bytes: 1024,
            ..PLAIN_GETS
        },
    },
];

/// A server that takes part.
struct Program {
    name: &'static str,
    description: String,
    kind: Kind,
}

enum Kind {
    /// Takes memcached's command line.
    Cache(PathBuf),
    Floor,
}

impl Program {
    fn all(options: &Options) -> Result<[Self; 3]> {
        let reference = options.reference.clone().map_or_else(server::memcached, Ok)?;
        let larderd = options.server.clone().map_or_else(server::larderd, Ok)?;
        let describe = |path: &Path| {
            let version = server::version(path).unwrap_or_default();
            format!("{version} ({})", path.display())
        };
        Ok([
            Self { name: "memcached", description: describe(&reference), kind: Kind::Cache(reference) },
            Self { name: "larderd", description: describe(&larderd), kind: Kind::Cache(larderd) },
            Self { name: "floor", description: "no cache behind it".into(), kind: Kind::Floor },
        ])
    }

    fn start(&self, memory_mib: u32, value_bytes: usize, cores: &Cores) -> Result<Server> {
        // A child inherits the core on which its parent starts it.
        cores.pin_to_server()?;
        let server = match &self.kind {
            Kind::Cache(path) => {
                Server::start(path, &["-t", "1", "-c", "4096", "-m", &memory_mib.to_string()])?
            }
            Kind::Floor => {
                let mut command = Command::new(env::current_exe()?);
                command.args(["floor", "--value-bytes", &value_bytes.to_string()]);
                Server::start_command(command)?
            }
        };
        cores.pin_to_load()?;
        Ok(server)
    }
}

/// Two cores: one for the server, one for the load.
struct Cores {
    server: usize,
    load: usize,
}

impl Cores {
    fn choose() -> Result<Self> {
        let allowed = sched_getaffinity(None)?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
        let (Some(server), Some(load)) = (cores.next(), cores.next()) else {
            return Err("server and load need a core each, and this machine has one".into());
        };
        Ok(Self { server, load })
    }

    fn pin_to_server(&self) -> Result<()> {
        pin_to(self.server)
    }

    fn pin_to_load(&self) -> Result<()> {
        pin_to(self.load)
    }
}

fn pin_to(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// One round of one scenario on one server.
#[derive(Clone, Copy)]
struct Figures {
    /// CPU seconds of the server for a million operations.
    cpu_secs: f64,
    operations_per_sec: f64,
    /// Share of the round during which the server's core worked for it.
    busy: f64,
    hit_ratio: f64,
}

fn speed(options: &Options, programs: &[Program; 3], cores: &Cores) -> Result<String> {
    let mut json = String::from("[");
    for scenario in &options.scenarios {
        println!("{}: {}", scenario.name, scenario.description);
        println!(
            "  {:<10} {:>10} {:>13} {:>9} {:>12} {:>6} {:>7}",
            "", "cpu s / M", "of memcached", "of floor", "ops / s", "busy", "hits"
        );
        let medians = measure(scenario, options, programs, cores)?;
        let [memcached, _, floor] = medians;
        for (program, figures) in programs.iter().zip(medians) {
            println!(
                "  {:<10} {:>10.3} {:>13.2} {:>9.2} {:>12.0} {:>5.0}% {:>6.1}%",
                program.name,
                figures.cpu_secs,
                figures.cpu_secs / memcached.cpu_secs,
                figures.cpu_secs / floor.cpu_secs,
                figures.operations_per_sec,
                100.0 * figures.busy,
                100.0 * figures.hit_ratio,
            );
            let separator = if json.len() > 1 { "," } else { "" };
            write!(
                json,
                "{separator}\n{{\"scenario\":\"{}\",\"server\":\"{}\",\"cpu_secs_per_million\":{:.4},\
                 \"operations_per_sec\":{:.0},\"busy\":{:.3},\"hit_ratio\":{:.4}}}",
                scenario.name,
                program.name,
                figures.cpu_secs,
                figures.operations_per_sec,
                figures.busy,
                figures.hit_ratio
            )?;
        }
        println!();
    }
    json.push_str("\n]\n");
    Ok(json)
}

/// How often all keys are stored before the clock starts. A server that appends what it is given must have been all through
/// its memory once: the first touch of each page costs more than the set itself, and happens once in its life.
fn fills(load: &Load) -> usize {
    if load.set_percent == 0 {
        return 1;
    }
    let memory_bytes = (SPEED_MEMORY_MIB as usize) << 20;
    memory_bytes.div_ceil(load.keys as usize * load.value_bytes)
}

/// Medians over the rounds, in the order of `programs`.
fn measure(
    scenario: &Scenario,
    options: &Options,
    programs: &[Program; 3],
    cores: &Cores,
) -> Result<[Figures; 3]> {
    let load = &scenario.load;
    let keys = Keys::draw(load);
    let mut servers = Vec::new();
    for program in programs {
        let server = program.start(SPEED_MEMORY_MIB, load.value_bytes, cores)?;
        for _ in 0..fills(load) {
            load::fill(server.address(), 0, load.keys, load.value_bytes)
                .map_err(|error| blame(program, &error))?;
        }
        // Not counted: connections are made, caches fill, the allocator settles.
        load::drive(server.address(), load, keys.clone(), Until::Elapsed(options.round / 4))
            .map_err(|error| blame(program, &error))?;
        servers.push(server);
    }

    let mut rounds: [Vec<Figures>; 3] = Default::default();
    for _ in 0..options.rounds {
        for ((program, server), figures) in programs.iter().zip(&servers).zip(&mut rounds) {
            let cpu_before = cpu_secs(server.pid())?;
            let outcome = load::drive(server.address(), load, keys.clone(), Until::Elapsed(options.round))
                .map_err(|error| blame(program, &error))?;
            let cpu = cpu_secs(server.pid())? - cpu_before;
            figures.push(Figures {
                cpu_secs: cpu / outcome.operations as f64 * 1e6,
                operations_per_sec: outcome.operations as f64 / outcome.secs,
                busy: cpu / outcome.secs,
                hit_ratio: outcome.hits as f64 / outcome.gets.max(1) as f64,
            });
        }
    }
    Ok(rounds.map(|rounds| Figures {
        cpu_secs: median(rounds.iter().map(|round| round.cpu_secs)),
        operations_per_sec: median(rounds.iter().map(|round| round.operations_per_sec)),
        busy: median(rounds.iter().map(|round| round.busy)),
        hit_ratio: median(rounds.iter().map(|round| round.hit_ratio)),
    }))
}

fn memory(programs: &[Program; 3], cores: &Cores) -> Result<String> {
    println!(
        "\nkeys of {} B; overhead = resident memory of the process / items - key - value",
        load::KEY_BYTES
    );
    println!(
        "  {:<10} {:>8} {:>10} {:>12} {:>10} {:>17} {:>10}",
        "", "value B", "items", "RSS B/item", "overhead", "held at -m 1024", "RSS MiB"
    );
    let mut json = String::from("[");
    for (items, value_bytes) in [(2_000_000, 32), (1_000_000, 1024)] {
        for program in &programs[..2] {
            let rss_per_item = rss_per_item(program, items, value_bytes, cores)?;
            let overhead = rss_per_item - (load::KEY_BYTES + value_bytes) as f64;
            let (held, rss) = held_before_eviction(program, value_bytes, cores)?;
            let rss_mib = rss as f64 / f64::from(1 << 20);
            println!(
                "  {:<10} {value_bytes:>8} {items:>10} {rss_per_item:>12.1} {overhead:>10.1} {held:>17} {rss_mib:>10.0}",
                program.name,
            );
            let separator = if json.len() > 1 { "," } else { "" };
            write!(
                json,
                "{separator}\n{{\"server\":\"{}\",\"value_bytes\":{value_bytes},\"items\":{items},\
                 \"rss_bytes_per_item\":{rss_per_item:.1},\"overhead_bytes_per_item\":{overhead:.1},\
                 \"items_held_at_1024_mib\":{held},\"rss_bytes_at_1024_mib\":{rss}}}",
                program.name
            )?;
        }
    }
    json.push_str("\n]\n");
    Ok(json)
}

/// Resident memory of the whole process divided by its items, with room for all of them.
fn rss_per_item(program: &Program, items: u32, value_bytes: usize, cores: &Cores) -> Result<f64> {
    let server = program.start(SPEED_MEMORY_MIB, value_bytes, cores)?;
    load::fill(server.address(), 0, items, value_bytes).map_err(|error| blame(program, &error))?;
    let held = Stats::of(server.address())?.get("curr_items")?;
    if held != u64::from(items) {
        return Err(format!("{} holds {held} of {items} items", program.name).into());
    }
    Ok(server.resident_bytes()? as f64 / f64::from(items))
}

/// Items in a server of 1024 MiB when it begins to evict, and its resident memory then.
fn held_before_eviction(program: &Program, value_bytes: usize, cores: &Cores) -> Result<(u64, u64)> {
    let server = program.start(1024, value_bytes, cores)?;
    let mut next = 0;
    let mut held = 0;
    while next < ITEMS_MAX {
        load::fill(server.address(), next, FILL_STEP, value_bytes).map_err(|error| blame(program, &error))?;
        next += FILL_STEP;
        let stats = Stats::of(server.address())?;
        held = stats.get("curr_items")?.max(held);
        if stats.get("evictions")? > 0 {
            return Ok((held, server.resident_bytes()?));
        }
    }
    Err(format!("{} evicts nothing though {ITEMS_MAX} items were stored at -m 1024", program.name).into())
}

/// CPU time of a process so far, user and system, all threads (proc(5), /proc/PID/stat fields 14 and 15).
fn cpu_secs(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in parentheses, may contain spaces: fields are counted from behind it, the first being field 3.
    let (_, fields) = stat.rsplit_once(')').ok_or("a /proc/PID/stat without a name")?;
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(str::parse::<u64>)
        .sum::<std::result::Result<_, _>>()?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    if figures.len() % 2 == 1 { figures[middle] } else { (figures[middle - 1] + figures[middle]) / 2.0 }
}

fn blame(program: &Program, error: &Error) -> Error {
    format!("{}: {error}", program.name).into()
}

/// Room for everything that a scenario stores, in every server.
const SPEED_MEMORY_MIB: u32 = 2048;
/// How many items are stored between two looks at the eviction counter: the error of that figure.
const FILL_STEP: u32 = 20_000;
/// Far more items than 1024 MiB can hold with any value size of the memory figures.
const ITEMS_MAX: u32 = 30_000_000;
