//! The same load with one thing changed step by step.

use super::chart::{Chart, Series};
use super::comparison::{middle, noun};
use super::escape::escape;
use super::parts;
use super::scale::{Axis, Kind};
use super::time::utc;
use crate::compare::{Comparison, Metric, Standing, Verdict};
use crate::report::columns::Columns;
use crate::report::units::{latency, short};
use crate::report::words;
use crate::sweep::{self, Sweep};

pub(super) fn title(sweep: &Sweep) -> String {
    let name = first(sweep).map_or("", |comparison| comparison.scenario.name.as_str());
    let what = format!("by {}", axis(sweep.axis));
    let name = if name.is_empty() { "larder bench" } else { name };
    let servers = first(sweep).into_iter().flat_map(|comparison| &comparison.standings);
    let servers: Vec<_> =
        servers.map(|standing| words::server(&standing.contestant.name, &standing.software)).collect();
    format!("{name} {what}: {}", servers.join(" and "))
}

pub(super) fn section(sweep: &Sweep) -> String {
    let Some(comparison) = first(sweep) else { return "<p>There was no step.</p>\n".into() };
    let scenario = &comparison.scenario;
    let mut under = utc(comparison.started_unix_secs);
    if let [group] = scenario.groups.as_slice() {
        under += &format!(", {}, {}", words::arrival(group.arrival), words::road(group));
    }
    let mut html = format!("<p class=\"under\">{}</p>\n", escape(&under));
    html += &warnings(sweep);
    html += &parts::charts(&charts(sweep));
    html += "<h2>Step by step</h2>\n";
    html += &parts::table(&table(sweep));
    html + "<h2>What was asked</h2>\n" + &parts::scenario(scenario)
}

fn first(sweep: &Sweep) -> Option<&Comparison> {
    sweep.steps.first().map(|step| &step.comparison)
}

fn axis(axis: sweep::Axis) -> &'static str {
    match axis {
        sweep::Axis::Threads => "load threads",
        sweep::Axis::Connections => "connections",
        sweep::Axis::Pipeline => "requests in flight",
        sweep::Axis::ValueBytes => "value bytes",
        sweep::Axis::RatePerSec => "requests a second asked for",
        sweep::Axis::KeysPerGet => "keys in a get",
    }
}

/// Every server at every step, with its value of the axis.
fn standings(sweep: &Sweep) -> impl Iterator<Item = (u64, &Standing)> {
    sweep
        .steps
        .iter()
        .flat_map(|step| step.comparison.standings.iter().map(move |standing| (step.value, standing)))
}

fn warnings(sweep: &Sweep) -> String {
    let mut lines: Vec<String> = Vec::new();
    for (value, standing) in standings(sweep) {
        let place = format!("{} at {value}", standing.contestant.name);
        lines.extend(standing.warnings.iter().map(|warning| format!("{place}: {warning}")));
    }
    let failed: Vec<String> = standings(sweep)
        .filter(|(_, standing)| standing.failures > 0)
        .map(|(value, standing)| {
            format!("{} at {value}: {} answers were wrong", standing.contestant.name, standing.failures)
        })
        .collect();
    let mut html = String::new();
    if !failed.is_empty() {
        html += &parts::banner("bad", "Failed", &failed);
    }
    if !lines.is_empty() {
        html +=
            &parts::banner("doubt", "These figures may tell of the client rather than of the server", &lines);
    }
    html
}

fn charts(sweep: &Sweep) -> Vec<Chart> {
    let values: Vec<u64> = sweep.steps.iter().map(|step| step.value).collect();
    let (low, high) = (values.iter().min().copied().unwrap_or(1), values.iter().max().copied().unwrap_or(1));
    let kind = if low > 0 && high / low >= 20 { Kind::Log } else { Kind::Linear };
    let x = Axis { label: axis(sweep.axis), kind, format: short };
    let mut names: Vec<&str> = Vec::new();
    for (_, standing) in standings(sweep) {
        if !names.contains(&standing.contestant.name.as_str()) {
            names.push(&standing.contestant.name);
        }
    }
    let chart = |metric: Metric, title: &str, kind, format: fn(f64) -> String| {
        let line = |&name: &&str| {
            let its = standings(sweep).filter(move |(_, standing)| standing.contestant.name == name);
            let points =
                its.filter_map(|(value, standing)| Some((value as f64, middle(&standing.rounds, metric)?)));
            let mut points: Vec<_> = points.collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Series::new(name, points)
        };
        let y = Axis { label: "", kind, format };
        Chart { title: title.into(), note: String::new(), x, y, series: names.iter().map(line).collect() }
    };
    let micros = |micros: f64| latency(micros * 1000.0);
    vec![
        chart(Metric::OperationsPerSec, "Operations a second", Kind::FromZero, short),
        chart(Metric::LatencyP50Micros, "p50 latency", Kind::Log, micros),
        chart(Metric::LatencyP99Micros, "p99 latency", Kind::Log, micros),
        chart(Metric::LatencyP999Micros, "p99.9 latency", Kind::Log, micros),
        chart(
            Metric::ServerCpuSecsPerMillion,
            "Server CPU per operation",
            Kind::FromZero,
            // Seconds for a million are microseconds for one.
            micros,
        ),
    ]
}

fn table(sweep: &Sweep) -> Columns {
    let has =
        |&metric: &Metric| standings(sweep).any(|(_, standing)| middle(&standing.rounds, metric).is_some());
    let metrics: Vec<Metric> = Metric::ALL.into_iter().filter(has).collect();
    let mut heading = vec![axis(sweep.axis), "server"];
    heading.extend(metrics.iter().map(|&metric| noun(metric)));
    heading.push("against the first");
    let mut columns = Columns::headed(&heading);
    for (value, standing) in standings(sweep) {
        let mut cells = vec![value.to_string(), standing.contestant.name.clone()];
        let cell = |&metric: &Metric| {
            middle(&standing.rounds, metric).map_or_else(|| "-".into(), |value| metric.figure(value))
        };
        cells.extend(metrics.iter().map(cell));
        cells.push(verdict(standing));
        columns.row(cells);
    }
    columns
}

/// What may be said of a server's throughput.
fn verdict(standing: &Standing) -> String {
    let ratio = standing.ratios.iter().find(|ratio| ratio.metric == Metric::OperationsPerSec);
    ratio.map_or_else(
        || "-".into(),
        |ratio| match ratio.verdict {
            Verdict::NoDifferenceShown => {
                format!("{} ({})", ratio.metric.verdict_word(ratio.verdict), ratio.interval(2))
            }
            verdict => format!("{:.2}×, {}", ratio.ratio, ratio.metric.verdict_word(verdict)),
        },
    )
}
