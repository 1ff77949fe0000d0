//! All changes that became durable, and what they come to: the plain account, without joins.

use std::collections::BTreeMap;

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

#[derive(Debug, Default)]
pub(crate) struct Truth {
    pub(crate) changes: Vec<Change>,
}

impl Truth {
    /// What all changes of some sites come to, at a second. `with_sweeps`: those count as deletions.
    pub(crate) fn shown(
        &self,
        now_secs: u64,
        with_sweeps: bool,
        counts: impl Fn(u8) -> bool,
    ) -> BTreeMap<Key, Shown> {
        let mut newest: BTreeMap<&Key, (u64, Option<&Vec<u8>>)> = BTreeMap::new();
        let mut expiry: BTreeMap<&Key, (u64, u64)> = BTreeMap::new();
        for change in self.changes.iter().filter(|change| counts(site_of(change.version()))) {
            let version = change.version();
            let (key, value) = match change {
                Change::Put { key, value, .. } => (key, Some(value)),
                Change::Delete { key, .. } => (key, None),
                Change::Sweep { key, .. } if with_sweeps => (key, None),
                Change::Touch { key, exptime_secs, .. } => {
                    let known = expiry.entry(key).or_default();
                    *known = (*known).max((version, *exptime_secs));
                    continue;
                }
                Change::Sweep { .. } | Change::Flush(_) => continue,
            };
            let known = newest.entry(key).or_default();
            if version > known.0 {
                *known = (version, value);
            }
            if let Change::Put { exptime_secs, .. } = change {
                let known = expiry.entry(key).or_default();
                *known = (*known).max((version, *exptime_secs));
            }
        }
        let mut shown = BTreeMap::new();
        for (key, (version, value)) in newest {
            let is_flushed = self.changes.iter().any(|change| {
                matches!(change, Change::Flush(mark)
                    if mark.covers(key) && mark.version > version && counts(site_of(mark.version)))
            });
            let exptime_secs = expiry.get(key).map_or(0, |(_, exptime_secs)| *exptime_secs);
            let is_expired = exptime_secs != 0 && exptime_secs <= now_secs;
            if let Some(value) = value
                && !is_flushed
                && !is_expired
            {
                shown.insert(key.clone(), (version, value.clone(), exptime_secs));
            }
        }
        shown
    }
}
