//! Who follows, and who is followed, in figures.

use std::collections::BTreeMap;

use super::Ring;
use crate::replication::site::lock;

/// A site that this one tells of its caches.
#[derive(Clone, Debug, Default)]
pub(crate) struct FollowerFigures {
    pub(crate) connections: u64,
    /// Changes, since the start.
    pub(crate) told: u64,
    /// How often it missed something.
    pub(crate) gaps: u64,
    /// Values that it does not take: it was told that they are gone.
    pub(crate) too_large: u64,
}

/// A peer that tells this site of its caches.
#[derive(Clone, Debug, Default)]
pub(crate) struct FollowedFigures {
    pub(crate) is_connected: bool,
    /// Changes, since the start.
    pub(crate) applied: u64,
    /// Changes that were older than what this site had.
    pub(crate) outdated: u64,
    /// How often something was missing.
    pub(crate) gaps: u64,
    /// Namespaces that were flushed for that.
    pub(crate) flushes: u64,
}

impl Ring {
    /// Changes the figures of a site that follows.
    pub(in crate::replication) fn with_follower(&self, site: u8, change: impl FnOnce(&mut FollowerFigures)) {
        change(lock(&self.followers).entry(site).or_default());
    }

    /// Changes the figures of a peer that is followed.
    pub(in crate::replication) fn with_followed(
        &self,
        address: &str,
        change: impl FnOnce(&mut FollowedFigures),
    ) {
        change(lock(&self.followed).entry(address.to_owned()).or_default());
    }

    /// A peer is none any more.
    pub(in crate::replication) fn forget_followed(&self, address: &str) {
        lock(&self.followed).remove(address);
    }

    /// The sites that follow, by number.
    pub(crate) fn followers(&self) -> BTreeMap<u8, FollowerFigures> {
        lock(&self.followers).clone()
    }

    /// The peers that are followed, by address.
    pub(crate) fn followed(&self) -> BTreeMap<String, FollowedFigures> {
        lock(&self.followed).clone()
    }
}
