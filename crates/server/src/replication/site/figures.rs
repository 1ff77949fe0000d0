//! What a site counts of the others.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use larder_replication::members::Cursor;
use larder_replication::version::unix_micros_of;

use super::{Site, lock};
use crate::replication::compare::CompareFigures;

/// What this site knows of a peer that it pulls from.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeerFigures {
    /// 0: not known yet.
    pub(crate) site: u8,
    pub(crate) is_connected: bool,
    /// A copy is being taken.
    pub(crate) is_copying: bool,
    /// Whole ones, since the start.
    pub(crate) copies: u64,
    /// Of the copy that is being taken, or was the last one: what was applied, also before it was interrupted.
    pub(crate) copy_bytes: u64,
    /// About how many bytes the whole of it has.
    pub(crate) copy_whole_bytes: u64,
    /// Of copies, since the start.
    pub(crate) copied_pieces: u64,
    pub(crate) copied_bytes: u64,
    /// Applied since the start.
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
    pub(crate) conflicts: u64,
    /// Times that its log did not follow what this site has of it, and the connection was given up.
    pub(crate) gaps: u64,
    /// The highest version that was applied, of an entry or a beat.
    pub(crate) newest_version: u64,
    /// Delay of the newest change in the last applied batch, by the clocks of both sites.
    pub(crate) delay_micros: u64,
    /// Its changes are so far ahead of the wall clock that they wait; 0: they are not.
    pub(crate) ahead_micros: u64,
    /// Why the last connection ended.
    pub(crate) last_error: String,
    pub(crate) compare: CompareFigures,
}

/// What this site knows of a site that pulls from it.
#[derive(Clone, Debug, Default)]
pub(crate) struct PullerFigures {
    pub(crate) connections: u64,
    /// It has our log up to here, durably.
    pub(crate) confirmed: u64,
    /// Under way.
    pub(crate) in_flight_bytes: u64,
    /// Why it could not be given what comes next; empty: it could, or that is not known yet.
    pub(crate) failure: String,
    /// It could once it has confirmed more than that.
    pub(crate) failed_after: u64,
}

impl Site {
    /// Reads or changes the figures of a peer.
    pub(in crate::replication) fn with_peer<R>(
        &self,
        address: &str,
        change: impl FnOnce(&mut PeerFigures) -> R,
    ) -> R {
        change(lock(&self.peers).entry(address.to_owned()).or_default())
    }

    /// The site at this address; 0: not known yet.
    pub(in crate::replication) fn site_at(&self, address: &str) -> u8 {
        lock(&self.peers).get(address).map_or(0, |peer| peer.site)
    }

    /// Another address from which this site currently pulls the same site's log.
    pub(in crate::replication) fn other_address_of(&self, number: u8, address: &str) -> Option<String> {
        let peers = lock(&self.peers);
        let is_other = |(other, peer): &(&String, &PeerFigures)| {
            peer.site == number && peer.is_connected && other.as_str() != address
        };
        peers.iter().find(is_other).map(|(other, _)| other.clone())
    }

    /// A peer is none any more.
    pub(in crate::replication) fn forget_peer(&self, address: &str) {
        lock(&self.peers).remove(address);
    }

    /// Changes the figures of a site that pulls.
    pub(in crate::replication) fn with_puller<R>(
        &self,
        site: u8,
        change: impl FnOnce(&mut PullerFigures) -> R,
    ) -> R {
        change(lock(&self.pullers).entry(site).or_default())
    }

    /// Cursors up to which the other sites have this site's log durably.
    pub(in crate::replication) fn confirmed(&self) -> BTreeMap<u8, Cursor> {
        let members = self.members();
        members.positions().map(|position| (position.site, members.confirmed_by(position.site))).collect()
    }

    /// Counts a conflict of a key of this namespace.
    pub(in crate::replication) fn count_conflict(&self, number: u8) {
        if let Some(count) = self.conflicts.get(usize::from(number)) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Conflicts of keys of this namespace, since the start.
    pub(crate) fn conflicts_of(&self, number: u8) -> u64 {
        self.conflicts.get(usize::from(number)).map_or(0, |count| count.load(Relaxed))
    }

    /// What is known of the peers, by address.
    pub(crate) fn peers(&self) -> BTreeMap<String, PeerFigures> {
        lock(&self.peers).clone()
    }

    /// What is known of the sites that pull.
    pub(crate) fn pullers(&self) -> BTreeMap<u8, PullerFigures> {
        lock(&self.pullers).clone()
    }

    /// How old the newest version is that was applied of a peer, in microseconds; `None`: none was.
    pub(crate) fn lag_micros(&self, peer: &PeerFigures) -> Option<u64> {
        let since = |version: u64| self.journal.unix_micros().saturating_sub(unix_micros_of(version));
        (peer.newest_version != 0).then(|| since(peer.newest_version))
    }
}
