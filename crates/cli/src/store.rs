//! `larder set`, `add`, `replace`, `append`, `prepend`, `cas`: one value under one key.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Read as _};
use std::os::unix::ffi::OsStringExt as _;

use larder_client::client::StoreOutcome;
use larder_client::codec::{Mode, Store};

use crate::Failure;
use crate::target::{Target, failure_about};
use crate::ttl::Ttl;

/// What to store where.
#[derive(clap::Args)]
pub(crate) struct Args {
    key: String,
    /// The value; without it, all of standard input
    value: Option<OsString>,
    /// Time to live: seconds, or 5m, 2h, 90d; 0 means no expiry
    #[arg(long, value_name = "TIME", default_value = "0")]
    ttl: Ttl,
    /// Client flags
    #[arg(long, value_name = "N", default_value_t = 0)]
    flags: u32,
    #[command(flatten)]
    target: Target,
}

/// What to put before or behind a value.
#[derive(clap::Args)]
pub(crate) struct PartArgs {
    key: String,
    /// The value; without it, all of standard input
    value: Option<OsString>,
    #[command(flatten)]
    target: Target,
}

/// What to store if nobody else has.
#[derive(clap::Args)]
pub(crate) struct CasArgs {
    key: String,
    /// The CAS value that `larder get --long` prints
    cas: u64,
    /// The value; without it, all of standard input
    value: Option<OsString>,
    /// Time to live: seconds, or 5m, 2h, 90d; 0 means no expiry
    #[arg(long, value_name = "TIME", default_value = "0")]
    ttl: Ttl,
    /// Client flags
    #[arg(long, value_name = "N", default_value_t = 0)]
    flags: u32,
    #[command(flatten)]
    target: Target,
}

/// `set`, `add`, `replace`.
pub(crate) fn run(tool: &str, mode: Mode, args: Args) -> Result<(), Failure> {
    let Args { key, value, ttl, flags, target } = args;
    store(tool, &target, &key, value, |key, value| Store {
        mode,
        key,
        value,
        client_flags: flags,
        exptime: ttl.exptime(),
        ..Store::default()
    })
}

/// `append`, `prepend`.
pub(crate) fn run_part(tool: &str, mode: Mode, args: PartArgs) -> Result<(), Failure> {
    let PartArgs { key, value, target } = args;
    store(tool, &target, &key, value, |key, value| Store { mode, key, value, ..Store::default() })
}

/// `cas`.
pub(crate) fn run_cas(args: CasArgs) -> Result<(), Failure> {
    let CasArgs { key, cas, value, ttl, flags, target } = args;
    store("cas", &target, &key, value, |key, value| Store {
        key,
        value,
        client_flags: flags,
        exptime: ttl.exptime(),
        compare: Some(cas),
        ..Store::default()
    })
}

fn store(
    tool: &str,
    target: &Target,
    key: &str,
    value: Option<OsString>,
    request: impl for<'a> FnOnce(&'a [u8], &'a [&'a [u8]]) -> Store<'a>,
) -> Result<(), Failure> {
    let mut client = target.client()?;
    let value = match value {
        Some(value) => value.into_vec(),
        None => read_stdin(tool)?,
    };
    let outcome = client
        .store(&request(key.as_bytes(), &[&value]))
        .map_err(|error| failure_about(&client, key, &error))?;
    let why = match outcome {
        StoreOutcome::Stored => return Ok(()),
        StoreOutcome::NotStored if tool == "add" => "is there already",
        StoreOutcome::NotStored | StoreOutcome::NotFound => "not found",
        StoreOutcome::Exists => "has been changed since",
    };
    Err(Failure::Failed(format!("{key}: {why}")))
}

fn read_stdin(tool: &str) -> Result<Vec<u8>, Failure> {
    let mut value = Vec::new();
    let stdin = io::stdin();
    if stdin.is_terminal() {
        eprintln!("larder {tool}: reading the value from standard input until Ctrl-D");
    }
    stdin
        .lock()
        .read_to_end(&mut value)
        .map_err(|error| Failure::Failed(format!("standard input: {error}")))?;
    Ok(value)
}
