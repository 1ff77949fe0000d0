//! The way to the highest rate that keeps a latency.

use super::chart::{Chart, Series};
use super::escape::escape;
use super::parts::{self, LATENCY};
use super::scale::{Axis, Kind};
use super::time::utc;
use crate::report::columns::Columns;
use crate::report::units::{count, latency, percent, short};
use crate::report::words;
use crate::search::{Goal, Probe, Search};
use crate::statistics::median;

pub(super) fn title(search: &Search) -> String {
    let name = &search.scenario.name;
    let under = if name.is_empty() { String::new() } else { format!(": {name}") };
    format!("How much {} bears{under}", words::server(&search.contestant.name, &search.software))
}

pub(super) fn section(search: &Search) -> String {
    let goal = goal_words(search.goal);
    let headline = match (search.rate_per_sec, search.failed_rate_per_sec) {
        (Some(held), Some(failed)) => {
            format!(
                "{goal} is kept up to {} requests a second, and no longer at {}.",
                short(held),
                short(failed)
            )
        }
        (Some(held), None) => {
            format!("{goal} is kept at {} requests a second, the most that was tried.", short(held))
        }
        (None, _) => format!("{goal} is not kept at any rate that was tried."),
    };
    let mut html = format!("<p class=\"under\">{}</p>\n", escape(&utc(search.started_unix_secs)));
    html += &format!("<p class=\"headline\">{}</p>\n", escape(&headline));
    let failures: u64 = probes(search).map(|(_, probe)| probe.failures).sum();
    if failures > 0 {
        html += &parts::banner("bad", &format!("{} answers were wrong", count(failures)), &[]);
    }
    if !search.warnings.is_empty() {
        let heading = "These figures may tell of the client rather than of the server";
        html += &parts::banner("doubt", heading, &search.warnings);
    }
    html += &parts::charts(&[chart(search)]);
    html += "<h2>What was tried</h2>\n";
    html += &parts::table(&table(search));
    html + "<h2>What was asked</h2>\n" + &parts::scenario(&search.scenario)
}

fn goal_words(goal: Goal) -> String {
    format!("A p{} below {}", goal.percentile, latency(goal.latency_micros * 1000.0))
}

/// Every short run, with the rate that was asked for.
fn probes(search: &Search) -> impl Iterator<Item = (f64, &Probe)> {
    search.steps.iter().flat_map(|step| step.probes.iter().map(move |probe| (step.rate_per_sec, probe)))
}

fn chart(search: &Search) -> Chart {
    const ASKED: Axis = Axis { label: "requests a second asked for", kind: Kind::Linear, format: short };
    let line = |name: &str, holds: bool| {
        let its = search.steps.iter().filter(move |step| step.holds == holds);
        let points = its.filter_map(|step| {
            let sent: Vec<f64> = step
                .probes
                .iter()
                .filter(|probe| probe.is_sent())
                .map(|probe| probe.latency_micros)
                .collect();
            (!sent.is_empty()).then(|| (step.rate_per_sec, median(sent) * 1000.0))
        });
        let mut points: Vec<(f64, f64)> = points.collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series::new(name, points)
    };
    let rates = search.steps.iter().map(|step| step.rate_per_sec);
    let (low, high) =
        rates.fold((f64::INFINITY, 0.0_f64), |(low, high), rate| (low.min(rate), high.max(rate)));
    let goal = search.goal.latency_micros * 1000.0;
    let mut series = vec![line("kept", true), line("not kept", false)];
    if low <= high {
        series.push(Series::new("goal", [(low, goal), (high, goal)]).dashed());
    }
    Chart {
        title: format!("p{} by rate", search.goal.percentile),
        note: if probes(search).all(|(_, probe)| probe.is_sent()) {
            String::new()
        } else {
            "Runs whose percentile is of requests that were never sent are left out.".into()
        },
        x: ASKED,
        y: LATENCY,
        series,
    }
}

fn table(search: &Search) -> Columns {
    let percentile = format!("p{}", search.goal.percentile);
    let mut columns = Columns::headed(&["asked/s", "answered/s", &percentile, "sent late", "failures", ""]);
    for (rate, probe) in probes(search) {
        columns.row(vec![
            count(rate.round() as u64),
            count(probe.answered_per_sec.round() as u64),
            probe.latency(),
            percent(probe.sent_late),
            count(probe.failures),
            if probe.holds { "kept" } else { "not kept" }.into(),
        ]);
    }
    columns
}
