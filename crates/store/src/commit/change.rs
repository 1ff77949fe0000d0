//! A change on its way to the store.

use std::fmt;
use std::sync::Arc;

use crate::entry::{Entry, Marks, Put};

/// A value whose memory someone else keeps until this is dropped.
pub type SharedValue = Box<dyn AsRef<[u8]> + Send + Sync>;

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
    },
    /// The key has no item.
    Delete {
        /// The version that it had.
        version: u64,
    },
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
    /// Somebody waits until it is durable.
    pub(super) is_sync: bool,
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
            is_sync,
        }
    }

    /// The same with a value that lies elsewhere, and is not copied.
    pub fn with_shared(kind: Kind, key: &[u8], value: SharedValue, is_sync: bool) -> Self {
        Self { shared: Some(value), ..Self::new(kind, key, b"", is_sync) }
    }

    /// A flush of a prefix that leaves longer ones alone.
    pub fn flush(prefix: &[u8], except: Arc<[Vec<u8>]>, is_sync: bool) -> Self {
        Self { except: Some(except), ..Self::new(Kind::Flush, prefix, b"", is_sync) }
    }

    pub(super) fn nothing() -> Self {
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

    /// Memory that it takes, about.
    pub fn memory_bytes(&self) -> u64 {
        (self.key_bytes + self.value().len()) as u64 + ENTRY_BYTES
    }

    /// Bytes of key (or prefix) and value.
    pub fn payload_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// As an entry of the store, with `value` as room for a slice; `None`: it has none.
    pub(super) fn entry<'a>(&'a self, value: &'a [&'a [u8]]) -> Option<Entry<'a>> {
        let key = self.key();
        Some(match self.kind {
            Kind::Put { client_flags, exptime_secs, version, marks } => {
                Entry::Put(Put { key, value, client_flags, exptime_secs, version, marks, origin: 0 })
            }
            Kind::Delete { version } => Entry::Delete { key, version },
            Kind::Flush => {
                Entry::Flush { prefix: key, except: self.except.as_deref().unwrap_or_default(), version: 0 }
            }
            Kind::FlushAt { at_secs } => Entry::FlushAt { prefix: key, at_secs },
            Kind::CancelFlushAt => Entry::CancelFlushAt { prefix: key },
            Kind::Nothing => return None,
        })
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
