//! `larder slab`: the memory classes of a server, in memcached-tool's form.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Map, Value};

use crate::target::{Target, answers};
use crate::{Failure, output};

/// Show the slab classes of a server, as memcached-tool does
///
/// larderd has no slab classes: 1 is its small queue, 2 its main queue, 3 large values.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Servers, instead of --servers
    #[arg(conflicts_with = "servers")]
    host: Option<String>,
    /// Print an object for each server: all statistics of each class
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// Statistics by class and name.
type Classes = BTreeMap<u32, BTreeMap<String, String>>;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let target = args.target.or(args.host.as_deref())?;
    let mut object = Map::new();
    let mut client = target.client()?;
    let mut by_server = BTreeMap::<String, Classes>::new();
    for group in ["items", "slabs"] {
        answers("slab", client.stats(group), |address, stats| {
            let classes = by_server.entry(address.to_string()).or_default();
            for (name, value) in stats {
                if let Some((class, name)) = split(&name) {
                    classes.entry(class).or_default().insert(name.to_owned(), value);
                }
            }
            Ok(())
        })?;
    }
    let is_alone = by_server.len() == 1;
    for (server, classes) in by_server {
        if args.json {
            let classes = classes.into_iter().map(|(class, stats)| {
                let stats = stats.into_iter().map(|(name, value)| (name, output::stat_value(&value)));
                (class.to_string(), Value::Object(stats.collect()))
            });
            object.insert(server, Value::Object(classes.collect()));
            continue;
        }
        output::write(|out| {
            if !is_alone {
                writeln!(out, "{server}").map_err(Failure::of_output)?;
            }
            display(out, &classes).map_err(Failure::of_output)
        })?;
    }
    if args.json {
        output::write_json(&Value::Object(object))?;
    }
    Ok(())
}

/// The class and the name in `items:5:number` of `stats items`, or `5:total_pages` of `stats slabs`.
fn split(name: &str) -> Option<(u32, &str)> {
    let (class, name) = name.strip_prefix("items:").unwrap_or(name).split_once(':')?;
    Some((class.parse().ok()?, name))
}

/// In memcached-tool's columns.
fn display(out: &mut dyn Write, classes: &Classes) -> io::Result<()> {
    writeln!(out, "  #  Item_Size  Max_age   Pages   Count   Full?  Evicted Evict_Time OOM")?;
    for (class, stats) in classes {
        let stat = |name: &str| stats.get(name).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
        if stat("total_pages") == 0 {
            continue;
        }
        let size = match stat("chunk_size") {
            bytes @ ..1024 => format!("{bytes}B"),
            bytes => format!("{:.1}K", bytes as f64 / 1024.0),
        };
        let full = if stat("used_chunks") == stat("total_chunks") { "yes" } else { " no" };
        writeln!(
            out,
            "{class:>3} {size:>8} {:>9}s {:>7} {:>7} {full:>7} {:>8} {:>8} {:>4}",
            stat("age"),
            stat("total_pages"),
            stat("number"),
            stat("evicted"),
            stat("evicted_time"),
            stat("outofmemory"),
        )?;
    }
    Ok(())
}
