//! A change on its way to the store.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

use crate::entry::{Entry, FlushBy, Marks, Put};
use crate::error::Result;
use crate::state::KeyState;
use crate::validate::validate_batch;

/// A value whose memory someone else keeps until this is dropped.
pub type SharedValue = Box<dyn AsRef<[u8]> + Send + Sync>;

/// Bytes of a change that is not in the store yet: part of a sum until this is dropped, with its change.
#[derive(Debug)]
pub struct OnItsWay {
    sum: Arc<AtomicU64>,
    bytes: u64,
}

impl OnItsWay {
    /// Adds to the sum.
    pub fn new(sum: &Arc<AtomicU64>, bytes: u64) -> Self {
        sum.fetch_add(bytes, Relaxed);
        Self { sum: Arc::clone(sum), bytes }
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        // The store has counted the change by now.
        self.sum.fetch_sub(self.bytes, Release);
    }
}

/// What a change does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The key has this item.
    Put {
        /// The client's flags.
        client_flags: u32,
        /// Unix time in seconds; 0: never.
        exptime_secs: u64,
        /// The CAS value.
        version: u64,
        /// Its marks.
        marks: Marks,
        /// The versions of its registers, where changes are replicated.
        registers: Registers,
    },
    /// The key has no item.
    Delete {
        /// Its own, where changes are replicated; else the one that the item had.
        version: u64,
        /// See [`Put::base_version`].
        base_version: u64,
    },
    /// The key has no item, but one that is to come may expire at another time.
    Touch {
        /// Of the value that is to come.
        expiry_value_version: u64,
        /// Of the expiry.
        expiry_version: u64,
        /// Unix time in seconds; 0: never.
        exptime_secs: u64,
        /// Of the deletion that was known before; 0: none.
        version: u64,
        /// Of that deletion.
        base_version: u64,
    },
    /// No key with this prefix has an item below this version, but for what [`Change::flush_below`] excepts.
    FlushBelow {
        /// Of the flush.
        version: u64,
    },
    /// A note: the key is its name.
    Note,
    /// No key with this prefix has an item, but for what [`Change::flush`] excepts.
    Flush,
    /// The same is due later.
    FlushAt {
        /// Unix time in seconds.
        at_secs: u64,
    },
    /// A delayed flush is no longer due.
    CancelFlushAt,
    /// Nothing: it only takes a position.
    Nothing,
}

/// The versions of an item's registers, beside that of the value; zeros where nothing is replicated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// See [`Put::base_version`].
    pub base_version: u64,
    /// See [`Put::expiry_value_version`].
    pub expiry_value_version: u64,
    /// See [`Put::expiry_version`].
    pub expiry_version: u64,
    /// See [`Put::origin`].
    pub origin: u8,
}

/// A change that waits to be appended. Owns its bytes, but for a shared value.
pub struct Change {
    kind: Kind,
    /// The key (or prefix), then the value.
    bytes: Box<[u8]>,
    key_bytes: usize,
    /// In place of the value in `bytes`.
    shared: Option<SharedValue>,
    /// Of a flush: the longer prefixes that it leaves alone.
    except: Option<Arc<[Vec<u8>]>>,
    /// Only held.
    _on_its_way: Option<OnItsWay>,
    /// Somebody waits until it is durable.
    pub(super) is_sync: bool,
    /// Followers of the log wait until it is durable.
    pub(super) is_followed: bool,
}

impl Change {
    /// A change of a key or prefix. `is_sync`: it is made durable without delay.
    pub fn new(kind: Kind, key: &[u8], value: &[u8], is_sync: bool) -> Self {
        let mut bytes = Vec::with_capacity(key.len() + value.len());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        Self {
            kind,
            bytes: bytes.into_boxed_slice(),
            key_bytes: key.len(),
            shared: None,
            except: None,
            _on_its_way: None,
            is_sync,
            is_followed: true,
        }
    }

    /// The same with a value that lies elsewhere, and is not copied.
    pub fn with_shared(kind: Kind, key: &[u8], value: SharedValue, is_sync: bool) -> Self {
        Self { shared: Some(value), ..Self::new(kind, key, b"", is_sync) }
    }

    /// The same, counted until it is in the store, or lost.
    pub fn counted(self, on_its_way: Option<OnItsWay>) -> Self {
        Self { _on_its_way: on_its_way, ..self }
    }

    /// The same, if it says nothing to those who follow the log: they have it from elsewhere, or do not need it.
    pub fn unfollowed(self) -> Self {
        Self { is_followed: false, ..self }
    }

    /// A flush of a prefix that leaves longer ones alone.
    pub fn flush(prefix: &[u8], except: Arc<[Vec<u8>]>, is_sync: bool) -> Self {
        Self { except: Some(except), ..Self::new(Kind::Flush, prefix, b"", is_sync) }
    }

    /// A flush of what is below a version.
    pub fn flush_below(prefix: &[u8], except: Arc<[Vec<u8>]>, version: u64, is_sync: bool) -> Self {
        let kind = Kind::FlushBelow { version };
        Self { except: Some(except), ..Self::new(kind, prefix, b"", is_sync) }
    }

    /// It only takes its position.
    pub fn nothing() -> Self {
        Self::new(Kind::Nothing, b"", b"", false)
    }

    /// The key, or the prefix.
    pub fn key(&self) -> &[u8] {
        &self.bytes[..self.key_bytes]
    }

    /// What it does.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// True if the store needs no room for it beyond what is set aside.
    pub(super) fn only_removes(&self) -> bool {
        !matches!(self.kind, Kind::Put { .. } | Kind::Touch { .. } | Kind::Note)
    }

    /// Memory that it takes, about.
    pub fn memory_bytes(&self) -> u64 {
        self.payload_bytes() + ENTRY_BYTES
    }

    /// Bytes of key (or prefix) and value.
    pub fn payload_bytes(&self) -> u64 {
        (self.key_bytes + self.value().len()) as u64
    }

    /// For a change that comes from outside. Errors: no store keeps it, and the committer would lose it, with all that
    /// comes behind it.
    pub fn validate(&self) -> Result<()> {
        let value = [self.value()];
        self.entry(&value).map_or(Ok(()), |entry| validate_batch(&[entry]))
    }

    /// As an entry of the store, with `value` as room for a slice; `None`: it has none.
    pub(super) fn entry<'a>(&'a self, value: &'a [&'a [u8]]) -> Option<Entry<'a>> {
        let (key, except) = (self.key(), self.except.as_deref().unwrap_or_default());
        Some(match self.kind {
            Kind::Put { client_flags, exptime_secs, version, marks, registers } => Entry::Put(Put {
                key,
                value,
                client_flags,
                exptime_secs,
                version,
                marks,
                origin: registers.origin,
                base_version: registers.base_version,
                expiry_value_version: registers.expiry_value_version,
                expiry_version: registers.expiry_version,
            }),
            Kind::Delete { version, base_version } => Entry::Delete { key, version, base_version },
            Kind::Touch { expiry_value_version, expiry_version, exptime_secs, version, base_version } => {
                Entry::Touch {
                    key,
                    expiry_value_version,
                    expiry_version,
                    exptime_secs,
                    version,
                    base_version,
                }
            }
            Kind::Flush => Entry::Flush { prefix: key, except, version: 0, by: FlushBy::Sequence },
            Kind::FlushBelow { version } => {
                Entry::Flush { prefix: key, except, version, by: FlushBy::Version }
            }
            Kind::Note => Entry::Note { name: key, value: self.value() },
            Kind::FlushAt { at_secs } => Entry::FlushAt { prefix: key, at_secs },
            Kind::CancelFlushAt => Entry::CancelFlushAt { prefix: key },
            Kind::Nothing => return None,
        })
    }

    /// The version of the value that it touches; `None`: it is no touch.
    pub(super) fn touched_version(&self) -> Option<u64> {
        match self.kind {
            Kind::Put {
                version,
                registers: Registers { expiry_value_version: 0, expiry_version, .. },
                ..
            } => (expiry_version > version).then_some(version),
            _ => None,
        }
    }

    /// The touch comes too late: the expiry stays as the store has it.
    pub(super) fn keep_expiry(&mut self, known: &KeyState) {
        if let Kind::Put { exptime_secs, registers, .. } = &mut self.kind {
            *exptime_secs = known.exptime_secs;
            registers.expiry_value_version = known.expiry_value_version;
            registers.expiry_version = known.expiry_version;
        }
    }

    pub(super) fn value(&self) -> &[u8] {
        match &self.shared {
            None => &self.bytes[self.key_bytes..],
            Some(value) => (**value).as_ref(),
        }
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key().escape_ascii().to_string();
        f.debug_struct("Change").field("kind", &self.kind).field("key", &key).finish_non_exhaustive()
    }
}

/// What a change takes beside key and value: its slot, and its record on the disk.
const ENTRY_BYTES: u64 = 128;
