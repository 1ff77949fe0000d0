//! Failures of a tool, and their exit codes.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use larder_bench::RunError;
use larder_client::Error;
use larder_client::codec::ErrorKind;

use crate::output::readable;

/// Why a tool failed.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// Invalid command line.
    Usage(String),
    /// The operation failed.
    Failed(String),
    /// Invalid file.
    Data(String),
    /// A server cannot be reached, or does not answer.
    Unreachable(String),
    /// A server requires a login, or refuses it.
    Denied(String),
    /// Reported already; with its exit code.
    Reported(u8),
}

impl Failure {
    /// A failure of `whom`: a server, and perhaps a key.
    pub(crate) fn of(whom: impl Display, error: &Error) -> Self {
        let message = format!("{whom}: {error}");
        match error {
            Error::Connect(_) | Error::Io(_) | Error::Timeout | Error::Closed => Self::Unreachable(message),
            Error::Refused { kind: ErrorKind::Unauthenticated, .. } => Self::Denied(message),
            Error::InvalidKey => Self::Usage(message),
            _ => Self::Failed(message),
        }
    }

    /// A broken connection to `whom`.
    pub(crate) fn of_io(whom: impl Display, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                Self::Unreachable(format!("{whom}: no answer in time"))
            }
            io::ErrorKind::UnexpectedEof => {
                Self::Unreachable(format!("{whom}: the server closed the connection"))
            }
            _ => Self::Unreachable(format!("{whom}: {error}")),
        }
    }

    /// A run of the benchmark that could not be made.
    pub(crate) fn of_run(error: &RunError) -> Self {
        let message = error.to_string();
        match error {
            RunError::Scenario { .. } => Self::Usage(message),
            RunError::Server { .. } => Self::Unreachable(message),
            RunError::File { .. } | RunError::System(_) => Self::Failed(message),
        }
    }

    /// A comparison, search or collection that could not be made.
    pub(crate) fn of_bench(error: &larder_bench::Error) -> Self {
        error.downcast_ref().map_or_else(|| Self::Failed(error.to_string()), Self::of_run)
    }

    /// Standard output could not be written.
    pub(crate) fn of_output(error: io::Error) -> Self {
        match error.kind() {
            // The reader has closed the pipe.
            io::ErrorKind::BrokenPipe => Self::Reported(EXIT_FAILURE),
            _ => Self::Failed(format!("standard output: {error}")),
        }
    }

    /// The message; none if it was reported.
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Reported(_) => "",
            Self::Usage(message)
            | Self::Failed(message)
            | Self::Data(message)
            | Self::Unreachable(message)
            | Self::Denied(message) => message,
        }
    }

    /// Reports it. The message may have words of a server, or of a file.
    pub(crate) fn report(&self, tool: &str) -> ExitCode {
        let message = readable(self.message().as_bytes());
        match self {
            Self::Reported(_) => {}
            Self::Usage(_) => eprintln!("larder {tool}: {message}\n\nlarder {tool} --help says more."),
            _ => eprintln!("larder {tool}: {message}"),
        }
        ExitCode::from(self.exit_code())
    }

    /// As in sysexits.h, but for 1.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Reported(code) => *code,
            Self::Failed(_) => EXIT_FAILURE,
            Self::Usage(_) => EXIT_USAGE,
            Self::Data(_) => EXIT_DATA,
            Self::Unreachable(_) => 69,
            Self::Denied(_) => 77,
        }
    }
}

pub(crate) const EXIT_FAILURE: u8 = 1;

/// sysexits.h: EX_DATAERR.
pub(crate) const EXIT_DATA: u8 = 65;

/// sysexits.h: EX_USAGE.
pub(crate) const EXIT_USAGE: u8 = 64;
