//! Errors of requests.

use std::{error, fmt, io};

use crate::codec::{ErrorKind, ErrorReply, Violation};

/// Why a request has no reply. After all but [`Error::Refused`], [`Error::InvalidKey`] and [`Error::NoServers`] the
/// connection has been closed, so a late reply is never taken for that of another request.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Connecting failed.
    Connect(io::Error),
    /// Sending or receiving failed.
    Io(io::Error),
    /// No reply in time. It is not known whether a change was made.
    Timeout,
    /// The server closed the connection. It is not known whether a change was made.
    Closed,
    /// The server broke the protocol.
    Violation(Violation),
    /// The server refused the request.
    Refused {
        /// The reason, as far as it is known.
        kind: ErrorKind,
        /// In the server's words, with control characters escaped.
        text: String,
    },
    /// A key must have 1 to 250 bytes, and neither spaces nor control characters.
    InvalidKey,
    /// There is no server.
    NoServers,
}

impl Error {
    /// The error of a read or a write with a timeout.
    pub(crate) fn of_io(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Timeout,
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

impl From<ErrorReply<'_>> for Error {
    fn from(reply: ErrorReply<'_>) -> Self {
        Self::Refused { kind: reply.kind, text: reply.to_string() }
    }
}

impl From<Violation> for Error {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "cannot connect: {error}"),
            Self::Io(error) => error.fmt(f),
            Self::Timeout => f.write_str("no answer in time"),
            Self::Closed => f.write_str("the server closed the connection"),
            Self::Violation(violation) => write!(f, "the server broke the protocol: {violation}"),
            Self::Refused { text, .. } => f.write_str(text),
            Self::InvalidKey => {
                f.write_str("a key must have 1 to 250 bytes, and neither spaces nor control characters")
            }
            Self::NoServers => f.write_str("there is no server"),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Connect(error) | Self::Io(error) => Some(error),
            Self::Violation(violation) => Some(violation),
            _ => None,
        }
    }
}
