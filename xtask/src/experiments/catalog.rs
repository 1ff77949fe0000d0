//! Which measurements are made again, and with what.

use std::io;

use larder_bench::frontend::{Surroundings, Tool};
use larder_bench::scenario::Keys;
use larder_bench::{Scenario, presets};
use larder_conformance::Result;

/// A published measurement.
pub(super) struct Experiment {
    pub(super) name: &'static str,
    /// A line for its reader.
    pub(super) what: &'static str,
    /// Of the servers, besides the address.
    pub(super) options: &'static str,
    /// How many servers share the keys.
    pub(super) servers: usize,
    /// Servers are started anew for each round.
    pub(super) restarts: bool,
    /// What is asked, with a label for each.
    pub(super) runs: Vec<(String, Scenario)>,
}

pub(super) fn all() -> Result<Vec<Experiment>> {
    Ok(vec![memcslap()?, olio()?, spy_whalin()?, noreply()?, brutis()?])
}

/// What memaslap is told besides server and time, as published, with and without multi-gets.
pub(super) const MEMASLAP_LINES: [&str; 8] = [
    "-S 1s -T 8 -c 64 -U --win_size=1k",
    "-S 1s -T 8 -c 64 -U --win_size=1k -d 10",
    "-S 1s -T 8 -c 64 --win_size=1k",
    "-S 1s -T 8 -c 64 --win_size=1k -d 2",
    "-S 1s -T 8 -c 64 --win_size=1k -d 5",
    "-S 1s -T 8 -c 64 --win_size=1k -d 10",
    "-S 1s -T 8 -c 64 --win_size=1k -d 20",
    "-S 1s -T 8 -c 64 --win_size=1k -d 50",
];
pub(super) const MEMASLAP_SERVER: &str = "-m 128";

fn memcslap() -> Result<Experiment> {
    // As on a machine where memaslap has never run.
    let nothing = Surroundings { variable: &|_| None, read_file: &|_| Err(io::ErrorKind::NotFound.into()) };
    let mut runs = Vec::new();
    for line in MEMASLAP_LINES {
        let words = format!("-s 127.0.0.1 {line}");
        let words: Vec<_> = words.split_whitespace().map(Into::into).collect();
        let translation = Tool::Memaslap.translate(&words, &nothing)?;
        runs.extend(
            translation.scenarios.into_iter().map(|scenario| (format!("`{line}`"), without_end(scenario))),
        );
    }
    Ok(Experiment {
        name: "memcslap",
        what: "Szot 2014: TCP and UDP, with and without multi-gets; memaslap's -d N asks for N keys at once",
        options: MEMASLAP_SERVER,
        servers: 1,
        restarts: false,
        runs,
    })
}

fn olio() -> Result<Experiment> {
    Ok(Experiment {
        name: "olio",
        what: "the Olio measurements (Solaris, 2009): values of 100, 2048 and 4096 bytes on average, 90 % gets",
        options: "-m 1024",
        servers: 1,
        restarts: false,
        runs: ["olio-100", "olio-2048", "olio-4096"].into_iter().map(preset).collect::<Result<_>>()?,
    })
}

fn spy_whalin() -> Result<Experiment> {
    let mut runs = Vec::new();
    for name in ["spy-whalin", "spy-whalin-compressed"] {
        let (_, scenario) = preset(name)?;
        for connections in [1, 10, 20, 30, 40, 50] {
            let mut scenario = scenario.clone();
            for group in &mut scenario.groups {
                group.connections = connections;
                group.keys = Keys { count: SPY_WHALIN_OBJECTS, ..group.keys.clone() };
            }
            runs.push((format!("{name}, {connections}"), scenario));
        }
    }
    Ok(Experiment {
        name: "spy-whalin",
        what: "the spymemcached/Whalin table, asked by larder bench: three servers, bulk gets of 100 keys, 10 % sets",
        options: "-m 1024",
        servers: 3,
        restarts: false,
        runs,
    })
}

/// A tenth of what was published: Java clients need long to store them.
const SPY_WHALIN_OBJECTS: u64 = 100_000;

fn noreply() -> Result<Experiment> {
    Ok(Experiment {
        name: "noreply",
        what: "Brechko 2007: 100,000 each of set, incr and decr on one connection, without replies and with them",
        options: "",
        servers: 1,
        restarts: false,
        runs: ["noreply", "noreply-replies"].into_iter().map(preset).collect::<Result<_>>()?,
    })
}

fn brutis() -> Result<Experiment> {
    let (label, mut scenario) = preset("brutis")?;
    // Brutis stores its keys while it runs; in a run of seconds most gets would find nothing.
    scenario.fill = true;
    Ok(Experiment {
        name: "brutis",
        what: "Byrum 2009: 10,000 keys of 2 KiB, one set for 50 gets, servers started anew for each round",
        options: "",
        servers: 1,
        restarts: true,
        runs: vec![(label, scenario)],
    })
}

/// The load has one core.
fn preset(name: &str) -> Result<(String, Scenario)> {
    let preset = presets::find(name).ok_or_else(|| format!("no preset is called {name}"))?;
    Ok((name.to_owned(), Scenario { threads: 1, ..preset.scenario() }))
}

fn without_end(mut scenario: Scenario) -> Scenario {
    scenario.until = Default::default();
    scenario
}
