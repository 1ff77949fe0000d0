//! What comparisons have found.

/// Of a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CompareFigures {
    /// One is under way.
    pub(crate) is_running: bool,
    /// That ended, since the start.
    pub(crate) comparisons: u64,
    /// Unix time of the last end; 0: none yet.
    pub(crate) ended_secs: u64,
    /// Of the last one.
    pub(crate) last: CompareResult,
    /// Keys since the start, as of one comparison. Those of a comparison that was cut off count too.
    pub(crate) found: u64,
    pub(crate) mended: u64,
    pub(crate) unexplained: u64,
}

/// What one comparison has found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CompareResult {
    /// Of all states up to here.
    pub(crate) horizon: u64,
    /// States of this site that were compared.
    pub(crate) states: u64,
    /// Of 65,536, how many had different digests.
    pub(crate) ranges: u64,
    /// Records, or parts of the store, that could not be read.
    pub(crate) unreadable: u64,
    /// Keys that this site lacks, or has otherwise.
    pub(crate) found: u64,
    pub(crate) mended: u64,
    /// Found, and nobody can tell which site is right.
    pub(crate) unexplained: u64,
}
