//! Runs the simulator: one seed, or many.

use std::process::ExitCode;

use larder_sim::{Bug, Scenario, run};

fn main() -> ExitCode {
    match Arguments::read(std::env::args().skip(1)) {
        Ok(arguments) => arguments.run(),
        Err(what) => {
            eprintln!("{what}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

struct Arguments {
    first: u64,
    count: u64,
    is_traced: bool,
    bug: Option<Bug>,
}

impl Arguments {
    fn read(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = Self { first: 0, count: 1, is_traced: false, bug: None };
        let mut words = words;
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--trace" => arguments.is_traced = true,
                "--seed" => arguments.first = number(&value()?)?,
                "--seeds" => arguments.count = number(&value()?)?,
                "--bug" => {
                    let name = value()?;
                    let bug = Bug::ALL.into_iter().find(|bug| bug.name() == name);
                    arguments.bug = Some(bug.ok_or_else(|| format!("no such bug: {name}"))?);
                }
                _ => return Err(format!("no such option: {word}")),
            }
        }
        Ok(arguments)
    }

    fn run(&self) -> ExitCode {
        let (mut steps, mut replies, mut restarts, mut evictions, mut fetches) = (0, 0, 0, 0, 0);
        for seed in self.first..self.first.saturating_add(self.count) {
            let scenario = Scenario::of_seed(seed).with_bug(self.bug);
            if self.is_traced {
                println!("{scenario:#?}");
            }
            let mut print = |line: std::fmt::Arguments<'_>| println!("{line}");
            let trace = self.is_traced.then_some(&mut print as larder_sim::Trace<'_>);
            match run(&scenario, trace) {
                Ok(run) => {
                    steps += run.steps;
                    replies += run.replies;
                    restarts += run.restarts;
                    evictions += run.evictions;
                    fetches += run.fetches;
                }
                Err(failure) => {
                    eprintln!("{scenario}\n{failure}");
                    return ExitCode::FAILURE;
                }
            }
        }
        println!(
            "{} seeds: {steps} steps, {replies} replies, {restarts} restarts, {evictions} evictions, {fetches} reads \
             of the store; nothing is wrong",
            self.count
        );
        ExitCode::SUCCESS
    }
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("no number: {word}"))
}

const USAGE: &str = "usage: larder-sim [--seed N] [--seeds COUNT] [--trace] [--bug NAME]";
