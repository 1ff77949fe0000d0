//! What a terminal shows when a run is over.

use std::io::{self, Write};

use hdrhistogram::Histogram;

use super::columns::Columns;
use super::units::{count, duration, latency, memory, network, percent, short};
use super::words;
use crate::Outcome;
use crate::outcome::{ClientCost, CommandTally, ServerCost, Tally};

/// The percentiles that tables show, with their headings.
pub const PERCENTILES: [(f64, &str); 5] =
    [(50.0, "p50"), (90.0, "p90"), (99.0, "p99"), (99.9, "p99.9"), (99.99, "p99.99")];

/// The final tables.
pub fn print(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    heading(outcome, out)?;
    writeln!(out)?;
    throughput(&outcome.total, outcome.elapsed_secs).print(out)?;
    let open = words::is_open(&outcome.scenario);
    writeln!(out, "\n{}", words::latency_heading(open))?;
    latencies(&outcome.total, |figures| &figures.latency_nanos).print(out)?;
    if open {
        writeln!(out, "\n{}", words::SERVICE_HEADING)?;
        latencies(&outcome.total, |figures| &figures.service_nanos).print(out)?;
    }
    costs(outcome, out)?;
    verdict(outcome, out)
}

fn heading(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let scenario = &outcome.scenario;
    writeln!(out, "{}", words::title(outcome))?;
    let load = words::load(scenario, outcome.client.threads);
    writeln!(out, "{load}, {}", duration(outcome.elapsed_secs))
}

/// Rows of every command, and of all together if there are several.
fn rows(total: &Tally) -> Vec<(&'static str, CommandTally)> {
    let commands = total.commands.iter().filter(|(_, figures)| figures.requests > 0);
    let mut rows: Vec<_> = commands.map(|(&kind, figures)| (words::command(kind), figures.clone())).collect();
    if rows.len() != 1 {
        rows.push(("all", total.all()));
    }
    rows
}

/// Requests, keys and values of every command.
pub(super) fn throughput(total: &Tally, secs: f64) -> Columns {
    let per_sec = |number: u64| count((number as f64 / secs.max(f64::MIN_POSITIVE)).round() as u64);
    let mut columns =
        Columns::headed(&["", "requests", "/s", "keys/s", "hits", "misses", "hit ratio", "values"]);
    for (name, figures) in rows(total) {
        let asked = figures.hits + figures.misses;
        let if_asked = |cell: String| if asked > 0 { cell } else { "-".into() };
        columns.row(vec![
            name.into(),
            count(figures.requests),
            per_sec(figures.requests),
            per_sec(figures.keys),
            if_asked(count(figures.hits)),
            if_asked(count(figures.misses)),
            if_asked(percent(figures.hits as f64 / asked.max(1) as f64)),
            network(figures.value_bytes as f64 / secs.max(f64::MIN_POSITIVE)),
        ]);
    }
    columns
}

/// Mean, deviation and percentiles of one histogram of every command.
pub(super) fn latencies(total: &Tally, histogram: impl Fn(&CommandTally) -> &Histogram<u64>) -> Columns {
    let mut heading = vec!["", "mean", "sd", "min"];
    heading.extend(PERCENTILES.map(|(_, name)| name));
    heading.push("max");
    let mut columns = Columns::headed(&heading);
    for (name, figures) in rows(total) {
        let nanos = histogram(&figures);
        if nanos.is_empty() {
            continue;
        }
        let mut cells = vec![name.to_owned()];
        cells.extend([nanos.mean(), nanos.stdev(), nanos.min() as f64].map(latency));
        cells
            .extend(PERCENTILES.map(|(percentile, _)| latency(nanos.value_at_percentile(percentile) as f64)));
        cells.push(latency(nanos.max() as f64));
        columns.row(cells);
    }
    columns
}

fn costs(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let secs = outcome.elapsed_secs;
    writeln!(out, "\nnetwork  {}", network_line(&outcome.total, secs))?;
    let operations = if outcome.servers.len() == 1 { Some(outcome.total.operations()) } else { None };
    for server in &outcome.servers {
        writeln!(out, "server   {}", server_line(server, secs, operations))?;
    }
    writeln!(out, "client   {}", client_line(&outcome.client))
}

/// What went over the network, in a line.
pub(super) fn network_line(total: &Tally, secs: f64) -> String {
    let rate = |bytes: u64| network(bytes as f64 / secs.max(f64::MIN_POSITIVE));
    let mut parts = vec![format!("{} sent, {} received", rate(total.sent_bytes), rate(total.received_bytes))];
    let counts = [
        (total.connect_retries, "attempt", "to connect repeated"),
        (total.reconnects, "connection", "opened again"),
        (total.datagrams_lost, "datagram", "without an answer"),
        (total.datagrams_disordered, "datagram", "out of order"),
        (total.sent_late, "request", "sent late, as no connection was free"),
        (total.client_late, "request", "sent late by the load itself"),
        (total.unsent, "request", "never sent"),
    ];
    let counts = counts.into_iter().filter(|&(number, ..)| number > 0);
    parts.extend(counts.map(|(number, noun, what)| {
        format!("{} {noun}{} {what}", count(number), if number == 1 { "" } else { "s" })
    }));
    parts.join(", ")
}

/// What asking cost, in a line.
pub(super) fn client_line(client: &ClientCost) -> String {
    let (cpu, busiest) = (duration(client.cpu_secs), percent(client.busiest_thread_share));
    let mut line = format!("{cpu} of CPU, busiest thread {busiest}");
    if let Some(floor) = client.floor_requests_per_sec {
        line += &format!("; could have asked {}/s of a server that does no work", short(floor));
    }
    line
}

/// What a server used, in a line. `operations`: all that it did, where that is known.
pub(super) fn server_line(server: &ServerCost, secs: f64, operations: Option<u64>) -> String {
    let mut parts = vec![server.address.clone()];
    if !server.software.is_empty() {
        parts[0] += &format!(" ({})", server.software);
    }
    if let (Some(user), Some(system)) = (server.cpu_user_secs, server.cpu_system_secs) {
        let cpu = user + system;
        parts.push(format!("{} of CPU ({user:.2} user + {system:.2} system)", duration(cpu)));
        parts.push(format!("{} of a core", percent(cpu / secs.max(f64::MIN_POSITIVE))));
        if let Some(operations) = operations.filter(|&operations| operations > 0) {
            parts.push(format!("{} per operation", latency(cpu * 1e9 / operations as f64)));
        }
    }
    parts.extend(server.resident_bytes.map(|bytes| format!("{} resident", memory(bytes as f64))));
    let evictions = server.stats_deltas.get("evictions").filter(|&&evictions| evictions > 0.0);
    parts.extend(evictions.map(|&evictions| format!("{} evictions", count(evictions as u64))));
    parts.extend(server.unwatched.clone());
    parts.join(", ")
}

/// What was checked, what failed and what is to be doubted. Last, so that nobody has to scroll for it.
fn verdict(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let total = &outcome.total;
    if total.verified + total.expiry_verified > 0 {
        let (values, expiries) = (count(total.verified), count(total.expiry_verified));
        writeln!(out, "checked  {values} values, {expiries} expiries")?;
    }
    if outcome.scenario.truth.compare_replicas {
        writeln!(out, "compared {} keys between replicas", count(total.compared))?;
    }
    for warning in words::warnings(outcome) {
        writeln!(out, "\nWARNING: {warning}")?;
    }
    if total.has_failed() {
        writeln!(out, "\nFAILED: {}", words::failures(total))?;
        for example in &total.examples {
            writeln!(out, "  {example}")?;
        }
    }
    Ok(())
}
