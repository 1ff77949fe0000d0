//! `larder_engine::Cache` beside other caches of Rust programs: misses and nanoseconds at equal resident memory.

use std::collections::HashMap;
use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_conformance::Result;
use lexopt::prelude::*;

use crate::misses::made;
use crate::misses::workload::Workload;
use crate::shell;

const HELP: &str = "\
Replays workloads through larder_engine::Cache, moka, quick_cache and foyer (in memory), at equal memory: hit ratio, and
ns a get.

usage: cargo xtask bench embedded [options] [TRACE...]

  TRACE            FILE.kv, FILE.kv.xz (docs/bench.md), or FILE:N: with values N times as long; without any, the
                   workload zipf-scan of `cargo xtask misses`
  --mib N          larder's memory (may repeat); default: a twelfth, a sixth and a third of what all items take
  --rounds N       rounds (default 5); medians are printed, with the least and the most
  --quick          one size (a sixth), three rounds, fewer gets

The caches are built at the first run, apart from the workspace: folder comparison.

Method. Each run is a process of its own with one cache: keys are u64, values Arc<[u8]>, and each cache is made as its
documentation shows it. Requests are replayed in their order by one thread: a get and, if it misses, an insert. Times to
live are left out. larder has N MiB. The resident memory by which its process grows until the end of the replay is what
the others may have: the capacity of each, the sum of the bytes of keys and values, is chosen, by trying, so that its
process grows by at most that, and if six tries find it by at least 97 % of it. Then the last requests are asked again,
gets alone, by one thread and by two; each reads the first and the last byte of what it finds. The caches take turns
within each round. ns are processor time of the thread; waiting for a lock without the processor is not in it. \"larder\"
copies what it finds; \"in place\" is Cache::get_with.";

/// As they are called on the command line of the comparison, and what they are called in the table. Larder is first:
/// the others may have its memory.
const CACHES: [(&str, &str); 6] = [
    ("larder", "larder"),
    ("larder-in-place", "larder, in place"),
    ("moka", "moka"),
    ("quick_cache", "quick_cache"),
    ("foyer", "foyer (LRU)"),
    ("foyer-lfu", "foyer (LFU)"),
];

/// Measures and prints. Errors: a trace cannot be read, or the comparison does not build or run.
pub(super) fn run(args: &[String]) -> Result<()> {
    let Some(options) = Options::parse(args)? else {
        println!("{HELP}");
        return Ok(());
    };
    let program = build("larder-comparison")?;
    println!(
        "| workload | memory, MiB | cache | capacity, MiB | hits | ns a request | ns a get | two threads |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for trace in &options.traces {
        compare(&options, &program, &Workload::read(trace)?)?;
    }
    if options.traces.is_empty() {
        compare(&options, &program, &made::make(made::NAMES[0]))?;
    }
    Ok(())
}

/// Builds a program of the folder `comparison`, which is no member of the workspace.
pub(super) fn build(package: &str) -> Result<PathBuf> {
    let target = shell::target_dir()?.join("comparison");
    let mut build = shell::cargo(&["build", "--quiet", "--release", "--locked", "--manifest-path"]);
    build.arg(shell::root().join("comparison/Cargo.toml")).args(["--package", package]);
    // The profile is the comparison's own.
    build.env_remove("CARGO_PROFILE_RELEASE_LTO").env_remove("CARGO_PROFILE_RELEASE_CODEGEN_UNITS");
    shell::run(build.env("CARGO_TARGET_DIR", &target))?;
    Ok(target.join("release").join(package))
}

fn compare(options: &Options, program: &Path, workload: &Workload) -> Result<()> {
    let file = shell::target_dir()?.join("comparison/requests.kv");
    write(workload, &file)?;
    let contest = Contest { program, requests: &file };
    for memory_mib in options.memory_mib(workload) {
        compare_at(options, &contest, workload, memory_mib << 20)?;
    }
    Ok(())
}

fn compare_at(
    options: &Options,
    contest: &Contest<'_>,
    workload: &Workload,
    memory_bytes: u64,
) -> Result<()> {
    let resident_bytes = contest.run(CACHES[0].0, memory_bytes, 0)?.resident_bytes;
    let mut capacities = Vec::new();
    for (cache, _) in CACHES {
        capacities.push(if cache.starts_with("larder") {
            Some(memory_bytes)
        } else {
            contest.capacity_within(cache, resident_bytes)?
        });
    }
    let mut runs: Vec<Vec<Figures>> = vec![Vec::new(); CACHES.len()];
    for round in 0..options.rounds {
        for turn in 0..CACHES.len() {
            // Another one begins each round.
            let index = (turn + round) % CACHES.len();
            if let Some(capacity_bytes) = capacities[index] {
                runs[index].push(contest.run(CACHES[index].0, capacity_bytes, options.gets)?);
            }
        }
    }
    for (((_, title), capacity_bytes), runs) in CACHES.iter().zip(capacities).zip(&runs) {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let Some(capacity_bytes) = capacity_bytes else {
            println!("| {} | {:.1} | {title} | does not fit | | | | |", workload.name, mib(resident_bytes));
            continue;
        };
        let hits = summary(runs, |run| 100.0 * run.hit_ratio);
        let resident = summary(runs, |run| mib(run.resident_bytes));
        println!(
            "| {} | {:.1} | {title} | {:.1} | {:.2} % ({:.2} - {:.2}) | {} | {} | {} |",
            workload.name,
            resident.median,
            mib(capacity_bytes),
            hits.median,
            hits.min,
            hits.max,
            summary(runs, |run| run.replay_nanos).in_nanos(),
            summary(runs, |run| run.get_nanos[0]).in_nanos(),
            summary(runs, |run| run.get_nanos[1]).in_nanos(),
        );
    }
    Ok(())
}

/// Runs of a workload.
struct Contest<'c> {
    program: &'c Path,
    requests: &'c Path,
}

/// What came of a run.
#[derive(Clone, Copy, Debug)]
struct Figures {
    hit_ratio: f64,
    resident_bytes: u64,
    replay_nanos: f64,
    /// With one thread and with two; 0: not measured.
    get_nanos: [f64; 2],
}

impl Contest<'_> {
    fn run(&self, cache: &str, capacity_bytes: u64, gets: u64) -> Result<Figures> {
        let mut command = Command::new(self.program);
        command.args(["--cache", cache, "--capacity-bytes", &capacity_bytes.to_string()]);
        command.args(["--gets", &gets.to_string(), "--requests"]).arg(self.requests);
        Figures::parse(&shell::output(&mut command)?)
    }

    /// The capacity with which resident memory grows by at most so much, and by nearly that. `None`: even an empty
    /// cache takes more, or the tries did not find one.
    fn capacity_within(&self, cache: &str, resident_bytes_max: u64) -> Result<Option<u64>> {
        let mut capacity_bytes = resident_bytes_max as f64;
        let mut best: Option<u64> = None;
        for _ in 0..TRIES_MAX {
            let resident_bytes = self.run(cache, capacity_bytes as u64, 0)?.resident_bytes;
            let part = resident_bytes as f64 / resident_bytes_max as f64;
            if part <= 1.0 {
                best = best.max(Some(capacity_bytes as u64));
                if part >= RESIDENT_PART_MIN {
                    break;
                }
            }
            capacity_bytes *= (1.0 + RESIDENT_PART_MIN) / 2.0 / part;
        }
        Ok(best)
    }
}

impl Figures {
    fn parse(text: &str) -> Result<Self> {
        let figures: HashMap<&str, f64> = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
            .collect();
        let figure = |name| figures.get(name).copied().ok_or_else(|| format!("no figure {name}"));
        let measured = |name| figures.get(name).copied().unwrap_or(0.0);
        Ok(Self {
            hit_ratio: figure("hits")? / figure("requests")?,
            resident_bytes: figure("resident_bytes")? as u64,
            replay_nanos: figure("replay_cpu_nanos")?,
            get_nanos: [measured("get_1_cpu_nanos"), measured("get_2_cpu_nanos")],
        })
    }
}

struct Summary {
    median: f64,
    min: f64,
    max: f64,
}

impl Summary {
    fn in_nanos(&self) -> String {
        format!("{:.0} ({:.0} - {:.0})", self.median, self.min, self.max)
    }
}

fn summary(runs: &[Figures], figure: impl Fn(&Figures) -> f64) -> Summary {
    let mut figures: Vec<f64> = runs.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    let at = |index: usize| figures.get(index).copied().unwrap_or(f64::NAN);
    Summary { median: at(figures.len() / 2), min: at(0), max: at(figures.len().saturating_sub(1)) }
}

/// Writes the requests as a `.kv` file.
fn write(workload: &Workload, path: &Path) -> Result<()> {
    let mut file = BufWriter::new(fs::File::create(path)?);
    for request in &workload.requests {
        file.write_all(&request.key.to_le_bytes())?;
        file.write_all(&request.value_bytes.to_le_bytes())?;
    }
    Ok(file.flush()?)
}

struct Options {
    traces: Vec<String>,
    memory_mib: Vec<u64>,
    parts: &'static [u64],
    rounds: usize,
    /// Of each thread, in each of two measurements.
    gets: u64,
}

impl Options {
    /// `None`: help was asked for.
    fn parse(args: &[String]) -> Result<Option<Self>> {
        let mut options = Self {
            traces: Vec::new(),
            memory_mib: Vec::new(),
            parts: &[12, 6, 3],
            rounds: 5,
            gets: 2_000_000,
        };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(arg) = parser.next()? {
            match arg {
                Value(trace) => options.traces.push(trace.string()?),
                Long("mib") => options.memory_mib.push(parser.value()?.parse::<u64>()?.max(1)),
                Long("rounds") => options.rounds = parser.value()?.parse::<usize>()?.max(1),
                Long("quick") => {
                    options.parts = &[6];
                    options.rounds = 3;
                    options.gets = 500_000;
                }
                Long("help") => return Ok(None),
                _ => return Err(arg.unexpected().into()),
            }
        }
        Ok(Some(options))
    }

    fn memory_mib(&self, workload: &Workload) -> Vec<u64> {
        if !self.memory_mib.is_empty() {
            return self.memory_mib.clone();
        }
        workload.memory_mib(self.parts)
    }
}

const TRIES_MAX: usize = 6;
/// Of the resident memory that a cache may have, it has at least this part.
const RESIDENT_PART_MIN: f64 = 0.97;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read() {
        let figures = Figures::parse(
            "hits 3\nrequests 4\nresident_bytes 100\nreplay_cpu_nanos 1.5\nget_2_cpu_nanos 7\n",
        )
        .unwrap();
        assert_eq!((figures.hit_ratio, figures.resident_bytes), (0.75, 100));
        assert_eq!((figures.replay_nanos, figures.get_nanos), (1.5, [0.0, 7.0]));
        assert!(Figures::parse("hits 3\n").is_err());
    }

    #[test]
    fn a_summary_has_the_median_and_both_ends() {
        let run =
            |hit_ratio| Figures { hit_ratio, resident_bytes: 0, replay_nanos: 0.0, get_nanos: [0.0; 2] };
        let Summary { median, min, max } = summary(&[3.0, 1.0, 2.0].map(run), |run| run.hit_ratio);
        assert_eq!((median, min, max), (2.0, 1.0, 3.0));
    }
}
