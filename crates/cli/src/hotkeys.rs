//! `larder hotkeys`: the keys that are asked for most.
//!
//! | module | contents |
//! |---|---|
//! | [`sample`] | counts of the keys of a server's events |

pub(crate) mod sample;

use std::time::{Duration, Instant};

use larder_bench::report::columns::Columns;
use larder_bench::report::units::{count, duration, percent, short};
use serde_json::{Map, Value, json};

use crate::target::Target;
use crate::troubles::Troubles;
use crate::{Failure, output, parallel};
use sample::{Hot, Kind, Sample, Sum};

const AFTER_HELP: &str = "\
The keys are taken from the events of `watch`, which larderd and memcached send
without waiting for the reader: under high load they leave events out, and the
shares are those of a sample. Watching costs the server time for each request.";

/// Show the keys that are asked for most
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Servers, instead of --servers
    #[arg(conflicts_with = "servers")]
    host: Option<String>,
    /// Count for so many seconds
    #[arg(long, value_name = "SECS", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    secs: u64,
    /// Number of keys to show
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Count stores instead of look-ups
    #[arg(long)]
    stores: bool,
    /// Print an array of objects
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let target = args.target.or(args.host.as_deref())?;
    let kind = if args.stores { Kind::Stores } else { Kind::Lookups };
    let begun = Instant::now();
    let end = begun + Duration::from_secs(args.secs);
    let mut troubles = Troubles::of("hotkeys");
    let mut samples = Vec::new();
    for taken in parallel::map(target.servers()?, |server| Sample::take(&target, &server.address, kind, end))
    {
        match taken {
            Ok(sample) => samples.push(sample),
            Err(failure) => troubles.add(failure),
        }
    }
    let sum = Sum::of(samples.iter(), args.top);
    if args.json {
        output::write_json(&Value::Array(sum.hot.iter().map(object).collect()))?;
    } else if !samples.is_empty() {
        print(&sum, kind.noun(), begun.elapsed().as_secs_f64())?;
    }
    troubles.end()
}

fn print(sum: &Sum, what: &str, secs: f64) -> Result<(), Failure> {
    let mut table = Columns::headed(&["KEY", &format!("{what}/s"), "SHARE"]);
    for Hot { key, per_sec, share } in &sum.hot {
        let per_sec = per_sec.map_or_else(|| "-".to_owned(), short);
        table.row(vec![output::readable(key), per_sec, percent(*share)]);
    }
    output::write(|out| {
        let (seen, time) = (count(sum.events), duration(secs));
        let skipped = match sum.skipped {
            0 => String::new(),
            skipped => format!(" ({} more were skipped)", count(skipped)),
        };
        let printed = writeln!(out, "{seen} {what} in {time}{skipped}")
            .and_then(|()| if sum.hot.is_empty() { Ok(()) } else { table.print(out) });
        printed.map_err(Failure::of_output)
    })
}

fn object(hot: &Hot) -> Value {
    let mut object = Map::new();
    output::insert_bytes(&mut object, "key", &hot.key);
    object.insert("share".into(), json!(hot.share));
    object.insert("per_sec".into(), json!(hot.per_sec));
    Value::Object(object)
}
