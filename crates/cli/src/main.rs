//! larder, the tools for operators of larderd: one sub-command, one file.

#![forbid(unsafe_code)]

mod admin;
mod arith;
mod backup;
mod bench;
mod capable;
mod cat;
mod check;
mod completions;
mod cp;
mod dump;
mod each;
mod error;
mod events;
mod exist;
mod failure;
mod flush;
mod get;
mod hotkeys;
mod latency;
mod load;
mod man;
mod output;
mod parallel;
mod parse;
mod passwd;
mod ping;
mod read_only;
mod restore;
mod rm;
mod service_times;
mod shell;
mod signals;
mod sites;
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
mod watch;
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
  64  invalid command line
  65  invalid file
  69  a server cannot be reached, or does not answer
  77  a server requires a login, or refuses it";

/// Tools for operators of larderd and memcached
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
    /// Store a value if the key does not exist
    Add(store::Args),
    /// Store a value if the key exists
    Replace(store::Args),
    /// Append bytes to a value
    Append(store::PartArgs),
    /// Prepend bytes to a value
    Prepend(store::PartArgs),
    /// Store a value if it has not changed since it was read
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
    Watch(watch::Args),
    Hotkeys(hotkeys::Args),
    Latency(latency::Args),
    Shell(shell::Args),
    Slab(slab::Args),
    Sites(sites::Args),
    ReadOnly(read_only::Args),
    Parse(parse::Args),
    Error(error::Args),
    Backup(backup::Args),
    Restore(restore::Args),
    Check(check::Args),
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
        Tool::Watch(args) => ending("watch", watch::run(&args)),
        Tool::Hotkeys(args) => ending("hotkeys", hotkeys::run(&args)),
        Tool::Latency(args) => ending("latency", latency::run(&args)),
        Tool::Shell(args) => ending("shell", shell::run(&args)),
        Tool::Sites(args) => ending("sites", sites::run(&args)),
        Tool::ReadOnly(args) => ending("read-only", read_only::run(&args)),
        Tool::Slab(args) => ending("slab", slab::run(&args)),
        Tool::Parse(args) => ending("parse", parse::run(&args)),
        Tool::Error(args) => ending("error", error::run(&args)),
        Tool::Backup(args) => ending("backup", backup::run(&args)),
        Tool::Restore(args) => ending("restore", restore::run(&args)),
        Tool::Check(args) => ending("check", check::run(&args)),
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
