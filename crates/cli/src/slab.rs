//! `larder slab`: the memory classes of a server, in memcached-tool's form.

use std::collections::BTreeMap;
use std::io::{self, Write};

use larder_client::Server;
use serde_json::{Map, Value};

use crate::target::Target;
use crate::troubles::Troubles;
use crate::{Failure, output, parallel};

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
    let servers = target.servers()?;
    let mut troubles = Troubles::of("slab");
    let mut object = Map::new();
    let asked = parallel::map(servers, |server| classes(&target, server));
    for (server, classes) in servers.iter().zip(asked) {
        match classes {
            Ok(classes) if args.json => {
                object.insert(server.address.to_string(), json(classes));
            }
            Ok(classes) => output::write(|out| {
                if servers.len() > 1 {
                    writeln!(out, "{}", server.address).map_err(Failure::of_output)?;
                }
                display(out, &classes).map_err(Failure::of_output)
            })?,
            Err(failure) => troubles.add(failure),
        }
    }
    if args.json {
        output::write_json(&Value::Object(object))?;
    }
    troubles.end()
}

/// Asks one server for its slab classes.
fn classes(target: &Target, server: &Server) -> Result<Classes, Failure> {
    let mut client = target.client_of(std::slice::from_ref(server))?;
    let mut classes = Classes::new();
    for group in ["items", "slabs"] {
        for (address, stats) in client.stats(group) {
            for (name, value) in stats.map_err(|error| Failure::of(&address, &error))? {
                if let Some((class, name)) = split(&name) {
                    classes.entry(class).or_default().insert(name.to_owned(), value);
                }
            }
        }
    }
    Ok(classes)
}

fn json(classes: Classes) -> Value {
    let classes = classes.into_iter().map(|(class, stats)| {
        let stats = stats.into_iter().map(|(name, value)| (name, output::stat_value(&value)));
        (class.to_string(), Value::Object(stats.collect()))
    });
    Value::Object(classes.collect())
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
