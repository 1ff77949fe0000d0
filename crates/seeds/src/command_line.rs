//! A simulator's command line: one seed, or many.

use std::process::ExitCode;

use super::{Bug as _, Scenario, run_all};

/// Does what the program's arguments say.
pub fn main<S: Scenario>() -> ExitCode {
    let arguments = match Arguments::<S>::read(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(what) => {
            eprintln!("{what}\nusage: {} {OPTIONS}", S::COMMAND);
            return ExitCode::from(2);
        }
    };
    match arguments.run() {
        Ok(run) => {
            println!("{} seeds, nothing is wrong: {run:?}", arguments.count);
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

struct Arguments<S: Scenario> {
    first: u64,
    count: u64,
    is_traced: bool,
    bug: Option<S::Bug>,
}

impl<S: Scenario> Arguments<S> {
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
                    let bug = S::Bug::ALL.iter().find(|bug| bug.name() == name);
                    arguments.bug = Some(*bug.ok_or_else(|| format!("no such bug: {name}"))?);
                }
                _ => return Err(format!("no such option: {word}")),
            }
        }
        Ok(arguments)
    }

    fn run(&self) -> Result<S::Run, String> {
        let seeds = self.first..self.first.saturating_add(self.count);
        let mut print = |line: std::fmt::Arguments<'_>| println!("{line}");
        run_all::<S>(seeds, self.bug, self.is_traced.then_some(&mut print))
    }
}

const OPTIONS: &str = "[--seed N] [--seeds COUNT] [--trace] [--bug NAME]";
