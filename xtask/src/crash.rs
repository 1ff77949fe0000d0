//! `cargo xtask crash`: kills larderd under load again and again, and looks what is there afterwards.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use larder_conformance::crash::{self, Durability, Options};
use larder_conformance::{Result, server};
use lexopt::prelude::*;

/// Kills and looks, with one durability or with all of them.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut rounds = 20;
    let mut seed = fastrand::u64(..);
    let mut durabilities = Durability::ALL.to_vec();
    let mut load_max = Duration::from_secs(1);
    let mut program: Option<PathBuf> = None;
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("rounds") => rounds = parser.value()?.parse()?,
            Long("seed") => seed = parser.value()?.parse()?,
            Long("durability") => {
                let name = parser.value()?.string()?;
                durabilities = vec![Durability::of_name(&name).ok_or(USAGE)?];
            }
            Long("load-ms") => load_max = Duration::from_millis(parser.value()?.parse()?),
            Long("server") => program = Some(parser.value()?.into()),
            Long("help") => {
                println!("{USAGE}");
                return Ok(());
            }
            other => return Err(format!("{}\n{USAGE}", other.unexpected()).into()),
        }
    }
    let program = program.map_or_else(server::larderd, Ok)?;
    for durability in durabilities {
        let start = Instant::now();
        let options = Options { rounds, seed, durability, promised: durability, load_max };
        let report = crash::run(&program, &options)?;
        println!("{}: {report}; {:.0} s", durability.name(), start.elapsed().as_secs_f64());
    }
    Ok(())
}

const USAGE: &str =
    "usage: cargo xtask crash [--rounds N] [--durability sync|interval|os] [--load-ms N] [--seed S] [--server PATH]
Kills larderd under load, starts it again over the same store, and compares each item with what was acknowledged:
N rounds (20) of each durability, of up to --load-ms (1000) of load. A failure names its seed, and keeps the directory.";
