//! What is appended to a store, and what is read back.

use std::ops::BitOr;

use crate::error::{Error, Result};

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;
/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// The most bytes of the prefixes that a flush leaves alone, and 2 for each.
pub const FLUSH_EXCEPTIONS_BYTES_MAX: usize = 64 << 10;

/// The longest name of a note, in bytes.
pub const NOTE_NAME_BYTES_MAX: usize = 64;
/// The longest note, in bytes.
pub const NOTE_BYTES_MAX: usize = 1 << 10;
/// The most notes of a store.
pub const NOTES_MAX: usize = 1024;

/// The most bytes of a batch of several entries: keys, values, and 64 for each. A batch of one has no such limit.
pub const BATCH_BYTES_MAX: usize = 32 << 20;

/// Marks of an item that clients see in the meta dialect. Bits without a name are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Marks(u8);

impl Marks {
    /// No mark.
    pub const NONE: Self = Self(0);
    /// The item was invalidated: its value is old.
    pub const STALE: Self = Self(1);
    /// Somebody has been told to fetch a new value.
    pub const TOKEN: Self = Self(2);
    /// The key was given in base64, and is shown so.
    pub const BINARY_KEY: Self = Self(4);

    const KNOWN: u8 = 7;

    /// The marks of these bits; `None` if one has no name.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits & !Self::KNOWN == 0 { Some(Self(bits)) } else { None }
    }

    /// As bits.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// True if all of `others` are set.
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }
}

impl BitOr for Marks {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// An item as it is from now on.
#[derive(Clone, Copy, Debug)]
pub struct Put<'a> {
    /// 1 to [`KEY_BYTES_MAX`] bytes.
    pub key: &'a [u8],
    /// The value in pieces, together at most [`VALUE_BYTES_MAX`]: a large value need not be in one piece of memory.
    pub value: &'a [&'a [u8]],
    /// The client's flags.
    pub client_flags: u32,
    /// When the item expires, in seconds of Unix time; 0: never. It is gone as soon as the clock shows this second.
    pub exptime_secs: u64,
    /// The item's CAS value.
    pub version: u64,
    /// The item's marks.
    pub marks: Marks,
    /// The site that made this change.
    pub origin: u8,
    /// The highest version of the key, or of a flush of it, that the site knew which made this change; 0: none is
    /// known.
    pub base_version: u64,
    /// Of the value that the expiry is said of, at least `version`; 0: as `version`. A higher one: a touch has come
    /// before its value, and this one lives as long meanwhile.
    pub expiry_value_version: u64,
    /// Of the expiry, at least that of its value; 0: as `version`.
    pub expiry_version: u64,
}

impl Put<'_> {
    /// The value's length.
    pub fn value_bytes(&self) -> usize {
        self.value.iter().map(|piece| piece.len()).sum()
    }
}

/// One change. Each gets a sequence number of its own, in the order of appending.
#[derive(Clone, Copy, Debug)]
pub enum Entry<'a> {
    /// The key has this item.
    Put(Put<'a>),
    /// The key has no item.
    Delete {
        /// 1 to [`KEY_BYTES_MAX`] bytes.
        key: &'a [u8],
        /// The CAS value that the deletion was given; counts for [`Store::highest_version`](crate::Store).
        version: u64,
        /// See [`Put::base_version`].
        base_version: u64,
    },
    /// The key has no item, but it is known when one that is to come expires: a touch that has come before its value.
    Touch {
        /// 1 to [`KEY_BYTES_MAX`] bytes.
        key: &'a [u8],
        /// Of the value that is to come, at least `version`. Not 0.
        expiry_value_version: u64,
        /// Of the expiry, at least that of its value.
        expiry_version: u64,
        /// Unix time in seconds; 0: never.
        exptime_secs: u64,
        /// Of the deletion that the touch came after; 0: none is known.
        version: u64,
        /// Of that deletion: see [`Put::base_version`].
        base_version: u64,
    },
    /// No key that begins with the prefix has an item, in O(1). Also ends a delayed flush of exactly this prefix.
    Flush {
        /// At most [`KEY_BYTES_MAX`] bytes; empty: all keys.
        prefix: &'a [u8],
        /// But for the keys that begin with one of these. Each begins with the prefix, and is longer; together they
        /// have at most [`FLUSH_EXCEPTIONS_BYTES_MAX`].
        except: &'a [Vec<u8>],
        /// As in `Delete`.
        version: u64,
        /// Which entries it means.
        by: FlushBy,
    },
    /// A flush is due later. The store keeps it, across restarts too, and does nothing else: the caller appends a
    /// `Flush` when it is due, with the exceptions of that moment, and asks for
    /// [`Store::pending_flushes`](crate::Store) after opening. A prefix has at most one; a later one replaces it.
    FlushAt {
        /// At most [`KEY_BYTES_MAX`] bytes; empty: all keys.
        prefix: &'a [u8],
        /// When it is due, in seconds of Unix time.
        at_secs: u64,
    },
    /// The delayed flush of this prefix, if there is one, is no longer due.
    CancelFlushAt {
        /// The prefix that `FlushAt` had.
        prefix: &'a [u8],
    },
    /// A note of the caller, which the store keeps until another one has the same name. At most [`NOTES_MAX`] names.
    Note {
        /// 1 to [`NOTE_NAME_BYTES_MAX`] bytes.
        name: &'a [u8],
        /// At most [`NOTE_BYTES_MAX`] bytes.
        value: &'a [u8],
    },
}

/// Which entries a flush means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlushBy {
    /// All that were appended before.
    #[default]
    Sequence,
    /// Values and deletions whose version is lower, and expiries of such values, whether they were appended before or
    /// are later. For replicated stores.
    Version,
}

impl Entry<'_> {
    /// The key, the prefix, or the name.
    pub fn key(&self) -> &[u8] {
        match *self {
            Self::Put(Put { key, .. }) | Self::Delete { key, .. } | Self::Touch { key, .. } => key,
            Self::Flush { prefix, .. } | Self::FlushAt { prefix, .. } | Self::CancelFlushAt { prefix } => {
                prefix
            }
            Self::Note { name, .. } => name,
        }
    }

    /// The CAS value that the change was given; 0 if it has none.
    pub fn version(&self) -> u64 {
        match *self {
            Self::Put(Put { version, .. })
            | Self::Delete { version, .. }
            | Self::Touch { version, .. }
            | Self::Flush { version, .. } => version,
            Self::FlushAt { .. } | Self::CancelFlushAt { .. } | Self::Note { .. } => 0,
        }
    }

    /// Of the expiry, where it is not that of the value; else 0.
    pub(crate) fn expiry_version(&self) -> u64 {
        match *self {
            Self::Put(Put { version, expiry_version, .. }) if expiry_version != version => expiry_version,
            Self::Touch { expiry_version, .. } => expiry_version,
            _ => 0,
        }
    }

    /// Of the value that the expiry is said of, where it is not this one; else 0.
    pub(crate) fn expiry_value_version(&self) -> u64 {
        match *self {
            Self::Put(Put { version, expiry_value_version, .. }) if expiry_value_version != version => {
                expiry_value_version
            }
            Self::Touch { expiry_value_version, .. } => expiry_value_version,
            _ => 0,
        }
    }

    pub(crate) fn base_version(&self) -> u64 {
        match *self {
            Self::Put(Put { base_version, .. })
            | Self::Delete { base_version, .. }
            | Self::Touch { base_version, .. } => base_version,
            _ => 0,
        }
    }

    pub(crate) fn highest_version(&self) -> u64 {
        self.version().max(self.expiry_version())
    }

    /// Is it about one key?
    pub(crate) fn has_key(&self) -> bool {
        matches!(self, Self::Put(_) | Self::Delete { .. } | Self::Touch { .. })
    }
}

/// The sequence numbers of a batch, both ends included. The first batch of a store begins with 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceRange {
    /// Of the first entry.
    pub first: u64,
    /// Of the last entry; `first - 1` if the batch was empty.
    pub last: u64,
}

/// All of an item but key and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The value's length.
    pub value_bytes: usize,
    /// The client's flags.
    pub client_flags: u32,
    /// When the item expires, in seconds of Unix time; 0: never.
    pub exptime_secs: u64,
    /// The item's CAS value.
    pub version: u64,
    /// The item's marks.
    pub marks: Marks,
    /// The site that made the change.
    pub origin: u8,
    /// Where the change stands among all changes of the store.
    pub sequence: u64,
}

impl Meta {
    /// True if the item is gone at this second.
    pub fn is_expired(&self, now_unix_secs: u64) -> bool {
        self.exptime_secs != 0 && self.exptime_secs <= now_unix_secs
    }
}

/// A flush that is due later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingFlush {
    /// Of the keys; empty: all.
    pub prefix: Vec<u8>,
    /// When it is due, in seconds of Unix time.
    pub at_secs: u64,
}

/// A flush of all that is below a version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VersionFlush {
    /// Of the keys; empty: all.
    pub prefix: Vec<u8>,
    /// But for the keys that begin with one of these.
    pub except: Vec<Vec<u8>>,
    /// What is below it is gone.
    pub version: u64,
}

/// Where a value is read to. The store calls `start` once it knows that it has the item, then `buffer` until the value
/// is whole. What was written counts only if the store's call returns `Ok`.
pub trait Sink {
    /// The item is there. `false`: its value is not wanted.
    fn start(&mut self, meta: &Meta) -> bool;

    /// The place of the next bytes of the value, of which `remaining_bytes` (at least 1) are missing. A longer buffer
    /// is filled in its first part only; an empty one ends the read with [`Error::Declined`](crate::Error).
    fn buffer(&mut self, remaining_bytes: usize) -> &mut [u8];
}

/// Hands a value that is in memory to a sink. Errors: `Declined`.
pub(crate) fn fill(sink: &mut dyn Sink, value: &[u8]) -> Result<()> {
    let mut rest = value;
    while !rest.is_empty() {
        let buffer = sink.buffer(rest.len());
        if buffer.is_empty() {
            return Err(Error::Declined);
        }
        let (piece, later) = rest.split_at(buffer.len().min(rest.len()));
        buffer[..piece.len()].copy_from_slice(piece);
        rest = later;
    }
    Ok(())
}

/// The whole value in a vector of its own.
#[derive(Clone, Debug, Default)]
pub struct VecSink {
    value: Vec<u8>,
}

impl VecSink {
    /// The value.
    pub fn into_value(self) -> Vec<u8> {
        self.value
    }
}

impl Sink for VecSink {
    fn start(&mut self, meta: &Meta) -> bool {
        self.value.clear();
        self.value.resize(meta.value_bytes, 0);
        true
    }

    fn buffer(&mut self, remaining_bytes: usize) -> &mut [u8] {
        let start = self.value.len() - remaining_bytes;
        &mut self.value[start..]
    }
}

/// Declines each value: for who wants to know the meta only.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoValue;

impl Sink for NoValue {
    fn start(&mut self, _: &Meta) -> bool {
        false
    }

    fn buffer(&mut self, _: usize) -> &mut [u8] {
        &mut []
    }
}
