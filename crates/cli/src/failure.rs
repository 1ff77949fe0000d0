//! Why a tool did not do what it was asked for, and the exit code that says so.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use larder_client::Error;
use larder_client::codec::ErrorKind;

/// Why a tool did not do what it was asked for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line cannot be understood.
    Usage(String),
    /// It can, and something went wrong.
    Failed(String),
    /// A file is not what it should be.
    Data(String),
    /// A server cannot be reached, or does not answer.
    Unreachable(String),
    /// A server does not let in.
    Denied(String),
    /// Whatever went wrong has been told already.
    Told,
}

impl Failure {
    /// What went wrong with `whom`: a server, and perhaps a key.
    pub(crate) fn of(whom: impl Display, error: &Error) -> Self {
        let message = format!("{whom}: {error}");
        match error {
            Error::Connect(_) | Error::Io(_) | Error::Timeout | Error::Closed => Self::Unreachable(message),
            Error::Refused { kind: ErrorKind::Unauthenticated, .. } => Self::Denied(message),
            Error::InvalidKey => Self::Usage(message),
            _ => Self::Failed(message),
        }
    }

    /// A conversation with `whom` broke off.
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

    /// Standard output could not be written.
    pub(crate) fn of_output(error: io::Error) -> Self {
        match error.kind() {
            // Whoever read has seen enough.
            io::ErrorKind::BrokenPipe => Self::Told,
            _ => Self::Failed(format!("standard output: {error}")),
        }
    }

    /// In words; none if it has been told.
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Told => "",
            Self::Usage(message)
            | Self::Failed(message)
            | Self::Data(message)
            | Self::Unreachable(message)
            | Self::Denied(message) => message,
        }
    }

    /// Tells it.
    pub(crate) fn report(&self, tool: &str) -> ExitCode {
        match self {
            Self::Told => {}
            Self::Usage(message) => {
                eprintln!("larder {tool}: {message}\n\nlarder {tool} --help says more.");
            }
            _ => eprintln!("larder {tool}: {}", self.message()),
        }
        self.exit_code()
    }

    /// As in sysexits.h, but for 1.
    fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Told | Self::Failed(_) => 1,
            Self::Usage(_) => EXIT_USAGE,
            Self::Data(_) => 65,
            Self::Unreachable(_) => 69,
            Self::Denied(_) => 77,
        })
    }
}

/// sysexits.h: EX_USAGE.
pub(crate) const EXIT_USAGE: u8 = 64;
