//! `cargo xtask sites`: sites that replicate their stores and caches, over links that fail, through deaths.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use larder_conformance::crash::Durability;
use larder_conformance::sites::{self, Options};
use larder_conformance::{Result, server};
use lexopt::prelude::*;

/// Lets two sites, or three, or first two and then three fight over the same keys.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut rounds = 5;
    let mut length = None;
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
            Long("secs") => length = Some(Duration::from_secs(parser.value()?.parse()?)),
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
    let began = Instant::now();
    loop {
        for &sites in &counts {
            for &durability in &durabilities {
                let start = Instant::now();
                let promised = promised.unwrap_or(durability);
                let options = Options { rounds, seed, sites, durability, promised, load };
                let report = sites::run(&program, &options)?;
                let took_secs = start.elapsed().as_secs_f64();
                println!("{sites} sites, {}, seed {seed}: {report}; {took_secs:.0} s", durability.name());
                // Without a length all play the same seed once; a soak goes on with the next ones.
                match length {
                    Some(length) if began.elapsed() >= length => return Ok(()),
                    Some(_) => seed = seed.wrapping_add(rounds as u64),
                    None => {}
                }
            }
        }
        if length.is_none() {
            return Ok(());
        }
    }
}

/// As a step of `cargo xtask test`: about 40 s.
pub(crate) fn short() -> Result<()> {
    run(&["--rounds", "1", "--load-ms", "6000"].map(str::to_owned))
}

const USAGE: &str = "\
usage: cargo xtask sites [--rounds N | --secs S] [--sites 2|3] [--durability sync|interval|os] [--load-ms N]
                         [--seed S] [--promised DURABILITY] [--server PATH]
Clients of two sites, and of three, change the same 10,000 keys at full speed, with sync and with interval, and 1,000
more in caches that tell each other of changes; some keys have a home. Meanwhile links are cut, slow, or silent in one
direction, connections are reset, and sites are killed or stand still; of three sites one is removed at times, and added
again with its old store or an empty one. After each of N rounds (5) of --load-ms (6000) all is healed and compared: no
key differs in value, flags, CAS value or expiry; nothing that was deleted is back, in stores and caches; no
acknowledged write is lost unless a newer one won; memory and disk are within bounds. --secs plays this with ever
other seeds for so long. A failure names its seed, and keeps stores and logs. --promised sync with --durability os shows
that losses are found.";
