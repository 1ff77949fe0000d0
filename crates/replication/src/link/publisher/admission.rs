//! Who gets the log.

use crate::members::{Cursor, Members, Standing};
use crate::wire::{CopyReason, Refusal};

/// Whether a subscriber gets the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// From its cursor on.
    Log,
    /// After a copy.
    Copy(CopyReason),
    /// No.
    Refused(Refusal),
}

impl std::fmt::Display for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Log => f.write_str("from where it was"),
            Self::Copy(reason) => write!(f, "after a copy, since {reason}"),
            // The end of the connection says why.
            Self::Refused(_) => f.write_str("it is refused"),
        }
    }
}

/// What there is of the own log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogExtent {
    /// See [`Cursor`].
    pub incarnation: u64,
    /// It is whole behind this sequence.
    pub start: u64,
    /// It is durable up to this one.
    pub durable: u64,
}

/// Whether a site gets the log from its cursor on.
pub fn admit(members: &Members, site: u8, cursor: Cursor, log: LogExtent) -> Admission {
    let Some(position) = members.position(site) else { return Admission::Refused(Refusal::UnknownSite) };
    if position.standing == Standing::Removed {
        Admission::Refused(Refusal::UnknownSite)
    } else if position.standing == Standing::Silent {
        Admission::Copy(CopyReason::Silent)
    } else if position.standing != Standing::In {
        Admission::Copy(CopyReason::Restored)
    } else if cursor.incarnation != log.incarnation {
        Admission::Copy(CopyReason::OtherIncarnation)
    } else if cursor.sequence > log.durable {
        Admission::Refused(Refusal::AheadOfLog)
    } else if cursor.sequence < log.start {
        Admission::Copy(CopyReason::TooFarBehind)
    } else {
        Admission::Log
    }
}
