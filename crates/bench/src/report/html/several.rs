//! Several runs: side by side first, then each.

use super::chart::{Chart, Series};
use super::escape::escape;
use super::parts::{self, LATENCY};
use super::run;
use super::scale::{Axis, Kind};
use crate::Outcome;
use crate::outcome::CommandTally;
use crate::report::columns::Columns;
use crate::report::units::{count, latency, short};
use crate::report::words;

pub(super) fn section(outcomes: &[Outcome]) -> String {
    let runs: Vec<Run<'_>> = outcomes.iter().map(Run::of).collect();
    let mut html = format!("<p class=\"under\">{} runs</p>\n", runs.len());
    html += &parts::table(&overview(&runs));
    html += &parts::charts(&[by_rate(&runs), by_percentile(&runs)]);
    for run in &runs {
        let open = if run.outcome.total.has_failed() { " open" } else { "" };
        html += &format!(
            "<details{open}><summary>{}</summary>\n{}</details>\n",
            escape(&run.name),
            run::section(run.outcome)
        );
    }
    html
}

struct Run<'a> {
    outcome: &'a Outcome,
    name: String,
    all: CommandTally,
    rate: f64,
}

impl<'a> Run<'a> {
    fn of(outcome: &'a Outcome) -> Self {
        let all = outcome.total.all();
        let rate = all.requests as f64 / outcome.elapsed_secs.max(f64::MIN_POSITIVE);
        let name = run::title(outcome);
        Self { outcome, name, all, rate }
    }

    fn at(&self, percentile: f64) -> f64 {
        self.all.latency_nanos.value_at_percentile(percentile) as f64
    }
}

fn overview(runs: &[Run<'_>]) -> Columns {
    let mut columns = Columns::headed(&["", "load", "requests/s", "p50", "p99", "p99.9", "max", "failures"]);
    for run in runs {
        let mut cells =
            vec![run.name.clone(), words::load(&run.outcome.scenario, run.outcome.client.threads)];
        cells.push(count(run.rate.round() as u64));
        cells.extend([50.0, 99.0, 99.9, 100.0].map(|percentile| latency(run.at(percentile))));
        cells.push(count(run.outcome.total.failures.values().sum()));
        columns.row(cells);
    }
    columns
}

fn by_rate(runs: &[Run<'_>]) -> Chart {
    const ANSWERED: Axis = Axis { label: "requests answered a second", kind: Kind::Linear, format: short };
    let mut runs: Vec<&Run<'_>> = runs.iter().collect();
    runs.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    let line =
        |name: &str, percentile| Series::new(name, runs.iter().map(|run| (run.rate, run.at(percentile))));
    Chart {
        title: "Latency by rate".into(),
        note: String::new(),
        x: ANSWERED,
        y: LATENCY,
        series: vec![line("p50", 50.0), line("p99", 99.0), line("p99.9", 99.9)],
    }
}

fn by_percentile(runs: &[Run<'_>]) -> Chart {
    let lines: Vec<_> = runs.iter().map(|run| (run.name.clone(), &run.all)).collect();
    parts::percentiles("Latency by percentile", &lines)
}
