//! Bugs that tests plant, to see the suite find them. A build without tests has none.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// The directory is never synced.
    SkipDirSync,
    /// `sync` returns without fsync.
    AcknowledgeBeforeSync,
    /// A sync covers the newest of two open segments of the log alone.
    SyncNewestAlone,
    /// Recovery takes an open segment of the log whatever is lost before it.
    IgnoreGap,
    /// Cleaning drops each tombstone that it meets.
    DropTombstones,
    /// Recovery takes batches that have no commit mark.
    IgnoreCommitMark,
    /// Cleaning drops deletions that other sites still need.
    ForgetDeletions,
    /// Cleaning takes segments of the log that others still read.
    CleanNeededLog,
    /// The manifest has no notes.
    LoseNotes,
    /// A flush by version means newer registers, too, if they were appended before.
    FlushNewer,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug in this thread, or none.
#[cfg(test)]
pub(crate) fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

#[cfg(test)]
pub(crate) fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

#[cfg(not(test))]
pub(crate) const fn is_planted(_: Bug) -> bool {
    false
}
