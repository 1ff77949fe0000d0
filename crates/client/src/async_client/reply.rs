//! Replies that own what they say.

use tokio::sync::oneshot;

use super::impossible;
use super::share::Delivery;
use crate::Error;
use crate::client::Item;
use crate::codec::{ErrorKind, Outcome};

/// A complete reply.
#[derive(Debug)]
pub(super) struct Reply {
    pub answer: Answer,
    /// Of a get of one key.
    pub found: Option<FoundItem>,
    /// Of statistics.
    pub stats: Vec<(String, String)>,
}

impl Reply {
    /// The CAS value of what a get has found.
    pub(super) fn cas(&self) -> Option<u64> {
        self.found.as_ref()?.item.cas
    }

    /// An answer without more.
    pub(super) fn of(answer: Answer) -> Self {
        Self { answer, found: None, stats: Vec::new() }
    }

    /// A get that has found nothing.
    pub(super) fn miss() -> Self {
        Self::of(Answer::Found)
    }

    /// Of a change that may have gone without a reply: it was made, or sent.
    pub(super) fn made_or_sent(&self, made: impl Fn(&Answer) -> bool) -> Result<(), Error> {
        if matches!(self.answer, Answer::Sent) || made(&self.answer) { Ok(()) } else { Err(impossible()) }
    }
}

/// [`Outcome`], owned.
#[derive(Debug)]
pub(super) enum Answer {
    /// A get is complete.
    Found,
    /// With its CAS value, if the protocol tells it.
    Stored(Option<u64>),
    NotStored,
    Exists,
    NotFound,
    Deleted,
    Touched,
    Number(u64),
    Ok,
    Version(String),
    Refused(ErrorKind, String),
    /// A request without a reply is sent.
    Sent,
}

impl Answer {
    /// The CAS value of what was stored, if it is told and the server has any.
    pub(super) fn stored_cas(&self) -> Option<u64> {
        match self {
            Self::Stored(cas) => cas.filter(|cas| *cas != 0),
            _ => None,
        }
    }
}

/// An item, and the flags of a meta reply.
#[derive(Debug)]
pub(super) struct FoundItem {
    pub item: Item,
    pub meta_flags: Vec<u8>,
}

/// A request without a reply.
#[derive(Debug)]
pub(super) struct Failure {
    pub error: Error,
    /// Bytes of it were or may have been sent.
    pub was_sent: bool,
    /// It counts as a failure of the server, as the pool finds.
    pub counts: bool,
}

impl Failure {
    pub(super) fn new(error: Error, was_sent: bool) -> Self {
        Self { error, was_sent, counts: false }
    }
}

/// Who waits for a reply.
#[derive(Debug)]
pub(super) struct Sink {
    pub done: oneshot::Sender<Result<Reply, Failure>>,
    /// Of a get of many keys: who takes the values.
    pub values: Option<Delivery>,
}

impl From<Outcome<'_>> for Answer {
    fn from(outcome: Outcome<'_>) -> Self {
        match outcome {
            Outcome::Found { .. } => Self::Found,
            Outcome::Stored { cas } => Self::Stored(cas),
            Outcome::NotStored => Self::NotStored,
            Outcome::Exists => Self::Exists,
            Outcome::NotFound => Self::NotFound,
            Outcome::Deleted => Self::Deleted,
            Outcome::Touched => Self::Touched,
            Outcome::Number(number) => Self::Number(number),
            Outcome::Ok | Outcome::LoggedIn => Self::Ok,
            Outcome::Version(text) => Self::Version(String::from_utf8_lossy(text).into_owned()),
            Outcome::Error(error) => Self::Refused(error.kind, error.to_string()),
        }
    }
}
