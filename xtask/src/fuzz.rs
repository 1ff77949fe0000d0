//! `cargo xtask fuzz`: lets cargo-fuzz make up inputs for the functions of the crate `larder-fuzz`.

use std::process::Command;

use larder_conformance::Result;
use lexopt::prelude::*;

use crate::shell;

/// Fuzzes one target, or makes its corpus smaller.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut target = None;
    let mut secs = 60;
    let mut minimises = false;
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("secs") => secs = parser.value()?.parse::<u32>()?,
            Long("minimise") => minimises = true,
            Long("help") => {
                println!("{USAGE}");
                return Ok(());
            }
            Value(name) if target.is_none() => target = Some(name.string()?),
            other => return Err(format!("{}\n{USAGE}", other.unexpected()).into()),
        }
    }
    let target = target.ok_or(USAGE)?;
    if minimises {
        return shell::run(cargo_fuzz("cmin", &target)?.args(["--", LEN_MAX]));
    }
    let limit = format!("-max_total_time={secs}");
    // What it finds is kept apart; what is worth keeping for good is put into the corpus by hand.
    let found = shell::target_dir()?.join("fuzz-corpus").join(&target);
    std::fs::create_dir_all(&found)?;
    let kept = shell::root().join("fuzz/corpus").join(&target);
    shell::run(cargo_fuzz("run", &target)?.arg(found).arg(kept).args(["--", LEN_MAX, &limit]))
}

/// cargo-fuzz with the nightly toolchain that it needs, and without the optimisation of whole programs, which takes
/// minutes.
fn cargo_fuzz(verb: &str, target: &str) -> Result<Command> {
    let mut cargo = Command::new("cargo");
    cargo
        .args(["fuzz", verb, "--features", "fuzzer", "--target-dir"])
        .arg(shell::target_dir()?.join("fuzz"))
        .arg(target)
        .current_dir(shell::root())
        .env("RUSTUP_TOOLCHAIN", "nightly")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    Ok(cargo)
}

/// Long enough for every rule of the protocols but those about large values.
const LEN_MAX: &str = "-max_len=4096";

const USAGE: &str =
    "usage: cargo xtask fuzz binary|http|meta|passwords|sasl|session|text|tls|udp [--secs N | --minimise]
Fuzzes one target for N seconds (60), beginning with fuzz/corpus; or removes from there what adds nothing.
Needs the nightly toolchain, and cargo-fuzz: cargo install --locked cargo-fuzz";
