//! Events: the meaning of received bytes.

use std::fmt::Write as _;
use std::{error, fmt};

/// The meaning of a piece of input. `T` is the tag of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'i, T> {
    /// An item that the request at the front asked for. [`Event::Done`] follows.
    Value(Value<'i>),
    /// Meta and binary: one key of a multi-get failed. The others, and [`Event::Done`], follow.
    KeyFailed(ErrorReply<'i>),
    /// A statistic: its name and its value. [`Event::Done`] follows.
    Stat(&'i [u8], &'i [u8]),
    /// A request without a tag, sent before the one at the front, failed.
    QuietFailed(Outcome<'i>),
    /// The reply to the request at the front is complete.
    Done(T, Outcome<'i>),
}

/// An item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value<'i> {
    /// Position of its key among the requested ones, from 0. If the reply contains its key (text, and every multi-get
    /// without opaques), the key has been compared; with opaques, the number of its request.
    pub index: u32,
    /// The value itself.
    pub bytes: &'i [u8],
    /// Client flags.
    pub client_flags: u32,
    /// CAS value, if the reply has one.
    pub cas: Option<u64>,
    /// Meta: the flags of the reply, as received.
    pub meta_flags: &'i [u8],
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'i> {
    /// A get is complete.
    Found {
        /// Keys that were found.
        hits: u32,
        /// Requested keys.
        keys: u32,
    },
    /// Stored.
    Stored {
        /// The item's new CAS value, if the reply has one: binary, and meta with the flag `c`.
        cas: Option<u64>,
    },
    /// The mode's condition did not hold: `add` of an existing key, another mode with a missing one.
    NotStored,
    /// The CAS value differs.
    Exists,
    /// No such key.
    NotFound,
    /// Deleted.
    Deleted,
    /// Expiry set.
    Touched,
    /// The number after adding or subtracting.
    Number(u64),
    /// Done.
    Ok,
    /// The server's version.
    Version(&'i [u8]),
    /// Logged in.
    LoggedIn,
    /// The server refused.
    Error(ErrorReply<'i>),
}

/// An error reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorReply<'i> {
    /// The kind of error, as far as it is known.
    pub kind: ErrorKind,
    /// The server's text: the line without its end, or the body of a binary reply.
    pub text: &'i [u8],
}

/// Kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The server has no memory for the request.
    OutOfMemory,
    /// The value is larger than the server allows.
    TooLarge,
    /// incr, decr: the value is not a number.
    NonNumeric,
    /// Not logged in, or wrong user or password.
    Unauthenticated,
    /// No such command.
    UnknownCommand,
    /// Any other error of the client.
    Client,
    /// Any other error of the server.
    Server,
}

impl ErrorKind {
    /// True if the server may have sent it before it had read the whole request: the rest would be read as another. So
    /// does memcached with the value of a store before a login.
    pub fn is_doubtful(self) -> bool {
        matches!(self, Self::Client | Self::UnknownCommand | Self::Unauthenticated)
    }
}

impl fmt::Display for Outcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found { hits, keys } => write!(f, "{hits} of {keys} keys found"),
            Self::Stored { .. } => f.write_str("stored"),
            Self::NotStored => f.write_str("not stored"),
            Self::Exists => f.write_str("the CAS value differs"),
            Self::NotFound => f.write_str("no such key"),
            Self::Deleted => f.write_str("deleted"),
            Self::Touched => f.write_str("touched"),
            Self::Number(number) => number.fmt(f),
            Self::Ok => f.write_str("done"),
            Self::Version(version) => escaped(&String::from_utf8_lossy(version), f),
            Self::LoggedIn => f.write_str("logged in"),
            Self::Error(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfMemory => "out of memory",
            Self::TooLarge => "the value is too large",
            Self::NonNumeric => "the value is not a number",
            Self::Unauthenticated => "not logged in",
            Self::UnknownCommand => "unknown command",
            Self::Client => "an error of the client",
            Self::Server => "an error of the server",
        })
    }
}

impl<'i> ErrorReply<'i> {
    /// Parses an error line of the text and meta protocols; `None`: it is none.
    pub(super) fn of_line(line: &'i [u8]) -> Option<Self> {
        let kind = if let Some(why) = line.strip_prefix(b"SERVER_ERROR") {
            match why {
                // memcached sends this with and without a capital, and with more text after it.
                b" object too large for cache" => ErrorKind::TooLarge,
                [b' ', b'o' | b'O', rest @ ..] if rest.starts_with(b"ut of memory") => ErrorKind::OutOfMemory,
                _ => ErrorKind::Server,
            }
        } else if let Some(why) = line.strip_prefix(b"CLIENT_ERROR") {
            match why {
                b" cannot increment or decrement non-numeric value" => ErrorKind::NonNumeric,
                b" unauthenticated" | b" authentication failure" => ErrorKind::Unauthenticated,
                _ => ErrorKind::Client,
            }
        } else if line == b"ERROR" {
            ErrorKind::UnknownCommand
        } else if line.starts_with(b"ERROR ") {
            ErrorKind::Server
        } else {
            return None;
        };
        Some(Self { kind, text: line })
    }
}

impl fmt::Display for ErrorReply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escaped(&String::from_utf8_lossy(self.text), f)
    }
}

/// Writes a server's words, which may end on a terminal, with its control characters escaped.
fn escaped(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    text.chars().try_for_each(|c| match c.is_control() {
        true => write!(f, "{}", c.escape_default()),
        false => f.write_char(c),
    })
}

/// The server broke the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The kind of violation.
    pub kind: ViolationKind,
    /// The bytes in question, at most the first hundred, escaped.
    pub found: Box<str>,
}

/// Kinds of violations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViolationKind {
    /// A reply without a request: sent twice, or late.
    Unasked,
    /// The value of a key that was not requested, or not in this order.
    WrongKey,
    /// A reply of a form that does not fit the request.
    WrongForm,
    /// Binary, and meta with opaques: the reply to another request.
    WrongOpaque,
    /// A line without an end, an invalid number, inconsistent lengths.
    Malformed,
    /// Meta: an error line that may belong to the request at the front or to a quiet one before it.
    Ambiguous,
}

impl Violation {
    #[cold]
    pub(crate) fn new(kind: ViolationKind, found: &[u8]) -> Self {
        let found = &found[..found.len().min(FOUND_BYTES_MAX)];
        Self { kind, found: found.escape_ascii().to_string().into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            ViolationKind::Unasked => "an answer to nothing",
            ViolationKind::WrongKey => "a key that was not asked for",
            ViolationKind::WrongForm => "an answer that does not fit the request",
            ViolationKind::WrongOpaque => "an answer to another request",
            ViolationKind::Malformed => "a malformed answer",
            ViolationKind::Ambiguous => "an error that could be of more than one request",
        };
        write!(f, "{what}: {}", self.found)
    }
}

impl error::Error for Violation {}

const FOUND_BYTES_MAX: usize = 100;
