//! The chores of the workspace: `cargo xtask help` lists them.

mod bench;
mod floor;
mod load;
mod soak;

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
    match chore.as_str() {
        "bench" => bench::run(rest),
        "floor" => floor::run(rest),
        "soak" => soak::run(rest),
        _ => Err(USAGE.into()),
    }
}

const USAGE: &str = "usage: cargo xtask bench|floor|soak [--help]";
