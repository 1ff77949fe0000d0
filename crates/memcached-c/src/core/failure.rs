//! Failures, and those that are remembered for `memcached_last_error` and its kin.

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::{io, mem};

use larder_client::codec::Violation;

use super::Options;
use crate::abi::Return;

/// Why a request failed.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) code: Return,
    /// The system's number of the error; 0: none.
    errno: i32,
    text: String,
}

impl Failure {
    pub(super) fn new(code: Return, text: &str) -> Self {
        Self { code, errno: 0, text: text.to_owned() }
    }

    /// An error of the system. Some have codes of their own.
    pub(super) fn of_errno(errno: i32, text: &str) -> Self {
        let code = match errno {
            libc::ENOMEM => Return::MEMORY_ALLOCATION_FAILURE,
            libc::ENOTCONN | libc::ECONNRESET | libc::ECONNREFUSED => Return::CONNECTION_FAILURE,
            libc::EINVAL => Return::INVALID_ARGUMENTS,
            _ => Return::ERRNO,
        };
        Self { code, errno, text: text.to_owned() }
    }

    /// A read or a write that failed.
    pub(super) fn of_io(error: &io::Error) -> Self {
        match (error.kind(), error.raw_os_error()) {
            (io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut, _) => Self::timeout(),
            (io::ErrorKind::UnexpectedEof, _) => Self::disconnected(),
            (io::ErrorKind::OutOfMemory, _) => Self::out_of_memory(),
            (_, Some(errno)) => Self::of_errno(errno, ""),
            (_, None) => Self::new(Return::CONNECTION_FAILURE, &error.to_string()),
        }
    }

    /// Connecting failed.
    pub(super) fn of_connect(error: &io::Error) -> Self {
        let text = error.to_string();
        match (error.kind(), error.raw_os_error(), text.strip_prefix(LOOKUP_PREFIX)) {
            (_, None, Some(reason)) if reason.starts_with("Temporary failure") => {
                Self::new(Return::TIMEOUT, reason)
            }
            (_, None, Some(reason)) => Self::new(Return::HOST_LOOKUP_FAILURE, reason),
            _ => Self::of_io(error),
        }
    }

    /// Nothing has come in time.
    pub(super) fn timeout() -> Self {
        Self::new(Return::TIMEOUT, "time out")
    }

    /// There is no memory for what the program or the server has sent.
    pub(super) fn out_of_memory() -> Self {
        Self::new(Return::MEMORY_ALLOCATION_FAILURE, "")
    }

    /// The server has closed the connection.
    pub(super) fn disconnected() -> Self {
        Self::new(Return::CONNECTION_FAILURE, "::rec() returned zero, server has disconnected")
    }

    /// The server broke the protocol.
    pub(super) fn violation(violation: &Violation) -> Self {
        Self::new(Return::UNKNOWN_READ_FAILURE, &violation.to_string())
    }

    /// Names the server.
    pub(super) fn at(self, label: &str) -> Self {
        let text = if self.text.is_empty() { label.to_owned() } else { format!("{}, {label}", self.text) };
        Self { text, ..self }
    }

    /// As libmemcached words it. It ends with the place in the source; here with the library's name.
    fn message(&self, root: usize) -> String {
        let Self { code, errno, text } = self;
        let comma = if text.is_empty() { "" } else { ", " };
        match *code {
            Return::CLIENT_ERROR => format!("({root:#x}) {text}"),
            Return::PARSE_ERROR => format!("({root:#x}) {text} -> larder"),
            _ if *errno != 0 => {
                format!("({root:#x}) {}({}){comma}{text} -> larder", code.text(), words_of(*errno))
            }
            _ => format!("({root:#x}) {}{comma}{text} -> larder", code.text()),
        }
    }
}

/// The system's words for an error.
fn words_of(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Errors, the latest last.
#[derive(Default)]
pub(crate) struct Errors {
    entries: VecDeque<Entry>,
    /// Those that were forgotten last: the request that forgets them may have a message of theirs for a value.
    forgotten: VecDeque<Entry>,
    query_id: u64,
}

struct Entry {
    code: Return,
    errno: i32,
    message: CString,
}

impl Errors {
    /// Remembers an error, if it is one of those that are; forgets those of earlier requests.
    pub(super) fn add(&mut self, options: &Options, failure: Failure) {
        if !failure.code.is_fatal() && failure.code != Return::CLIENT_ERROR {
            return;
        }
        if self.query_id != options.query_id {
            self.clear();
            self.query_id = options.query_id;
        }
        if self.entries.len() == ENTRIES_MAX {
            self.entries.pop_front();
        }
        let mut message = failure.message(options.root).into_bytes();
        message.retain(|byte| *byte != 0);
        let message = CString::new(message).unwrap_or_default();
        self.entries.push_back(Entry { code: failure.code, errno: failure.errno, message });
    }

    /// Forgets all. Their messages stay until the next that there are to forget.
    pub(crate) fn clear(&mut self) {
        if !self.entries.is_empty() {
            self.forgotten = mem::take(&mut self.entries);
        }
    }

    /// The code of the latest.
    pub(crate) fn code(&self) -> Option<Return> {
        self.entries.back().map(|entry| entry.code)
    }

    /// The system's number of the latest; 0: none.
    pub(crate) fn errno(&self) -> i32 {
        self.entries.back().map_or(0, |entry| entry.errno)
    }

    /// The message of the latest. It stays until the next request.
    pub(crate) fn message(&self) -> Option<&CStr> {
        self.entries.back().map(|entry| entry.message.as_c_str())
    }

    /// All, the latest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Return, &CStr)> {
        self.entries.iter().rev().map(|entry| (entry.code, entry.message.as_c_str()))
    }
}

/// So many errors are kept, of a client and of each server.
const ENTRIES_MAX: usize = 32;
/// What the standard library puts before the system's words.
const LOOKUP_PREFIX: &str = "failed to lookup address information: ";
