//! What is told of errors.

use super::{Computation, ComputationResult};
use crate::Error;
use crate::async_client::Shared;
use crate::codec::Violation;
use crate::error::Interruption;

/// One word for each kind, and for a change that may have been made that of its reason.
pub(super) fn error_type(error: &Error) -> &'static str {
    match error {
        Error::Connect(_) => "connect",
        Error::Io(_) => "io",
        Error::Timeout => "timeout",
        Error::Closed => "closed",
        Error::Unknown(reason) => error_type(reason),
        Error::Interrupted(_) => "interrupted",
        Error::ValueTooLarge { .. } => "value_too_large",
        Error::DatagramTooLarge { .. } => "datagram_too_large",
        Error::Unsupported(_) => "unsupported",
        Error::Violation(_) => "violation",
        Error::Refused { .. } => "refused",
        Error::InvalidKey => "invalid_key",
        Error::NoServers => "no_servers",
        Error::Ejected(_) => "ejected",
        Error::Value(_) => "value",
        #[cfg(feature = "serde")]
        Error::Json(_) => "json",
        Error::Discovery(_) => "discovery",
    }
}

/// The error without what a server has said, which may be a key or a value. `None`: it has nothing of that.
pub(super) fn without_words(error: &Error) -> Option<Error> {
    Some(match error {
        Error::Violation(violation) => Violation::new(violation.kind, b"not shown").into(),
        Error::Refused { kind, .. } => Error::Refused { kind: *kind, text: format!("refused: {kind}") },
        Error::Interrupted(Interruption::Refused(_)) => {
            Error::Interrupted(Interruption::Refused("not shown".into()))
        }
        Error::Unknown(reason) => Error::Unknown(Box::new(without_words(reason)?)),
        _ => return None,
    })
}

impl Shared {
    /// Tells the observer of a computation.
    pub(in crate::async_client) fn tell_computed(&self, computation: Computation<'_>) {
        let Some(observer) = &self.settings.observer else { return };
        let told = match computation.result {
            ComputationResult::NotStored(error) => without_words(error),
            _ => None,
        };
        let result = told.as_ref().map_or(computation.result, ComputationResult::NotStored);
        observer.computed(&Computation { result, ..computation });
    }
}
