//! larder-client beside spymemcached, the Whalin client, libmemcached and two crates: the same operations, from each.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use larder_bench::Scenario;
use larder_bench::contestant::launch::Running;
use larder_bench::statistics::median;
use larder_conformance::Result;
use lexopt::prelude::*;

use super::embedded;
use crate::clients::install::java_jars;
use crate::experiments::Bed;
use crate::{process, shell};

const HELP: &str = "\
larder-client beside spymemcached, the Whalin client, libmemcached, and the crates memcache and async-memcached.

usage: cargo xtask bench clients [options] [CASE...]     small compressed bulk single

  --secs S     length of a run (default 2)
  --rounds N   rounds (default 3); medians are printed
  --threads N  how many threads or tasks ask (may repeat; default: 1, 10, 20, 30, 40 and 50)

Cases: small and compressed are the comparison of 2008 and 2009 (docs/experiments.md): three servers, objects of 768 to
1280 bytes, and of 30,800; 90 % gets of 100 keys, 10 % sets. bulk and single have one server and objects of 100 bytes,
and gets of 100 keys and of one.

Method. memcached and larderd take turns, and the clients within each. The servers share one core, the client has
another. Each run is a process of its own, which stores all objects first, and fails the benchmark if it fails or does
not end. Threads share one client object where that is
the client's way (spymemcached, Whalin, memcache, and larder's AsyncClient with tasks on one thread); libmemcached and
larder's blocking client have one for each thread, async-memcached a connection for each task. larder, spymemcached and
Whalin make strings of values, and larder and spymemcached compress those of 30,720 bytes and more (gzip at level 6, by
zlib-rs and Java's zlib); Whalin 3 compresses none, nor do the others. The figure to trust is the CPU time of the client
for an operation.

What a get of many keys is. AsyncClient: meta, a line and a number for each key; numbers are compared; 3 system calls,
and two more for each piece in which the reply comes: memcached answers 20 lines at a time (its option -R), larderd all.
larder-text, the same in the text protocol, and larder's blocking client: one line of text; keys are compared; 3 calls,
one of which looks for unasked bytes. Both give each value to the caller in memory of its own, and the program makes a
checked string of that. libmemcached: one line of text; keys are not compared; 4 to 5 calls; the value is copied into a
buffer that the next one overwrites.";

/// What is asked for.
struct Case {
    name: &'static str,
    servers: usize,
    objects: u32,
    value_bytes: [u32; 2],
    keys_per_get: u32,
    clients: &'static [&'static str],
}

/// Those of several servers, with compressed values.
const OF_JAVA: [&str; 5] = ["larder", "larder-blocking", "spymemcached", "whalin", "libmemcached"];
/// Those of one server.
const OF_RUST: [&str; 6] =
    ["larder", "larder-text", "larder-blocking", "memcache", "async-memcached", "libmemcached"];

const CASES: [Case; 4] = [
    Case {
        name: "small",
        servers: 3,
        objects: 100_000,
        value_bytes: [768, 1280],
        keys_per_get: 100,
        clients: &OF_JAVA,
    },
    Case {
        name: "compressed",
        servers: 3,
        objects: 20_000,
        value_bytes: [30_800, 30_800],
        keys_per_get: 100,
        clients: &OF_JAVA,
    },
    Case {
        name: "bulk",
        servers: 1,
        objects: 100_000,
        value_bytes: [100, 100],
        keys_per_get: 100,
        clients: &OF_RUST,
    },
    Case {
        name: "single",
        servers: 1,
        objects: 100_000,
        value_bytes: [100, 100],
        keys_per_get: 1,
        clients: &OF_RUST,
    },
];

/// Measures and prints Markdown tables. Errors: no such case; a server or client does not start, or fails.
pub(super) fn run(args: &[String]) -> Result<()> {
    let Some(options) = Options::parse(args)? else {
        println!("{HELP}");
        return Ok(());
    };
    let bed = Bed::make(options.secs, options.rounds)?;
    let programs = Programs::build()?;
    println!("{}", bed.description()?);
    for case in &options.cases {
        measure(&options, &bed, &programs, case)?;
    }
    Ok(())
}

fn measure(options: &Options, bed: &Bed, programs: &Programs, case: &Case) -> Result<()> {
    // By server, client and number of threads: the rounds.
    let mut all: BTreeMap<(usize, usize, usize), Vec<Figures>> = BTreeMap::new();
    for round in 0..options.rounds {
        for (at, (_, program)) in bed.servers.iter().enumerate() {
            for turn in 0..case.clients.len() {
                // Another one begins each round.
                let client = (turn + round) % case.clients.len();
                let servers = bed.start(program, "-m 1024", &Scenario::default(), case.servers)?;
                let addresses: Vec<&str> = servers.iter().map(|server| &*server.addresses[0]).collect();
                let limit_secs = PREPARING_SECS_MAX + options.secs * 20.0 * options.threads.len() as f64;
                let addresses = addresses.join(",");
                let mut command = programs.command(bed, case.clients[client], &addresses, limit_secs);
                command.args([case.objects, case.value_bytes[0], case.value_bytes[1]].map(|n| n.to_string()));
                command.args([case.keys_per_get.to_string(), options.secs.to_string()]);
                command.args(options.threads.iter().map(ToString::to_string));
                for figures in asked(&mut command, &servers)? {
                    all.entry((at, client, figures.threads)).or_default().push(figures);
                }
            }
        }
    }
    println!("\n## {}\n\n{HEADING}", case.name);
    for ((server, client, threads), rounds) in &all {
        let middle = |figure: fn(&Figures) -> f64| median(rounds.iter().map(figure));
        println!(
            "| {} | {} | {threads} | {:.0} | {:.3} | {:.3} | {:.1} | {:.1} | {} |",
            bed.servers[*server].0,
            case.clients[*client],
            middle(|run| run.per_sec),
            middle(|run| run.set_millis),
            middle(|run| run.get_millis),
            middle(|run| run.client_cpu_micros),
            middle(|run| run.server_cpu_micros),
            rounds.iter().map(|run| run.misses).sum::<u64>(),
        );
    }
    Ok(())
}

const HEADING: &str = "\
| server | client | threads | operations/s | set, ms | get, ms | client CPU, us an operation | server CPU, us | misses |
|---|---|---|---|---|---|---|---|---|";

/// What came of a run.
struct Figures {
    threads: usize,
    per_sec: f64,
    set_millis: f64,
    get_millis: f64,
    client_cpu_micros: f64,
    server_cpu_micros: f64,
    misses: u64,
}

/// Runs a client: a line for each number of threads, with what the servers used meanwhile.
fn asked(command: &mut Command, servers: &[Running]) -> Result<Vec<Figures>> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().ok_or("the client has no output")?;
    let cpu_secs = || servers.iter().filter_map(Running::pid).map(process::cpu_secs).sum::<Result<f64>>();
    let mut all = Vec::new();
    let (mut before, mut start) = (0.0, Instant::now());
    for line in BufReader::new(output).lines() {
        let (after, now) = (cpu_secs()?, Instant::now());
        let line = line?;
        if line != "ready" {
            all.push(Figures::parse(&line, after - before, (now - start).as_secs_f64())?);
        }
        (before, start) = (after, now);
    }
    let status = child.wait()?;
    match status.code() {
        Some(0) => Ok(all),
        Some(TIMED_OUT) => Err(format!("{command:?}: it did not end in time").into()),
        _ => Err(format!("{command:?}: {status}").into()),
    }
}

impl Figures {
    /// A line of a client that ran for so long, and the CPU seconds of its servers.
    fn parse(line: &str, server_cpu_secs: f64, secs: f64) -> Result<Self> {
        let fields = line.split_whitespace().map(str::parse).collect::<std::result::Result<Vec<f64>, _>>()?;
        let [threads, per_sec, set_millis, get_millis, cpu, misses] = fields[..] else {
            return Err(format!("not a line of figures: {line}").into());
        };
        Ok(Self {
            threads: threads as usize,
            per_sec,
            set_millis,
            get_millis,
            client_cpu_micros: cpu * 1e6 / per_sec,
            server_cpu_micros: server_cpu_secs * 1e6 / (per_sec * secs),
            misses: misses as u64,
        })
    }
}

/// The programs that are the clients.
struct Programs {
    crates: PathBuf,
    libmemcached: PathBuf,
    jars: PathBuf,
}

impl Programs {
    fn build() -> Result<Self> {
        let crates = embedded::build("larder-comparison-clients")?;
        let libmemcached = shell::target_dir()?.join("comparison/libmemcached");
        let source = shell::root().join("comparison/clients/libmemcached.c");
        let mut cc = Command::new("cc");
        shell::run(
            cc.arg("-O2").arg("-o").arg(&libmemcached).arg(source).args(["-lmemcached", "-lpthread"]),
        )?;
        Ok(Self { crates, libmemcached, jars: java_jars()?.join("*") })
    }

    /// A client, which is ended after so many seconds.
    fn command(&self, bed: &Bed, client: &str, servers: &str, limit_secs: f64) -> Command {
        let mut command = Command::new("timeout");
        command.args([&limit_secs.to_string(), "taskset", "-c", &bed.cores.load.to_string()]);
        match client {
            "spymemcached" | "whalin" => {
                command.args(["java", "-cp"]).arg(&self.jars);
                command.arg(shell::root().join("conformance/clients/java/Bench.java")).arg(client);
            }
            "libmemcached" => drop(command.arg(&self.libmemcached)),
            client => drop(command.arg(&self.crates).arg(client)),
        }
        command.arg(servers);
        command
    }
}

/// So long a client may take to store all objects and to warm up: minutes on a busy machine.
const PREPARING_SECS_MAX: f64 = 900.0;
/// The status of timeout(1) whose command has not ended.
const TIMED_OUT: i32 = 124;

struct Options {
    cases: Vec<&'static Case>,
    secs: f64,
    rounds: usize,
    threads: Vec<usize>,
}

impl Options {
    /// `None`: help was asked for.
    fn parse(args: &[String]) -> Result<Option<Self>> {
        let mut options = Self { cases: Vec::new(), secs: 2.0, rounds: 3, threads: Vec::new() };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(arg) = parser.next()? {
            match arg {
                Long("secs") => options.secs = parser.value()?.parse()?,
                Long("rounds") => options.rounds = parser.value()?.parse::<usize>()?.max(1),
                Long("threads") => options.threads.push(parser.value()?.parse::<usize>()?.max(1)),
                Value(name) => {
                    let name = name.string()?;
                    let case = CASES.iter().find(|case| case.name == name);
                    options.cases.push(case.ok_or_else(|| format!("no case is called {name:?}"))?);
                }
                Long("help") => return Ok(None),
                _ => return Err(arg.unexpected().into()),
            }
        }
        if options.cases.is_empty() {
            options.cases = CASES.iter().collect();
        }
        if options.threads.is_empty() {
            options.threads = vec![1, 10, 20, 30, 40, 50];
        }
        Ok(Some(options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_client_is_read() {
        let figures = Figures::parse("10 2000.0 1.5 2.5 0.5 7", 1.0, 2.0).unwrap();
        assert_eq!((figures.threads, figures.misses), (10, 7));
        assert_eq!((figures.client_cpu_micros, figures.server_cpu_micros), (250.0, 250.0));
        assert!(Figures::parse("ready", 0.0, 1.0).is_err());
    }
}
