//! `larder version`: versions of servers.

use serde_json::{Map, Value};

use crate::target::{Target, answers};
use crate::{Failure, output};

/// Print the version of every server
///
/// `larder --version` prints the version of larder itself.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print an object: versions by server
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut object = Map::new();
    let result = answers("version", args.target.client()?.version(), |address, version| {
        if args.json {
            object.insert(address.to_string(), version.into());
            return Ok(());
        }
        let version = output::readable(version.as_bytes());
        output::write(|out| writeln!(out, "{address} {version}").map_err(Failure::of_output))
    });
    if args.json {
        output::write_json(&Value::Object(object))?;
    }
    result
}
