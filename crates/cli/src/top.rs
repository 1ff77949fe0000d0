//! `larder top`: a live view of a fleet.
//!
//! | module | contents |
//! |---|---|
//! | [`hot`] | the hot keys of the fleet, while they are shown |
//! | [`sample`] | statistics of a server, and rates between two samples |
//! | [`table`] | columns, order, text |
//! | [`screen`] | the terminal |

mod hot;
mod sample;
mod screen;
mod table;

use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::target::Target;
use crate::troubles::Troubles;
use crate::{Failure, output};
use sample::Fleet;
use table::Column;

const AFTER_HELP: &str = "\
On the screen: < and > choose the column to sort by, r reverses the order, k shows hot keys, ? explains, q quits.
With --once: two samples, one interval apart, then a table for scripts. Exit code 69: a server does not answer.";

/// Watch a fleet of servers: rates, hit ratio, evictions, memory
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Servers, instead of --servers
    #[arg(conflicts_with = "servers")]
    host: Option<String>,
    /// Seconds between two samples
    #[arg(short, long, value_name = "SECS", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=3600))]
    interval: u16,
    /// Sort by this column
    #[arg(long, value_enum, default_value_t)]
    sort: Column,
    /// Print the table once, without a screen
    #[arg(long)]
    once: bool,
    /// With --once: print an array of objects
    #[arg(long, requires = "once")]
    json: bool,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let target = args.target.or(args.host.as_deref())?;
    let interval = Duration::from_secs(args.interval.into());
    let mut fleet = Fleet::of(&target)?;
    if !args.once {
        return screen::watch(&mut fleet, &target, interval, args.sort);
    }
    fleet.look();
    thread::sleep(interval);
    let mut rates = fleet.look();
    table::sort(&mut rates, args.sort, false);
    if args.json {
        output::write_json(&Value::Array(rates.iter().map(table::json).collect()))?;
    } else {
        output::write(|out| table::print(out, &rates).map_err(Failure::of_output))?;
    }
    let mut troubles = Troubles::of("top");
    rates.into_iter().filter_map(|server| server.trouble).for_each(|failure| troubles.add(failure));
    troubles.end()
}
