//! Why a connection has ended.

use std::io;

use crate::Error;
use crate::codec::{ErrorKind, Violation};
use crate::error::Interruption;

/// Why a connection has ended. Each of its requests is told.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// Connecting failed.
    Connect(io::ErrorKind, String),
    /// The login was refused.
    Login(ErrorKind, String),
    /// Sending or receiving failed.
    Io(io::ErrorKind, String),
    /// The server closed it.
    Closed,
    /// The server broke the protocol.
    Violation(Violation),
    /// We closed it.
    Interrupted(Interruption),
}

impl End {
    /// What a request on it is told.
    pub(super) fn error(&self) -> Error {
        match self {
            Self::Connect(kind, text) => Error::Connect(io::Error::new(*kind, text.clone())),
            Self::Login(kind, text) => Error::Refused { kind: *kind, text: text.clone() },
            Self::Io(kind, text) => Error::Io(io::Error::new(*kind, text.clone())),
            Self::Closed => Error::Closed,
            Self::Violation(violation) => Error::Violation(violation.clone()),
            Self::Interrupted(interruption) => Error::Interrupted(interruption.clone()),
        }
    }

    pub(super) fn of_connect(error: &io::Error) -> Self {
        Self::Connect(error.kind(), error.to_string())
    }

    pub(super) fn of_io(error: io::Error) -> Self {
        match Error::of_io(error) {
            Error::Closed => Self::Closed,
            Error::Io(error) => Self::Io(error.kind(), error.to_string()),
            error => Self::Io(io::ErrorKind::Other, error.to_string()),
        }
    }
}
