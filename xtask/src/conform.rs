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
        (None, Side::Larder) => server::larderd()?,
        (None, Side::Reference) => server::memcached()?,
    };
    let report = suite::run(&program, side, &scripts)?;
    for failure in &report.failures {
        println!("{failure}");
    }
    println!("{} passed, {} failed", report.passed, report.failures.len());
    if report.failures.is_empty() { Ok(()) } else { Err("the scripts do not all pass".into()) }
}

const USAGE: &str =
    "usage: cargo xtask conform [--server PATH | --reference | --record] [part of a script's path]
Plays conformance/scripts against larderd (or --server), or against the installed memcached (--reference).
--record replaces the expected replies by those of the installed memcached: read the diff.";
