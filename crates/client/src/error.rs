//! What can go wrong with a request.

use std::{error, fmt, io};

use crate::codec::{ErrorKind, ErrorReply, Violation};

/// Why a request has no answer. After all but [`Error::Refused`], [`Error::InvalidKey`] and [`Error::NoServers`] the
/// connection has been closed: whatever would still come on it can never be taken for the answer to another request.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// No connection could be made.
    Connect(io::Error),
    /// Sending or receiving failed.
    Io(io::Error),
    /// No answer in time. Whether a change was made is not known.
    Timeout,
    /// The server closed the connection. Whether a change was made is not known.
    Closed,
    /// The server broke the protocol.
    Violation(Violation),
    /// The server answered that it would not do it.
    Refused {
        /// Why, as far as that can be told.
        kind: ErrorKind,
        /// In the server's words.
        text: String,
    },
    /// A key must have 1 to 250 bytes, and neither spaces nor control characters.
    InvalidKey,
    /// There is no server.
    NoServers,
}

impl Error {
    /// What reading or writing with a timeout says.
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
