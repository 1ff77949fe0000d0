//! What comes back.

use std::{error, fmt};

/// What a piece of input says. `T` is the tag of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'i, T> {
    /// A key that the request at the front asked for is there. [`Event::Done`] follows.
    Value(Value<'i>),
    /// Meta and binary: one key of a multi-get failed. The others, and [`Event::Done`], follow.
    KeyFailed(ErrorReply<'i>),
    /// One of the statistics asked for: its name and its value. [`Event::Done`] follows.
    Stat(&'i [u8], &'i [u8]),
    /// A request without a tag, sent before the one at the front, failed.
    QuietFailed(Outcome<'i>),
    /// The answer to the request at the front is complete.
    Done(T, Outcome<'i>),
}

/// An item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value<'i> {
    /// Place of its key among those asked for, from 0. An answer that shows its key (text, and every multi-get) has
    /// been compared with it.
    pub index: u32,
    /// The value itself.
    pub bytes: &'i [u8],
    /// Client flags.
    pub client_flags: u32,
    /// CAS value, where it was told.
    pub cas: Option<u64>,
    /// Meta: the flags of the answer, as they stand.
    pub meta_flags: &'i [u8],
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'i> {
    /// A get is over.
    Found {
        /// Keys that were found.
        hits: u32,
        /// Keys that were asked for.
        keys: u32,
    },
    /// Stored.
    Stored {
        /// The item's new CAS value, where it was told (binary).
        cas: Option<u64>,
    },
    /// The mode's condition did not hold: `add` of a key that is there, the others of one that is not.
    NotStored,
    /// Another CAS value.
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

/// An error that a server tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorReply<'i> {
    /// What is wrong, as far as that can be told.
    pub kind: ErrorKind,
    /// In the server's words: the line without its end, or the body of a binary answer.
    pub text: &'i [u8],
}

/// What can be wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The server has no memory for it.
    OutOfMemory,
    /// The value is larger than the server takes.
    TooLarge,
    /// incr, decr: the value is no number.
    NonNumeric,
    /// Not logged in, or wrong name or password.
    Unauthenticated,
    /// No such command.
    UnknownCommand,
    /// Any other mistake of the client.
    Client,
    /// Any other failure of the server.
    Server,
}

impl<'i> ErrorReply<'i> {
    /// An error line of the text and meta protocols; `None`: it is none.
    pub(super) fn of_line(line: &'i [u8]) -> Option<Self> {
        let kind = if let Some(why) = line.strip_prefix(b"SERVER_ERROR") {
            match why {
                // memcached says so with and without a capital, and more after it.
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
        f.write_str(&String::from_utf8_lossy(self.text))
    }
}

/// The server broke the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// How.
    pub kind: ViolationKind,
    /// The bytes in question, the first hundred at most, escaped.
    pub found: Box<str>,
}

/// How a server broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViolationKind {
    /// It answers, and nothing was asked: it answers twice, or late.
    Unasked,
    /// The value of a key that was not asked for, or not in this order.
    WrongKey,
    /// An answer of a form that does not fit the request.
    WrongForm,
    /// Binary: the answer to another request.
    WrongOpaque,
    /// A line without an end, a number that is none, lengths that do not fit.
    Malformed,
    /// Meta: an error line, and it cannot be known whether the request at the front or a quiet one before it failed.
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
