//! Errors of requests.

use std::{error, fmt, io};

use crate::codec::{ErrorKind, ErrorReply, Violation};
use crate::{Address, value};

/// Why a request has no reply. After [`Error::Io`], [`Error::Timeout`], [`Error::Closed`], [`Error::Violation`], and
/// [`Error::ValueTooLarge`] of a reply, the connection has been closed, so a late reply is never taken for that of
/// another request; so it has after an [`Error::Refused`] that the server may have sent before it had read all.
///
/// With the blocking [`Client`](crate::Client) it is not known after the first four whether a change was made.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Connecting failed.
    Connect(io::Error),
    /// Sending or receiving failed.
    Io(io::Error),
    /// No reply in time.
    Timeout,
    /// The server closed the connection.
    Closed,
    /// `AsyncClient`: the change may have been made, or may still be made. Bytes of the request were or may have been
    /// sent, and no reply has come, for this reason. Every other error of a change says that it was not made.
    Unknown(Box<Self>),
    /// `AsyncClient`: the connection was closed because of another request on it, or with the client.
    Interrupted(Interruption),
    /// A value of so many bytes is larger than the client is set to send or to accept.
    ValueTooLarge {
        /// The size of the value, as far as it is known.
        value_bytes: usize,
    },
    /// `AsyncClient`, over UDP: a request of so many bytes, with its frame, does not fit into a datagram of 1,400.
    DatagramTooLarge {
        /// The size of the datagram.
        bytes: usize,
    },
    /// The protocol, or the client as it is set, has no such request.
    Unsupported(&'static str),
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
    /// The server of the key is [ejected](crate::policy), and the policy has no other one: nothing was sent.
    Ejected(Address),
    /// The value is not in the dialect, or larger than allowed.
    Value(value::Error),
    /// The value is not JSON, or not of the type that was asked for; or JSON has no such value.
    #[cfg(feature = "serde")]
    #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
    Json(serde_json::Error),
    /// The list of servers could not be looked up, for this reason.
    Discovery(String),
}

/// Why a connection was closed that has served other requests as well.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Interruption {
    /// Another request had no reply in time.
    Timeout,
    /// Another request was dropped after it was or may have been sent.
    Cancelled,
    /// The server refused another request, in these words, and may have read only a part of it.
    Refused(String),
    /// The value of another request is larger than the client is set to accept.
    ValueTooLarge,
    /// The last handle of the client was dropped.
    ClientDropped,
    /// The runtime that drove the connection has ended.
    RuntimeEnded,
}

impl Error {
    /// True if the change may have been made all the same: [`Error::Unknown`].
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }

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

impl From<value::Error> for Error {
    fn from(error: value::Error) -> Self {
        Self::Value(error)
    }
}

#[cfg(feature = "serde")]
impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "cannot connect: {error}"),
            Self::Io(error) => error.fmt(f),
            Self::Timeout => f.write_str("no answer in time"),
            Self::Closed => f.write_str("the server closed the connection"),
            Self::Unknown(reason) => write!(f, "it is not known whether the change was made: {reason}"),
            Self::Interrupted(interruption) => interruption.fmt(f),
            Self::ValueTooLarge { value_bytes } => write!(f, "a value of {value_bytes} bytes is too large"),
            Self::DatagramTooLarge { bytes } => {
                write!(f, "a request of {bytes} bytes does not fit into a datagram, which has 1400 at most")
            }
            Self::Unsupported(reason) => f.write_str(reason),
            Self::Violation(violation) => write!(f, "the server broke the protocol: {violation}"),
            Self::Refused { text, .. } => f.write_str(text),
            Self::InvalidKey => {
                f.write_str("a key must have 1 to 250 bytes, and neither spaces nor control characters")
            }
            Self::NoServers => f.write_str("there is no server"),
            Self::Value(error) => error.fmt(f),
            #[cfg(feature = "serde")]
            Self::Json(error) => write!(f, "not the JSON that is expected: {error}"),
            Self::Discovery(reason) => f.write_str(reason),
            Self::Ejected(address) => write!(f, "{address} has failed, and is not asked for a while"),
        }
    }
}

impl fmt::Display for Interruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection was closed: ")?;
        match self {
            Self::Timeout => f.write_str("another request had no answer in time"),
            Self::Cancelled => f.write_str("another request was cancelled"),
            Self::Refused(text) => write!(f, "the server refused another request: {text}"),
            Self::ValueTooLarge => f.write_str("the value of another request is too large"),
            Self::ClientDropped => f.write_str("the client is gone"),
            Self::RuntimeEnded => f.write_str("its runtime has ended"),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Connect(error) | Self::Io(error) => Some(error),
            Self::Violation(violation) => Some(violation),
            Self::Unknown(reason) => Some(reason),
            Self::Value(error) => Some(error),
            #[cfg(feature = "serde")]
            Self::Json(error) => Some(error),
            _ => None,
        }
    }
}
