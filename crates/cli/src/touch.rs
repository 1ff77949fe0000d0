//! `larder touch`: sets a new expiry.

use crate::target::Target;
use crate::ttl::Ttl;
use crate::{Failure, each};

/// Set a new expiry
///
/// Exit code 1: a key was not found.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,
    /// Time to live from now: seconds, or 5m, 2h, 90d; 0 means no expiry
    #[arg(long, value_name = "TIME", default_value = "0")]
    ttl: Ttl,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    each::key("touch", &args.target, &args.keys, |client, key| client.touch(key, args.ttl.exptime()))
}
