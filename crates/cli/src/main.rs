//! larder, the tools of those who run larderd: one sub-command, one file.

#![forbid(unsafe_code)]

mod passwd;

use std::ffi::OsString;
use std::process::ExitCode;

/// A sub-command.
struct Tool {
    name: &'static str,
    /// One line.
    summary: &'static str,
    /// What `--help` prints.
    help: &'static str,
    run: fn(&mut lexopt::Parser) -> Result<(), Failure>,
}

const TOOLS: &[Tool] = &[passwd::TOOL];

/// Why a tool did not do what it was asked for.
enum Failure {
    /// The command line cannot be understood.
    Usage(String),
    /// It can, and something went wrong.
    Failed(String),
    /// Help was asked for.
    Help,
}

impl From<lexopt::Error> for Failure {
    fn from(error: lexopt::Error) -> Self {
        Self::Usage(error.to_string())
    }
}

fn main() -> ExitCode {
    let mut args = lexopt::Parser::from_env();
    let word = match args.next() {
        Ok(Some(lexopt::Arg::Value(word))) => word,
        Ok(Some(lexopt::Arg::Short('h') | lexopt::Arg::Long("help"))) => {
            print!("{}", usage());
            return ExitCode::SUCCESS;
        }
        Ok(Some(lexopt::Arg::Short('V') | lexopt::Arg::Long("version"))) => {
            println!("larder {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        _ => OsString::new(),
    };
    let Some(tool) = TOOLS.iter().find(|tool| word == tool.name) else {
        eprint!("{}", usage());
        return ExitCode::from(EXIT_USAGE);
    };
    match (tool.run)(&mut args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Help) => {
            print!("{}", tool.help);
            ExitCode::SUCCESS
        }
        Err(Failure::Usage(message)) => {
            eprint!("larder {}: {message}\n\n{}", tool.name, tool.help);
            ExitCode::from(EXIT_USAGE)
        }
        Err(Failure::Failed(message)) => {
            eprintln!("larder {}: {message}", tool.name);
            ExitCode::FAILURE
        }
    }
}

fn usage() -> String {
    let mut usage = "usage: larder <tool> [...]\n\n".to_owned();
    for tool in TOOLS {
        usage += &format!("  {:<10} {}\n", tool.name, tool.summary);
    }
    usage + "\nlarder <tool> --help says more.\n"
}

/// sysexits.h: EX_USAGE.
const EXIT_USAGE: u8 = 64;
