//! Comparisons of several servers or loads: compare, sweep, search.

use clap::Args;
use larder_bench::compare::{self, Comparison};
use larder_bench::contestant;
use larder_bench::contestant::Contestant;
use larder_bench::contestant::launch::Launch;
use larder_bench::report::html;
use larder_bench::search::{self, Bounds, Goal};
use larder_bench::sweep::{self, Range};

use super::live::watcher;
use super::load::LoadArgs;
use super::output::{OutputArgs, write, write_json};
use super::tables;
use crate::Failure;
use crate::signals::stop_on_signals;

/// How comparisons are made.
#[derive(Args)]
#[command(next_help_heading = "Comparison")]
struct RoundArgs {
    /// How often each server is measured, in turns; with one round there are figures and no verdicts
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Start every server anew for each round
    #[arg(long)]
    restart: bool,
    /// After filling, wait up to this long for the server to become idle; 0: do not wait
    #[arg(long, value_name = "SECS", default_value_t = 0.0)]
    settle: f64,
    /// How sure an interval is to hold the true ratio
    #[arg(long, value_name = "SHARE", default_value_t = 0.95)]
    confidence: f64,
    #[command(flatten)]
    cores: CoreArgs,
}

/// Who runs where.
#[derive(Args)]
#[command(next_help_heading = "Comparison")]
struct CoreArgs {
    /// Cores for servers that are started: 0,2-3
    #[arg(long, value_name = "LIST", value_parser = cores)]
    server_cores: Option<Cores>,
    /// Cores for the load
    #[arg(long, value_name = "LIST", value_parser = cores)]
    load_cores: Option<Cores>,
}

#[derive(Args)]
pub(super) struct CompareArgs {
    /// Servers: [NAME=]HOST:PORT, [NAME=]'COMMAND LINE', or `floor`; the first is what others are measured by
    #[arg(required = true, num_args = 1.., value_name = "SERVER", conflicts_with = "servers")]
    contestants: Vec<String>,
    #[command(flatten)]
    rounds: RoundArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Args)]
pub(super) struct SweepArgs {
    /// What changes: threads, connections, pipeline, value-bytes, rate or keys-per-get, as connections=1..50,
    /// rate=10000..50000:10000 or threads=1,2,4
    #[arg(value_name = "AXIS=VALUES", value_parser = range)]
    range: Range,
    /// Servers, as in `compare`
    #[arg(required = true, num_args = 1.., value_name = "SERVER", conflicts_with = "servers")]
    contestants: Vec<String>,
    #[command(flatten)]
    rounds: RoundArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Args)]
pub(super) struct SearchArgs {
    /// What must hold: 'p99<1ms'
    #[arg(value_parser = goal)]
    goal: Goal,
    /// The server, as in `compare`; without it, --servers
    #[arg(value_name = "SERVER", conflicts_with = "servers")]
    contestant: Option<String>,
    /// The first rate that is tried
    #[arg(long, value_name = "N", default_value_t = Bounds::default().start_per_sec)]
    start: f64,
    /// Precision, as a fraction
    #[arg(long, value_name = "SHARE", default_value_t = Bounds::default().tolerance)]
    tolerance: f64,
    #[command(flatten)]
    cores: CoreArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn compare(args: CompareArgs) -> Result<(), Failure> {
    check_files(&args.output)?;
    let plan = plan(&args.contestants, &args.rounds, &args.load)?;
    let stop = stop_on_signals()?;
    let comparison = compare::compare(&plan, watcher(&plan.scenario, &args.output, &stop).as_mut(), &stop)
        .map_err(|error| Failure::of_bench(&error))?;
    args.output.print(|out| tables::comparison(&comparison, out))?;
    write_all(&args.output, &comparison, || html::comparison(&comparison))?;
    judge([&comparison])
}

pub(super) fn sweep(args: SweepArgs) -> Result<(), Failure> {
    check_files(&args.output)?;
    let plan = plan(&args.contestants, &args.rounds, &args.load)?;
    let stop = stop_on_signals()?;
    let sweep =
        sweep::sweep(&plan, &args.range, watcher(&plan.scenario, &args.output, &stop).as_mut(), &stop)
            .map_err(|error| Failure::of_bench(&error))?;
    args.output.print(|out| tables::sweep(&sweep, out))?;
    write_all(&args.output, &sweep, || html::sweep(&sweep))?;
    judge(sweep.steps.iter().map(|step| &step.comparison))
}

pub(super) fn search(args: SearchArgs) -> Result<(), Failure> {
    check_files(&args.output)?;
    let contestant = match &args.contestant {
        Some(contestant) => contestant.clone(),
        // As for a single run: --servers, a file, the environment, or the default.
        None => args.load.scenario()?.target.servers.join(","),
    };
    let contestant: Contestant = contestant.parse().map_err(Failure::Usage)?;
    let (launch, load_cores) = args.cores.places();
    let plan = search::Plan {
        contestant,
        scenario: args.load.scenario()?,
        goal: args.goal,
        bounds: Bounds { start_per_sec: args.start, tolerance: args.tolerance, ..Bounds::default() },
        launch,
        load_cores,
    };
    let stop = stop_on_signals()?;
    let search = search::search(&plan, watcher(&plan.scenario, &args.output, &stop).as_mut(), &stop)
        .map_err(|error| Failure::of_bench(&error))?;
    args.output.print(|out| tables::search(&search, out))?;
    write_all(&args.output, &search, || html::search(&search))?;
    match search.rate_per_sec {
        Some(_) => Ok(()),
        None => Err(Failure::Failed("not even the lowest rate kept the latency".into())),
    }
}

fn plan(contestants: &[String], rounds: &RoundArgs, load: &LoadArgs) -> Result<compare::Plan, Failure> {
    if rounds.rounds == 0 || !(0.5..1.0).contains(&rounds.confidence) {
        return Err(Failure::Usage("--rounds is at least 1, and --confidence 0.5 to 1".into()));
    }
    if !(0.0..=3600.0).contains(&rounds.settle) {
        return Err(Failure::Usage("--settle is 0 to 3600 seconds".into()));
    }
    let (launch, load_cores) = rounds.cores.places();
    Ok(compare::Plan {
        contestants: contestant::parse_all(contestants).map_err(Failure::Usage)?,
        scenario: load.scenario()?,
        prepare: Vec::new(),
        settle_secs_max: rounds.settle,
        rounds: rounds.rounds,
        restart: rounds.restart,
        confidence: rounds.confidence,
        launch,
        load_cores,
    })
}

impl CoreArgs {
    fn places(&self) -> (Launch, Vec<usize>) {
        let list = |cores: &Option<Cores>| cores.as_ref().map(|cores| cores.0.clone()).unwrap_or_default();
        (Launch { cores: list(&self.server_cores), ..Launch::default() }, list(&self.load_cores))
    }
}

fn write_all(
    output: &OutputArgs,
    value: &impl serde::Serialize,
    page: impl FnOnce() -> String,
) -> Result<(), Failure> {
    write(output.json.as_deref(), |out| write_json(&serde_json::to_value(value)?, out))?;
    write(output.html.as_deref(), |out| out.write_all(page().as_bytes()))
}

/// Before the measurement: fails if the results could not be written.
fn check_files(output: &OutputArgs) -> Result<(), Failure> {
    let files = [("--csv", &output.csv), ("--hdr", &output.hdr)];
    match files.iter().find(|(_, file)| file.is_some()) {
        Some((option, _)) => Err(Failure::Usage(format!("{option} is for single runs"))),
        None => output.check(),
    }
}

fn judge<'c>(comparisons: impl IntoIterator<Item = &'c Comparison>) -> Result<(), Failure> {
    let standings = comparisons.into_iter().flat_map(|comparison| &comparison.standings);
    let failures: u64 = standings.map(|standing| standing.failures).sum();
    match failures {
        0 => Ok(()),
        _ => Err(Failure::Failed(format!("not all was well: {failures} answers were wrong"))),
    }
}

fn range(text: &str) -> Result<Range, String> {
    text.parse()
}

fn goal(text: &str) -> Result<Goal, String> {
    text.parse()
}

#[derive(Clone)]
struct Cores(Vec<usize>);

/// `0,2-3`.
fn cores(text: &str) -> Result<Cores, String> {
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let core =
            |text: &str| text.parse::<usize>().map_err(|_| format!("{text}: the number of a core is needed"));
        cores.extend(core(first)?..=core(last)?);
    }
    Ok(Cores(cores))
}
