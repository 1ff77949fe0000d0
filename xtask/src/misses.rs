//! Misses of larderd beside memcached, at equal resident memory; and what larderd's curve says beside what is measured.

use std::path::{Path, PathBuf};

use larder_conformance::{Result, server};
use lexopt::prelude::*;

mod contest;
mod curve;
pub(crate) mod made;
mod replay;
pub(crate) mod workload;

use workload::Workload;

const HELP: &str = "\
Replays workloads to memcached and to larderd as a cache beside a database is used (a get; if it misses, a set), and compares misses.

usage: cargo xtask misses [options] [TRACE...]

  TRACE            FILE.kv, FILE.kv.xz (docs/bench.md), or FILE:N: with values N times as long
  --made NAME      a workload that is made up, always the same (may repeat): zipf-scan changing ttl-sizes;
                   all of them, if neither these nor traces are named
  --curve          instead: start larderd at half of the middle size, at it and at double, and hold the hit ratios against those
                   that the one in the middle predicts for all three
  --mib N          memcached's -m (may repeat), or with --curve larderd's in the middle; default: a twelfth, a sixth and a third of what all
                   items of the workload take, with --curve a sixth
  --server PATH    the larderd to measure (default: this workspace's)
  --reference PATH the memcached to compare with (default: the installed one)

Method. Requests are sent in their order over one connection, up to 32 gets in a batch, the sets for what was missing behind them; a
batch ends before a key that it has already. Both servers have their default options but for -m. memcached's resident memory at the end
is what larderd may have: its -m is chosen, by trying, as the largest whole number of MiB with which its resident memory at the end is not
above memcached's. Where a workload has times to live it is asked at its own pace, else as fast as the server answers; memcached's background
threads, which work by the clock, then have less time than they would have had.";

/// Measures and prints. Errors: a trace cannot be read, or a server does not start or answers wrongly.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let Some(options) = Options::parse(args)? else {
        println!("{HELP}");
        return Ok(());
    };
    let larderd = options.server.clone().map_or_else(server::larderd, Ok)?;
    if options.curve {
        return curve::compare(&options, &larderd);
    }
    let reference = options.reference.clone().map_or_else(server::memcached, Ok)?;
    contest::compare(&options, &reference, &larderd)
}

struct Options {
    traces: Vec<String>,
    made: Vec<String>,
    curve: bool,
    memory_mib: Vec<u64>,
    server: Option<PathBuf>,
    reference: Option<PathBuf>,
}

impl Options {
    /// `None`: help was asked for.
    fn parse(args: &[String]) -> Result<Option<Self>> {
        let mut options = Self {
            traces: Vec::new(),
            made: Vec::new(),
            curve: false,
            memory_mib: Vec::new(),
            server: None,
            reference: None,
        };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(arg) = parser.next()? {
            match arg {
                Value(trace) => options.traces.push(trace.string()?),
                Long("made") => {
                    let name = parser.value()?.string()?;
                    if !made::NAMES.contains(&name.as_str()) {
                        return Err(format!("no workload is called {name:?}").into());
                    }
                    options.made.push(name);
                }
                Long("curve") => options.curve = true,
                Long("mib") => options.memory_mib.push(parser.value()?.parse::<u64>()?.max(1)),
                Long("server") => options.server = Some(parser.value()?.into()),
                Long("reference") => options.reference = Some(parser.value()?.into()),
                Long("help") => return Ok(None),
                _ => return Err(arg.unexpected().into()),
            }
        }
        if options.traces.is_empty() && options.made.is_empty() {
            options.made = made::NAMES.map(str::to_owned).to_vec();
        }
        Ok(Some(options))
    }

    /// One after the other: they are large.
    fn workloads(&self) -> impl Iterator<Item = Result<Workload>> {
        let traces = self.traces.iter().map(|trace| Workload::read(trace));
        traces.chain(self.made.iter().map(|name| Ok(made::make(name))))
    }

    fn memory_mib(&self, workload: &Workload, parts: &[u64]) -> Vec<u64> {
        if !self.memory_mib.is_empty() {
            return self.memory_mib.clone();
        }
        workload.memory_mib(parts)
    }
}

/// Starts a server with so much memory.
fn start(program: &Path, memory_mib: u64, more: &[&str]) -> Result<server::Server> {
    let mut command = server::command(program);
    command.args(["-m", &memory_mib.to_string()]).args(more);
    server::Server::start_command(command)
}
