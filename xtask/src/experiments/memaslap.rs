//! memaslap itself, on the servers and with the words of its experiment.

use std::process::Command;

use larder_bench::Scenario;
use larder_bench::scenario::{Group, Transport};
use larder_conformance::Result;

use super::Bed;
use super::catalog::{MEMASLAP_LINES, MEMASLAP_SERVER};
use crate::shell;

/// Prints operations a second as memaslap counts them: each key is one.
pub(super) fn measure(bed: &Bed) -> Result<()> {
    println!("\n| memaslap itself | server | TPS (keys/s) | Net, MiB/s |\n|---|---|---|---|");
    for line in MEMASLAP_LINES {
        for (name, program) in &bed.servers {
            let is_udp = line.split_whitespace().any(|word| word == "-U");
            let transport = if is_udp { Transport::Udp } else { Transport::Tcp };
            let scenario =
                Scenario { groups: vec![Group { transport, ..Group::default() }], ..Scenario::default() };
            let servers = bed.start(program, MEMASLAP_SERVER, &scenario, 1)?;
            let mut command = Command::new("taskset");
            command.args(["-c", &bed.cores.load.to_string(), "memcaslap", "-s", &servers[0].addresses[0]]);
            command.args(["-t", &format!("{:.0}s", bed.secs.max(1.0))]).args(line.split_whitespace());
            // It keeps its defaults in the home directory, and would read those of another.
            // In some of these runs an assertion of its own stops it.
            let Ok(text) = shell::output(command.env("HOME", "/nonexistent")) else {
                println!("| `{line}` | {name} | it aborts | |");
                continue;
            };
            let after = |label: &str| {
                let rest = text.rsplit_once(label).map(|(_, rest)| rest.trim_start());
                rest.and_then(|rest| rest.split_whitespace().next()).unwrap_or("?").to_owned()
            };
            println!(
                "| `{line}` | {name} | {} | {} |",
                after("TPS:"),
                after("Net_rate:").trim_end_matches("M/s")
            );
        }
    }
    Ok(())
}
