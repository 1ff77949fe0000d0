//! The log as others read it, and how much of the past a store keeps for them.

use crate::entry::Entry;

/// An entry of the log.
#[derive(Clone, Copy, Debug)]
pub struct LogEntry<'a> {
    /// Its sequence.
    pub sequence: u64,
    /// No later entry is about the same key; true of entries that are not about a key.
    pub is_newest: bool,
    /// The value cannot be read, or does not match its checksum: here it is empty. All else is right.
    pub is_damaged: bool,
    /// As it was appended, but for the value, which is in one piece, and the versions of an expiry, which are never 0.
    pub entry: Entry<'a>,
}

/// How far a read of the log came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogRead {
    /// All up to here was visited. The next read begins after it.
    pub through_sequence: u64,
    /// There is more now.
    pub more: bool,
}

/// What a store keeps for others beside its items.
///
/// A store that is or was replicated has to be told at each opening. Until then it forgets nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Entries of the log above this sequence are kept for [`Store::read_log`](crate::Store).
    pub log_after_sequence: u64,
    /// But if the files of the log have more bytes than this together, the oldest may go, whoever still needs them.
    pub log_bytes_max: u64,
    /// A replicated store keeps deletions, lone touches and flushes by version that are above this version, and items
    /// that have expired, with their values. Nobody appends what is not above it.
    pub deletions_above_version: u64,
    /// Items that expire later are kept, too: another site's clock may be behind, and a touch may come from it.
    pub expired_above_secs: u64,
    /// The store is one of several that tell each other of their changes. Kept over restarts.
    pub is_replicated: bool,
}

impl Retention {
    /// Nothing is kept.
    pub const NONE: Self = Self {
        log_after_sequence: u64::MAX,
        log_bytes_max: 0,
        deletions_above_version: u64::MAX,
        expired_above_secs: u64::MAX,
        is_replicated: false,
    };

    /// Of a replicated store that was not told yet.
    pub(crate) const ALL: Self = Self {
        log_after_sequence: 0,
        log_bytes_max: u64::MAX,
        deletions_above_version: 0,
        expired_above_secs: 0,
        is_replicated: true,
    };

    pub(crate) fn of_opening(is_replicated: bool) -> Self {
        if is_replicated { Self::ALL } else { Self::NONE }
    }

    /// When items count as expired that are to be forgotten.
    pub(crate) fn expired_by(&self, now_unix_secs: u64) -> u64 {
        if self.is_replicated { now_unix_secs.min(self.expired_above_secs) } else { now_unix_secs }
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self::NONE
    }
}
