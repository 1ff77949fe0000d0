//! `larder rm`: deletes keys.

use crate::target::Target;
use crate::{Failure, each};

/// Delete keys
///
/// Exit code 1: a key was not found.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    each::key("rm", &args.target, &args.keys, |client, key| client.delete(key))
}
