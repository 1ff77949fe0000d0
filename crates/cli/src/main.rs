//! larder, the tools of those who run larderd: one sub-command, one file.

#![forbid(unsafe_code)]

mod bench;
mod passwd;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

/// The tools of those who run larderd.
#[derive(Parser)]
#[command(name = "larder", version, arg_required_else_help = true, disable_help_subcommand = true)]
struct Larder {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Subcommand)]
enum Tool {
    Bench(Box<bench::Args>),
    Passwd(passwd::Args),
}

/// Why a tool did not do what it was asked for.
enum Failure {
    /// The command line cannot be understood.
    Usage(String),
    /// It can, and something went wrong.
    Failed(String),
    /// Whatever went wrong has been told already.
    Told,
}

fn main() -> ExitCode {
    if let Some(words) = bench::floor_words() {
        return ending("bench", bench::be_the_floor(words));
    }
    let larder = match Larder::try_parse() {
        Ok(larder) => larder,
        Err(error) => {
            // Nobody is left to tell if this fails.
            let _ = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => ExitCode::from(EXIT_USAGE),
            };
        }
    };
    match larder.tool {
        Tool::Bench(args) => ending("bench", bench::run(*args)),
        Tool::Passwd(args) => ending("passwd", passwd::run(args)),
    }
}

/// Tells what went wrong, if anything did.
fn ending(tool: &str, result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Told) => ExitCode::FAILURE,
        Err(Failure::Usage(message)) => {
            eprintln!("larder {tool}: {message}\n\nlarder {tool} --help says more.");
            ExitCode::from(EXIT_USAGE)
        }
        Err(Failure::Failed(message)) => {
            eprintln!("larder {tool}: {message}");
            ExitCode::FAILURE
        }
    }
}

/// sysexits.h: EX_USAGE.
const EXIT_USAGE: u8 = 64;
