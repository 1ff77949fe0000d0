//! `larder exist`: whether keys exist.

use crate::target::Target;
use crate::{Failure, each};

/// Tell by the exit code whether keys are there
///
/// 0: all of them are; 1: one is not.
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
