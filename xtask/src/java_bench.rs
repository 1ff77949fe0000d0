//! spymemcached and the Whalin client themselves, asked as they were compared in 2008 and 2009.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use larder_bench::Scenario;
use larder_bench::contestant::launch::Running;
use larder_conformance::Result;
use lexopt::prelude::*;

use crate::clients::install::java_jars;
use crate::experiments::{Bed, SPY_WHALIN_OBJECTS};
use crate::{process, shell};

const HELP: &str = "\
Runs spymemcached and the Whalin client on three servers, memcached and larderd in turn: 90 % bulk gets of 100 keys, 10 % sets, 1 to
50 threads, objects of 768 to 1280 bytes and of 30,800 bytes. See docs/experiments.md, and conformance/clients/java/Bench.java.

usage: cargo xtask java-bench [--secs S]

  --secs S   length of each run (default 10)

The servers share one core, the Java virtual machine has another.";

/// Measures and prints Markdown tables. Errors: a server or Java does not start; a client fails.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut secs = 10.0;
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("secs") => secs = parser.value()?.parse()?,
            Long("help") => {
                println!("{HELP}");
                return Ok(());
            }
            _ => return Err(arg.unexpected().into()),
        }
    }
    let bed = Bed::make(secs, 1)?;
    let jars = java_jars()?.join("*");
    println!("{}\n", bed.description()?);
    println!(
        "| objects, B | client | server | threads | ops/s | set, ms | get, ms | client CPU, cores | server CPU s / M keys | misses |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    // Whalin 3.0.2 compresses nothing any more: 20,000 of the larger ones are 616 MB.
    for (objects, min_bytes, max_bytes) in [(SPY_WHALIN_OBJECTS, "768", "1280"), (20_000, "30800", "30800")] {
        for client in ["whalin", "spy"] {
            for (name, program) in &bed.servers {
                let servers = bed.start(program, "-m 1024", &Scenario::default(), 3)?;
                let addresses: Vec<&str> = servers.iter().map(|server| &*server.addresses[0]).collect();
                let mut command = Command::new("taskset");
                command.args(["-c", &bed.cores.load.to_string(), "java", "-cp"]).arg(&jars);
                command.arg(shell::root().join("conformance/clients/java/Bench.java"));
                command.args([client, &addresses.join(","), &objects.to_string(), min_bytes, max_bytes]);
                command.arg(secs.to_string()).args(["1", "10", "20", "30", "40", "50"]);
                let label = format!("{min_bytes} - {max_bytes} | {client} | {name}");
                measure(&mut command, &servers, secs, &label)?;
            }
        }
    }
    Ok(())
}

/// Prints a line for each that the program prints, with what the servers used meanwhile.
fn measure(command: &mut Command, servers: &[Running], secs: f64, label: &str) -> Result<()> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let output = child.stdout.take().ok_or("Java has no output")?;
    let cpu_secs = || servers.iter().filter_map(Running::pid).map(process::cpu_secs).sum::<Result<f64>>();
    let mut before = 0.0;
    for line in BufReader::new(output).lines() {
        let line = line?;
        let after = cpu_secs()?;
        if let [threads, ops, set, get, cpu, misses] = line.split_whitespace().collect::<Vec<_>>()[..] {
            let million_keys = ops.parse::<f64>()? * secs * KEYS_PER_OPERATION / 1e6;
            let server_cpu_secs = (after - before) / million_keys;
            println!(
                "| {label} | {threads} | {ops} | {set} | {get} | {cpu} | {server_cpu_secs:.2} | {misses} |"
            );
        }
        before = after;
    }
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(format!("Java: {status}").into()) }
}

/// 90 % gets of 100 keys, 10 % sets.
const KEYS_PER_OPERATION: f64 = 90.1;
