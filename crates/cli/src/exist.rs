//! `larder exist`: whether keys exist.

use crate::target::Target;
use crate::{Failure, each};

/// Test whether keys exist
///
/// Names those that do not. Exit code 0: all exist; 1: a key was not found.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    each::key("exist", &args.target, &args.keys, |client, key| client.get(key).map(|item| item.is_some()))
}
