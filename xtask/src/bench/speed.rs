//! CPU and throughput.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use larder_bench::Scenario;
use larder_bench::compare::{Metric, Plan, Standing, compare};
use larder_bench::contestant::launch::Launch;
use larder_bench::contestant::{Contestant, Place};
use larder_bench::scenario::{Kind, Popularity, Sizes, Until};
use larder_bench::statistics::median;
use larder_conformance::Result;
use serde_json::{Value, json};

use super::Options;
use crate::cores::Cores;

/// Prints a table for each scenario, and returns its figures.
pub(super) fn measure(options: &Options, reference: &Path, larderd: &Path) -> Result<Value> {
    println!("{:<10} no cache behind it", "floor");
    println!("{} rounds of {} s\n", options.rounds, options.round_secs);
    let cores = Cores::choose()?;
    let contestants = vec![
        cache("memcached", reference),
        cache("larderd", larderd),
        Contestant { name: "floor".into(), place: Place::Floor },
    ];
    let this = std::env::current_exe()?;
    let mut figures = Vec::new();
    for scenario in &options.scenarios {
        println!("{}: {}", scenario.name, scenario.description);
        let plan = Plan {
            contestants: contestants.clone(),
            scenario: Scenario {
                until: Until { secs: Some(options.round_secs), ..Until::default() },
                // Connections are made, caches fill, the allocator settles.
                warm_up_secs: options.round_secs / 4.0,
                ..scenario.clone()
            },
            prepare: preparation(scenario).into_iter().collect(),
            rounds: options.rounds,
            restart: false,
            confidence: 0.95,
            launch: Launch { cores: vec![cores.server], floor: vec![this.clone().into(), "floor".into()] },
            load_cores: vec![cores.load],
        };
        let comparison = compare(&plan, &mut (), &AtomicBool::new(false))?;
        if let Some(standing) = comparison.standings.iter().find(|standing| standing.failures > 0) {
            let (name, examples) = (&standing.contestant.name, &standing.total.examples);
            return Err(format!("{name} answers wrongly: {}", examples.join("; ")).into());
        }
        figures.extend(table(&scenario.name, &comparison.standings));
        println!();
    }
    Ok(figures.into())
}

fn cache(name: &str, program: &Path) -> Contestant {
    let memory_mib = MEMORY_MIB.to_string();
    let words = [&*program.to_string_lossy(), "-t", "1", "-c", "4096", "-m", &memory_mib].map(str::to_owned);
    Contestant { name: name.into(), place: Place::Started(words.into()) }
}

/// A server that appends what it is given must have been all through its memory once before sets are measured: the first touch
/// of each page costs more than the set itself, and happens once in its life.
fn preparation(scenario: &Scenario) -> Option<Scenario> {
    let group = scenario.groups.first()?;
    if group.commands.iter().any(|command| command.kind != Kind::Set) {
        return None;
    }
    let Sizes::Fixed(value_bytes) = group.values.bytes else { return None };
    let requests = (u64::from(MEMORY_MIB) << 20).div_ceil(value_bytes);
    let mut group = group.clone();
    group.keys.popularity = Popularity::Sequential;
    let until = Until { requests: Some(requests), ..Until::default() };
    Some(Scenario { until, fill: false, groups: vec![group], ..scenario.clone() })
}

fn table(scenario: &str, standings: &[Standing]) -> Vec<Value> {
    println!(
        "  {:<10} {:>10} {:>13} {:>15} {:>9} {:>12} {:>6} {:>7}",
        "", "cpu s / M", "of memcached", "95 %", "of floor", "ops / s", "busy", "hits"
    );
    let middle = |standing: &Standing, metric: Metric| {
        median(standing.rounds.iter().map(|figures| figures.get(&metric).copied().unwrap_or(f64::NAN)))
    };
    let cpu_secs = |standing: Option<&Standing>| {
        standing.map_or(f64::NAN, |standing| middle(standing, Metric::ServerCpuSecsPerMillion))
    };
    let (of_memcached, of_floor) = (cpu_secs(standings.first()), cpu_secs(standings.last()));
    let mut figures = Vec::new();
    for standing in standings {
        let name = &standing.contestant.name;
        let cpu_secs = cpu_secs(Some(standing));
        let operations_per_sec = middle(standing, Metric::OperationsPerSec);
        // Share of the round during which the server's core worked for it.
        let busy = cpu_secs * operations_per_sec / 1e6;
        let hit_ratio = if standing.rounds.iter().all(|round| round.contains_key(&Metric::HitRatio)) {
            middle(standing, Metric::HitRatio)
        } else {
            0.0
        };
        let ratio = standing.ratios.iter().find(|ratio| ratio.metric == Metric::ServerCpuSecsPerMillion);
        let interval = ratio.map(|ratio| format!("{:.2} - {:.2}", ratio.low, ratio.high));
        println!(
            "  {name:<10} {cpu_secs:>10.3} {:>13.2} {:>15} {:>9.2} {operations_per_sec:>12.0} {:>5.0}% {:>6.1}%",
            cpu_secs / of_memcached,
            interval.unwrap_or_default(),
            cpu_secs / of_floor,
            100.0 * busy,
            100.0 * hit_ratio,
        );
        figures.push(json!({
            "scenario": scenario,
            "server": name,
            "cpu_secs_per_million": cpu_secs,
            "operations_per_sec": operations_per_sec,
            "busy": busy,
            "hit_ratio": hit_ratio,
            "cpu_ratio_to_memcached": ratio,
        }));
    }
    figures
}

/// Room for everything that a scenario stores, in every server.
const MEMORY_MIB: u32 = 2048;
