//! `larder bench`: the benchmark.
//!
//! | module | contents |
//! |---|---|
//! | [`load`] | options of the load, which make a scenario |
//! | [`output`] | options of the output, and writing it |
//! | [`live`] | a run with a live display, until it ends or is interrupted |
//! | [`frontend`] | command lines of memaslap, memslap, mc-crusher and Brutis |
//! | [`versus`] | compare, sweep and search |
//! | [`machines`] | agents and their collector |

mod frontend;
mod live;
mod load;
mod machines;
mod output;
mod tables;
mod versus;

use std::ffi::OsString;
use std::net::ToSocketAddrs as _;

use clap::Subcommand;
use larder_bench::presets::PRESETS;
use larder_client::address::DEFAULT_PORT;

use crate::Failure;
use crate::signals::stop_on_signals;

const SHORT_HELP: &str = "larder bench --help lists all options, with examples.";

// A paragraph is one line: clap wraps it. Lines of examples fit into the 100 columns of a help without a terminal.
const AFTER_HELP: &str = "\
Examples:
  larder bench                            90 % gets, 10 % sets at 127.0.0.1:11211 for 10 seconds
  larder bench cache-1 --preset cache --rate 50k    a published workload, at a fixed rate
  larder bench --mix get=99,set=1 --value-bytes 100-4000 --zipf 0.99 --verify -c 200
  larder bench --preset olio-2048 --print-scenario > mine.toml
  larder bench --scenario mine.toml
  larder bench compare larderd /usr/bin/memcached --rounds 9
  larder bench memaslap -s 127.0.0.1 -S 1s -T 8 -c 64 -U --win_size=1k

Without --rate, each connection sends its next request when the reply has arrived: as fast as the server goes. With \
--rate, requests keep to a schedule, and latency counts from the scheduled time, so a stall counts for every request \
that it delays.

With --preset or --scenario, its values are the defaults. A scenario file also names the servers: MEMCACHED_SERVERS \
is ignored.

Exit codes: 0 success; 1 a check failed, or nothing could be measured; 64 invalid command line; 69 a server cannot be \
reached.";

/// Measure a memcached-compatible server
///
/// Puts the load of a scenario on servers, checks the replies if asked to, and reports latency, throughput and cost. A
/// scenario is a TOML file, a preset, or made by these options; options override a file or a preset.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = SHORT_HELP, after_long_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    word: Option<Word>,
    /// Servers, instead of --servers
    #[arg(conflicts_with = "servers")]
    host: Option<String>,
    #[command(flatten)]
    load: load::LoadArgs,
    #[command(flatten)]
    output: output::OutputArgs,
    /// Print the scenario as TOML, and send no load
    #[arg(long, help_heading = "Output", hide_short_help = true)]
    print_scenario: bool,
    /// Run the floor server, which replies without a cache; the first option, before -p PORT, -s PATH, --value-bytes N
    #[arg(long, help_heading = "Servers", hide_short_help = true)]
    floor: bool,
}

#[derive(Subcommand)]
enum Word {
    /// Compare several servers under the same load, in turns, with ratios and verdicts
    Compare(versus::CompareArgs),
    /// Change one property of the load step by step
    Sweep(versus::SweepArgs),
    /// Find the highest rate at which a latency is kept
    Search(versus::SearchArgs),
    /// Send load on behalf of a collector
    Agent(machines::AgentArgs),
    /// Run a scenario on many agents at once
    Collect(machines::CollectArgs),
    /// List the presets
    Presets {
        /// Print the file of this one
        name: Option<String>,
    },
    /// Run a command line of memaslap
    #[command(disable_help_flag = true)]
    Memaslap(Words),
    /// Run a command line of memslap (or of memaslap under this name)
    #[command(visible_alias = "memcslap", disable_help_flag = true)]
    Memslap(Words),
    /// Run a configuration of mc-crusher
    #[command(name = "mc-crusher", visible_alias = "crusher", disable_help_flag = true)]
    Crusher(Words),
    /// Run a command line or an XML test of Brutis
    #[command(disable_help_flag = true)]
    Brutis(Words),
}

/// Words of another tool.
#[derive(clap::Args)]
struct Words {
    /// As that tool takes them; see --help. With --print-scenario first, the scenarios are printed as TOML
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// `larder bench --floor ...`: the floor server, which has options of its own.
pub(crate) fn floor_words() -> Option<Vec<OsString>> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let is_floor = words.get(1).is_some_and(|word| word == "bench")
        && words.get(2).is_some_and(|word| word == "--floor");
    is_floor.then(|| words[3..].to_vec())
}

pub(crate) fn be_the_floor(words: Vec<OsString>) -> Result<(), Failure> {
    larder_bench::floor::main(words).map_err(|error| Failure::Failed(format!("--floor: {error}")))
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    use larder_bench::frontend::Tool;

    match args.word {
        Some(Word::Compare(args)) => versus::compare(args),
        Some(Word::Sweep(args)) => versus::sweep(args),
        Some(Word::Search(args)) => versus::search(args),
        Some(Word::Agent(args)) => machines::agent(args),
        Some(Word::Collect(args)) => machines::collect(args),
        Some(Word::Presets { name }) => presets(name.as_deref()),
        Some(Word::Memaslap(words)) => frontend::run(Tool::Memaslap, words.words),
        Some(Word::Memslap(words)) => frontend::run(Tool::Memslap, words.words),
        Some(Word::Crusher(words)) => frontend::run(Tool::Crusher, words.words),
        Some(Word::Brutis(words)) => frontend::run(Tool::Brutis, words.words),
        None if args.floor => Err(Failure::Usage("--floor must be the first option".into())),
        None => {
            let load = match &args.host {
                Some(list) => args.load.for_servers(list)?,
                None => args.load,
            };
            let scenario = load.scenario()?;
            if args.print_scenario {
                print!("{}", scenario.to_toml());
                return Ok(());
            }
            args.host.as_deref().map_or(Ok(()), expect_host)?;
            live::measure(&scenario, &args.output, &stop_on_signals()?)
        }
    }
}

/// Fails if a word that could be a misspelt sub-command names no host.
fn expect_host(word: &str) -> Result<(), Failure> {
    let is_bare = word.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if is_bare && (word, DEFAULT_PORT).to_socket_addrs().is_err() {
        let why = format!("{word}: no host of this name, and no sub-command of larder bench");
        return Err(Failure::Usage(why));
    }
    Ok(())
}

fn presets(name: Option<&str>) -> Result<(), Failure> {
    match name {
        None => {
            for preset in PRESETS {
                println!("{:<24} {}", preset.name, preset.scenario().description);
            }
        }
        Some(name) => print!("{}", load::find_preset(name)?.toml),
    }
    Ok(())
}
