//! Tables of comparisons, sweeps and searches.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use larder_bench::compare::{Comparison, Metric, Verdict};
use larder_bench::report::columns::Columns;
use larder_bench::report::{units, words};
use larder_bench::search::Search;
use larder_bench::sweep::Sweep;

/// A line for each metric: every server's mean over the rounds, and its ratio to the first with its interval.
pub(super) fn comparison(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    let rounds = comparison.standings.first().map_or(0, |standing| standing.rounds.len());
    writeln!(
        out,
        "{} rounds; ratios to the first server, with their intervals at {:.0} %",
        rounds,
        comparison.confidence * 100.0
    )?;
    for standing in &comparison.standings {
        let server = words::server(&standing.contestant.name, &standing.software);
        writeln!(out, "\n{BOLD}{server}{BOLD:#}")?;
        for metric in Metric::ALL {
            let figures: Vec<f64> =
                standing.rounds.iter().filter_map(|figures| figures.get(&metric).copied()).collect();
            if figures.is_empty() {
                continue;
            }
            let mean = figures.iter().sum::<f64>() / figures.len() as f64;
            write!(out, "  {:<15} {:>10}", metric.heading(), metric.figure(mean))?;
            if let Some(ratio) = standing.ratios.iter().find(|ratio| ratio.metric == metric) {
                let style = verdict_style(ratio.verdict);
                let verdict = metric.verdict_word(ratio.verdict);
                write!(out, "   {:.3} ({})  {style}{verdict}{style:#}", ratio.ratio, ratio.interval(3))?;
            }
            writeln!(out)?;
        }
        if standing.failures > 0 {
            writeln!(out, "  {RED}{} ANSWERS WERE WRONG{RED:#}", units::count(standing.failures))?;
        }
        warn(&standing.warnings, "  ", out)?;
    }
    Ok(())
}

fn verdict_style(verdict: Verdict) -> Style {
    match verdict {
        Verdict::Better => GREEN,
        Verdict::Worse => RED,
        Verdict::NoDifferenceShown => Style::new().dimmed(),
    }
}

fn warn(warnings: &[String], indent: &str, out: &mut dyn Write) -> io::Result<()> {
    warnings.iter().try_for_each(|warning| writeln!(out, "{indent}{YELLOW}warning: {warning}{YELLOW:#}"))
}

/// A line for each value and server.
pub(super) fn sweep(sweep: &Sweep, out: &mut dyn Write) -> io::Result<()> {
    let metrics = [Metric::OperationsPerSec, Metric::LatencyP50Micros, Metric::LatencyP99Micros];
    let mut heading = vec![sweep.axis.name(), "server"];
    heading.extend(metrics.map(Metric::heading));
    heading.push("ratio of operations");
    let mut columns = Columns::headed(&heading);
    for step in &sweep.steps {
        for standing in &step.comparison.standings {
            let mut cells = vec![units::count(step.value), standing.contestant.name.clone()];
            cells.extend(metrics.map(|metric| {
                let figures = standing.rounds.iter().filter_map(|figures| figures.get(&metric));
                let (sum, count) = figures.fold((0.0, 0), |(sum, count), figure| (sum + figure, count + 1));
                if count == 0 { "-".into() } else { metric.figure(sum / f64::from(count)) }
            }));
            let ratio = standing.ratios.iter().find(|ratio| ratio.metric == Metric::OperationsPerSec);
            cells.push(
                ratio.map_or_else(String::new, |ratio| format!("{:.3} ({})", ratio.ratio, ratio.interval(3))),
            );
            columns.row(cells);
        }
    }
    columns.print(out)
}

/// A line for each rate.
pub(super) fn search(search: &Search, out: &mut dyn Write) -> io::Result<()> {
    let server = words::server(&search.contestant.name, &search.software);
    writeln!(out, "{BOLD}{server}{BOLD:#}")?;
    let mut columns =
        Columns::headed(&["asked", "answered", &format!("p{}", search.goal.percentile), "goal"]);
    for step in &search.steps {
        for probe in &step.probes {
            columns.row(vec![
                format!("{}/s", units::short(step.rate_per_sec)),
                format!("{}/s", units::short(probe.answered_per_sec)),
                probe.latency(),
                if probe.holds { "kept" } else { "not kept" }.to_owned(),
            ]);
        }
    }
    columns.print(out)?;
    let limit = units::latency(search.goal.latency_micros * 1000.0);
    match search.rate_per_sec {
        Some(rate) => writeln!(
            out,
            "{server}: p{} stays below {limit} up to {} requests/s",
            search.goal.percentile,
            units::short(rate)
        )?,
        None => writeln!(out, "{server}: p{} is never below {limit}", search.goal.percentile)?,
    }
    warn(&search.warnings, "", out)
}

const BOLD: Style = Style::new().bold();
const GREEN: Style = AnsiColor::Green.on_default();
const RED: Style = AnsiColor::Red.on_default().bold();
const YELLOW: Style = AnsiColor::Yellow.on_default();
