//! What the servers are asked.

use larder_bench::Scenario;
use larder_bench::presets;
use larder_bench::scenario::{Command, Group, Keys, Kind, Popularity, Sizes, Transport, Values};

/// All of them. The keys of larder bench have 24 bytes unless it is told otherwise.
pub(super) fn all() -> Vec<Scenario> {
    let plain = || Group { commands: vec![gets(1.0)], ..Group::default() };
    let million = "100 B, 1 M keys, 50 connections";
    let hot = Keys { count: 100, ..Keys::default() };
    let kibibyte = Values { bytes: Sizes::Fixed(1024), ..Values::default() };
    let zipf = Keys { popularity: Popularity::Zipf { exponent: 0.99 }, ..Keys::default() };
    let wide = Command { keys: 100, ..gets(1.0) };
    let mut scenarios = vec![
        scenario("get", &format!("get, {million}"), plain()),
        scenario("get-hot", "get, 100 B, 100 keys, 50 connections", Group { keys: hot, ..plain() }),
        scenario(
            "get-pipelined",
            &format!("get, {million}, 32 in flight on each"),
            Group { pipeline: 32, ..plain() },
        ),
        scenario(
            "get-udp",
            &format!("get by UDP, {million}"),
            Group { transport: Transport::Udp, ..plain() },
        ),
        scenario(
            "multiget",
            &format!("get of 100 keys, {million}"),
            Group { commands: vec![wide], ..plain() },
        ),
        scenario(
            "set",
            "set, 1 KiB, 1 M keys, 50 connections, 32 in flight on each",
            Group { pipeline: 32, commands: vec![sets(1.0)], values: kibibyte.clone(), ..plain() },
        ),
        scenario(
            "mixed",
            "90 % get, 10 % set, 1 KiB, 1 M keys (Zipf 0.99), 50 connections",
            Group { commands: vec![gets(0.9), sets(0.1)], values: kibibyte, keys: zipf, ..plain() },
        ),
    ];
    let mixes = ["olio-100", "olio-2048", "olio-4096"].into_iter().filter_map(presets::find);
    scenarios.extend(mixes.map(|preset| Scenario { threads: 1, ..preset.scenario() }));
    scenarios
}

fn scenario(name: &str, description: &str, group: Group) -> Scenario {
    Scenario {
        name: name.into(),
        description: description.into(),
        threads: 1,
        fill: true,
        groups: vec![group],
        ..Scenario::default()
    }
}

fn gets(weight: f64) -> Command {
    Command { weight, ..Command::default() }
}

fn sets(weight: f64) -> Command {
    Command { kind: Kind::Set, weight, ..Command::default() }
}
