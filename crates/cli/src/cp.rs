//! `larder cp`: files to keys.

use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use larder_client::client::StoreOutcome;
use larder_client::codec::{Mode, Store};

use crate::Failure;
use crate::target::{Target, failure_about};
use crate::troubles::Troubles;
use crate::ttl::Ttl;

/// Store files under their names
///
/// The key is the file's name, without its directories. Exit code 1: a file could not be read or was not stored.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Use the path as the key, as it is given
    #[arg(short = 'A', long)]
    absolute: bool,
    /// Begin each key with this
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// Store always, only if the key does not exist, or only if it does
    #[arg(long, value_enum, default_value_t)]
    mode: Means,
    /// Time to live: seconds, or 5m, 2h, 90d; 0 means no expiry
    #[arg(long, value_name = "TIME", default_value = "0")]
    ttl: Ttl,
    /// Client flags
    #[arg(long, value_name = "N", default_value_t = 0)]
    flags: u32,
    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Means {
    #[default]
    Set,
    Add,
    Replace,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut client = args.target.client()?;
    let mode = match args.mode {
        Means::Set => Mode::Set,
        Means::Add => Mode::Add,
        Means::Replace => Mode::Replace,
    };
    let mut troubles = Troubles::of("cp");
    for file in &args.files {
        let copied = (|| {
            let key = key_of(file, args)?;
            let value =
                fs::read(file).map_err(|error| Failure::Failed(format!("{}: {error}", file.display())))?;
            let store = Store {
                mode,
                key: key.as_bytes(),
                value: &[&value],
                client_flags: args.flags,
                exptime: args.ttl.exptime(),
                ..Store::default()
            };
            match client.store(&store).map_err(|error| failure_about(&client, &key, &error))? {
                StoreOutcome::Stored => Ok(()),
                _ if mode == Mode::Add => Err(Failure::Failed(format!("{key}: is there already"))),
                _ => Err(Failure::Failed(format!("{key}: not found"))),
            }
        })();
        if let Err(failure) = copied {
            troubles.report(&failure);
        }
    }
    troubles.end()
}

fn key_of(file: &Path, args: &Args) -> Result<String, Failure> {
    let name = if args.absolute { Some(file.as_os_str()) } else { file.file_name() };
    let name = name.and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Failure::Usage(format!("{}: no name for a key", file.display())))?;
    Ok(format!("{}{name}", args.prefix))
}
