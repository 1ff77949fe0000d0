//! Published measurements of memcached, made again on larderd and memcached side by side.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use larder_bench::Scenario;
use larder_bench::compare::{Plan, compare};
use larder_bench::contestant::launch::{Launch, Running};
use larder_bench::contestant::{Contestant, Place};
use larder_bench::environment::Environment;
use larder_bench::scenario::Until;
use larder_conformance::{Result, server};
use lexopt::prelude::*;

use crate::cores::Cores;
use catalog::Experiment;

mod catalog;
mod memaslap;
mod table;

const HELP: &str = "\
Makes published measurements of memcached again, on memcached and larderd side by side: see docs/experiments.md.

usage: cargo xtask experiments [options] [NAME ...]     memcslap olio spy-whalin noreply brutis

  --secs S    length of each run (default 10)
  --rounds N  how often each run is made, in turns (default 3); rates are medians, latencies are of all rounds together

Servers run on one core, the load (larder bench) on another. memcached is the installed one (or $MEMCACHED), larderd this
workspace's (or $LARDERD).";

/// Measures and prints Markdown tables. Errors: no such experiment, a server does not start or answers wrongly.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let (mut secs, mut rounds, mut names) = (10.0, 3, Vec::new());
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("secs") => secs = parser.value()?.parse()?,
            Long("rounds") => rounds = parser.value()?.parse::<usize>()?.max(1),
            Value(name) => names.push(name.string()?),
            Long("help") => {
                println!("{HELP}");
                return Ok(());
            }
            _ => return Err(arg.unexpected().into()),
        }
    }
    let all = catalog::all()?;
    if let Some(name) = names.iter().find(|&name| all.iter().all(|experiment| experiment.name != name)) {
        return Err(format!("no experiment is called {name:?}").into());
    }

    let bed = Bed::make(secs, rounds)?;
    println!("{}", bed.description()?);
    for experiment in &all {
        if names.is_empty() || names.iter().any(|name| name == experiment.name) {
            println!("\n## {}\n\n{}\n\n{}", experiment.name, experiment.what, table::HEADING);
            bed.measure(experiment)?;
            if experiment.name == "memcslap" {
                memaslap::measure(&bed)?;
            }
        }
    }
    Ok(())
}

/// Where experiments are made.
pub(crate) struct Bed {
    pub(crate) cores: Cores,
    pub(crate) secs: f64,
    pub(crate) rounds: usize,
    /// Names and programs.
    pub(crate) servers: [(&'static str, PathBuf); 2],
}

impl Bed {
    pub(crate) fn make(secs: f64, rounds: usize) -> Result<Self> {
        let servers = [("memcached", server::memcached()?), ("larderd", server::larderd()?)];
        Ok(Self { cores: Cores::choose()?, secs, rounds, servers })
    }

    /// What a reader has to know.
    pub(crate) fn description(&self) -> Result<String> {
        let Environment { kernel, cpu, cpus, memory_bytes, .. } = Environment::here();
        let mut versions = Vec::new();
        for (_, program) in &self.servers {
            versions.push(server::version(program)?);
        }
        Ok(format!(
            "{cpus} x {cpu}, {} MiB, {kernel}; {}; {} rounds of {} s",
            memory_bytes >> 20,
            versions.join(", "),
            self.rounds,
            self.secs
        ))
    }

    pub(crate) fn launch(&self) -> Launch {
        Launch { cores: vec![self.cores.server], ..Launch::default() }
    }

    /// Starts a number of servers of one kind.
    pub(crate) fn start(
        &self,
        program: &Path,
        options: &str,
        scenario: &Scenario,
        count: usize,
    ) -> Result<Vec<Running>> {
        let contestant = started("", program, options);
        (0..count).map(|_| self.launch().start(&contestant, scenario)).collect()
    }

    fn measure(&self, experiment: &Experiment) -> Result<()> {
        for (label, scenario) in &experiment.runs {
            let mut clusters = Vec::new();
            let mut contestants = Vec::new();
            for (name, program) in &self.servers {
                if experiment.servers == 1 {
                    contestants.push(started(name, program, experiment.options));
                    continue;
                }
                let servers = self.start(program, experiment.options, scenario, experiment.servers)?;
                let addresses = servers.iter().flat_map(|server| server.addresses.clone()).collect();
                contestants.push(Contestant { name: (*name).into(), place: Place::Contacted(addresses) });
                clusters.push(servers);
            }
            let mut scenario = scenario.clone();
            if scenario.until.requests.is_none() {
                scenario.until = Until { secs: Some(self.secs), ..Until::default() };
                scenario.warm_up_secs = self.secs / 10.0;
            }
            let plan = Plan {
                contestants,
                scenario,
                prepare: Vec::new(),
                settle_secs_max: 0.0,
                rounds: self.rounds,
                restart: experiment.restarts,
                confidence: 0.95,
                launch: self.launch(),
                load_cores: vec![self.cores.load],
            };
            let comparison = compare(&plan, &mut (), &AtomicBool::new(false))?;
            for standing in &comparison.standings {
                println!("{}", table::row(label, standing));
            }
        }
        Ok(())
    }
}

fn started(name: &str, program: &Path, options: &str) -> Contestant {
    let program = program.to_string_lossy().into_owned();
    let words = [program].into_iter().chain(options.split_whitespace().map(str::to_owned));
    Contestant { name: name.into(), place: Place::Started(words.collect()) }
}
