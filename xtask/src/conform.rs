//! `cargo xtask conform`: plays the golden wire scripts, or records them anew.

use std::path::PathBuf;

use larder_conformance::script::Side;
use larder_conformance::{Result, server, suite};
use lexopt::prelude::*;

/// Plays scripts against larderd, another larder (`--server`) or the installed memcached (`--reference`).
pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut side = Side::Larder;
    let mut program: Option<PathBuf> = None;
    let mut records = false;
    let mut filter = String::new();
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("reference") => side = Side::Reference,
            Long("record") => records = true,
            Long("keep") => keep(&parser.value()?.string()?)?,
            Long("server") => program = Some(parser.value()?.into()),
            Long("help") => {
                println!("{USAGE}");
                return Ok(());
            }
            Value(text) => filter = text.string()?,
            other => return Err(format!("{}\n{USAGE}", other.unexpected()).into()),
        }
    }

    let scripts = suite::scripts(&filter)?;
    if records {
        return suite::record(&server::memcached()?, &scripts);
    }
    let program = match (program, side) {
        (Some(program), _) => program,
        (None, side) => server::of(side)?,
    };
    let report = suite::run(&program, side, &scripts)?;
    for failure in &report.failures {
        println!("{failure}");
    }
    println!("{} passed, {} failed", report.passed, report.failures.len());
    if report.left_out > 0 {
        println!("{} scripts left out, whose options a store refuses", report.left_out);
    }
    if report.failures.is_empty() { Ok(()) } else { Err("the scripts do not all pass".into()) }
}

/// `--keep store`: each larderd under test keeps its items in a store.
pub(crate) fn keep(place: &str) -> Result<()> {
    match place {
        "cache" => Ok(()),
        "store" => {
            server::keep_in_store(true);
            Ok(())
        }
        _ => Err(format!("--keep {place}: cache or store").into()),
    }
}

const USAGE: &str =
    "usage: cargo xtask conform [--server PATH | --reference | --record] [--keep store] [part of a script's path]
Plays conformance/scripts against larderd (or --server), or against the installed memcached (--reference).
--keep store has larderd keep its items in a store.
--record replaces the expected replies by those of the installed memcached: read the diff.";
