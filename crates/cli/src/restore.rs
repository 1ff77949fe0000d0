//! `larder restore`: makes a store of a backup.

use std::fs;
use std::io::{self, IsTerminal as _, Read};
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use larder_store::files::{DiskFiles, Files};
use larder_store::{Error, Manifest};

use crate::transfer::progress;
use crate::{Failure, output};

const NOTE: &str = "A backup that is cut or damaged is refused (exit code 65), and nothing of it is left.";

/// Make a store of a backup, for `larderd --store`
///
/// Needs no server. Nothing is written to a directory that has a file already.
#[derive(clap::Args)]
#[command(after_help = NOTE)]
pub(crate) struct Args {
    /// The backup to restore, then those that it follows (--since), in any order; `-` alone: a stream of `larder
    /// backup -` from standard input
    #[arg(value_name = "BACKUP", required = true)]
    backups: Vec<PathBuf>,
    /// The directory of the new store: empty, or a new one
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let to = args.to.display();
    let manifest = if args.backups == [Path::new("-")] {
        if io::stdin().is_terminal() {
            return Err(Failure::Usage("standard input is a terminal: send it a backup".into()));
        }
        let bar = progress::bytes(None, false);
        let mut input = Counted { input: io::stdin().lock(), bar: &bar };
        let restored = restore(&args.to, |target| larder_store::restore_stream(&mut input, target));
        bar.finish_and_clear();
        restored?
    } else if args.backups.iter().any(|backup| backup == Path::new("-")) {
        return Err(Failure::Usage("a stream has everything: - stands alone".into()));
    } else {
        let opened: Vec<DiskFiles> = args.backups.iter().map(open).collect::<Result<_, _>>()?;
        let backups: Vec<&dyn Files> = opened.iter().map(|files| files as &dyn Files).collect();
        restore(&args.to, |target| larder_store::restore(&backups, target))?
    };
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

/// Restores to a directory, which is made if it is missing, and removed again if nothing came of it.
fn restore(
    to: &Path,
    restore: impl FnOnce(&DiskFiles) -> larder_store::Result<Manifest>,
) -> Result<Manifest, Failure> {
    let shown = to.display();
    let is_new = !to.exists();
    let target = DiskFiles::open(to).map_err(|error| Failure::Failed(format!("{shown}: {error}")))?;
    restore(&target).map_err(|error| {
        if is_new {
            // Not if there is something in it.
            let _ = fs::remove_dir(to);
        }
        match error {
            Error::Corrupt { file, offset, what } => Failure::Data(format!("{file}, byte {offset}: {what}")),
            Error::Invalid { what } => Failure::Failed(format!("{shown}: {what}")),
            error => Failure::Failed(format!("{shown}: {error}")),
        }
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

/// Shows how much was read.
struct Counted<'b, R> {
    input: R,
    bar: &'b ProgressBar,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.input.read(buffer).inspect(|count| self.bar.inc(*count as u64))
    }
}
