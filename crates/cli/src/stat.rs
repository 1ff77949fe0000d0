//! `larder stat`: statistics of servers, as memstat prints them.

use larder_client::Address;
use serde_json::{Map, Value};

use crate::output::readable;
use crate::target::{Target, answers};
use crate::{Failure, output};

const GROUPS: &str = "Groups: general (without a name), settings, items, slabs, sizes, conns, `cachedump CLASS COUNT` \
                      (keys of a class, each with its size and when it expires), `detail on`, `detail dump`, `detail off` \
                      (requests by prefix of their keys), and whatever else the server knows.";

/// Print the statistics of every server
///
/// In the form of libmemcached's memstat.
#[derive(clap::Args)]
#[command(after_help = GROUPS)]
pub(crate) struct Args {
    /// The group of statistics
    #[arg(value_name = "GROUP")]
    group: Vec<String>,
    /// Only those whose name contains this
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,
    /// Print an object for each server, with numbers as numbers
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let group = match &args.group.join(" ")[..] {
        "general" => String::new(),
        group => group.to_owned(),
    };
    // `stats reset` changes the counters for everybody, so a tool that displays them refuses it.
    if group.bytes().any(|byte| byte.is_ascii_control()) || group == "reset" {
        return Err(Failure::Usage(format!("{group:?} is no group of statistics")));
    }
    let mut object = Map::new();
    let result = answers("stat", args.target.client()?.stats(&group), |address, mut stats| {
        stats.retain(|(name, _)| args.grep.as_ref().is_none_or(|part| name.contains(part)));
        if args.json {
            let stats = stats.iter().map(|(name, value)| (name.clone(), output::stat_value(value)));
            object.insert(address.to_string(), Value::Object(stats.collect()));
            return Ok(());
        }
        output::write(|out| {
            writeln!(out, "Server: {}", heading(address)).map_err(Failure::of_output)?;
            stats
                .iter()
                .try_for_each(|(name, value)| {
                    writeln!(out, "\t{}: {}", readable(name.as_bytes()), readable(value.as_bytes()))
                })
                .map_err(Failure::of_output)
        })
    });
    if args.json {
        output::write_json(&Value::Object(object))?;
    }
    result
}

/// A server's name and port.
fn heading(address: &Address) -> String {
    match address {
        Address::Inet { host, port } => format!("{host} ({port})"),
        Address::Unix(path) => format!("{} (0)", path.display()),
    }
}
