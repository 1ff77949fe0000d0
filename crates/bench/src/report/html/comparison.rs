//! Servers side by side: what they did, how the others relate to the first, and what may be said of it.

use super::chart::{Chart, Series};
use super::escape::escape;
use super::parts::{self, LATENCY};
use super::scale::{Axis, Kind};
use super::time::utc;
use crate::compare::{Comparison, Figures, Metric, Ratio, Standing, Verdict};
use crate::outcome::CommandTally;
use crate::report::columns::Columns;
use crate::report::units::{count, percent, short};
use crate::report::words;
use crate::statistics::median;

pub(super) fn title(comparison: &Comparison) -> String {
    let names: Vec<_> = comparison
        .standings
        .iter()
        .map(|standing| words::server(&standing.contestant.name, &standing.software))
        .collect();
    let name = &comparison.scenario.name;
    let under = if name.is_empty() { String::new() } else { format!(": {name}") };
    format!("{}{under}", names.join(" and "))
}

pub(super) fn section(comparison: &Comparison) -> String {
    let scenario = &comparison.scenario;
    let rounds = comparison.standings.first().map_or(0, |standing| standing.rounds.len());
    let restarts = if comparison.restart { ", each server started anew for every round" } else { "" };
    let under = format!(
        "{}, {}, {rounds} rounds in turns{restarts}",
        utc(comparison.started_unix_secs),
        words::load(scenario, scenario.threads)
    );
    let mut html = format!("<p class=\"under\">{}</p>\n", escape(&under));
    for sentence in sentences(comparison) {
        html += &format!("<p class=\"headline\">{}</p>\n", escape(&sentence));
    }
    html += &banners(comparison);
    html += "<h2>Figures: medians of the rounds</h2>\n";
    html += &parts::table(&figures(comparison));
    html += &ratios(comparison);
    html += "<h2>Round by round</h2>\n";
    html += &parts::charts(&charts(comparison));
    html + "<h2>What was asked</h2>\n" + &parts::scenario(scenario)
}

/// Median of what the rounds measured.
pub(super) fn middle(rounds: &[Figures], metric: Metric) -> Option<f64> {
    let values: Vec<f64> = rounds.iter().filter_map(|figures| figures.get(&metric).copied()).collect();
    (!values.is_empty()).then(|| median(values))
}

/// What a busy person wants to know: for every other server, what differs for sure, and what does not.
fn sentences(comparison: &Comparison) -> Vec<String> {
    let Some((first, others)) = comparison.standings.split_first() else { return Vec::new() };
    let sure = percent(comparison.confidence);
    let sentence = |standing: &Standing| {
        let (shown, open): (Vec<&Ratio>, Vec<&Ratio>) =
            standing.ratios.iter().partition(|ratio| ratio.verdict != Verdict::NoDifferenceShown);
        let claims = if shown.is_empty() { "no difference is shown".into() } else { list(&shown, claim) };
        let (its, firsts) = (&standing.contestant.name, &first.contestant.name);
        let mut text = format!("{its} against {firsts}, with {sure} confidence: {claims}.");
        if !shown.is_empty() && !open.is_empty() {
            text +=
                &format!(" No difference is shown in {}.", list(&open, |ratio| noun(ratio.metric).into()));
        }
        text
    };
    others.iter().map(sentence).collect()
}

/// What a metric measures; its figures have their units with them.
pub(super) fn noun(metric: Metric) -> &'static str {
    match metric {
        Metric::OperationsPerSec => "operations a second",
        Metric::LatencyP50Micros => "median latency",
        Metric::LatencyP99Micros => "p99 latency",
        Metric::LatencyP999Micros => "p99.9 latency",
        Metric::LatencyP999GetsMicros => "p99.9 latency of gets",
        Metric::ServerCpuSecsPerMillion => "server CPU per operation",
        Metric::ServerSystemShare => "CPU time in the kernel",
        Metric::ServerFaultsPerSec => "page faults a second",
        Metric::ServerResidentBytes => "server memory",
        Metric::HitRatio => "hit ratio",
    }
}

fn claim(ratio: &Ratio) -> String {
    format!("{} {} ({})", times(ratio.ratio), noun(ratio.metric), ratio.metric.verdict_word(ratio.verdict))
}

fn list(ratios: &[&Ratio], word: impl Fn(&Ratio) -> String) -> String {
    ratios.iter().map(|ratio| word(ratio)).collect::<Vec<_>>().join(", ")
}

fn times(ratio: f64) -> String {
    format!("{ratio:.2}×")
}

fn banners(comparison: &Comparison) -> String {
    let mut html = String::new();
    for standing in &comparison.standings {
        let name = &standing.contestant.name;
        if standing.failures > 0 {
            html += &parts::banner(
                "bad",
                &format!("{name}: {} answers were wrong", count(standing.failures)),
                &[],
            );
        }
        if !standing.warnings.is_empty() {
            let heading = format!("{name}: these figures may tell of the client rather than of the server");
            html += &parts::banner("doubt", &heading, &standing.warnings);
        }
    }
    html
}

/// Metrics that any server has.
fn metrics(comparison: &Comparison) -> impl Iterator<Item = Metric> {
    let has = |metric| comparison.standings.iter().any(|standing| middle(&standing.rounds, metric).is_some());
    Metric::ALL.into_iter().filter(move |&metric| has(metric))
}

fn figures(comparison: &Comparison) -> Columns {
    let mut heading = vec!["", "software"];
    heading.extend(metrics(comparison).map(noun));
    let mut columns = Columns::headed(&heading);
    for standing in &comparison.standings {
        let mut cells = vec![standing.contestant.name.clone(), standing.software.clone()];
        let cell = |metric| {
            middle(&standing.rounds, metric).map_or_else(|| "-".into(), |value| metric.figure(value))
        };
        cells.extend(metrics(comparison).map(cell));
        columns.row(cells);
    }
    columns
}

fn ratios(comparison: &Comparison) -> String {
    let Some((first, others)) = comparison.standings.split_first() else { return String::new() };
    let mut html = String::new();
    for standing in others.iter().filter(|standing| !standing.ratios.is_empty()) {
        let (name, first) = (escape(&standing.contestant.name), escape(&first.contestant.name));
        html += &format!("<h2>{name} against {first}</h2>\n<div class=\"wide\"><table>\n");
        html += "<tr><th></th><th>ratio</th><th>interval</th><th class=\"text\">";
        html += &format!("less · as {first} · more</th><th class=\"text\">verdict</th></tr>\n");
        let reach = standing
            .ratios
            .iter()
            .flat_map(|ratio| [ratio.low, ratio.high])
            .map(distance)
            .fold(1.1, f64::max);
        for ratio in &standing.ratios {
            let Ratio { metric, ratio: centre, verdict, .. } = *ratio;
            html += &format!(
                "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"text\">{}</td><td class=\"text {}\">{}</td></tr>\n",
                noun(metric),
                times(centre),
                ratio.interval(2),
                interval(ratio, reach),
                match verdict {
                    Verdict::Better => "good",
                    Verdict::Worse => "bad",
                    Verdict::NoDifferenceShown => "",
                },
                metric.verdict_word(verdict)
            );
        }
        html += "</table></div>\n";
    }
    if !html.is_empty() {
        html += &format!(
            "<p class=\"note\">A ratio is the geometric mean of the rounds' ratios; the interval holds the true one with {} confidence. \
             Only where it lies wholly on one side of 1 is there a verdict.</p>\n",
            percent(comparison.confidence)
        );
    }
    html
}

/// How far a ratio is from 1, as a factor.
fn distance(ratio: f64) -> f64 {
    if ratio > 1.0 { ratio } else { 1.0 / ratio.max(f64::MIN_POSITIVE) }
}

/// A ratio and its interval around 1, on a logarithmic scale that ends at `reach` on both sides.
fn interval(ratio: &Ratio, reach: f64) -> String {
    const HALF: f64 = 88.0;
    let reach = reach.clamp(1.1, 100.0);
    let place =
        |value: f64| HALF * (1.0 + (value.max(f64::MIN_POSITIVE).ln() / reach.ln()).clamp(-1.0, 1.0) * 0.95);
    let class = match ratio.verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::NoDifferenceShown => "open",
    };
    format!(
        "<svg class=\"{class}\" viewBox=\"0 0 {} 20\" role=\"img\" aria-label=\"{:.2} to {:.2}\"><line class=\"one\" x1=\"{HALF}\" x2=\"{HALF}\" y1=\"0\" y2=\"20\"/>\
         <line class=\"interval\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"10\" y2=\"10\"/><circle cx=\"{:.1}\" cy=\"10\" r=\"5\"/></svg>",
        HALF * 2.0,
        ratio.low,
        ratio.high,
        place(ratio.low),
        place(ratio.high),
        place(ratio.ratio)
    )
}

fn charts(comparison: &Comparison) -> Vec<Chart> {
    const ROUND: Axis = Axis { label: "round", kind: Kind::Whole, format: |round| format!("{round:.0}") };
    let by_round = |metric: Metric, y: Axis, unit: f64, title: &str| {
        let line = |standing: &Standing| {
            let values = standing.rounds.iter().enumerate();
            let points = values
                .filter_map(|(round, figures)| Some((round as f64 + 1.0, figures.get(&metric)? * unit)));
            Series::new(standing.contestant.name.clone(), points.collect::<Vec<_>>())
        };
        let series = comparison.standings.iter().map(line).collect();
        Chart { title: title.into(), note: String::new(), x: ROUND, y, series }
    };
    const OPERATIONS: Axis = Axis { label: "operations a second", kind: Kind::FromZero, format: short };
    const NANOS_PER_MICRO: f64 = 1000.0;
    let mut charts = vec![
        by_round(Metric::OperationsPerSec, OPERATIONS, 1.0, "Operations a second"),
        by_round(Metric::LatencyP99Micros, LATENCY, NANOS_PER_MICRO, "p99 latency"),
    ];
    let alls: Vec<(String, CommandTally)> = comparison
        .standings
        .iter()
        .map(|standing| (standing.contestant.name.clone(), standing.total.all()))
        .collect();
    let lines: Vec<_> = alls.iter().map(|(name, all)| (name.clone(), all)).collect();
    charts.push(parts::percentiles("Latency by percentile, all rounds", &lines));
    charts
}
