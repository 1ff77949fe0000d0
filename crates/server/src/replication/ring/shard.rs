//! A shard of a ring: its last changes, in their order.

use std::collections::{HashMap, VecDeque};

use larder_replication::told::FlushTime;
use larder_replication::version::{next_version, version_at};

use crate::clock::unix_micros;

#[derive(Default)]
pub(super) struct Shard {
    pub(super) marks: VecDeque<Mark>,
    /// What was dropped before the first mark: so many.
    pub(super) dropped: u64,
    pub(super) bytes: usize,
    /// By the number of the namespace: the last sequence of its marks that were dropped and nobody can be told of.
    pub(super) lost: Box<[u64]>,
    /// By the hash of the key, of marks that have a version.
    pub(super) newest: HashMap<u64, u64>,
    pub(super) highest_version: u64,
    /// By the number of the namespace: what other sites changed before this version was flushed here.
    pub(super) flushed_versions: Box<[u64]>,
}

/// A change.
#[derive(Clone, Debug)]
pub(in crate::replication) struct Mark {
    /// Of the namespace.
    pub(in crate::replication) number: u8,
    /// 0 where no values are told.
    pub(in crate::replication) version: u64,
    pub(in crate::replication) change: Change,
    pub(super) hash: u64,
}

/// What has changed.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// The key was deleted.
    Gone(Box<[u8]>),
    /// The item was marked stale, or emptied.
    Marked { key: Box<[u8]>, is_stale: bool, blank: Option<u32>, exptime_secs: Option<u64> },
    /// The key has another value.
    Changed(Box<[u8]>),
    /// All items of the namespace are flushed.
    Flushed(FlushTime),
    /// Another site's change was applied: nobody is told.
    Applied,
}

impl Shard {
    /// The last sequence.
    pub(super) fn end(&self) -> u64 {
        self.dropped + self.marks.len() as u64
    }

    pub(super) fn next_version(&mut self, site: u8) -> u64 {
        let version = version_at(unix_micros(), site).max(next_version(self.highest_version, site));
        self.highest_version = version;
        version
    }

    pub(super) fn push(&mut self, mark: Mark) {
        if mark.version != 0 {
            self.newest.insert(mark.hash, mark.version);
        }
        self.bytes += mark.bytes();
        self.marks.push_back(mark);
        while self.bytes > SHARD_BYTES_MAX
            && let Some(mark) = self.marks.pop_front()
        {
            self.drop_mark(&mark);
        }
    }

    fn drop_mark(&mut self, mark: &Mark) {
        self.bytes -= mark.bytes();
        self.dropped += 1;
        if !matches!(mark.change, Change::Applied)
            && let Some(lost) = self.lost.get_mut(usize::from(mark.number))
        {
            *lost = self.dropped;
        }
        if self.newest.get(&mark.hash) == Some(&mark.version) {
            self.newest.remove(&mark.hash);
        }
    }
}

impl Mark {
    pub(super) fn bytes(&self) -> usize {
        let key_bytes = match &self.change {
            Change::Gone(key) | Change::Changed(key) | Change::Marked { key, .. } => key.len(),
            Change::Flushed(_) | Change::Applied => 0,
        };
        let version_bytes = if self.version == 0 { 0 } else { VERSION_BYTES };
        size_of::<Self>() + key_bytes + version_bytes
    }
}

/// All shards together have 16 MiB: about 100,000 deletions.
pub(super) const SHARD_BYTES_MAX: usize = 1 << 20;
/// What a shard remembers of a version, about.
const VERSION_BYTES: usize = 32;
