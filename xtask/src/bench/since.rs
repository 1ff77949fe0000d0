//! larderd beside an earlier larderd.

use std::path::{Path, PathBuf};
use std::process::Command;

use larder_bench::compare::Metric;
use larder_conformance::{Result, server};
use lexopt::prelude::*;

use super::rows::{self, Work};
use super::speed::{self, Bench};
use crate::shell;

const HELP: &str = "\
Compares larderd with an earlier one: CPU time of the server for a get, a pipelined get, a key of a get of many, and a
set of 1 KiB. The method is that of `cargo xtask bench --help`.

usage: cargo xtask bench since [options] [COMMIT]

  COMMIT     built for release below target/since (default: the last tag)
  --quick    short rounds, for a first impression
  --rounds N rounds of each row (default 7)
  --secs S   length of a round (default 2)
  --server PATH  the larderd to measure (default: this workspace's)

Prints the ratio of now to then, and its interval at 95 %. Fails if one of the rows certainly became dearer by more than
a tenth.";

/// The rows that are measured.
const ROWS: [&str; 4] = ["get", "get-pipelined", "multiget", "set"];
/// The ratio that the lower end of an interval may reach.
const RATIO_MAX: f64 = 1.1;

/// Measures and prints. Errors: something became dearer, or cannot be built.
pub(super) fn run(args: &[String]) -> Result<()> {
    let (mut rounds, mut round_secs, mut commit, mut now) = (7, 2.0, None, None);
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("quick") => (rounds, round_secs) = (3, 0.5),
            Long("rounds") => rounds = parser.value()?.parse::<usize>()?.max(1),
            Long("secs") => round_secs = parser.value()?.parse()?,
            Long("server") => now = Some(PathBuf::from(parser.value()?)),
            Value(name) if commit.is_none() => commit = Some(name.string()?),
            Long("help") => {
                println!("{HELP}");
                return Ok(());
            }
            _ => return Err(arg.unexpected().into()),
        }
    }
    let commit = commit.map_or_else(last_tag, Ok)?;
    let (then, now) = (build(&commit)?, now.map_or_else(server::larderd, Ok)?);
    compare(&commit, &then, &now, rounds, round_secs)
}

/// The same with the last tag, if there is one yet.
pub(crate) fn since_last_tag() -> Result<()> {
    match last_tag() {
        Ok(_) => run(&[]),
        Err(error) => {
            println!("nothing to compare with: {error}");
            Ok(())
        }
    }
}

fn compare(commit: &str, then: &Path, now: &Path, rounds: usize, round_secs: f64) -> Result<()> {
    let bench = Bench::between(&[(commit, then), ("now", now)], rounds, round_secs)?;
    println!("CPU us an operation, {rounds} rounds of {round_secs} s\n");
    println!("| row | {commit} | now | ratio | 95 % |\n|---|---|---|---|---|");
    let mut dearer = Vec::new();
    for row in ROWS {
        let row = rows::find(row)?;
        let Work::Load(scenario) = &row.work else { continue };
        let standings = bench.compare(scenario)?.standings;
        let cpu = Metric::ServerCpuSecsPerMillion;
        let [before, after] = [0, 1].map(|at| speed::middle(&standings[at], cpu));
        let ends = speed::interval(&standings[0], &standings[1], cpu);
        let interval = ends.map(|(low, high)| format!("{low:.2} - {high:.2}")).unwrap_or_default();
        println!("| {} | {before:.3} | {after:.3} | {:.2} | {interval} |", row.what, after / before);
        if ends.is_some_and(|(low, _)| low > RATIO_MAX) {
            dearer.push(row.name);
        }
    }
    if dearer.is_empty() {
        Ok(())
    } else {
        Err(format!("dearer than {commit}: {}", dearer.join(", ")).into())
    }
}

fn last_tag() -> Result<String> {
    Ok(shell::output(&mut git(&["describe", "--tags", "--abbrev=0"]))?.trim().to_owned())
}

/// The larderd of a commit, as it was released.
fn build(commit: &str) -> Result<PathBuf> {
    let dir = shell::target_dir()?.join("since");
    let (tree, target) = (dir.join("tree"), dir.join("target"));
    let hash = shell::output(&mut git(&["rev-parse", "--verify", &format!("{commit}^{{commit}}")]))?;
    if tree.exists() {
        shell::run(git(&["checkout", "--quiet", "--detach", "--force", hash.trim()]).current_dir(&tree))?;
    } else {
        shell::run(git(&["worktree", "add", "--quiet", "--force", "--detach"]).arg(&tree).arg(hash.trim()))?;
    }
    let mut build = shell::cargo(&["build", "--quiet", "--release", "--package", "larder-server"]);
    shell::run(build.current_dir(&tree).env("CARGO_TARGET_DIR", &target))?;
    Ok(target.join("release/larderd"))
}

fn git(args: &[&str]) -> Command {
    let mut git = Command::new("git");
    git.args(args).current_dir(shell::root());
    git
}
