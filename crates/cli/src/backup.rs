//! `larder backup`: lets a server take a backup of its store, and waits for it; or takes it as a stream.

mod stream;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use larder_client::{Address, Client};

use crate::admin::read_token;
use crate::target::Target;
use crate::{Failure, output};

const NOTE: &str = "The server writes the backup to a directory of this name below its --backup-dir, while it serves. \
                    With - as the name it comes as a stream to standard output, a tar archive, from the server's \
                    --admin-listen, to who has the token of its --backup-token-file; --tls and the options behind it \
                    are then for this connection. Exit code 0: it is complete. `larder restore` makes a store of \
                    either.";

/// Take a backup of a server's store
///
/// Prints what was copied, once the backup is complete and on disk.
#[derive(clap::Args)]
#[command(after_help = NOTE)]
pub(crate) struct Args {
    /// Letters, digits, `-`, `_` and `.`, a new one; `-` alone: standard output
    #[arg(value_name = "NAME")]
    name: String,
    /// With `-`: the server's --admin-listen, HOST:PORT or the path of a Unix socket
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<Address>,
    /// A file with the token of the server's --backup-token-file: with `-`, or for a user without all rights
    #[arg(long, value_name = "FILE")]
    backup_token_file: Option<PathBuf>,
    /// Copy only what this earlier backup, and those that it follows, do not have
    #[arg(long, value_name = "NAME")]
    since: Option<String>,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let usage = |what: &str| Err(Failure::Usage(what.into()));
    match (&args.name[..], &args.admin, &args.backup_token_file) {
        ("-", ..) if args.since.is_some() => {
            usage("a stream has everything: --since is for backups below --backup-dir")
        }
        ("-", Some(admin), Some(token_file)) => stream::run(admin, token_file, &args.target),
        ("-", ..) => usage("a stream needs --admin and --backup-token-file"),
        (_, Some(_), _) => usage("--admin is for a stream: larder backup -"),
        (_, None, token_file) => run_in_place(args, token_file.as_deref()),
    }
}

fn run_in_place(args: &Args, token_file: Option<&Path>) -> Result<(), Failure> {
    let token = token_file.map(token_of).transpose()?;
    let server = args.target.only_server()?.to_string();
    let mut client = args.target.client()?;
    let names: Vec<&str> = [&args.name[..]].into_iter().chain(args.since.as_deref()).collect();
    if names.iter().any(|name| name.is_empty() || name.bytes().any(|byte| !byte.is_ascii_graphic())) {
        return Err(Failure::Usage("a name has letters, digits, `-`, `_` and `.`".into()));
    }
    let token = token.map_or_else(String::new, |token| format!(" token={token}"));
    ask(&mut client, &server, &format!("store backup {}{token}", names.join(" ")))?;
    loop {
        let stats = ask(&mut client, &server, "store")?;
        let value = |name| stats.iter().find(|(known, _)| known == name).map(|(_, value)| &value[..]);
        // Another one may have begun since: the server shows the latest.
        if value("backup") != Some(&args.name[..]) {
            return Err(Failure::Failed(format!("{server}: another backup has begun; this one has ended")));
        }
        let copied_bytes = value("backup_copied_bytes").unwrap_or("?");
        match value("backup_state") {
            Some("running") => sleep(PAUSE),
            Some("done") => {
                let last_sequence = value("backup_last_sequence").unwrap_or("?");
                return output::write(|out| {
                    writeln!(out, "{}: {copied_bytes} bytes copied, up to change {last_sequence}", args.name)
                        .map_err(Failure::of_output)
                });
            }
            _ => {
                let error = value("backup_error").unwrap_or("it does not say why");
                return Err(Failure::Failed(format!("{server}: the backup failed: {error}")));
            }
        }
    }
}

/// The token in a file. Errors: it is none.
fn token_of(file: &Path) -> Result<String, Failure> {
    let refuse = |reason: &dyn Display| Failure::Usage(format!("{}: {reason}", file.display()));
    let text = read_token(file).map_err(|error| refuse(&error))?;
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(refuse(&"a token is one word of printable ASCII"));
    }
    Ok(token.to_owned())
}

fn ask(client: &mut Client, server: &str, group: &str) -> Result<Vec<(String, String)>, Failure> {
    let (_, answer) = client
        .stats(group)
        .into_iter()
        .next()
        .ok_or_else(|| Failure::Unreachable(format!("{server}: no answer")))?;
    answer.map_err(|error| Failure::of(server, &error))
}

const PAUSE: Duration = Duration::from_millis(200);
