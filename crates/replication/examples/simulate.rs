//! Runs the simulator: one seed, or many.

use std::process::ExitCode;

#[path = "../tests/sim/mod.rs"]
mod sim;

use sim::{Bug, Scenario, run};

const USAGE: &str = "usage: simulate [--seed N] [--seeds COUNT] [--trace] [--bug NAME]";

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
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = Self { first: 0, count: 1, is_traced: false, bug: None };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            let number = |word: String| word.parse().map_err(|_| format!("no number: {word}"));
            match word.as_str() {
                "--trace" => arguments.is_traced = true,
                "--seed" => arguments.first = number(value()?)?,
                "--seeds" => arguments.count = number(value()?)?,
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
        for seed in self.first..self.first.saturating_add(self.count) {
            let scenario = Scenario::of_seed(seed).with_bug(self.bug);
            if self.is_traced {
                println!("{scenario:#?}");
            }
            let mut print = |line: std::fmt::Arguments<'_>| println!("{line}");
            let outcome =
                if self.is_traced { run(&scenario, Some(&mut print)) } else { run(&scenario, None) };
            match outcome {
                Ok(run) if self.count == 1 => println!("{run:?}"),
                Ok(_) => {}
                Err(failure) => {
                    eprintln!("{scenario}\n{failure}");
                    return ExitCode::FAILURE;
                }
            }
        }
        println!("{} seeds: nothing is wrong", self.count);
        ExitCode::SUCCESS
    }
}
