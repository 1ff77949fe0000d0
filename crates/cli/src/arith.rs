//! `larder incr` and `larder decr`: counters on a server.

use larder_client::client::StoreOutcome;
use larder_client::{Client, Error};

use crate::target::{Target, failure_about};
use crate::ttl::Ttl;
use crate::{Failure, output};

/// What to add, or subtract.
#[derive(clap::Args)]
pub(crate) struct Args {
    key: String,
    #[arg(default_value_t = 1)]
    delta: u64,
    /// Store this number if the key does not exist
    #[arg(long, value_name = "N")]
    initial: Option<u64>,
    /// Time to live of the number that --initial stores
    #[arg(long, value_name = "TIME", default_value = "0", requires = "initial")]
    ttl: Ttl,
    #[command(flatten)]
    target: Target,
}

/// Prints the new number.
pub(crate) fn run(tool: &str, args: &Args) -> Result<(), Failure> {
    let mut client = args.target.client()?;
    let number = match tool {
        "decr" => count(&mut client, args, |client| client.decr(&args.key, args.delta)),
        _ => count(&mut client, args, |client| client.incr(&args.key, args.delta)),
    };
    match number.map_err(|error| failure_about(&client, &args.key, &error))? {
        Some(number) => output::write(|out| writeln!(out, "{number}").map_err(Failure::of_output)),
        None => Err(Failure::Failed(format!("{}: not found", args.key))),
    }
}

/// Increments or decrements, or stores the initial number. The text protocol has no request for both, so another client
/// can store or delete the key in between; then it tries again.
fn count(
    client: &mut Client,
    args: &Args,
    step: impl Fn(&mut Client) -> Result<Option<u64>, Error>,
) -> Result<Option<u64>, Error> {
    loop {
        if let Some(number) = step(client)? {
            return Ok(Some(number));
        }
        let Some(initial) = args.initial else { return Ok(None) };
        if client.add(&args.key, initial.to_string(), args.ttl.exptime())? == StoreOutcome::Stored {
            return Ok(Some(initial));
        }
    }
}
