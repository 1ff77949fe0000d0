//! What a cache says of itself.

/// Counters since the cache was made, and what it holds: see [`Cache::stats`](crate::Cache::stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Look-ups that found a value.
    pub hits: u64,
    /// Look-ups that found none. Those of `get_or_insert_with` count once for each try, so waiting for another thread's
    /// value adds none.
    pub misses: u64,
    /// Values stored.
    pub inserts: u64,
    /// Values not stored: too large, no memory, or not to be encoded.
    pub rejected: u64,
    /// Entries removed to make room, before they expired.
    pub evictions: u64,
    /// Expired or cleared entries whose memory was taken back.
    pub reclaimed: u64,
    /// Values that were found, but that the codec could not decode. They count as misses, too. Not 0: the codec does
    /// not fit the type.
    pub decode_errors: u64,
    /// Entries, with those that have expired or were cleared and whose memory was not taken back yet.
    pub entries: u64,
    /// The memory that the cache may take.
    pub memory_bytes: u64,
    /// The memory that it has taken: entries, index, and free space within both. Memory for garbage and for the index
    /// may exceed [`Self::memory_bytes`] by a page or two.
    pub memory_used_bytes: u64,
}

impl CacheStats {
    /// Hits of all look-ups, 0 to 1; 0 without look-ups.
    pub fn hit_ratio(&self) -> f64 {
        let lookups = self.hits + self.misses;
        if lookups == 0 { 0.0 } else { self.hits as f64 / lookups as f64 }
    }
}
