//! The chores of the workspace: `cargo xtask help` lists them.

mod bench;
mod browser;
mod clients;
mod conform;
mod cores;
mod crash;
mod debian;
mod diff;
mod documents;
mod experiments;
mod exposition;
mod fuzz;
mod generators;
mod libmemcached;
mod misses;
mod needs;
mod package;
mod packaging;
mod process;
mod sanitize;
mod sessions;
mod shell;
mod sites;
mod soak;
mod test;
mod tidy;

use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;

use larder_conformance::Result;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<()> {
    let Some((chore, rest)) = args.split_first() else { return Err(USAGE.into()) };
    let is_help = rest.iter().any(|word| word == "--help");
    if cfg!(debug_assertions) && MEASURING.contains(&chore.as_str()) && !is_help {
        let mut optimized = shell::cargo(&["run", "--release", "--package", "xtask", "--"]);
        return Err(optimized.args(args).exec().into());
    }
    match chore.as_str() {
        "test" => test::run(rest),
        "ci" => test::ci(rest),
        "tidy" => tidy::run(rest),
        "conform" => conform::run(rest),
        "clients" => clients::run(rest),
        "crash" => crash::run(rest),
        "diff" => diff::run(rest),
        "documents" => documents::run(rest),
        "bench" => bench::run(rest),
        "browser" => browser::run(rest),
        "screenshots" => browser::screenshots(rest),
        "package" => package::run(rest),
        "packaging" => packaging::run(rest),
        "experiments" => experiments::run(rest),
        "libmemcached" => libmemcached::run(rest),
        "misses" => misses::run(rest),
        "generators" => generators::run(rest),
        "floor" => larder_bench::floor::main(rest),
        "fuzz" => fuzz::run(rest),
        "sessions" => sessions::run(rest),
        "sites" => sites::run(rest),
        "soak" => soak::run(rest),
        "help" | "--help" => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(USAGE.into()),
    }
}

/// What measures must not be slow itself: these are built with optimization, which takes two minutes more.
const MEASURING: [&str; 5] = ["bench", "experiments", "misses", "generators", "floor"];

const USAGE: &str = "usage: cargo xtask CHORE [--help]
  test      install what the tests need and run them all
  ci        test, and the heavier checks
  tidy      hygiene of the files
  conform   golden wire scripts: play or record them
  clients   real clients: run them, through every door
  browser   the live page in Chromium: click through it
  screenshots  the pictures of README.md
  package   a Debian package, an RPM and an archive, in target/package
  packaging packages, Dockerfile, Helm chart, dashboard and alerts: check them
  documents the commands of the documents: run them, and compare what they print
  diff      random requests to larderd and memcached, side by side
  crash     kill larderd under load, and look what its store has
  sessions  examples/sessions: PHP at two sites, of which one dies
  sites     sites that replicate, over links that fail and through deaths
  bench     measure larderd beside memcached and the floor server
  misses    misses beside memcached at equal memory, and the curve against the truth
  experiments  published measurements of memcached, made again (docs/experiments.md)
  libmemcached  programs made for libmemcached, over liblarder_memcached
  generators   what load generators cost, larder bench among them
  floor     the floor server: what a server costs that does no work
  fuzz      make up inputs for the parsers
  soak      run larderd for long with values that can be checked";
