//! `cargo xtask sites`: sites that replicate their stores, over links that fail, through deaths.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use larder_conformance::crash::Durability;
use larder_conformance::sites::{self, Options};
use larder_conformance::{Result, server};
use lexopt::prelude::*;

/// Lets two sites, or three, or first two and then three fight over the same keys.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut rounds = 5;
    let mut seed = fastrand::u64(..);
    let mut counts = vec![2, 3];
    let mut durabilities = vec![Durability::Sync, Durability::Interval];
    let mut promised = None;
    let mut load = Duration::from_secs(6);
    let mut program: Option<PathBuf> = None;
    let mut parser = lexopt::Parser::from_args(args);
    let durability = |name: String| Durability::of_name(&name).ok_or(USAGE);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("rounds") => rounds = parser.value()?.parse()?,
            Long("seed") => seed = parser.value()?.parse()?,
            Long("sites") => {
                counts = vec![parser.value()?.parse_with(|count| match count {
                    "2" => Ok(2),
                    "3" => Ok(3),
                    _ => Err("two or three"),
                })?]
            }
            Long("durability") => durabilities = vec![durability(parser.value()?.string()?)?],
            Long("promised") => promised = Some(durability(parser.value()?.string()?)?),
            Long("load-ms") => load = Duration::from_millis(parser.value()?.parse()?),
            Long("server") => program = Some(parser.value()?.into()),
            Long("help") => {
                println!("{USAGE}");
                return Ok(());
            }
            other => return Err(format!("{}\n{USAGE}", other.unexpected()).into()),
        }
    }
    let program = program.map_or_else(server::larderd, Ok)?;
    println!("seed {seed}");
    for &sites in &counts {
        for &durability in &durabilities {
            let start = Instant::now();
            let promised = promised.unwrap_or(durability);
            let options = Options { rounds, seed, sites, durability, promised, load };
            let report = sites::run(&program, &options)?;
            let took_secs = start.elapsed().as_secs_f64();
            println!("{sites} sites, {}: {report}; {took_secs:.0} s", durability.name());
        }
    }
    Ok(())
}

/// As a step of `cargo xtask test`: about 40 s.
pub(crate) fn short() -> Result<()> {
    run(&["--rounds", "1", "--load-ms", "6000"].map(str::to_owned))
}

const USAGE: &str = "\
usage: cargo xtask sites [--rounds N] [--sites 2|3] [--durability sync|interval|os] [--load-ms N]
                         [--seed S] [--promised DURABILITY] [--server PATH]
Clients of two sites, and of three, change the same 10,000 keys at full speed, with sync and with interval, while
links are cut, slow, or silent in one direction, connections are reset, and sites are killed or stand still. After
each of N rounds (5) of --load-ms (6000) all is healed and compared: no key differs in value, flags, CAS value or
expiry; nothing that was deleted is back; no acknowledged write is lost unless a newer one won. A failure names its
seed, and keeps stores and logs. --promised sync with --durability os shows that losses are found.";
