//! `larder flush`: flushes servers.

use clap::value_parser;
use larder_client::codec::Protocol;

use crate::Failure;
use crate::target::{Target, answers};

/// Delete all items on every server, or those of one namespace
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Delete them after so many seconds, at most 30 days
    #[arg(long, value_name = "SECS", default_value_t = 0, value_parser = value_parser!(u32).range(..=2_592_000))]
    delay: u32,
    /// Delete the items of the namespace with this prefix only; `<null>`: of the default namespace
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<String>,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Some(prefix) = &args.prefix else {
        return answers("flush", args.target.client()?.flush_all(args.delay), |_, ()| Ok(()));
    };
    if args.target.protocol() == Protocol::Binary {
        return Err(Failure::Usage("--prefix needs --protocol text or meta".into()));
    }
    let flushed = args.target.client()?.flush_prefix(prefix, args.delay);
    answers("flush", flushed, |address, is_flushed| match is_flushed {
        true => Ok(()),
        false => Err(Failure::Failed(format!("{address}: there is no namespace {prefix:?}"))),
    })
}
