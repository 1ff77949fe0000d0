//! `cargo xtask diff`: random requests to larderd and to the installed memcached, side by side.

use std::path::PathBuf;

use larder_conformance::diff::{self, Dialects, Options, Report};
use larder_conformance::{Result, server};
use lexopt::prelude::*;

use crate::conform;

/// Compares, and prints every difference.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut options = Options { commands: 100_000, seed: 1, dialects: dialects("all")?, differences_max: 20 };
    let mut program: Option<PathBuf> = None;
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("commands") => options.commands = parser.value()?.parse()?,
            Long("seed") => options.seed = parser.value()?.parse()?,
            Long("protocol") => options.dialects = dialects(&parser.value()?.string()?)?,
            Long("keep") => conform::keep(&parser.value()?.string()?)?,
            Long("server") => program = Some(parser.value()?.into()),
            Long("help") => {
                println!("{USAGE}");
                return Ok(());
            }
            other => return Err(format!("{}\n{USAGE}", other.unexpected()).into()),
        }
    }
    let program = program.map_or_else(server::larderd, Ok)?;
    let report = diff::run(&server::memcached()?, &program, &options)?;
    for (why, count) in &report.left_out {
        println!("{count:>9} left out: {why}");
    }
    finish(report)
}

/// A run short enough for every change, always with the same requests.
pub(crate) fn short() -> Result<()> {
    let options = Options { commands: 100_000, seed: 1, dialects: dialects("all")?, differences_max: 5 };
    finish(diff::run(&server::memcached()?, &server::larderd()?, &options)?)
}

fn dialects(name: &str) -> Result<Dialects> {
    let none = Dialects { text: false, meta: false, binary: false };
    match name {
        "text" => Ok(Dialects { text: true, ..none }),
        "meta" => Ok(Dialects { meta: true, ..none }),
        "binary" => Ok(Dialects { binary: true, ..none }),
        "all" => Ok(Dialects { text: true, meta: true, binary: true }),
        _ => Err(USAGE.into()),
    }
}

fn finish(report: Report) -> Result<()> {
    for difference in &report.differences {
        println!("{difference}");
    }
    for once in &report.once {
        println!("differed once and then no more:\n{once}");
    }
    println!(
        "{} requests in {:.1} s, {} differences; {} requests left out because they differ on purpose",
        report.commands,
        report.elapsed.as_secs_f64(),
        report.differences.len(),
        report.left_out.values().sum::<u64>()
    );
    if report.differences.is_empty() && report.once.len() <= ONCE_MAX {
        Ok(())
    } else {
        Err("larderd and memcached differ".into())
    }
}

/// How many stories may differ once and then no more. More are no accident of the reference's clock and threads.
const ONCE_MAX: usize = 3;

const USAGE: &str =
    "usage: cargo xtask diff [--commands N] [--seed S] [--protocol text|meta|binary|all] [--keep store]
                         [--server PATH]
Sends random requests to larderd (or --server) and to the installed memcached, and compares the answers. With
--keep store larderd keeps its items in a store.";
