//! What a store is to hold, as a map.

use std::collections::BTreeMap;

use crate::{Cursor, Entry, FlushBy, Marks, Meta, PendingFlush, Put, Store, TryGet, VecSink};

/// An entry that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Put { key: Vec<u8>, value: Vec<u8>, client_flags: u32, exptime_secs: u64, version: u64, marks: Marks },
    Delete { key: Vec<u8>, version: u64 },
    Flush { prefix: Vec<u8>, except: Vec<Vec<u8>>, version: u64 },
    FlushAt { prefix: Vec<u8>, at_secs: u64 },
    CancelFlushAt { prefix: Vec<u8> },
}

/// Appends changes as one batch; values in two pieces.
pub(super) fn append(store: &dyn Store, batch: &[Change]) -> crate::Result<crate::SequenceRange> {
    let values: Vec<[&[u8]; 2]> = batch
        .iter()
        .map(|change| match change {
            Change::Put { value, .. } => {
                let (front, back) = value.split_at(value.len() / 3);
                [front, back]
            }
            _ => [&[] as &[u8], &[]],
        })
        .collect();
    let entries: Vec<Entry<'_>> = batch
        .iter()
        .zip(&values)
        .map(|(change, pieces)| match change {
            Change::Put { key, client_flags, exptime_secs, version, marks, .. } => Entry::Put(Put {
                key,
                value: pieces,
                client_flags: *client_flags,
                exptime_secs: *exptime_secs,
                version: *version,
                marks: *marks,
                origin: (*version % 7) as u8,
                base_version: 0,
                expiry_value_version: 0,
                expiry_version: 0,
            }),
            Change::Delete { key, version } => Entry::Delete { key, version: *version, base_version: 0 },
            Change::Flush { prefix, except, version } => {
                Entry::Flush { prefix, except, version: *version, by: FlushBy::Sequence }
            }
            Change::FlushAt { prefix, at_secs } => Entry::FlushAt { prefix, at_secs: *at_secs },
            Change::CancelFlushAt { prefix } => Entry::CancelFlushAt { prefix },
        })
        .collect();
    store.append(&entries)
}

/// What a store holds after some batches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) items: BTreeMap<Vec<u8>, (Meta, Vec<u8>)>,
    pub(super) pending: BTreeMap<Vec<u8>, u64>,
    pub(super) last_sequence: u64,
    pub(super) highest_version: u64,
}

impl State {
    pub(super) fn apply(&mut self, batch: &[Change]) {
        for change in batch {
            self.last_sequence += 1;
            let version = match change {
                Change::Put { key, value, client_flags, exptime_secs, version, marks } => {
                    let meta = Meta {
                        value_bytes: value.len(),
                        client_flags: *client_flags,
                        exptime_secs: *exptime_secs,
                        version: *version,
                        marks: *marks,
                        origin: (*version % 7) as u8,
                        sequence: self.last_sequence,
                    };
                    self.items.insert(key.clone(), (meta, value.clone()));
                    *version
                }
                Change::Delete { key, version } => {
                    self.items.remove(key);
                    *version
                }
                Change::Flush { prefix, except, version } => {
                    let is_left = |key: &Vec<u8>| except.iter().any(|longer| key.starts_with(longer));
                    self.items.retain(|key, _| !key.starts_with(prefix) || is_left(key));
                    self.pending.remove(prefix);
                    *version
                }
                Change::FlushAt { prefix, at_secs } => {
                    self.pending.insert(prefix.clone(), *at_secs);
                    0
                }
                Change::CancelFlushAt { prefix } => {
                    self.pending.remove(prefix);
                    0
                }
            };
            self.highest_version = self.highest_version.max(version);
        }
    }

    /// The first difference between this and what the store says, about all keys of `keys`.
    pub(super) fn difference(&self, store: &dyn Store, keys: &[Vec<u8>], now: u64) -> Option<String> {
        for key in keys {
            let expected = self.items.get(key).filter(|(meta, _)| !meta.is_expired(now));
            let name = String::from_utf8_lossy(key);
            let mut sink = VecSink::default();
            let found = match store.get(key, now, &mut sink) {
                Ok(found) => found.map(|meta| (meta, sink.into_value())),
                Err(error) => return Some(format!("get {name}: {error}")),
            };
            if found.as_ref() != expected {
                let short = |item: Option<&(Meta, Vec<u8>)>| item.map(|(meta, _)| *meta);
                let (expected, found) = (short(expected), short(found.as_ref()));
                return Some(format!("get {name} returns {found:?}, not {expected:?}"));
            }
            let mut tried = None;
            let answer = store.try_get(key, now, &mut |meta, value| tried = Some((*meta, value.to_vec())));
            if answer != TryGet::WouldBlock
                && (tried.as_ref(), answer == TryGet::Found) != (expected, expected.is_some())
            {
                return Some(format!("try_get {name} says {answer:?}"));
            }
            if expected.is_some() && !store.may_contain(key) {
                return Some(format!("may_contain denies {name}"));
            }
        }
        let mut seen = BTreeMap::new();
        let (mut cursor, mut more) = (Cursor::new(), true);
        while more {
            let mut visit = |key: &[u8], meta: &Meta| {
                seen.insert(key.to_vec(), *meta);
            };
            more = match store.for_each_key(&mut cursor, 3, now, &mut visit) {
                Ok(more) => more,
                Err(error) => return Some(format!("for_each_key: {error}")),
            };
        }
        let expected: BTreeMap<_, _> = (self.items.iter())
            .filter(|(_, (meta, _))| !meta.is_expired(now))
            .map(|(key, (meta, _))| (key.clone(), *meta))
            .collect();
        if seen != expected {
            return Some(format!("for_each_key visits {} keys, not {}", seen.len(), expected.len()));
        }
        let pending: Vec<_> = (self.pending.iter())
            .map(|(prefix, &at_secs)| PendingFlush { prefix: prefix.clone(), at_secs })
            .collect();
        if store.pending_flushes() != pending {
            return Some(format!("pending flushes are {:?}, not {pending:?}", store.pending_flushes()));
        }
        if store.last_sequence() != self.last_sequence {
            return Some(format!("last sequence is {}, not {}", store.last_sequence(), self.last_sequence));
        }
        if store.highest_version() < self.highest_version {
            let highest = self.highest_version;
            return Some(format!("highest version is {}, below {highest}", store.highest_version()));
        }
        None
    }
}
