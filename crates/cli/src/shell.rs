//! `larder shell`: the protocol, as one would type and read it.
//!
//! | module | contents |
//! |---|---|
//! | [`commands`] | the commands of the text and meta protocols, with their help |
//! | [`request`] | a typed line, and the bytes to send |
//! | [`reply`] | the bytes that come back, and how they are shown |
//! | [`input`] | lines from a terminal, with history and completion, or from standard input |

mod commands;
mod input;
mod reply;
mod request;

use std::io::{self, IsTerminal as _};

use anstream::AutoStream;
use larder_client::Address;

use crate::Failure;
use crate::output::readable;
use crate::target::Target;
use crate::wire::Wire;
use input::Input;
use request::{Line, Request};

const AFTER_HELP: &str = "\
On a terminal: Tab completes commands, the arrow keys go through the history,
Ctrl-D ends. Without one, commands are read from standard input, values as in
the protocol:

  echo 'get greeting' | larder shell cache-1
  printf 'set greeting 0 60 5\\r\\nhello\\r\\n' | larder shell cache-1

Exit code 1: the server replied with an error to a command of standard input.";

/// Talk to a server, command by command
///
/// Takes the commands of memcached's text and meta protocols; `help` lists them. `set KEY VALUE` stores without
/// counting bytes. Values are shown as text, and with escapes if they are binary; errors are explained.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The server, instead of --servers
    #[arg(conflicts_with = "servers")]
    host: Option<String>,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let target = args.target.or(args.host.as_deref())?;
    let address = target.only_server()?.clone();
    let mut shell = Shell { wire: Some(Wire::open(&target, &address)?), target, address, errors: 0 };
    if io::stdin().is_terminal() { shell.converse() } else { shell.run_script() }
}

struct Shell {
    target: Target,
    address: Address,
    /// `None` after a failure: the next command connects again.
    wire: Option<Wire>,
    /// Replies that were errors.
    errors: u64,
}

impl Shell {
    /// On a terminal: a failure is shown, and the next command connects again.
    fn converse(&mut self) -> Result<(), Failure> {
        let mut input = Input::terminal(&self.address)?;
        anstream::println!("{}. help lists the commands; Ctrl-D ends.", self.greeting()?);
        while let Some(line) = input.line()? {
            match self.execute(&line, &mut input) {
                Ok(true) => {}
                Ok(false) => break,
                Err(failure @ Failure::Reported(_)) => return Err(failure),
                Err(failure) => {
                    self.wire = None;
                    reply::show_failure(failure.message());
                }
            }
        }
        Ok(())
    }

    /// From standard input: a failure ends it.
    fn run_script(&mut self) -> Result<(), Failure> {
        let mut input = Input::stdin();
        while let Some(line) = input.line()? {
            if !self.execute(&line, &mut input)? {
                break;
            }
        }
        match self.errors {
            0 => Ok(()),
            1 => Err(Failure::Failed("the reply to a command was an error".into())),
            errors => Err(Failure::Failed(format!("the replies to {errors} commands were errors"))),
        }
    }

    fn greeting(&mut self) -> Result<String, Failure> {
        let (_, version) = self.target.client()?.version().remove(0);
        let version = version.map_err(|error| Failure::of(&self.address, &error))?;
        Ok(format!("{} (version {})", self.address, readable(version.as_bytes())))
    }

    /// Executes a line; false if it ends the shell.
    fn execute(&mut self, line: &str, input: &mut Input) -> Result<bool, Failure> {
        let request = match request::read(line) {
            Line::Empty => return Ok(true),
            Line::Quit => return Ok(false),
            Line::Help(topic) => {
                commands::help(&topic)?;
                return Ok(true);
            }
            Line::Wrong(why) => {
                self.errors += 1;
                reply::show_failure(&why);
                return Ok(true);
            }
            Line::Request(request) => request,
            Line::Upload(upload) => {
                let Some(value) = input.value(upload.value_bytes)? else { return Ok(true) };
                match upload.with(&value) {
                    Ok(request) => request,
                    Err(why) => {
                        self.errors += 1;
                        reply::show_failure(&why);
                        return Ok(true);
                    }
                }
            }
        };
        self.ask(&request)?;
        Ok(true)
    }

    fn ask(&mut self, request: &Request) -> Result<(), Failure> {
        if self.wire.as_mut().is_some_and(|wire| !wire.is_silent()) {
            self.wire = None;
        }
        let wire = match &mut self.wire {
            Some(wire) => wire,
            None => self.wire.insert(Wire::open(&self.target, &self.address)?),
        };
        wire.send(&request.bytes)?;
        let mut out = AutoStream::auto(io::stdout()).lock();
        if !reply::show(wire, request, &mut out)? {
            self.errors += 1;
        }
        Ok(())
    }
}
