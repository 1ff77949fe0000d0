//! A server as a distribution sees it.

/// A server that keys can belong to.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Its position in the list that the caller gave.
    pub position: usize,
    /// Its name on the ring.
    pub name: String,
    /// At least 1.
    pub weight: u64,
}
