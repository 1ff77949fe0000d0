//! Tables of comparisons, sweeps and searches.

use std::io::{self, Write};

use larder_bench::compare::{Comparison, Metric};
use larder_bench::report::units;
use larder_bench::search::Search;
use larder_bench::sweep::Sweep;

/// A line for each metric: every server's mean over the rounds, and its ratio to the first with its interval.
pub(super) fn comparison(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    let rounds = comparison.standings.first().map_or(0, |standing| standing.rounds.len());
    writeln!(
        out,
        "{} rounds; intervals hold the true ratio with {:.0} %",
        rounds,
        comparison.confidence * 100.0
    )?;
    for standing in &comparison.standings {
        writeln!(out, "\n{} ({})", standing.contestant.name, standing.version)?;
        for metric in Metric::ALL {
            let figures: Vec<f64> =
                standing.rounds.iter().filter_map(|figures| figures.get(&metric).copied()).collect();
            if figures.is_empty() {
                continue;
            }
            let mean = figures.iter().sum::<f64>() / figures.len() as f64;
            write!(out, "  {:<28} {:>14}", metric.heading(), figure(mean))?;
            if let Some(ratio) = standing.ratios.iter().find(|ratio| ratio.metric == metric) {
                let verdict = metric.verdict_word(ratio.verdict);
                write!(
                    out,
                    "   {:.3} of the first's ({:.3} to {:.3}): {verdict}",
                    ratio.ratio, ratio.low, ratio.high
                )?;
            }
            writeln!(out)?;
        }
        if standing.failures > 0 {
            writeln!(out, "  {} ANSWERS WERE WRONG", units::count(standing.failures))?;
        }
        for warning in &standing.warnings {
            writeln!(out, "  warning: {warning}")?;
        }
    }
    Ok(())
}

/// A line for each value and server.
pub(super) fn sweep(sweep: &Sweep, out: &mut dyn Write) -> io::Result<()> {
    let metrics = [Metric::OperationsPerSec, Metric::LatencyP50Micros, Metric::LatencyP99Micros];
    write!(out, "{:>14} {:<20}", sweep.axis.name(), "server")?;
    for metric in metrics {
        write!(out, " {:>16}", metric.heading())?;
    }
    writeln!(out, "   ratio of operations")?;
    for step in &sweep.steps {
        for standing in &step.comparison.standings {
            write!(out, "{:>14} {:<20}", units::count(step.value), standing.contestant.name)?;
            for metric in metrics {
                let figures = standing.rounds.iter().filter_map(|figures| figures.get(&metric));
                let (sum, count) = figures.fold((0.0, 0), |(sum, count), figure| (sum + figure, count + 1));
                write!(out, " {:>16}", if count == 0 { "-".into() } else { figure(sum / f64::from(count)) })?;
            }
            let ratio = standing.ratios.iter().find(|ratio| ratio.metric == Metric::OperationsPerSec);
            match ratio {
                Some(ratio) => {
                    writeln!(out, "   {:.3} ({:.3} to {:.3})", ratio.ratio, ratio.low, ratio.high)?
                }
                None => writeln!(out)?,
            }
        }
    }
    Ok(())
}

/// A line for each rate.
pub(super) fn search(search: &Search, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{:>14} {:>14} {:>12}", "rate", "answered/s", format!("p{}", search.goal.percentile))?;
    for step in &search.steps {
        for probe in &step.probes {
            writeln!(
                out,
                "{:>14} {:>14} {:>12}   {}",
                units::count(step.rate_per_sec as u64),
                units::count(probe.answered_per_sec as u64),
                units::latency(probe.latency_micros * 1000.0),
                if probe.holds { "holds" } else { "fails" }
            )?;
        }
    }
    let limit = units::latency(search.goal.latency_micros * 1000.0);
    match search.rate_per_sec {
        Some(rate) => writeln!(
            out,
            "{}: p{} stays below {limit} up to {} requests/s",
            search.contestant.name,
            search.goal.percentile,
            units::count(rate as u64)
        )?,
        None => {
            writeln!(out, "{}: p{} is never below {limit}", search.contestant.name, search.goal.percentile)?
        }
    }
    for warning in &search.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    Ok(())
}

/// At least three digits, and not many more.
fn figure(figure: f64) -> String {
    match figure.abs() {
        size if size >= 1000.0 => units::count(figure.round() as u64),
        size if size >= 10.0 => format!("{figure:.1}"),
        _ => format!("{figure:.3}"),
    }
}
