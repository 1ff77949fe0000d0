//! larder, the tools for operators of larderd: one sub-command, one file.

#![forbid(unsafe_code)]

mod arith;
mod bench;
mod capable;
mod cat;
mod completions;
mod cp;
mod dump;
mod each;
mod error;
mod exist;
mod failure;
mod flush;
mod get;
mod load;
mod man;
mod output;
mod parse;
mod passwd;
mod ping;
mod rm;
mod slab;
mod stat;
mod store;
mod target;
mod top;
mod touch;
mod transfer;
mod troubles;
mod ttl;
mod version;
mod wire;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use failure::{EXIT_USAGE, Failure};
use larder_client::codec::Mode;

const EXIT_CODES: &str = "\
Exit codes:
  0   done
  1   not found, not stored, or failed
  64  the command line cannot be understood
  65  a file is not what it should be
  69  a server cannot be reached, or does not answer
  77  a server does not let in";

/// The tools of those who run larderd.
#[derive(Parser)]
#[command(
    name = "larder",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = EXIT_CODES
)]
struct Larder {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Subcommand)]
enum Tool {
    Get(get::Args),
    /// Store a value
    Set(store::Args),
    /// Store a value if the key is not there
    Add(store::Args),
    /// Store a value if the key is there
    Replace(store::Args),
    /// Put bytes behind a value
    Append(store::PartArgs),
    /// Put bytes before a value
    Prepend(store::PartArgs),
    /// Store a value if nobody has changed it since
    Cas(store::CasArgs),
    /// Add to a number, and print the sum
    Incr(arith::Args),
    /// Subtract from a number, down to 0, and print the difference
    Decr(arith::Args),
    Touch(touch::Args),
    Rm(rm::Args),
    Exist(exist::Args),
    Cat(cat::Args),
    Cp(cp::Args),
    Flush(flush::Args),
    Ping(ping::Args),
    Version(version::Args),
    Stat(stat::Args),
    Dump(dump::Args),
    Load(load::Args),
    Capable(capable::Args),
    Top(top::Args),
    Slab(slab::Args),
    Parse(parse::Args),
    Error(error::Args),
    Bench(Box<bench::Args>),
    Passwd(passwd::Args),
    Completions(completions::Args),
    Man(man::Args),
}

fn main() -> ExitCode {
    if let Some(words) = bench::floor_words() {
        return ending("bench", bench::be_the_floor(words));
    }
    let larder = match Larder::try_parse() {
        Ok(larder) => larder,
        Err(error) => {
            // An error here cannot be reported.
            let _ = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => ExitCode::from(EXIT_USAGE),
            };
        }
    };
    match larder.tool {
        Tool::Get(args) => ending("get", get::run(&args)),
        Tool::Set(args) => ending("set", store::run("set", Mode::Set, args)),
        Tool::Add(args) => ending("add", store::run("add", Mode::Add, args)),
        Tool::Replace(args) => ending("replace", store::run("replace", Mode::Replace, args)),
        Tool::Append(args) => ending("append", store::run_part("append", Mode::Append, args)),
        Tool::Prepend(args) => ending("prepend", store::run_part("prepend", Mode::Prepend, args)),
        Tool::Cas(args) => ending("cas", store::run_cas(args)),
        Tool::Incr(args) => ending("incr", arith::run("incr", &args)),
        Tool::Decr(args) => ending("decr", arith::run("decr", &args)),
        Tool::Touch(args) => ending("touch", touch::run(&args)),
        Tool::Rm(args) => ending("rm", rm::run(&args)),
        Tool::Exist(args) => ending("exist", exist::run(&args)),
        Tool::Cat(args) => ending("cat", cat::run(&args)),
        Tool::Cp(args) => ending("cp", cp::run(&args)),
        Tool::Flush(args) => ending("flush", flush::run(&args)),
        Tool::Ping(args) => ending("ping", ping::run(&args)),
        Tool::Version(args) => ending("version", version::run(&args)),
        Tool::Stat(args) => ending("stat", stat::run(&args)),
        Tool::Dump(args) => ending("dump", dump::run(&args)),
        Tool::Load(args) => ending("load", load::run(&args)),
        Tool::Capable(args) => ending("capable", capable::run(&args)),
        Tool::Top(args) => ending("top", top::run(&args)),
        Tool::Slab(args) => ending("slab", slab::run(&args)),
        Tool::Parse(args) => ending("parse", parse::run(&args)),
        Tool::Error(args) => ending("error", error::run(&args)),
        Tool::Bench(args) => ending("bench", bench::run(*args)),
        Tool::Passwd(args) => ending("passwd", passwd::run(args)),
        Tool::Completions(args) => ending("completions", completions::run(&args)),
        Tool::Man(args) => ending("man", man::run(&args)),
    }
}

/// Reports a failure, if there is one.
fn ending(tool: &str, result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(tool),
    }
}
