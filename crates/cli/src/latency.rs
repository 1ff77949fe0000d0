//! `larder latency`: how long servers take for requests.

use std::thread;
use std::time::{Duration, Instant};

use larder_bench::report::columns::Columns;
use larder_bench::report::units::{count, duration, latency};
use larder_client::{Client, Server};
use larder_measure::Snapshot;
use serde_json::{Map, Value, json};

use crate::ping::round_trip;
use crate::service_times::{self, ByCommand};
use crate::target::Target;
use crate::troubles::Troubles;
use crate::{Failure, output, parallel};

const AFTER_HELP: &str = "\
larderd reports service times by command and transport: from reading the last
byte of a request until its reply is ready. memcached reports none: for it,
`larder` measures requests for the version from here, so the network is part of
the time.";

/// Show how long servers take for requests: percentiles by command
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Servers, instead of --servers
    #[arg(conflicts_with = "servers")]
    host: Option<String>,
    /// Count only the requests of so many seconds from now, instead of all since the server's start
    #[arg(long, short = 'i', alias = "interval", value_name = "SECS")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    secs: Option<u64>,
    /// Print an object for each server; times in microseconds
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// The times of a server.
enum Times {
    /// Its own, by command and transport.
    Service(ByCommand),
    /// Round trips measured from here.
    RoundTrips(Snapshot),
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let target = args.target.or(args.host.as_deref())?;
    let span = args.secs.map(Duration::from_secs);
    let servers = target.servers()?;
    let mut troubles = Troubles::of("latency");
    let measured = parallel::map(servers, |server| measure(&target, server, span));
    let mut objects = Map::new();
    for (server, times) in servers.iter().zip(measured) {
        match times {
            Ok(times) if args.json => {
                objects.insert(server.address.to_string(), object(&times));
            }
            Ok(times) => print(server, &times, span)?,
            Err(failure) => troubles.add(failure),
        }
    }
    if args.json {
        output::write_json(&Value::Object(objects))?;
    }
    troubles.end()
}

fn measure(target: &Target, server: &Server, span: Option<Duration>) -> Result<Times, Failure> {
    let mut client = target.client_of(std::slice::from_ref(server))?;
    let Some(before) = service_times::read(&mut client, &server.address)? else {
        return round_trips(&mut client, server, span.unwrap_or(PROBES_DURATION)).map(Times::RoundTrips);
    };
    let Some(span) = span else { return Ok(Times::Service(before)) };
    thread::sleep(span);
    let mut after = service_times::read(&mut client, &server.address)?.unwrap_or_default();
    for (command, times) in &mut after {
        if let Some(before) = before.get(command) {
            *times = service_times::since(times, before);
        }
    }
    Ok(Times::Service(after))
}

/// Asks for the version again and again over one connection.
fn round_trips(client: &mut Client, server: &Server, time: Duration) -> Result<Snapshot, Failure> {
    let mut times = Snapshot::new();
    // The first one connects.
    round_trip(client, &server.address)?;
    let end = Instant::now() + time;
    while Instant::now() < end {
        let nanos = u64::try_from(round_trip(client, &server.address)?.as_nanos()).unwrap_or(u64::MAX);
        times.add_count(nanos, 1);
        times.add_sum_nanos(nanos);
        thread::sleep(PROBE_GAP);
    }
    Ok(times)
}

fn print(server: &Server, times: &Times, span: Option<Duration>) -> Result<(), Failure> {
    let heading = match (times, span) {
        (Times::RoundTrips(_), _) => "no service times: round trips measured from here".to_owned(),
        (Times::Service(_), None) => "service times since the server's start".to_owned(),
        (Times::Service(_), Some(span)) => format!("service times of {}", duration(span.as_secs_f64())),
    };
    let mut table =
        Columns::headed(&["COMMAND", "TRANSPORT", "REQUESTS", "MEAN", "P50", "P90", "P99", "P99.9", "MAX"]);
    for (command, transport, times) in rows(times) {
        let quantiles = QUANTILES.map(|(_, share)| times.quantile_nanos(share).map(|nanos| nanos as f64));
        let figures = [service_times::mean_nanos(&times)].into_iter().chain(quantiles);
        let [command, transport] = [command, transport].map(|word| output::readable(word.as_bytes()));
        let mut cells = vec![command, transport, count(times.count())];
        cells.extend(figures.map(|nanos| nanos.map_or_else(|| "-".to_owned(), latency)));
        table.row(cells);
    }
    output::write(|out| {
        writeln!(out, "{}: {heading}", server.address)
            .and_then(|()| table.print(out))
            .map_err(Failure::of_output)
    })
}

fn object(times: &Times) -> Value {
    let rows = rows(times).into_iter().map(|(command, transport, times)| {
        let mut row = Map::new();
        row.insert("command".into(), json!(command));
        row.insert("transport".into(), json!(transport));
        row.insert("requests".into(), json!(times.count()));
        let micros = |nanos: Option<f64>| json!(nanos.map(|nanos| nanos / 1e3));
        row.insert("mean_micros".into(), micros(service_times::mean_nanos(&times)));
        for (name, share) in QUANTILES {
            let nanos = times.quantile_nanos(share).map(|nanos| nanos as f64);
            row.insert(format!("{name}_micros"), micros(nanos));
        }
        Value::Object(row)
    });
    let source = match times {
        Times::Service(_) => "server",
        Times::RoundTrips(_) => "client",
    };
    json!({"source": source, "commands": rows.collect::<Vec<_>>()})
}

/// Command, transport, times.
fn rows(times: &Times) -> Vec<(String, String, Snapshot)> {
    match times {
        Times::Service(by_command) => by_command
            .iter()
            .filter(|(_, times)| times.count() > 0)
            .map(|((command, transport), times)| (command.clone(), transport.clone(), times.clone()))
            .collect(),
        Times::RoundTrips(times) => vec![("version".to_owned(), "-".to_owned(), times.clone())],
    }
}

const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)];
const PROBES_DURATION: Duration = Duration::from_secs(1);
/// Between two probes, so that they are no load.
const PROBE_GAP: Duration = Duration::from_millis(1);
