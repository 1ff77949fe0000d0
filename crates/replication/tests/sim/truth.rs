//! All changes that became durable, and what they come to: the plain account, without joins.

use std::collections::{BTreeMap, BTreeSet};

use larder_replication::flushes::FlushMark;
use larder_replication::version::site_of;

use super::data::Key;

/// A change that a site has made.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Put {
        key: Key,
        version: u64,
        exptime_secs: u64,
        value: Vec<u8>,
    },
    Delete {
        key: Key,
        version: u64,
    },
    Touch {
        key: Key,
        value_version: u64,
        version: u64,
        exptime_secs: u64,
    },
    Flush(FlushMark),
    /// A site that was out dropped this key, because nobody else had it any more.
    Sweep {
        key: Key,
        version: u64,
    },
}

impl Change {
    pub(crate) fn version(&self) -> u64 {
        match self {
            Self::Put { version, .. }
            | Self::Delete { version, .. }
            | Self::Touch { version, .. }
            | Self::Sweep { version, .. } => *version,
            Self::Flush(mark) => mark.version,
        }
    }
}

/// What clients see of a key: version, value, exptime.
pub(crate) type Shown = (u64, Vec<u8>, u64);

/// What decides over a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    /// Of the newest value or deletion.
    version: u64,
    value: Option<Vec<u8>>,
    /// Version of the value, version and exptime.
    expiry: (u64, u64, u64),
    /// Of the newest flush.
    flushed: u64,
}

impl Decision {
    /// True if a touch of one of these sites decides when the item expires.
    pub(crate) fn is_touched_by(&self, sites: &BTreeSet<u8>) -> bool {
        self.expiry.1 != self.version && sites.contains(&site_of(self.expiry.1))
    }

    /// What clients see at a second.
    pub(crate) fn shown(&self, now_secs: u64) -> Option<Shown> {
        let (_, _, exptime_secs) = self.expiry;
        let is_expired = exptime_secs != 0 && exptime_secs <= now_secs;
        let value = self.value.as_ref().filter(|_| !is_expired && self.flushed < self.version)?;
        Some((self.version, value.clone(), exptime_secs))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Truth {
    pub(crate) changes: Vec<Change>,
}

impl Truth {
    /// What all changes of some sites come to. `with_sweeps`: those count as deletions.
    pub(crate) fn decisions(
        &self,
        with_sweeps: bool,
        counts: impl Fn(u8) -> bool,
    ) -> BTreeMap<Key, Decision> {
        let counted = || self.changes.iter().filter(|change| counts(site_of(change.version())));
        let mut decisions: BTreeMap<Key, Decision> = BTreeMap::new();
        for change in counted() {
            let (version, key) = match change {
                Change::Sweep { .. } if !with_sweeps => continue,
                Change::Flush(_) => continue,
                Change::Put { key, version, .. }
                | Change::Delete { key, version }
                | Change::Touch { key, version, .. }
                | Change::Sweep { key, version } => (*version, key),
            };
            let decision = decisions.entry(key.clone()).or_default();
            let expiry = match *change {
                Change::Put { exptime_secs, .. } => (version, version, exptime_secs),
                Change::Touch { value_version, exptime_secs, .. } => (value_version, version, exptime_secs),
                _ => (0, 0, 0),
            };
            decision.expiry = decision.expiry.max(expiry);
            if !matches!(change, Change::Touch { .. }) && version > decision.version {
                decision.version = version;
                decision.value = match change {
                    Change::Put { value, .. } => Some(value.clone()),
                    _ => None,
                };
            }
        }
        for change in counted() {
            let Change::Flush(mark) = change else { continue };
            for (_, decision) in decisions.iter_mut().filter(|(key, _)| mark.covers(key)) {
                decision.flushed = decision.flushed.max(mark.version);
            }
        }
        decisions
    }
}
