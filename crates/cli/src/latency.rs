//! `larder latency`: how long servers take for requests.

use std::thread;
use std::time::{Duration, Instant};

use larder_bench::report::columns::Columns;
use larder_bench::report::units::{count, duration, latency};
use larder_client::{Client, Server};
use serde_json::{Map, Value, json};

use crate::service_times::{self, ByCommand, ServiceTimes};
use crate::target::Target;
use crate::troubles::Troubles;
use crate::{Failure, output};

const AFTER_HELP: &str = "\
larderd reports service times by command and transport: from reading the last byte of a request until its reply is ready.
memcached reports none: for it, `larder` measures requests for the version from here, so the network is part of the time.";

/// Show how long servers take for requests: percentiles by command
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Servers, instead of --servers
    host: Option<String>,
    /// Count only the requests of so many seconds from now, instead of all since the server's start
    #[arg(short, long, value_name = "SECS")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    interval: Option<u64>,
    /// An object for each server; times in nanoseconds
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
    RoundTrips(ServiceTimes),
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let target = args.target.or(args.host.as_deref())?;
    let interval = args.interval.map(Duration::from_secs);
    let servers = target.servers()?;
    let mut troubles = Troubles::of("latency");
    let measured: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = servers
            .iter()
            .map(|server| {
                let target = &target;
                scope.spawn(move || measure(target, server, interval))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(Err(Failure::Reported))).collect()
    });
    let mut objects = Map::new();
    for (server, times) in servers.iter().zip(measured) {
        match times {
            Ok(times) if args.json => {
                objects.insert(server.address.to_string(), object(&times));
            }
            Ok(times) => print(server, &times, interval)?,
            Err(failure) => troubles.add(failure),
        }
    }
    if args.json {
        output::write_json(&Value::Object(objects))?;
    }
    troubles.end()
}

fn measure(target: &Target, server: &Server, interval: Option<Duration>) -> Result<Times, Failure> {
    let mut client = target.client_of(std::slice::from_ref(server))?;
    let Some(before) = read(&mut client, server)? else {
        return round_trips(&mut client, server, interval.unwrap_or(PROBES_DURATION)).map(Times::RoundTrips);
    };
    let Some(interval) = interval else { return Ok(Times::Service(before)) };
    thread::sleep(interval);
    let mut after = read(&mut client, server)?.unwrap_or_default();
    for (command, times) in &mut after {
        if let Some(before) = before.get(command) {
            *times = times.since(before);
        }
    }
    Ok(Times::Service(after))
}

/// The service times of larderd. `None`: another server, or larderd with `no_latency_histograms`.
fn read(client: &mut Client, server: &Server) -> Result<Option<ByCommand>, Failure> {
    match client.stats("latency").pop() {
        Some((_, Ok(stats))) => Ok(service_times::by_command(&stats)),
        Some((_, Err(larder_client::Error::Refused { kind, .. })))
            if kind != larder_client::codec::ErrorKind::Unauthenticated =>
        {
            Ok(None)
        }
        Some((_, Err(error))) => Err(Failure::of(&server.address, &error)),
        None => Ok(None),
    }
}

/// Asks for the version again and again over one connection.
fn round_trips(client: &mut Client, server: &Server, time: Duration) -> Result<ServiceTimes, Failure> {
    let mut times = ServiceTimes::default();
    let end = Instant::now() + time;
    let mut is_connected = false;
    while Instant::now() < end {
        let begun = Instant::now();
        for (_, answer) in client.version() {
            answer.map_err(|error| Failure::of(&server.address, &error))?;
        }
        // The first one connects.
        if std::mem::replace(&mut is_connected, true) {
            times.record(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        thread::sleep(PROBE_GAP);
    }
    Ok(times)
}

fn print(server: &Server, times: &Times, interval: Option<Duration>) -> Result<(), Failure> {
    let heading = match (times, interval) {
        (Times::RoundTrips(_), _) => "no service times: round trips measured from here".to_owned(),
        (Times::Service(_), None) => "service times since the server's start".to_owned(),
        (Times::Service(_), Some(interval)) => {
            format!("service times of {}", duration(interval.as_secs_f64()))
        }
    };
    let mut table =
        Columns::headed(&["COMMAND", "TRANSPORT", "REQUESTS", "MEAN", "P50", "P90", "P99", "P99.9", "MAX"]);
    for (command, transport, times) in rows(times) {
        let figures =
            [times.mean_nanos()].into_iter().chain(QUANTILES.map(|(_, share)| times.quantile_nanos(share)));
        let mut cells = vec![command, transport, count(times.requests())];
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
        row.insert("requests".into(), json!(times.requests()));
        row.insert("mean_nanos".into(), json!(times.mean_nanos()));
        for (name, share) in QUANTILES {
            row.insert(format!("{name}_nanos"), json!(times.quantile_nanos(share)));
        }
        Value::Object(row)
    });
    let is_measured_here = matches!(times, Times::RoundTrips(_));
    json!({"measured_from_here": is_measured_here, "commands": rows.collect::<Vec<_>>()})
}

/// Command, transport, times.
fn rows(times: &Times) -> Vec<(String, String, ServiceTimes)> {
    match times {
        Times::Service(by_command) => by_command
            .iter()
            .filter(|(_, times)| times.requests() > 0)
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
