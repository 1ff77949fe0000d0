//! Who gets the log.

use crate::lineage::Lineage;
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
            // The end of the connection gives the reason.
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

/// A site's request for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Number of the site.
    pub site: u8,
    /// Its position in the log, as it claims.
    pub cursor: Cursor,
    /// The part of the log that it had confirmed when it connected. The claimed cursor may be old: the site may have
    /// confirmed more over another connection since.
    pub confirmed: Cursor,
}

/// Decides whether a site gets the log from its cursor on. A refusal as `AheadOfLog` means that this site's store is an
/// older copy; one as `OlderCopy`, that the other site's is. Such a site takes no changes until its log has a new
/// incarnation and it has taken a copy of another site.
pub fn admit(members: &Members, asked: Subscription, log: LogExtent, lineage: &Lineage) -> Admission {
    let Subscription { site, cursor, confirmed } = asked;
    let Some(position) = members.position(site) else { return Admission::Refused(Refusal::UnknownSite) };
    let is_of_log = cursor.incarnation == log.incarnation;
    let is_behind = |confirmed: Cursor| {
        confirmed.incarnation == log.incarnation && (!is_of_log || cursor.sequence < confirmed.sequence)
    };
    let is_behind = is_behind(confirmed) && is_behind(members.confirmed_by(site));
    // A site that had this log and now has another is behind if the other log is the earlier one, and ahead otherwise.
    let is_ahead =
        if is_of_log { !lineage.has(cursor, log.durable) } else { is_behind && !lineage.is_earlier(cursor) };
    if position.standing == Standing::Removed {
        Admission::Refused(Refusal::UnknownSite)
    } else if is_ahead {
        // This is checked before the site's standing, which may be as old as the store.
        Admission::Refused(Refusal::AheadOfLog)
    } else if position.standing == Standing::Silent {
        Admission::Copy(CopyReason::Silent)
    } else if position.standing != Standing::In {
        Admission::Copy(CopyReason::Restored)
    } else if is_behind {
        Admission::Refused(Refusal::OlderCopy)
    } else if !is_of_log {
        Admission::Copy(CopyReason::OtherIncarnation)
    } else if cursor.sequence < log.start {
        Admission::Copy(CopyReason::TooFarBehind)
    } else {
        Admission::Log
    }
}
