//! Pieces that several pages are made of.

use serde::Serialize;

use super::chart::{Chart, Series};
use super::escape::escape;
use super::scale::{Axis, Kind};
use crate::environment::Environment;
use crate::outcome::CommandTally;
use crate::report::columns::Columns;
use crate::report::units::{self, memory};
use crate::scenario::Scenario;

/// Seconds since the start of a run.
pub(super) const TIME: Axis = Axis {
    label: "seconds",
    kind: Kind::Elapsed,
    format: |secs| format!("{}", (secs * 100.0).round() / 100.0),
};
/// Requests a second.
pub(super) const RATE: Axis = Axis { label: "requests a second", kind: Kind::FromZero, format: units::short };
/// Nanoseconds.
pub(super) const LATENCY: Axis = Axis { label: "latency", kind: Kind::Log, format: units::latency };
/// Nines of a percentile: 0 is the least latency, 1 the 90th percentile, 2 the 99th.
const NINES: Axis = Axis { label: "percentile", kind: Kind::Whole, format: percentile };
/// CPU seconds a second.
pub(super) const CORES: Axis =
    Axis { label: "cores", kind: Kind::FromZero, format: |cores| format!("{cores:.2}") };

fn percentile(nines: f64) -> String {
    let percent = 100.0 * (1.0 - 10_f64.powf(-nines));
    let digits = (nines.round() as usize).saturating_sub(2).max(if nines.fract() == 0.0 { 0 } else { 2 });
    format!("{percent:.digits$}")
}

/// The classic plot of HDR histograms.
pub(super) fn percentiles(title: &str, lines: &[(String, &CommandTally)]) -> Chart {
    let series =
        lines.iter().map(|(name, figures)| Series::new(name.clone(), by_nines(&figures.latency_nanos)));
    Chart {
        title: title.into(),
        note: "Further right are the rarer, slower answers: at 99.9 %, one of a thousand took longer.".into(),
        x: NINES,
        y: LATENCY,
        series: series.collect(),
    }
}

/// Latency at every tenth of a nine, as far as there are enough answers to tell.
pub(super) fn by_nines(nanos: &hdrhistogram::Histogram<u64>) -> Vec<(f64, f64)> {
    const NINES_MAX: f64 = 6.0;
    let nines = (nanos.len() as f64).log10().clamp(0.0, NINES_MAX);
    let steps = (nines * 10.0).floor() as u32;
    if nanos.is_empty() {
        return Vec::new();
    }
    let places = (0..=steps).map(|step| f64::from(step) / 10.0);
    places.map(|nines| (nines, nanos.value_at_quantile(1.0 - 10_f64.powf(-nines)) as f64)).collect()
}

/// A figure at the top of a page, with a few words below.
pub(super) struct Tile {
    pub(super) name: &'static str,
    pub(super) figure: String,
    pub(super) sub: String,
    /// `good`, `bad` or nothing.
    pub(super) class: &'static str,
}

impl Tile {
    pub(super) fn new(name: &'static str, figure: String, sub: impl Into<String>) -> Self {
        Self { name, figure, sub: sub.into(), class: "" }
    }
}

pub(super) fn tiles(tiles: &[Tile]) -> String {
    let mut html = String::from("<dl class=\"tiles\">\n");
    for Tile { name, figure, sub, class } in tiles {
        let (figure, sub) = (escape(figure), escape(sub));
        html += &format!(
            "<div><dt>{name}</dt><dd class=\"{class}\">{figure}<span class=\"sub\">{sub}</span></dd></div>\n"
        );
    }
    html + "</dl>\n"
}

/// A box that nobody overlooks. `class`: `bad` or `doubt`.
pub(super) fn banner(class: &str, heading: &str, lines: &[String]) -> String {
    let mut html = format!("<div class=\"banner {class}\"><strong>{}</strong>", escape(heading));
    if !lines.is_empty() {
        let items: String = lines.iter().map(|line| format!("<li>{}</li>", escape(line))).collect();
        html += &format!("<ul>{items}</ul>");
    }
    html + "</div>\n"
}

pub(super) fn table(columns: &Columns) -> String {
    let mut html = String::from("<div class=\"wide\"><table>\n");
    for (number, row) in columns.rows().iter().enumerate() {
        let cell = if number == 0 { "th" } else { "td" };
        let cells: String = row.iter().map(|text| format!("<{cell}>{}</{cell}>", escape(text))).collect();
        html += &format!("<tr>{cells}</tr>\n");
    }
    html + "</table></div>\n"
}

pub(super) fn facts(facts: &[(&str, String)]) -> String {
    let facts = facts.iter().filter(|(_, fact)| !fact.is_empty());
    let facts: String =
        facts.map(|(name, fact)| format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(fact))).collect();
    format!("<dl class=\"facts\">\n{facts}</dl>\n")
}

pub(super) fn charts(charts: &[Chart]) -> String {
    let drawn: String = charts.iter().map(Chart::draw).collect();
    format!("<div class=\"charts\">\n{drawn}</div>\n")
}

pub(super) fn environment(environment: &Environment) -> String {
    let known = |number: u64, text: String| if number > 0 { text } else { String::new() };
    facts(&[
        ("asked from", environment.host.clone()),
        ("kernel", environment.kernel.clone()),
        ("processor", known(environment.cpus as u64, format!("{} × {}", environment.cpus, environment.cpu))),
        ("memory", known(environment.memory_bytes, memory(environment.memory_bytes as f64))),
        ("larder", environment.larder.clone()),
    ])
}

/// A scenario as the file that would ask the same.
pub(super) fn scenario(scenario: &Scenario) -> String {
    format!(
        "<details><summary>The scenario, as a file</summary>\n<pre>{}</pre></details>\n",
        escape(&file(scenario))
    )
}

fn file(scenario: &impl Serialize) -> String {
    // A scenario comes from such a file; one that was built otherwise may hold what TOML cannot say.
    toml::to_string(scenario).or_else(|_| serde_json::to_string_pretty(scenario)).unwrap_or_default()
}
