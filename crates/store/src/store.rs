//! The trait that every driver implements.

use std::sync::Arc;

use crate::backup::Manifest;
use crate::entry::{Entry, Meta, PendingFlush, SequenceRange, Sink, VersionFlush};
use crate::error::{Error, Result};
use crate::files::Files;
use crate::history::{LogEntry, LogRead, Retention};
use crate::state::{KeyState, VisitState};
use crate::usage::PrefixUsage;

/// Items that stay.
///
/// One thread at a time appends: the committer. A second appender is safe, and waits for the first. Any thread may make
/// all other calls, which wait for the appender only for the time of an index update. An append does not wait for a
/// running `sync`, unless the disk has to be asked for more room.
///
/// An entry is *appended* when `append` returns: every later `get` sees it. It is *durable* when a `sync` that began
/// after that returns: it is there after power loss. A batch is there whole or not at all, and no batch is there
/// without all before it.
pub trait Store: Send + Sync {
    /// Appends all entries as one batch, in order. After an error nothing of it is visible.
    ///
    /// A batch whose `append` failed may still be there after a crash that follows at once, as after any write whose
    /// outcome is not known; not after a later `sync`.
    fn append(&self, entries: &[Entry<'_>]) -> Result<SequenceRange>;

    /// Checks whether `entries` entries of `bytes` bytes in total could be appended now, without appending any. Errors:
    /// as of [`append`](Self::append).
    fn try_write(&self, bytes: u64, entries: usize) -> Result<()> {
        let _ = (bytes, entries);
        Ok(())
    }

    /// Makes durable all that was appended before. Returns [`durable_sequence`](Self::durable_sequence). After an error
    /// the store is read-only.
    fn sync(&self) -> Result<u64>;

    /// After a failed sync: lets readers find these entries as if they had been appended, until the store is closed.
    /// Clients have been answered already, so older values must not come back. The entries must not be reported as
    /// durable.
    fn keep_readable(&self, entries: &[Entry<'_>]) -> Result<()> {
        self.append(entries).map(drop)
    }

    /// False: the key certainly has no item. Never reads the disk. Of items that are gone (expired, flushed, or of
    /// another key with the same hash) it may say true.
    fn may_contain(&self, key: &[u8]) -> bool;

    /// Reads the key's item, unless it has expired or was flushed. With the log at most one read of the disk, if the
    /// value has at most 64 KiB.
    fn get(&self, key: &[u8], now_unix_secs: u64, sink: &mut dyn Sink) -> Result<Option<Meta>>;

    /// The same without waiting for the disk: an item whose value is small is passed to `found` as a whole. The default
    /// cannot tell.
    fn try_get(&self, key: &[u8], now_unix_secs: u64, found: &mut dyn FnMut(&Meta, &[u8])) -> TryGet {
        let _ = (key, now_unix_secs, found);
        TryGet::WouldBlock
    }

    /// Visits up to `limit` items (key and meta, at least one step of work) from the cursor, and advances it. Returns
    /// false when there are no more.
    ///
    /// Every item that is there during the whole scan is visited. One that changes or is moved meanwhile may be visited
    /// again, never an older state after a newer.
    fn for_each_key(
        &self,
        cursor: &mut Cursor,
        limit: usize,
        now_unix_secs: u64,
        visit: &mut dyn FnMut(&[u8], &Meta),
    ) -> Result<bool>;

    /// The delayed flushes that nobody has cancelled or made, by prefix.
    fn pending_flushes(&self) -> Vec<PendingFlush>;

    /// Of the last appended entry; 0: none.
    fn last_sequence(&self) -> u64;

    /// Up to which all is durable.
    fn durable_sequence(&self) -> u64;

    /// The highest version that an entry ever had, also of items that are gone.
    fn highest_version(&self) -> u64;

    /// Counters.
    fn stats(&self) -> Stats;

    /// Space that is left before the disk usage exceeds its bound. `None`: cleaning does not affect it.
    fn room(&self) -> Option<Headroom> {
        None
    }

    /// The files of the log that somebody who has it up to this sequence has not read to their end.
    fn log_bytes_after(&self, sequence: u64) -> u64 {
        let _ = sequence;
        0
    }

    /// One bounded step of work that no request should wait for: cleaning, and notes of what is durable. Called again
    /// and again by one background thread; safe beside all other calls.
    fn maintain(&self, budget: Budget, now_unix_secs: u64) -> Result<Progress>;

    /// Counts from now on what the items of each of these prefixes, at most [`COUNTED_PREFIXES_MAX`], use on the disk;
    /// none: counts nothing any more. Replaces what was counted before, and goes on with it if the prefixes are the
    /// same, also over a clean stop. A driver may count approximately.
    ///
    /// [`COUNTED_PREFIXES_MAX`]: crate::COUNTED_PREFIXES_MAX
    fn count_prefixes(&self, prefixes: &[&[u8]]) -> Result<Arc<PrefixUsage>> {
        if prefixes.is_empty() { Ok(Arc::default()) } else { Err(Error::Unsupported { what: "disk quotas" }) }
    }

    /// What is known of the key: an item, whether it has expired or not, a deletion, a lone touch. `None`: nothing, or
    /// all of it was flushed. Deletions are sure to be known in a replicated store only.
    fn state(&self, key: &[u8]) -> Result<Option<KeyState>> {
        let _ = key;
        Err(REPLICATION)
    }

    /// No record of the key has a higher sequence, whether it can be read or not. `None`: that is not known.
    fn sequence_bound(&self, key: &[u8]) -> Option<u64> {
        let _ = key;
        None
    }

    /// The highest version of a flush that the key falls under; 0: none that is still known.
    fn newest_flush_version(&self, key: &[u8]) -> u64 {
        let _ = key;
        0
    }

    /// All notes by name.
    fn notes(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        Vec::new()
    }

    /// The note with this name.
    fn note(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.notes().into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Visits the durable entries of the log after this sequence, in their order, but for delayed flushes and their
    /// cancellations: about so many bytes, one entry at least. Ends before an entry that cannot be read, and fails if
    /// that is the first one.
    ///
    /// Errors: `TooFarBehind`.
    fn read_log(
        &self,
        after_sequence: u64,
        budget_bytes: usize,
        visit: &mut dyn FnMut(LogEntry<'_>),
    ) -> Result<LogRead> {
        let _ = (after_sequence, budget_bytes, visit);
        Err(REPLICATION)
    }

    /// From now on so much is kept.
    fn retain(&self, retention: Retention) -> Result<()> {
        if retention.is_replicated { Err(REPLICATION) } else { Ok(()) }
    }

    /// Visits all states that [`state`](Self::state) would tell, with the values of items, from the cursor on: about
    /// so many bytes, at least one step of work. Returns false when there are no more. `unreadable` counts what cannot
    /// be read: values, and records of which nobody knows the key, which are left out; `None`: it ends the scan. Else
    /// as [`for_each_key`](Self::for_each_key).
    fn for_each_state(
        &self,
        cursor: &mut Cursor,
        budget_bytes: usize,
        unreadable: Option<&mut u64>,
        visit: &mut VisitState<'_>,
    ) -> Result<bool> {
        let _ = (cursor, budget_bytes, unreadable, visit);
        Err(REPLICATION)
    }

    /// The flushes by version that are still known: a copy of all states needs them, too.
    fn version_flushes(&self) -> Vec<VersionFlush> {
        Vec::new()
    }

    /// A random number of this log, not 0: another one, if the store was restored from a backup or repaired, since its
    /// log is not what others have read. 0: the driver has no such log.
    fn incarnation(&self) -> u64 {
        0
    }

    /// Copies a consistent state to an empty directory, while others append and read. All that was appended before is
    /// in it. With the manifest of an earlier backup, copies only what that one has not; `restore` then needs both.
    fn backup(&self, target: &dyn Files, since: Option<&Manifest>) -> Result<Manifest>;

    /// Makes all durable, and writes what makes the next opening fast. Nothing can be appended afterwards. A store
    /// that is dropped without it opens like after a crash.
    fn close(&self) -> Result<()>;
}

const REPLICATION: Error = Error::Unsupported { what: "replication" };

/// What [`Store::try_get`] found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryGet {
    /// There is an item; it was passed on.
    Found,
    /// There is none.
    Absent,
    /// Only [`Store::get`] can tell: the disk would have to be read, the value is large, or something is wrong with it.
    WouldBlock,
}

/// Where a scan stands. A new one begins at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    pub(crate) position: Position,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Position {
    #[default]
    Start,
    /// After this key, in order of keys.
    AfterKey(Vec<u8>),
    /// At this byte of a file, in order of their numbers.
    At {
        segment: u64,
        offset: u64,
    },
    End,
}

impl Cursor {
    /// The start of a scan.
    pub fn new() -> Self {
        Self::default()
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        match &self.position {
            Position::Start => vec![0],
            Position::AfterKey(key) => [&[1], &key[..]].concat(),
            Position::At { segment, offset } => {
                [&[2], &segment.to_le_bytes()[..], &offset.to_le_bytes()].concat()
            }
            Position::End => vec![3],
        }
    }

    /// What [`encode`](Self::encode) has made of a cursor of the same store, or of anything. `None`: it is none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let position = match bytes.split_first()? {
            (0, []) => Position::Start,
            (1, key) => Position::AfterKey(key.to_vec()),
            (2, place) => {
                let (numbers, []) = place.as_chunks::<8>() else { return None };
                let &[segment, offset] = numbers else { return None };
                Position::At { segment: u64::from_le_bytes(segment), offset: u64::from_le_bytes(offset) }
            }
            (3, []) => Position::End,
            _ => return None,
        };
        Some(Self { position })
    }
}

/// How much one step of maintenance may do.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Bytes that it may read and write together. A step ends soon after it has used them.
    pub bytes: u64,
}

/// What one step of maintenance did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Read and written.
    pub bytes: u64,
    /// There is more to do now.
    pub more: bool,
}

/// Space that is left before the disk usage exceeds its bound: [`Store::room`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headroom {
    /// Bytes of entries, with their headers, that may still be appended. Negative: the bound is exceeded by as much.
    pub bytes: i64,
    /// Bytes that cleaning has freed since the opening, minus the bytes that it wrote for that.
    pub reclaimed_bytes: u64,
}

/// Counters of a store. Those that count events begin with its opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Items, including some that have expired or were flushed.
    pub records: u64,
    /// What these items use on the disk, with their headers.
    pub live_bytes: u64,
    /// What the store uses on the disk.
    pub disk_bytes: u64,
    /// Files of the log.
    pub segments: u64,
    /// Memory of the index.
    pub index_bytes: u64,
    /// Written by `append`.
    pub appended_bytes: u64,
    /// Written by cleaning.
    pub cleaned_bytes: u64,
    /// What cleaning has to reclaim until the disk is within its bound; 0 if it is.
    pub cleaning_debt_bytes: u64,
    /// Reads of the disk (or of the system's cache of it) for `get`.
    pub reads: u64,
    /// Calls of fsync or fdatasync of files.
    pub fsyncs: u64,
    /// Appends that failed because there was no room.
    pub full_errors: u64,
    /// Records that could not be read when they were to be counted, for a prefix or as flushed.
    pub uncounted_records: u64,
    /// The store is read-only.
    pub read_only: bool,
    /// The first sequence that [`Store::read_log`] can visit.
    pub log_start_sequence: u64,
    /// Files with entries that were appended, and not copied by cleaning.
    pub log_bytes: u64,
    /// Deletions and lone touches that are kept.
    pub tombstones: u64,
}
