//! The rows of the table: what is asked, and what larderd is to reach.

use larder_bench::Scenario;
use larder_bench::presets;
use larder_bench::scenario::{Command, Group, Keys, Kind, Popularity, Sizes, Transport, Values};
use larder_conformance::Result;

use super::goal::Goal;
use super::large::Part;

/// A row.
pub(super) struct Row {
    /// As it is called on the command line.
    pub(super) name: &'static str,
    pub(super) what: String,
    pub(super) goal: Goal,
    pub(super) work: Work,
}

/// How a row is measured.
pub(super) enum Work {
    /// Server CPU an operation under this load.
    Load(Box<Scenario>),
    /// See `latency.rs`.
    Latency,
    /// See `idle.rs`.
    Idle,
    /// See `working_set.rs`.
    WorkingSet,
    /// See `memory.rs`.
    Memory,
    /// See `large.rs`.
    Large(Part),
    /// See `http.rs`.
    Http,
    /// See `redis.rs`.
    Redis,
    /// A bench of the engine's own, by its name.
    Engine(&'static str),
}

pub(super) fn find(name: &str) -> Result<Row> {
    let known = all().into_iter().find(|row| row.name == name);
    Ok(known.ok_or_else(|| format!("no row is called {name:?}; `--list` names them"))?)
}

/// All of them.
pub(super) fn all() -> Vec<Row> {
    let million = "100 B, 1 M keys, 50 connections";
    let few = "100 B, 100 keys, 50 connections";
    let kibibyte = || Values { bytes: Sizes::Fixed(1024), ..Values::default() };
    let zipf = Keys { popularity: Popularity::Zipf { exponent: 0.99 }, ..Keys::default() };
    let mut rows = vec![
        load("get", format!("get, {million}"), Goal::OfFloor(1.12), gets(1, 1)),
        load("get-hot", format!("get, {few}"), Goal::OfFloor(1.12), hot(gets(1, 1))),
        load(
            "get-pipelined",
            format!("get, {million}, 32 in flight on each"),
            Goal::Micros(0.6),
            gets(32, 1),
        ),
        load(
            "get-pipelined-hot",
            format!("get, {few}, 32 in flight on each"),
            Goal::Micros(0.35),
            hot(gets(32, 1)),
        ),
        load("multiget", format!("a key of a get of 100 keys, {million}"), Goal::Micros(0.3), gets(1, 100)),
        load(
            "multiget-hot",
            format!("a key of a get of 100 keys, {few}"),
            Goal::Micros(0.13),
            hot(gets(1, 100)),
        ),
        load(
            "set",
            "set, 1 KiB, 1 M keys, 50 connections, 32 in flight on each".into(),
            Goal::OfMemcached(0.25),
            Group { pipeline: 32, commands: vec![command(Kind::Set, 1.0)], values: kibibyte(), ..plain() },
        ),
        load(
            "mixed",
            "90 % get, 10 % set, 1 KiB, 1 M keys (Zipf 0.99), 50 connections".into(),
            Goal::OfFloor(1.12),
            Group {
                commands: vec![command(Kind::Get, 0.9), command(Kind::Set, 0.1)],
                values: kibibyte(),
                keys: zipf,
                ..plain()
            },
        ),
        load(
            "get-udp",
            format!("get by UDP, {million}"),
            Goal::OfFloor(1.15),
            Group { transport: Transport::Udp, ..gets(1, 1) },
        ),
    ];
    rows.extend(mixes());
    rows.extend([
        row(
            "latency",
            "p99.9 at 70 % of memcached's peak rate, open loop, get, 100 B, 1 M keys",
            Goal::OfMemcached(1.0),
            Work::Latency,
        ),
        row(
            "working-set",
            "batched gets of 10 M items (32 B) against 10,000",
            Goal::Words("larderd at most 1.3 times as dear"),
            Work::WorkingSet,
        ),
        row(
            "idle",
            "15,000 idle connections",
            Goal::Words("half of memcached's bytes each, 15,000 held"),
            Work::Idle,
        ),
        row(
            "memory",
            "overhead of an item, and items held at -m 1024",
            Goal::Words("32 B and 40 B; 11.5 M and 0.975 M within 5 % over -m"),
            Work::Memory,
        ),
    ]);
    rows.extend(large());
    rows.extend([
        row("http", "get over HTTP, beside nginx with a file", Goal::Words("nginx's CPU"), Work::Http),
        row(
            "redis",
            "three loads, and overhead of an item, beside Redis and Valkey",
            Goal::Words("theirs"),
            Work::Redis,
        ),
        row(
            "pauses",
            "longest operation of the engine while something large goes on (no server, no socket)",
            Goal::Words("1 ms"),
            Work::Engine("pauses"),
        ),
        row(
            "engine",
            "the engine alone, one and two threads, 90/10 Zipf",
            Goal::Words("1.9 times as much with two"),
            Work::Engine("threads"),
        ),
    ]);
    rows
}

/// Large values, beside memcached with the same memory.
pub(super) fn large() -> [Row; 6] {
    [
        row(
            "large-sets",
            "sets of 10 kB to 1 MB, memory full",
            Goal::Words("memcached's CPU"),
            Work::Large(Part::Sets),
        ),
        row("large-gets", "gets of 10 kB to 1 MB", Goal::Words("memcached's CPU"), Work::Large(Part::Gets)),
        row(
            "large-presets",
            "larder bench's presets `pages` and `chunks`, memory full",
            Goal::Words("memcached's CPU"),
            Work::Large(Part::Presets),
        ),
        row(
            "large-held",
            "values held in 256 MiB after overwrites, 200 B to 900 kB",
            Goal::Words("as much as memcached holds"),
            Work::Large(Part::Held),
        ),
        row(
            "large-resident",
            "resident memory of 2,000 values of 100 kB after overwrites, -m 1024",
            Goal::Words("memcached's"),
            Work::Large(Part::Resident),
        ),
        row(
            "large-tail",
            "p99.9 of small gets beside sets of 500 kB",
            Goal::Words("at most memcached's"),
            Work::Large(Part::Tail),
        ),
    ]
}

/// Olio's mixes of small, middle and large values.
fn mixes() -> impl Iterator<Item = Row> {
    ["olio-100", "olio-2048", "olio-4096"].into_iter().filter_map(presets::find).map(|preset| {
        let mut scenario = Scenario { threads: 1, ..preset.scenario() };
        // What the presets say to those who start servers themselves.
        let what = scenario.description.split(". ").next().unwrap_or_default().to_owned();
        scenario.description.clone_from(&what);
        Row { name: preset.name, what, goal: Goal::OfMemcached(1.0), work: Work::Load(Box::new(scenario)) }
    })
}

fn row(name: &'static str, what: &str, goal: Goal, work: Work) -> Row {
    Row { name, what: what.into(), goal, work }
}

fn load(name: &'static str, what: String, goal: Goal, group: Group) -> Row {
    let work = Work::Load(Box::new(scenario(name, group)));
    Row { name, what, goal, work }
}

/// One thread of load on one group of connections; every key is stored before.
pub(super) fn scenario(name: &str, group: Group) -> Scenario {
    Scenario { name: name.into(), threads: 1, fill: true, groups: vec![group], ..Scenario::default() }
}

/// Gets with so many in flight on each of 50 connections and so many keys each; 1 M keys of 24 bytes, values of 100.
pub(super) fn gets(pipeline: usize, keys: usize) -> Group {
    Group { pipeline, commands: vec![Command { keys, ..command(Kind::Get, 1.0) }], ..plain() }
}

fn plain() -> Group {
    Group { values: Values { bytes: Sizes::Fixed(100), ..Values::default() }, ..Group::default() }
}

fn hot(group: Group) -> Group {
    Group { keys: Keys { count: 100, ..Keys::default() }, ..group }
}

fn command(kind: Kind, weight: f64) -> Command {
    Command { kind, weight, ..Command::default() }
}
