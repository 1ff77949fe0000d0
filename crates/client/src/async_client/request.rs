//! Requests that own what they say, so that they can wait, and be sent again.

use std::sync::Arc;

use super::key::WireKey;
use super::share::Share;
use crate::codec::{Arith, Delete, Get, Mode, Pipeline, Store, Touch};

/// A request to one server. All words in it have been checked.
#[derive(Debug)]
pub(super) enum Request {
    /// See [`Get`].
    Get { key: WireKey, with_cas: bool, exptime: Option<i64>, recache: Option<Recache> },
    /// The keys at these positions of the share.
    MultiGet { share: Arc<Share>, positions: Arc<[usize]>, with_cas: bool },
    /// See [`Store`]. `tells_cas`: the reply tells the new CAS value in the meta protocol, too.
    Store {
        key: WireKey,
        mode: Mode,
        value: Vec<u8>,
        client_flags: u32,
        exptime: i64,
        compare: Option<u64>,
        tells_cas: bool,
    },
    /// See [`Delete`]. `invalidate`: only mark it as stale (meta), perhaps with a new expiry.
    Delete { key: WireKey, compare: Option<u64>, invalidate: Option<Option<i64>> },
    /// See [`Arith`].
    Arith { key: WireKey, delta: u64, decrement: bool, initial: Option<(u64, i64)> },
    /// See [`Touch`].
    Touch { key: WireKey, exptime: i64 },
    /// See [`Pipeline::flush_all`].
    FlushAll { delay_secs: u32 },
    /// See [`Pipeline::flush_prefix`].
    FlushPrefix { prefix: String, delay_secs: u32 },
    /// See [`Pipeline::version`].
    Version,
    /// See [`Pipeline::stats`]. `wanted`: only those of these names, of a server that has few of any; else all.
    Stats { group: String, wanted: &'static [&'static str] },
}

/// Meta: who is to make a value anew.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recache {
    /// `N`: creates a missing item, with this expiry.
    pub vivify: Option<i64>,
    /// `R`: one reader wins if the item lives no longer than this.
    pub below_secs: Option<i64>,
}

impl Request {
    /// True if it changes nothing, so that it may be sent again.
    pub(super) fn is_read(&self) -> bool {
        match self {
            Self::Get { exptime, recache, .. } => {
                exptime.is_none() && recache.is_none_or(|recache| recache.is_read())
            }
            Self::MultiGet { .. } | Self::Version => true,
            // `reset` and `detail on` are changes.
            Self::Stats { group, .. } => group != "reset" && !group.starts_with("detail"),
            _ => false,
        }
    }

    /// True if it can find nothing, and does no more.
    pub(super) fn is_plain_get(&self) -> bool {
        matches!(self, Self::Get { .. }) && self.is_read()
    }

    /// True if it wants the CAS value for a later change.
    pub(super) fn is_gets(&self) -> bool {
        matches!(self, Self::Get { with_cas: true, exptime: None, recache: None, .. })
    }

    /// True if it stores, whatever is there.
    pub(super) fn is_plain_set(&self) -> bool {
        matches!(self, Self::Store { mode: Mode::Set, compare: None, .. })
    }

    pub(super) fn is_delete(&self) -> bool {
        matches!(self, Self::Delete { .. })
    }

    /// True if what it does depends on the item that is there.
    pub(super) fn needs_item(&self) -> bool {
        match self {
            Self::Store { .. } => !self.is_plain_set(),
            Self::Delete { compare, invalidate, .. } => compare.is_some() || invalidate.is_some(),
            _ => true,
        }
    }

    /// True if it has the same result wherever it is made.
    pub(super) fn goes_everywhere(&self) -> bool {
        match self {
            Self::Store { .. } => self.is_plain_set(),
            Self::Delete { compare, .. } => compare.is_none(),
            Self::Touch { .. } => true,
            _ => false,
        }
    }

    /// True if it may make another value of the item that is there.
    pub(super) fn changes_value(&self) -> bool {
        matches!(self, Self::Store { .. } | Self::Delete { .. } | Self::Arith { .. })
    }

    /// True if it may change the item that is there, or how long it lives.
    pub(super) fn changes_item(&self) -> bool {
        match self {
            Self::Get { exptime, .. } => exptime.is_some(),
            Self::Touch { .. } => true,
            _ => self.changes_value(),
        }
    }

    /// True if the flags of the reply say more than the item.
    pub(super) fn needs_flags(&self) -> bool {
        matches!(self, Self::Get { recache: Some(_), .. })
    }

    /// The names of the statistics that are wanted. None: all, whatever they take.
    pub(super) fn wanted_stats(&self) -> &'static [&'static str] {
        match self {
            Self::Stats { wanted, .. } => wanted,
            _ => &[],
        }
    }

    /// A get that tells CAS value and time to live as well.
    pub(super) fn with_ttl(self) -> Self {
        match self {
            Self::Get { key, exptime, .. } => {
                Self::Get { key, with_cas: true, exptime, recache: Some(Recache::TTL_ONLY) }
            }
            other => other,
        }
    }

    /// A get that tells the CAS value as well.
    pub(super) fn with_cas(self) -> Self {
        match self {
            Self::Get { key, exptime, recache, .. } => Self::Get { key, with_cas: true, exptime, recache },
            other => other,
        }
    }

    /// The key, if it has just one.
    pub(super) fn key(&self) -> Option<&WireKey> {
        match self {
            Self::Get { key, .. }
            | Self::Store { key, .. }
            | Self::Delete { key, .. }
            | Self::Arith { key, .. }
            | Self::Touch { key, .. } => Some(key),
            _ => None,
        }
    }

    /// About what it takes in the buffers.
    pub(super) fn bytes(&self) -> usize {
        let bytes = match self {
            Self::MultiGet { share, positions, .. } => {
                share.key_bytes(positions) + positions.len() * OVERHEAD_BYTES
            }
            Self::Store { key, value, .. } => key.bytes.len() + value.len(),
            Self::Get { key, .. }
            | Self::Delete { key, .. }
            | Self::Arith { key, .. }
            | Self::Touch { key, .. } => key.bytes.len(),
            Self::FlushAll { .. } | Self::FlushPrefix { .. } | Self::Version | Self::Stats { .. } => 0,
        };
        bytes + OVERHEAD_BYTES
    }

    /// Writes it. `tag`: see [`Pipeline`]; requests that are reads always have one.
    pub(super) fn write<T>(&self, pipeline: &mut Pipeline<T>, output: &mut Vec<u8>, tag: Option<T>) {
        match (self, tag) {
            (Self::Get { key, with_cas, exptime, recache }, Some(tag)) => {
                let mut flags = key.flag().to_vec();
                if let Some(recache) = recache {
                    recache.write(&mut flags);
                }
                let get = Get { with_cas: *with_cas, exptime: *exptime, meta_flags: &flags };
                pipeline.get(output, &get, &key.bytes, tag);
            }
            (Self::MultiGet { share, positions, with_cas }, Some(tag)) => {
                let meta_flags: &[u8] = if share.is_base64 { b"b" } else { b"" };
                let get = Get { with_cas: *with_cas, exptime: None, meta_flags };
                pipeline.multi_get(output, &get, positions.iter().map(|position| share.key(*position)), tag);
            }
            (Self::Store { key, mode, value, client_flags, exptime, compare, tells_cas }, tag) => {
                let store = Store {
                    mode: *mode,
                    key: &key.bytes,
                    value: &[value],
                    client_flags: *client_flags,
                    exptime: *exptime,
                    compare: *compare,
                    meta_flags: match (tells_cas, key.is_base64) {
                        (false, _) => key.flag(),
                        (true, false) => b"c",
                        (true, true) => b"b c",
                    },
                };
                pipeline.store(output, &store, tag);
            }
            (Self::Delete { key, compare, invalidate }, tag) => {
                let mut meta_flags = key.flag().to_vec();
                if let Some(exptime) = invalidate {
                    word(&mut meta_flags, "I");
                    if let Some(exptime) = exptime {
                        word(&mut meta_flags, &format!("T{exptime}"));
                    }
                }
                let delete = Delete { key: &key.bytes, compare: *compare, meta_flags: &meta_flags };
                pipeline.delete(output, &delete, tag);
            }
            (Self::Arith { key, delta, decrement, initial }, tag) => {
                let arith = Arith {
                    key: &key.bytes,
                    delta: *delta,
                    decrement: *decrement,
                    initial: *initial,
                    meta_flags: key.flag(),
                };
                pipeline.arith(output, &arith, tag);
            }
            (Self::Touch { key, exptime }, tag) => {
                let touch = Touch { key: &key.bytes, exptime: *exptime, meta_flags: key.flag() };
                pipeline.touch(output, &touch, tag);
            }
            (Self::FlushAll { delay_secs }, tag) => pipeline.flush_all(output, *delay_secs, tag),
            (Self::FlushPrefix { prefix, delay_secs }, tag) => {
                pipeline.flush_prefix(output, prefix.as_bytes(), *delay_secs, tag);
            }
            (Self::Version, Some(tag)) => pipeline.version(output, tag),
            (Self::Stats { group, .. }, Some(tag)) => pipeline.stats(output, group.as_bytes(), tag),
            (Self::Get { .. } | Self::MultiGet { .. } | Self::Version | Self::Stats { .. }, None) => {
                debug_assert!(false, "a read without a tag");
            }
        }
    }
}

impl Recache {
    /// Only asks how long the item lives.
    pub(super) const TTL_ONLY: Self = Self { vivify: None, below_secs: None };

    fn is_read(self) -> bool {
        self.vivify.is_none() && self.below_secs.is_none()
    }

    /// With what the caller wants to know of the item, too: its time to live.
    fn write(self, flags: &mut Vec<u8>) {
        word(flags, "t");
        if let Some(exptime) = self.vivify {
            word(flags, &format!("N{exptime}"));
        }
        if let Some(secs) = self.below_secs {
            word(flags, &format!("R{secs}"));
        }
    }
}

/// Adds a flag.
fn word(flags: &mut Vec<u8>, flag: &str) {
    if !flags.is_empty() {
        flags.push(b' ');
    }
    flags.extend_from_slice(flag.as_bytes());
}

/// What a request takes besides key and value.
const OVERHEAD_BYTES: usize = 64;
