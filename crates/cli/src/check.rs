//! `larder check`: verifies a store, and repairs it.

use std::path::PathBuf;

use larder_store::Error;
use larder_store::files::DiskFiles;

use crate::failure::EXIT_DATA;
use crate::{Failure, output};

const NOTE: &str = "Exit codes: 0, the store is whole (or was repaired: what that lost is printed); 65, it is damaged; \
                    1, it cannot be read, or a server has it open.\n\n\
                    A record is an entry of the log: a stored or deleted item, a flush, a mark of what was made \
                    durable, the end of a file. Cleaning removes those that newer ones replace, so there are more \
                    records than items; `larder stat store` counts items.";

const LOST_MANIFEST: &str = "\
The store is damaged; --repair makes a new MANIFEST of the whole records in its segments:
  kept: items with values, flags, times to live and CAS values
  lost: records that cannot be read; flushes older than the segments that are left, so that items may be back
        that were flushed; the highest CAS value of items that are gone";

/// Verify every checksum of a store
///
/// Needs no server: stop the one that has the store open, or check a backup that was restored.
#[derive(clap::Args)]
#[command(after_help = NOTE)]
pub(crate) struct Args {
    /// The directory of `larderd --store`
    #[arg(value_name = "DIR")]
    store: PathBuf,
    /// Cut out what is broken, and say what is lost; damaged files are kept as damaged-...
    #[arg(long)]
    repair: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let name = args.store.display();
    if !args.store.is_dir() {
        return Err(Failure::Failed(format!("{name}: there is no such directory")));
    }
    let failed = |error: Error| Failure::Failed(format!("{name}: {error}"));
    let files = DiskFiles::open(&args.store).map_err(|error| Failure::Failed(format!("{name}: {error}")))?;
    let report = larder_store::check(&files, args.repair).map_err(failed)?;
    output::write(|out| {
        let mut say = |line: &str| writeln!(out, "{line}").map_err(Failure::of_output);
        say(&format!(
            "{name}: {} files, {} records (of items, also replaced and deleted ones, and marks), {} bytes",
            report.segments, report.records, report.bytes
        ))?;
        for tail in &report.dropped {
            say(&format!(
                "{}: {} bytes behind byte {} are no whole change, as a crash leaves them; larderd drops them when it \
                 starts",
                tail.file, tail.bytes, tail.offset
            ))?;
        }
        for damage in &report.damages {
            say(&format!("damaged: {}, byte {}: {}", damage.file, damage.offset, damage.what))?;
        }
        for lost in &report.lost {
            say(&format!("lost: {lost}"))?;
        }
        say(match (report.damages.is_empty(), report.is_repaired) {
            (true, _) => "The store is whole.",
            (false, true) => "The store is repaired, and can be opened.",
            (false, false) if report.has_lost_manifest => LOST_MANIFEST,
            (false, false) => "The store is damaged; --repair cuts out what is broken.",
        })
    })?;
    if report.damages.is_empty() || report.is_repaired { Ok(()) } else { Err(Failure::Reported(EXIT_DATA)) }
}
