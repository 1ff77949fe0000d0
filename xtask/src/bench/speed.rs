//! CPU and throughput under a load.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use larder_bench::Scenario;
use larder_bench::compare::{Comparison, Metric, Plan, Standing, compare};
use larder_bench::contestant::launch::Launch;
use larder_bench::contestant::{Contestant, Place};
use larder_bench::scenario::{Kind, Sizes, Until};
use larder_bench::statistics::{median, paired_ratio};
use larder_conformance::Result;
use serde_json::{Value, json};

use super::Measured;
use super::goal::Figures;
use super::rows::Row;
use super::summary::Line;
use crate::cores::Cores;

/// Who is measured, where, and how often.
pub(super) struct Bench {
    /// memcached, larderd, the floor: in this order wherever figures of several servers stand together.
    contestants: Vec<Contestant>,
    pub(super) memcached: Box<Path>,
    pub(super) larderd: Box<Path>,
    pub(super) cores: Cores,
    floor: Vec<std::ffi::OsString>,
    pub(super) rounds: usize,
    pub(super) round_secs: f64,
}

impl Bench {
    pub(super) fn new(memcached: &Path, larderd: &Path, rounds: usize, round_secs: f64) -> Result<Self> {
        let memory = ["-m", &MEMORY_MIB.to_string()];
        Ok(Self {
            contestants: vec![
                cache("memcached", memcached, &memory),
                cache("larderd", larderd, &memory),
                Contestant { name: "floor".into(), place: Place::Floor },
            ],
            memcached: memcached.into(),
            larderd: larderd.into(),
            cores: Cores::choose()?,
            floor: vec![std::env::current_exe()?.into(), "floor".into()],
            rounds,
            round_secs,
        })
    }

    /// Only these, by name and program.
    pub(super) fn between(programs: &[(&str, &Path)], rounds: usize, round_secs: f64) -> Result<Self> {
        let [(_, first), .., (_, last)] = programs else { return Err("there are two to compare".into()) };
        let contestants = programs.iter().map(|(name, program)| cache(name, program, &[])).collect();
        Ok(Self { contestants, ..Self::new(first, last, rounds, round_secs)? })
    }

    /// Asks the servers in turns. Errors: one does not start, or answers wrongly.
    pub(super) fn compare(&self, scenario: &Scenario) -> Result<Comparison> {
        let prepare = preparation(scenario).into_iter().collect();
        self.compare_all(self.contestants.clone(), prepare, scenario)
    }

    /// Asks memcached and larderd in turns, started with these options, after `prepare`.
    pub(super) fn compare_two(
        &self,
        options: &[&str],
        prepare: Scenario,
        scenario: &Scenario,
    ) -> Result<Vec<Standing>> {
        let contestants = [("memcached", &self.memcached), ("larderd", &self.larderd)];
        let contestants = contestants.map(|(name, program)| cache(name, program, options)).into();
        Ok(self.compare_all(contestants, vec![prepare], scenario)?.standings)
    }

    fn compare_all(
        &self,
        contestants: Vec<Contestant>,
        prepare: Vec<Scenario>,
        scenario: &Scenario,
    ) -> Result<Comparison> {
        let plan = Plan {
            contestants,
            scenario: Scenario {
                until: Until { secs: Some(self.round_secs), ..Until::default() },
                // Connections are made, caches fill, the allocator settles.
                warm_up_secs: self.round_secs / 4.0,
                ..scenario.clone()
            },
            prepare,
            settle_secs_max: SETTLE_SECS_MAX,
            rounds: self.rounds,
            restart: false,
            confidence: CONFIDENCE,
            launch: Launch { cores: vec![self.cores.server], floor: self.floor.clone() },
            load_cores: vec![self.cores.load],
        };
        let comparison = compare(&plan, &mut (), &AtomicBool::new(false))?;
        if let Some(standing) = comparison.standings.iter().find(|standing| standing.failures > 0) {
            let (name, examples) = (&standing.contestant.name, &standing.total.examples);
            return Err(format!("{name} answers wrongly: {}", examples.join("; ")).into());
        }
        Ok(comparison)
    }
}

/// Prints the row's table, and returns its figures.
pub(super) fn measure(bench: &Bench, row: &Row, scenario: &Scenario) -> Result<Measured> {
    let standings = bench.compare(scenario)?.standings;
    let figures = table(&standings);
    let mut line = line(row, &standings, Metric::ServerCpuSecsPerMillion, "CPU us");
    // Values of many sizes: the floor answers all with one, so it is no floor for them.
    if matches!(row.goal, super::goal::Goal::OfMemcached(_)) {
        line.floor = None;
        line.interval = interval(&standings[0], &standings[1], Metric::ServerCpuSecsPerMillion);
    }
    Ok(Measured { figures, lines: vec![line] })
}

/// A metric of all three, with the interval of larderd's ratio to the floor.
pub(super) fn line(row: &Row, standings: &[Standing], metric: Metric, unit: &'static str) -> Line {
    let [memcached, larderd, floor] = [0, 1, 2].map(|at| middle(&standings[at], metric));
    let mut line = Line::judged(&row.what, unit, Figures { larderd, memcached, floor }, row.goal);
    line.interval = interval(&standings[2], &standings[1], metric);
    line
}

/// The interval of one server's ratio to another's.
pub(super) fn interval(base: &Standing, standing: &Standing, metric: Metric) -> Option<(f64, f64)> {
    let values = |standing: &Standing| {
        standing.rounds.iter().map(|round| round.get(&metric).copied()).collect::<Option<Vec<f64>>>()
    };
    let interval = paired_ratio(&values(base)?, &values(standing)?, CONFIDENCE)?;
    Some((interval.low, interval.high))
}

/// The median of the rounds; NaN if it could not be measured in one of them.
pub(super) fn middle(standing: &Standing, metric: Metric) -> f64 {
    median(standing.rounds.iter().map(|figures| figures.get(&metric).copied().unwrap_or(f64::NAN)))
}

fn cache(name: &str, program: &Path, options: &[&str]) -> Contestant {
    let program = program.to_string_lossy();
    let words = [&*program, "-t", "1", "-c", "4096"].into_iter().chain(options.iter().copied());
    Contestant { name: name.into(), place: Place::Started(words.map(str::to_owned).collect()) }
}

/// A server that appends what it is given must have been all through its memory once before sets are measured: the
/// first touch of each page costs more than the set itself, and happens once in its life. With keys as in the row: one
/// after the other, they would overwrite what lies in one piece, whose memory is used again at once, and the rest would
/// stay untouched.
fn preparation(scenario: &Scenario) -> Option<Scenario> {
    let group = scenario.groups.first()?;
    if group.commands.iter().any(|command| command.kind != Kind::Set) {
        return None;
    }
    let Sizes::Fixed(value_bytes) = group.values.bytes else { return None };
    let requests = (u64::from(MEMORY_MIB) << 20).div_ceil(value_bytes);
    let until = Until { requests: Some(requests), ..Until::default() };
    Some(Scenario { until, fill: false, ..scenario.clone() })
}

fn table(standings: &[Standing]) -> Value {
    println!(
        "  {:<10} {:>10} {:>13} {:>13} {:>9} {:>13} {:>11} {:>5} {:>7}",
        "", "cpu s / M", "of memcached", "95 %", "of floor", "95 %", "ops / s", "busy", "hits"
    );
    let cpu = Metric::ServerCpuSecsPerMillion;
    let words = |ends: Option<(f64, f64)>| {
        ends.map(|(low, high)| format!("{low:.2} - {high:.2}")).unwrap_or_default()
    };
    let (memcached, floor) = (&standings[0], &standings[standings.len() - 1]);
    let mut figures = Vec::new();
    for standing in standings {
        let name = &standing.contestant.name;
        let cpu_secs = middle(standing, cpu);
        let operations_per_sec = middle(standing, Metric::OperationsPerSec);
        // Share of the round during which the server's core worked for it.
        let busy = cpu_secs * operations_per_sec / 1e6;
        let is_asked = standing.rounds.iter().all(|round| round.contains_key(&Metric::HitRatio));
        let hit_ratio = if is_asked { middle(standing, Metric::HitRatio) } else { 0.0 };
        let is_larderd = name == "larderd";
        println!(
            "  {name:<10} {cpu_secs:>10.3} {:>13.2} {:>13} {:>9.2} {:>13} {operations_per_sec:>11.0} {:>4.0}% {:>6.1}%",
            cpu_secs / middle(memcached, cpu),
            words(interval(memcached, standing, cpu).filter(|_| is_larderd)),
            cpu_secs / middle(floor, cpu),
            words(interval(floor, standing, cpu).filter(|_| is_larderd)),
            100.0 * busy,
            100.0 * hit_ratio,
        );
        figures.push(json!({
            "server": name,
            "cpu_secs_per_million": cpu_secs,
            "operations_per_sec": operations_per_sec,
            "busy": busy,
            "hit_ratio": hit_ratio,
            "rounds": standing.rounds,
        }));
    }
    figures.into()
}

/// Room for everything that a scenario stores, in every server.
const MEMORY_MIB: u32 = 2048;
/// memcached's hash table grows and larderd moves memory to large pages in the background, once: neither is what a
/// request costs.
const SETTLE_SECS_MAX: f64 = 60.0;
pub(super) const CONFIDENCE: f64 = 0.95;
