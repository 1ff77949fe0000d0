//! Large values, beside memcached: what sets and gets of them cost, what memory holds of them, and how long small gets
//! wait beside them.

use std::fmt::Write as _;
use std::path::Path;
use std::{fs, iter};

use larder_bench::compare::{Metric, Standing};
use larder_bench::outcome::{CommandTally, Failure};
use larder_bench::scenario::{Command, Group, Keys, Kind, Popularity, SizeRange, Sizes, Until, Values};
use larder_bench::{Scenario, presets};
use larder_conformance::Result;
use larder_conformance::server::{self, Server};
use larder_conformance::stats::Stats;
use serde_json::{Value, json};

use super::Measured;
use super::memory::{self, Requests};
use super::pinned::on_core;
use super::rows::Row;
use super::speed::{Bench, middle};

/// A table.
#[derive(Clone, Copy)]
pub(super) enum Part {
    /// Sets of keys that take twice the memory.
    Sets,
    /// Gets of keys that take half of it.
    Gets,
    /// Published workloads, with more keys than fit.
    Presets,
    /// Values that full memory holds after overwrites.
    Held,
    /// Resident memory where there is room, after overwrites.
    Resident,
    /// Small gets beside large sets.
    Tail,
}

/// Prints the table as the documents have it, and returns its figures.
pub(super) fn measure(bench: &Bench, row: &Row, part: Part) -> Result<Measured> {
    let (heading, lines) = match part {
        Part::Sets => (SPEED_HEADING, speed(bench, Kind::Set, &[0, SPREAD_PERCENT])?),
        Part::Gets => (SPEED_HEADING, speed(bench, Kind::Get, &[0])?),
        Part::Presets => (PRESETS_HEADING, presets(bench)?),
        Part::Held => ("values of | memcached, MiB | larderd, MiB", held(bench)?),
        Part::Resident => {
            ("server | lives, MiB | resident when stored, MiB | after the overwrites, MiB", resident(bench)?)
        }
        Part::Tail => {
            ("server | p99.9 of gets, µs | of memcached's | gets found | large sets a second", tail(bench)?)
        }
    };
    println!("\n{}", markdown(heading, &lines));
    println!("  ({})", row.goal);
    let columns: Vec<&str> = heading.split(" | ").collect();
    let figures: Vec<Value> = lines.iter().map(|line| json!({ "columns": columns, "line": line })).collect();
    Ok(Measured { figures: figures.into(), lines: Vec::new() })
}

fn markdown(heading: &str, lines: &[Vec<String>]) -> String {
    let mut text = format!("| {heading} |\n|{}\n", "---|".repeat(heading.split(" | ").count()));
    for line in lines {
        let _ = writeln!(text, "| {} |", line.join(" | "));
    }
    text
}

/// A line for each size and spread.
fn speed(bench: &Bench, kind: Kind, spreads: &[u64]) -> Result<Vec<Vec<String>>> {
    let mut lines = Vec::new();
    for (&spread, value_bytes) in spreads.iter().flat_map(|spread| SPEED_SIZES.map(|bytes| (spread, bytes))) {
        // Twice what fits, so that each set evicts; or half of it, so that each get finds its key.
        let count = if kind == Kind::Set { 2 * MEMORY_BYTES } else { MEMORY_BYTES / 2 } / value_bytes;
        let group = group(kind, CONNECTIONS, count, spread_around(value_bytes, spread));
        let prepared = if kind == Kind::Set { count } else { 1 };
        let standings = compare(bench, &scenario(vec![group]), prepared)?;
        let about = if spread == 0 { String::new() } else { format!(" ± {spread} %") };
        lines.push(speed_line(thousands(value_bytes) + &about, &standings));
    }
    Ok(lines)
}

/// A line for each published workload with large values.
fn presets(bench: &Bench) -> Result<Vec<Vec<String>>> {
    let line = |name: &str| {
        let preset = presets::find(name).ok_or("no such preset")?;
        let standings = compare(bench, &Scenario { threads: 1, ..preset.scenario() }, PRESET_PREPARED)?;
        let hits = |standing| format!("{:.1} %", 100.0 * middle(standing, Metric::HitRatio));
        Ok([speed_line(name.into(), &standings), standings.iter().map(hits).collect()].concat())
    };
    ["pages", "chunks"].into_iter().map(line).collect()
}

/// memcached is first of the two.
fn speed_line(what: String, standings: &[Standing]) -> Vec<String> {
    let each = |figure: fn(&Standing) -> String| standings.iter().map(figure);
    let ratios = [Metric::ServerCpuSecsPerMillion, Metric::OperationsPerSec, Metric::LatencyP99Micros];
    let ratios = ratios.into_iter().filter_map(|metric| Some(ratio(standings.last()?, metric)));
    let faults = each(|standing| format!("{:.0}", mean(standing, Metric::ServerFaultsPerSec)));
    let kernel = each(|standing| format!("{:.0} %", 100.0 * mean(standing, Metric::ServerSystemShare)));
    let line: Vec<String> = iter::once(what).chain(ratios).chain(faults).chain(kernel).collect();
    println!("  {}", line.join("  "));
    line
}

/// The mean of the rounds. Each round has few of the ticks that tell user from system time, so the median is coarse.
fn mean(standing: &Standing, metric: Metric) -> f64 {
    let rounds = standing.rounds.iter().map(|figures| figures.get(&metric).copied().unwrap_or(f64::NAN));
    rounds.sum::<f64>() / standing.rounds.len() as f64
}

/// One thread of load.
fn scenario(groups: Vec<Group>) -> Scenario {
    Scenario { name: "large".into(), threads: 1, groups, ..Scenario::default() }
}

/// Stores every key, sends so many requests, and then measures.
fn compare(bench: &Bench, scenario: &Scenario, prepared: u64) -> Result<Vec<Standing>> {
    let until = Until { requests: Some(prepared), ..Until::default() };
    bench.compare_two(&OPTIONS, Scenario { fill: true, until, ..scenario.clone() }, scenario)
}

fn group(kind: Kind, connections: usize, count: u64, values: Values) -> Group {
    let commands = vec![Command { kind, ..Command::default() }];
    Group { connections, commands, keys: Keys { count, ..Keys::default() }, values, ..Group::default() }
}

/// The ratio to memcached's figure, with its interval.
fn ratio(larderd: &Standing, metric: Metric) -> String {
    let found = larderd.ratios.iter().find(|ratio| ratio.metric == metric);
    found.map_or_else(
        || "-".into(),
        |ratio| format!("{:.2} ({:.2} - {:.2})", ratio.ratio, ratio.low, ratio.high),
    )
}

/// A line for each size; then of all sizes mixed, and of sizes that change.
fn held(bench: &Bench) -> Result<Vec<Vec<String>>> {
    let spread = |value_bytes| redrawn(spread_around(value_bytes, SPREAD_PERCENT));
    let mut lines = Vec::new();
    let mut line = |what: String, mib: [f64; 2]| {
        println!("  {what:<28} {:>6.1} {:>6.1}", mib[0], mib[1]);
        lines.push(vec![what, format!("{:.1}", mib[0]), format!("{:.1}", mib[1])]);
    };
    for value_bytes in HELD_SIZES {
        line(
            thousands(value_bytes),
            both(bench, |server| overwritten(server, &spread(value_bytes), value_bytes))?,
        );
    }
    // As many bytes of each size.
    let weights: f64 = HELD_SIZES.iter().map(|&bytes| 1.0 / bytes as f64).sum();
    let ranges =
        HELD_SIZES.map(|bytes| SizeRange { weight: 1.0 / bytes as f64, ..range(bytes, SPREAD_PERCENT) });
    let mixed = redrawn(Values { bytes: Sizes::Ranges(ranges.into()), ..Values::default() });
    let mean_bytes = (HELD_SIZES.len() as f64 / weights) as u64;
    line(
        "all these, as many bytes each".into(),
        both(bench, |server| overwritten(server, &mixed, mean_bytes))?,
    );
    let phases = SHIFTING_SIZES.map(|bytes| (spread(bytes), 3 * MEMORY_BYTES / 2 / bytes));
    for upto in 1..=phases.len() {
        let sizes: Vec<String> = SHIFTING_SIZES[..upto].iter().map(|&bytes| thousands(bytes)).collect();
        let shifted = |server: &Server| {
            let mut first = 0;
            for (values, count) in &phases[..upto] {
                let keys = Keys { first, count: *count, ..Keys::default() };
                ask(server, Kind::Get, keys, values.clone(), Requests { fill: true, count: 1 })?;
                first += count;
            }
            held_bytes(server, first)
        };
        line(format!("stored only: {}", sizes.join(", then ")), both(bench, shifted)?);
    }
    Ok(lines)
}

/// MiB that memcached and larderd hold after `work`.
fn both(bench: &Bench, work: impl Fn(&Server) -> Result<u64>) -> Result<[f64; 2]> {
    let held =
        |program: &Path| Ok::<_, larder_conformance::Error>(mib(work(&start(bench, program, MEMORY_MIB)?)?));
    Ok([held(&bench.memcached)?, held(&bench.larderd)?])
}

/// Stores one and a half times what fits, overwrites the newest 60 % of the keys, each twice on average, and returns
/// the bytes of the values that are held then.
fn overwritten(server: &Server, values: &Values, mean_bytes: u64) -> Result<u64> {
    let count = 3 * MEMORY_BYTES / 2 / mean_bytes;
    let keys = Keys { count, ..Keys::default() };
    ask(server, Kind::Get, keys, values.clone(), Requests { fill: true, count: 1 })?;
    let newest = count * 6 / 10;
    let keys = Keys { first: count - newest, count: newest, ..Keys::default() };
    ask(server, Kind::Set, keys, values.clone(), Requests { fill: false, count: 2 * newest })?;
    held_bytes(server, count)
}

/// Bytes of the values that are found under the first `count` keys.
fn held_bytes(server: &Server, count: u64) -> Result<u64> {
    let keys = Keys { count, popularity: Popularity::Sequential, ..Keys::default() };
    Ok(ask(server, Kind::Get, keys, Values::default(), Requests { fill: false, count })?.value_bytes)
}

/// A line for each server.
fn resident(bench: &Bench) -> Result<Vec<Vec<String>>> {
    let mut lines = Vec::new();
    for (name, program) in [("memcached", &bench.memcached), ("larderd", &bench.larderd)] {
        let server = start(bench, program, 1024)?;
        let keys = Keys { count: RESIDENT_KEYS, ..Keys::default() };
        let values = spread_around(RESIDENT_VALUE_BYTES, 0);
        ask(&server, Kind::Get, keys.clone(), values.clone(), Requests { fill: true, count: 1 })?;
        let stored = server.resident_bytes()?;
        ask(&server, Kind::Set, keys, values, Requests { fill: false, count: RESIDENT_OVERWRITES })?;
        let after = server.resident_bytes()?;
        let lives = Stats::of(server.address())?.get("curr_items")? * RESIDENT_VALUE_BYTES;
        let figures = [lives, stored, after].map(|bytes| format!("{:.0}", mib(bytes)));
        lines.push([vec![name.to_owned()], figures.to_vec()].concat());
    }
    Ok(lines)
}

/// A line for each server.
fn tail(bench: &Bench) -> Result<Vec<Vec<String>>> {
    let mut gets = group(Kind::Get, TAIL_CONNECTIONS, TAIL_KEYS, spread_around(100, 0));
    gets.keys.prefix = "small:".into();
    let sets = 2 * MEMORY_BYTES / TAIL_SET_BYTES;
    let large = group(Kind::Set, CONNECTIONS, sets, spread_around(TAIL_SET_BYTES, 0));
    let standings = compare(bench, &scenario(vec![gets, large]), 10 * sets)?;
    let secs = bench.rounds as f64 * bench.round_secs;
    let line = |standing: &Standing| {
        let sets = standing.total.commands.get(&Kind::Set).map_or(0, |sets| sets.requests);
        vec![
            standing.contestant.name.clone(),
            format!("{:.0}", middle(standing, Metric::LatencyP999GetsMicros)),
            ratio(standing, Metric::LatencyP999GetsMicros),
            format!("{:.1} %", 100.0 * middle(standing, Metric::HitRatio)),
            format!("{:.0}", sets as f64 / secs),
        ]
    };
    Ok(standings.iter().map(line).collect())
}

/// Sends them, and returns the figures of `kind`. memcached refuses some values where sizes change: its memory of that
/// size is all in use by requests. They are counted, and not held.
fn ask(server: &Server, kind: Kind, keys: Keys, values: Values, requests: Requests) -> Result<CommandTally> {
    let mut tally = memory::ask(server, kind, keys, values, requests)?;
    let refused = tally.failures.remove(&Failure::OutOfMemory).unwrap_or(0);
    if refused > 0 {
        let name = fs::read_to_string(format!("/proc/{}/comm", server.pid()))?;
        println!("  {} refuses {refused} values: out of memory", name.trim());
    }
    match tally.examples.pop() {
        Some(example) if tally.has_failed() => Err(example.into()),
        _ => Ok(tally.commands.remove(&kind).unwrap_or_default()),
    }
}

/// A server on its core.
fn start(bench: &Bench, program: &Path, memory_mib: u64) -> Result<Server> {
    let mut command = on_core(bench.cores.server, program);
    command.args(server::command(program).get_args()).args(["-t", "1", "-I", ITEM_MAX]);
    command.args(["-m", &memory_mib.to_string()]);
    Server::start_command(command)
}

/// Values of this length, or evenly up to so many percent more or less.
fn spread_around(value_bytes: u64, percent: u64) -> Values {
    let bytes = match percent {
        0 => Sizes::Fixed(value_bytes),
        _ => Sizes::Ranges(vec![range(value_bytes, percent)]),
    };
    Values { bytes, ..Values::default() }
}

fn range(bytes: u64, percent: u64) -> SizeRange {
    SizeRange { min: bytes * (100 - percent) / 100, max: bytes * (100 + percent) / 100, weight: 1.0 }
}

/// The same, but a key gets another length with each store.
fn redrawn(values: Values) -> Values {
    Values { redraw: true, ..values }
}

/// `100 B`, `2 kB`, `900 kB`, `1 MB`.
fn thousands(bytes: u64) -> String {
    match bytes {
        0..1000 => format!("{bytes} B"),
        1000..1_000_000 => format!("{} kB", bytes / 1000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

const SPEED_HEADING: &str = "value | CPU, of memcached's | throughput | p99 | faults a second, memcached | larderd | \
                             in the kernel, memcached | larderd";
const PRESETS_HEADING: &str = "preset | CPU, of memcached's | throughput | p99 | faults a second, memcached | \
                               larderd | in the kernel, memcached | larderd | hits, memcached | larderd";
/// The keys alone overfill the memory; after these requests it holds what is stored last and read often.
const PRESET_PREPARED: u64 = 5000;
const SPEED_SIZES: [u64; 4] = [10_000, 100_000, 500_000, 1_000_000];
const HELD_SIZES: [u64; 6] = [200, 2000, 20_000, 100_000, 300_000, 900_000];
/// Small, then large, and back.
const SHIFTING_SIZES: [u64; 3] = [2000, 300_000, 2000];
const SPREAD_PERCENT: u64 = 30;
const MEMORY_MIB: u64 = 256;
const MEMORY_BYTES: u64 = MEMORY_MIB << 20;
const ITEM_MAX: &str = "8m";
const OPTIONS: [&str; 4] = ["-m", "256", "-I", ITEM_MAX];
const CONNECTIONS: usize = 20;
const RESIDENT_KEYS: u64 = 2000;
const RESIDENT_VALUE_BYTES: u64 = 100_000;
/// A tenth of the keys, twenty times.
const RESIDENT_OVERWRITES: u64 = 20 * RESIDENT_KEYS / 10;
const TAIL_CONNECTIONS: usize = 4;
const TAIL_KEYS: u64 = 10_000;
const TAIL_SET_BYTES: u64 = 500_000;
