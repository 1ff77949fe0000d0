//! A single run.

use std::collections::BTreeMap;

use super::chart::{Chart, Series};
use super::escape::escape;
use super::parts::{self, CORES, LATENCY, RATE, TIME, Tile};
use super::scale::{Axis, Kind};
use super::time::utc;
use crate::Outcome;
use crate::outcome::{Failure, Period, Tally};
use crate::report::units::{count, duration, latency, memory, percent, short};
use crate::report::{table, words};

/// More periods than this are added up by twos, threes and so on: a chart has no more room.
const POINTS_MAX: usize = 300;

pub(super) fn title(outcome: &Outcome) -> String {
    words::title(outcome)
}

pub(super) fn section(outcome: &Outcome) -> String {
    let scenario = &outcome.scenario;
    let under =
        format!("{}, {}", utc(outcome.started_unix_secs), words::load(scenario, outcome.client.threads));
    let mut html = format!("<p class=\"under\">{}</p>\n", escape(&under));
    if !scenario.description.is_empty() {
        html += &format!("<p>{}</p>\n", escape(&scenario.description));
    }
    html += &format!("<p class=\"headline\">{}</p>\n", escape(&words::headline(outcome)));
    html += &banners(outcome);
    html += &parts::tiles(&tiles(outcome));
    html += &parts::charts(&charts(outcome));
    html += &tables(outcome);
    html += &servers(outcome);
    html += "<h2>What was asked, and where</h2>\n";
    html += &parts::environment(&outcome.environment);
    html + &parts::scenario(scenario)
}

/// What failed, and what is to be doubted.
pub(super) fn banners(outcome: &Outcome) -> String {
    let mut html = String::new();
    if outcome.total.has_failed() {
        let heading = format!("Failed: {}", words::failures(&outcome.total));
        html += &parts::banner("bad", &heading, &outcome.total.examples);
    }
    let warnings = words::warnings(outcome);
    if !warnings.is_empty() {
        let heading = "These figures may tell of the client rather than of the server";
        html += &parts::banner("doubt", heading, &warnings);
    }
    html
}

fn tiles(outcome: &Outcome) -> Vec<Tile> {
    let (total, secs) = (&outcome.total, outcome.elapsed_secs.max(f64::MIN_POSITIVE));
    let all = total.all();
    let at = |percentile| latency(all.latency_nanos.value_at_percentile(percentile) as f64);
    let mut tiles = vec![
        Tile::new(
            "requests/s",
            short(all.requests as f64 / secs),
            format!("{} in {}", count(all.requests), duration(secs)),
        ),
        Tile::new("p50", at(50.0), "half were faster"),
        Tile::new("p99", at(99.0), "1 of 100 was slower"),
        Tile::new("p99.9", at(99.9), "1 of 1000 was slower"),
    ];
    if all.hits + all.misses > 0 {
        let ratio = all.hits as f64 / (all.hits + all.misses) as f64;
        tiles.push(Tile::new("hit ratio", percent(ratio), format!("{} misses", count(all.misses))));
    }
    let cpu: Option<f64> =
        outcome.servers.iter().map(|server| Some(server.cpu_user_secs? + server.cpu_system_secs?)).sum();
    if let Some(cpu) = cpu.filter(|_| !outcome.servers.is_empty()) {
        let each = cpu * 1e9 / total.operations().max(1) as f64;
        tiles.push(Tile::new("server CPU", latency(each), "per operation"));
    }
    let resident: Option<u64> = outcome.servers.iter().map(|server| server.resident_bytes).sum();
    if let Some(bytes) = resident.filter(|&bytes| bytes > 0) {
        tiles.push(Tile::new("server memory", memory(bytes as f64), "resident at the end"));
    }
    let failures: u64 = total.failures.values().sum();
    let checked = total.verified + total.expiry_verified;
    let sub = if checked > 0 {
        format!("{} answers checked", count(checked))
    } else {
        "values were not checked".into()
    };
    let class = if failures > 0 { "bad" } else { "good" };
    tiles.push(Tile {
        class,
        ..Tile::new("failures", if failures > 0 { count(failures) } else { "none".into() }, sub)
    });
    tiles
}

fn charts(outcome: &Outcome) -> Vec<Chart> {
    let periods = condensed(&outcome.periods);
    let mut charts = vec![throughput(&periods), latencies(&periods)];
    let mut lines: Vec<(String, &crate::outcome::CommandTally)> = outcome
        .total
        .commands
        .iter()
        .map(|(&kind, figures)| (words::command(kind).to_owned(), figures))
        .collect();
    lines.truncate(6);
    let mut percentiles = parts::percentiles("Latency by percentile", &lines);
    if words::is_open(&outcome.scenario) {
        let service = parts::by_nines(&outcome.total.all().service_nanos);
        percentiles.series.push(Series::new("service time alone", service).dashed());
    }
    charts.push(percentiles);
    charts.push(cpu(&periods, outcome));
    charts.extend(hit_ratio(&periods));
    charts.extend(failures(&periods, &outcome.total));
    charts
}

fn middle(period: &Period) -> f64 {
    period.begins_secs + period.secs / 2.0
}

fn throughput(periods: &[Period]) -> Chart {
    let rate = |period: &Period, requests: u64| {
        (middle(period), requests as f64 / period.secs.max(f64::MIN_POSITIVE))
    };
    let mut kinds: Vec<_> = periods.iter().flat_map(|period| period.tally.commands.keys().copied()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let line = |&kind| {
        let requests =
            move |period: &Period| period.tally.commands.get(&kind).map_or(0, |figures| figures.requests);
        Series::new(words::command(kind), periods.iter().map(move |period| rate(period, requests(period))))
    };
    let mut series = Vec::new();
    if kinds.len() > 1 {
        let all = |period: &Period| period.tally.commands.values().map(|figures| figures.requests).sum();
        series.push(Series::new("all", periods.iter().map(|period| rate(period, all(period)))));
    }
    series.extend(kinds.iter().map(line));
    Chart { title: "Requests a second".into(), note: String::new(), x: TIME, y: RATE, series }
}

fn latencies(periods: &[Period]) -> Chart {
    let alls: Vec<_> =
        periods.iter().map(|period| (middle(period), period.tally.all().latency_nanos)).collect();
    let line = |name: &str, percentile: f64| {
        let answered = alls.iter().filter(|(_, nanos)| !nanos.is_empty());
        Series::new(
            name,
            answered.map(move |(at, nanos)| (*at, nanos.value_at_percentile(percentile) as f64)),
        )
    };
    let series = vec![line("p50", 50.0), line("p99", 99.0), line("p99.9", 99.9), line("max", 100.0)];
    Chart { title: "Latency over time".into(), note: String::new(), x: TIME, y: LATENCY, series }
}

fn cpu(periods: &[Period], outcome: &Outcome) -> Chart {
    let server = periods.iter().filter_map(|period| {
        Some((middle(period), period.server_cpu_secs? / period.secs.max(f64::MIN_POSITIVE)))
    });
    let mut series = vec![Series::new("server", server)];
    let secs = outcome.elapsed_secs.max(f64::MIN_POSITIVE);
    let client = outcome.client.cpu_secs / secs;
    series.push(Series::new("client, on average", [(0.0, client), (secs, client)]).dashed());
    series.retain(|series| !series.points.is_empty());
    Chart { title: "CPU, in cores".into(), note: String::new(), x: TIME, y: CORES, series }
}

/// Nothing unless keys were missed.
fn hit_ratio(periods: &[Period]) -> Option<Chart> {
    const RATIO: Axis = Axis { label: "hit ratio", kind: Kind::Linear, format: percent };
    let points: Vec<_> = periods
        .iter()
        .filter_map(|period| {
            let all = period.tally.all();
            let asked = all.hits + all.misses;
            (asked > 0).then(|| (middle(period), all.hits as f64 / asked as f64))
        })
        .collect();
    let (first, rest) = points.split_first()?;
    rest.iter().any(|point| point.1 != first.1).then(|| Chart {
        title: "Hit ratio".into(),
        note: String::new(),
        x: TIME,
        y: RATIO,
        series: vec![Series::new("found", points.clone())],
    })
}

/// Nothing unless something failed.
fn failures(periods: &[Period], total: &Tally) -> Option<Chart> {
    const COUNT: Axis =
        Axis { label: "failures", kind: Kind::FromZero, format: |number| count(number.round() as u64) };
    let kinds: BTreeMap<Failure, u64> = total
        .failures
        .iter()
        .filter(|&(_, &number)| number > 0)
        .map(|(&kind, &number)| (kind, number))
        .collect();
    let line = |&kind: &Failure| {
        let number =
            move |period: &Period| period.tally.failures.get(&kind).copied().unwrap_or_default() as f64;
        Series::new(
            words::failure(kind, 0),
            periods.iter().map(move |period| (middle(period), number(period))),
        )
    };
    (!kinds.is_empty()).then(|| Chart {
        title: "Failures in each period".into(),
        note: String::new(),
        x: TIME,
        y: COUNT,
        series: kinds.keys().map(line).collect(),
    })
}

/// Neighbouring periods added up until there are at most [`POINTS_MAX`]. So is a short rest at the end, whose rates
/// would be those of a few requests.
fn condensed(periods: &[Period]) -> Vec<Period> {
    const REST_MAX: f64 = 0.25;
    let step = periods.len().div_ceil(POINTS_MAX).max(1);
    let mut condensed: Vec<Period> = Vec::new();
    for (number, period) in periods.iter().enumerate() {
        let is_rest = number + 1 == periods.len() && period.secs < periods[0].secs * REST_MAX;
        match condensed.last_mut() {
            Some(sum) if is_rest || number % step > 0 => {
                sum.secs += period.secs;
                sum.tally.add(&period.tally);
                sum.server_cpu_secs = sum.server_cpu_secs.zip(period.server_cpu_secs).map(|(a, b)| a + b);
            }
            _ => condensed.push(period.clone()),
        }
    }
    condensed
}

fn tables(outcome: &Outcome) -> String {
    let open = words::is_open(&outcome.scenario);
    let mut html = String::from("<h2>By command</h2>\n");
    html += &parts::table(&table::throughput(&outcome.total, outcome.elapsed_secs));
    html += &format!("<h3>{}</h3>\n", sentence(words::latency_heading(open)));
    html += &parts::table(&table::latencies(&outcome.total, |figures| &figures.latency_nanos));
    if open {
        html += &format!("<h3>{}</h3>\n", sentence(words::SERVICE_HEADING));
        html += &parts::table(&table::latencies(&outcome.total, |figures| &figures.service_nanos));
    }
    html
}

fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn servers(outcome: &Outcome) -> String {
    let operations = if outcome.servers.len() == 1 { Some(outcome.total.operations()) } else { None };
    let mut html = String::from("<h2>What it cost</h2>\n");
    let mut costs: Vec<(&str, String)> = outcome
        .servers
        .iter()
        .map(|server| ("server", table::server_line(server, outcome.elapsed_secs, operations)))
        .collect();
    costs.push(("network", table::network_line(&outcome.total, outcome.elapsed_secs)));
    costs.push(("client", table::client_line(&outcome.client)));
    html += &parts::facts(&costs);
    for server in outcome.servers.iter().filter(|server| !server.stats_deltas.is_empty()) {
        let rows: String = server
            .stats_deltas
            .iter()
            .map(|(name, delta)| format!("<tr><td>{}</td><td>{delta:+}</td></tr>\n", escape(name)))
            .collect();
        html += &format!(
            "<details><summary>What changed in the stats of {}</summary>\n<div class=\"wide\"><table>\n{rows}</table></div></details>\n",
            escape(&server.address)
        );
    }
    html
}
