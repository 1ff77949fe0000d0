//! `larder hotkeys`: the keys that are asked for most.
//!
//! | module | contents |
//! |---|---|
//! | [`sample`] | counts of the keys of a server's events |

pub(crate) mod sample;

use std::thread;
use std::time::{Duration, Instant};

use larder_bench::report::columns::Columns;
use larder_bench::report::units::{count, duration, percent, short};
use serde_json::{Map, Value, json};

use crate::target::Target;
use crate::troubles::Troubles;
use crate::{Failure, output};
use sample::{Hot, Kind, Sample};

const AFTER_HELP: &str = "\
The keys are taken from the events of `watch`, which larderd and memcached send without waiting for the reader: under high load
they leave events out, and the shares are those of a sample. Watching costs the server time for each request.";

/// Show the keys that are asked for most
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Servers, instead of --servers
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
    /// An array of objects
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
    let samples: Vec<Sample> = thread::scope(|scope| {
        let servers = target.servers()?.iter();
        let taken: Vec<_> = servers
            .map(|server| {
                let target = &target;
                scope.spawn(move || Sample::take(target, &server.address, kind, end))
            })
            .collect();
        let taken = taken.into_iter().filter_map(|thread| match thread.join() {
            Ok(Ok(sample)) => Some(sample),
            Ok(Err(failure)) => {
                troubles.add(failure);
                None
            }
            Err(_) => None,
        });
        Ok::<_, Failure>(taken.collect())
    })?;
    let sample = Sample::sum(&samples);
    let hot = sample.hot(args.top);
    if args.json {
        output::write_json(&Value::Array(hot.iter().map(object).collect()))?;
    } else if !samples.is_empty() {
        print(&sample, &hot, begun.elapsed().as_secs_f64())?;
    }
    troubles.end()
}

fn print(sample: &Sample, hot: &[Hot], secs: f64) -> Result<(), Failure> {
    let what = sample.kind.noun();
    let mut table = Columns::headed(&["KEY", &format!("{what}/s"), "SHARE"]);
    for Hot { key, per_sec, share } in hot {
        let per_sec = per_sec.map_or_else(|| "-".to_owned(), short);
        table.row(vec![output::readable(key), per_sec, percent(*share)]);
    }
    output::write(|out| {
        let (seen, time) = (count(sample.events), duration(secs));
        let skipped = match sample.skipped {
            0 => String::new(),
            skipped => format!(" ({} more were skipped)", count(skipped)),
        };
        let printed = writeln!(out, "{seen} {what} in {time}{skipped}")
            .and_then(|()| if hot.is_empty() { Ok(()) } else { table.print(out) });
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
