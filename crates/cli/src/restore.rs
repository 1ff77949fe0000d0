//! `larder restore`: makes a store of a backup.

use std::path::PathBuf;

use larder_store::Error;
use larder_store::files::{DiskFiles, Files};

use crate::{Failure, output};

/// Make a store of a backup, for `larderd --store`
///
/// Needs no server. Nothing is written to a directory that has a store already.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The backup to restore, then those that it follows (--since), in any order
    #[arg(value_name = "BACKUP", required = true)]
    backups: Vec<PathBuf>,
    /// The directory of the new store
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let opened: Vec<DiskFiles> = args.backups.iter().map(open).collect::<Result<_, _>>()?;
    let backups: Vec<&dyn Files> = opened.iter().map(|files| files as &dyn Files).collect();
    let to = args.to.display();
    let target = DiskFiles::open(&args.to).map_err(|error| Failure::Failed(format!("{to}: {error}")))?;
    let manifest = larder_store::restore(&backups, &target).map_err(|error| match error {
        Error::Corrupt { file, offset, what } => Failure::Data(format!("{file}, byte {offset}: {what}")),
        Error::Invalid { what } => Failure::Failed(format!("{to}: {what}")),
        error => Failure::Failed(error.to_string()),
    })?;
    let bytes: u64 = manifest.files().map(|file| file.bytes).sum();
    output::write(|out| {
        writeln!(
            out,
            "{to}: {} files, {bytes} bytes, up to change {}",
            manifest.files().count(),
            manifest.last_sequence()
        )
        .map_err(Failure::of_output)
    })
}

/// Opens a directory that there is.
fn open(path: &PathBuf) -> Result<DiskFiles, Failure> {
    let refuse = |why: &dyn std::fmt::Display| Failure::Data(format!("{}: {why}", path.display()));
    if !path.is_dir() {
        return Err(refuse(&"there is no such directory"));
    }
    DiskFiles::open(path).map_err(|error| refuse(&error))
}
