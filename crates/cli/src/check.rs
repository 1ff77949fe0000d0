//! `larder check`: verifies a store, and repairs it.

use std::path::PathBuf;

use larder_store::Error;
use larder_store::files::DiskFiles;

use crate::failure::EXIT_DATA;
use crate::{Failure, output};

const NOTE: &str = "Exit codes: 0, the store is whole (or was repaired: what that lost is printed); 65, it is damaged; \
                    1, it cannot be read, or a server has it open.";

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
            "{name}: {} files, {} records, {} bytes",
            report.segments, report.records, report.bytes
        ))?;
        for damage in &report.damages {
            say(&format!("damaged: {}, byte {}: {}", damage.file, damage.offset, damage.what))?;
        }
        for lost in &report.lost {
            say(&format!("lost: {lost}"))?;
        }
        say(match (report.damages.is_empty(), report.is_repaired) {
            (true, _) => "The store is whole.",
            (false, true) => "The store is repaired, and can be opened.",
            (false, false) => "The store is damaged; --repair cuts out what is broken.",
        })
    })?;
    if report.damages.is_empty() || report.is_repaired { Ok(()) } else { Err(Failure::Reported(EXIT_DATA)) }
}
