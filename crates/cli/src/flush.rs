//! `larder flush`: flushes servers.

use crate::Failure;
use crate::target::{Target, answers};

/// Delete all items on every server
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Delete them after so many seconds
    #[arg(long, value_name = "SECS", default_value_t = 0)]
    delay: u32,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    answers("flush", args.target.client()?.flush_all(args.delay), |_, ()| Ok(()))
}
