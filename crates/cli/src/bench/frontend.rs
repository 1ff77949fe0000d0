//! Command lines of memaslap, memslap, mc-crusher and Brutis.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use larder_bench::frontend::{Refusal, Style, Surroundings, Tool, Translation};
use larder_bench::report::{self, memaslap};
use larder_bench::{Scenario, run as run_scenario};

use super::live::{judge, watcher};
use super::output::OutputArgs;
use crate::Failure;
use crate::signals::stop_on_signals;

pub(super) fn run(tool: Tool, mut words: Vec<OsString>) -> Result<(), Failure> {
    let is_printed = words.first().is_some_and(|word| word == "--print-scenario");
    if is_printed {
        words.remove(0);
    }
    let surroundings = Surroundings {
        variable: &|name| std::env::var(name).ok(),
        read_file: &|path| fs::read_to_string(path),
    };
    let translation = match tool.translate(&words, &surroundings) {
        Ok(translation) => translation,
        Err(Refusal::Help(text)) => {
            print!("{text}");
            return Ok(());
        }
        Err(refusal @ Refusal::Words(_)) => return Err(Failure::Usage(refusal.to_string())),
        Err(refusal @ Refusal::File { .. }) => return Err(Failure::Failed(refusal.to_string())),
    };
    for note in &translation.notes {
        eprintln!("note: {note}");
    }
    if is_printed {
        for scenario in &translation.scenarios {
            println!("{}", scenario.to_toml());
        }
        return Ok(());
    }
    run_all(&translation)
}

fn run_all(translation: &Translation) -> Result<(), Failure> {
    let stop = stop_on_signals()?;
    let many = translation.scenarios.len() > 1;
    let mut result = Ok(());
    for (index, scenario) in translation.scenarios.iter().enumerate() {
        let file = |name: &Option<String>| {
            // Each of several runs has its own file: out, out.2, out.3.
            name.as_ref()
                .map(|name| if index == 0 { name.into() } else { format!("{name}.{}", index + 1).into() })
        };
        let output = OutputArgs {
            csv: file(&translation.csv_file),
            json: file(&translation.json_file),
            ..OutputArgs::default()
        };
        if many {
            println!("{}", scenario.name);
        }
        // If a check of one run fails, the others still run.
        let ended = run_one(scenario, &translation.style, &output, &stop);
        result = result.and(ended);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    result
}

fn run_one(
    scenario: &Scenario,
    style: &Style,
    output: &OutputArgs,
    stop: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    let failed = |error: larder_bench::RunError| Failure::of_run(&error);
    let begun = Instant::now();
    match style {
        Style::Plain => super::live::measure(scenario, output, stop),
        Style::Memaslap { stat_freq_secs } => {
            let form = memaslap::Form::of(scenario, *stat_freq_secs);
            memaslap::heading(scenario, scenario.threads, &mut io::stdout()).map_err(Failure::of_output)?;
            let mut tables = memaslap::Tables::new(form, io::stdout());
            let outcome = run_scenario(scenario, &mut tables, stop).map_err(failed)?;
            memaslap::print(&form, &outcome, &mut io::stdout().lock()).map_err(Failure::of_output)?;
            warn(&outcome);
            judge(&outcome)
        }
        Style::Memslap { test, threads } => {
            let outcome =
                run_scenario(scenario, watcher(scenario, output, stop).as_mut(), stop).map_err(failed)?;
            report::print(&outcome, &mut io::stdout().lock()).map_err(Failure::of_output)?;
            let keys = outcome.total.all().keys;
            print_memslap(test, keys, *threads, outcome.elapsed_secs, begun.elapsed().as_secs_f64())
                .map_err(Failure::of_output)?;
            judge(&outcome)
        }
    }
}

/// memaslap's tables have no row for it.
fn warn(outcome: &larder_bench::Outcome) {
    for warning in report::words::warnings(outcome) {
        eprintln!("warning: {warning}");
    }
}

/// The last lines of memslap's output.
fn print_memslap(test: &str, keys: u64, threads: u64, secs: f64, total_secs: f64) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let line = "-".repeat(68);
    writeln!(
        out,
        "{line}\nTime to {test:<4}       {keys:>8} keys by {threads:>4} threads:  {secs:>8.3} seconds."
    )?;
    writeln!(out, "{line}\nTime total:                                    {total_secs:>12.3} seconds.")
}
