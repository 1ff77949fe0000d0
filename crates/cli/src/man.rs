//! `larder man`: a page for each tool.

use std::fs;
use std::path::PathBuf;

use clap::CommandFactory as _;

use crate::{Failure, Larder};

/// Write man pages into a directory
///
/// Writes larder.1, and larder-TOOL.1 for each tool. To read one: man -l DIR/larder.1
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Created if it does not exist
    directory: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let refuse = |error| Failure::Failed(format!("{}: {error}", args.directory.display()));
    fs::create_dir_all(&args.directory).map_err(refuse)?;
    clap_mangen::generate_to(Larder::command(), &args.directory).map_err(refuse)
}
