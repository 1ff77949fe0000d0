//! `larder ping`: whether servers answer, and how fast.

use std::time::{Duration, Instant};

use larder_client::{Address, Client};
use serde_json::{Value, json};

use crate::target::Target;
use crate::troubles::Troubles;
use crate::{Failure, output};

/// Test whether every server answers
///
/// Prints how long the answer took, over an open connection. Exit code 69: a server does not answer.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print an array of objects
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut troubles = Troubles::of("ping");
    let mut objects = Vec::new();
    for server in args.target.servers()? {
        let mut client = args.target.client_of(std::slice::from_ref(server))?;
        // The first request connects.
        let pinged =
            round_trip(&mut client, &server.address).and_then(|_| round_trip(&mut client, &server.address));
        match pinged {
            Ok(time) if args.json => {
                let micros = time.as_nanos() as f64 / 1e3;
                objects.push(json!({"server": server.address.to_string(), "answer_micros": micros}));
            }
            Ok(time) => output::write(|out| {
                let millis = time.as_secs_f64() * 1000.0;
                writeln!(out, "{}: {millis:.3} ms", server.address).map_err(Failure::of_output)
            })?,
            Err(failure) => {
                objects.push(json!({"server": server.address.to_string(), "answer_micros": null}));
                troubles.add(failure);
            }
        }
    }
    if args.json {
        output::write_json(&Value::Array(objects))?;
    }
    troubles.end()
}

/// The time that a client's only server took to tell its version.
pub(crate) fn round_trip(client: &mut Client, address: &Address) -> Result<Duration, Failure> {
    let start = Instant::now();
    for (_, answer) in client.version() {
        answer.map_err(|error| Failure::of(address, &error))?;
    }
    Ok(start.elapsed())
}
