//! `larder read-only`: lets servers refuse changes, for maintenance.

use std::path::PathBuf;

use clap::ValueEnum;
use larder_client::Address;
use serde_json::Value;

use crate::admin::{Request, read_token};
use crate::failure::EXIT_FAILURE;
use crate::target::Target;
use crate::troubles::Troubles;
use crate::{Failure, output};

const NOTE: &str = "\
Reads go on, and so do the changes of other sites. Clients are answered SERVER_ERROR read-only for maintenance. It \
ends with `off`, or with a restart of a server that was not started with --read-only. ADDRESS is the server's \
--admin-listen; --tls and the options behind it are for that connection. Exit code of `status`: 0 if every server is \
read-only, 1 if one is not.";

/// Let servers refuse changes and serve reads, for maintenance
#[derive(clap::Args)]
#[command(after_help = NOTE)]
pub(crate) struct Args {
    #[arg(value_enum)]
    what: What,
    /// HOST:PORT of a server's --admin-listen, or the path of a Unix socket
    #[arg(value_name = "ADDRESS", required = true)]
    admin: Vec<Address>,
    /// A file with the token of the servers' --admin-token-file
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Refuse changes from now on
    On,
    /// Take them again
    Off,
    /// Tell which of the two
    Status,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let token = match &args.admin_token_file {
        None => None,
        Some(file) => {
            Some(read_token(file).map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?)
        }
    };
    let token = token.as_deref().map(str::trim);
    let (method, path) = match args.what {
        What::On => ("POST", "/api/read-only?state=on"),
        What::Off => ("POST", "/api/read-only?state=off"),
        What::Status => ("GET", "/api/read-only"),
    };
    let mut troubles = Troubles::of("read-only");
    for admin in &args.admin {
        let answer = Request { method, path, token }.ask(admin, &args.target);
        let told = answer.and_then(|text| match args.what {
            What::Status => tell(admin, &text),
            What::On | What::Off => Ok(true),
        });
        match told {
            Ok(true) => {}
            // Standard output already says so.
            Ok(false) => troubles.add(Failure::Reported(EXIT_FAILURE)),
            Err(failure) => troubles.add(failure),
        }
    }
    troubles.end()
}

/// True if the server is read-only.
fn tell(admin: &Address, text: &str) -> Result<bool, Failure> {
    let status: Value = serde_json::from_str(text).unwrap_or_default();
    let (Some(is_read_only), Some(refused)) = (status["is_read_only"].as_bool(), status["refused"].as_u64())
    else {
        return Err(Failure::Failed(format!("{admin}: it does not say: is it a larderd?")));
    };
    output::write(|out| {
        let state = if is_read_only { "read-only" } else { "takes changes" };
        writeln!(out, "{admin}: {state}, {refused} refused").map_err(Failure::of_output)
    })?;
    Ok(is_read_only)
}
