//! What a store knows of a key: two registers, each with a version.
//!
//! A set writes both; a touch writes the expiry of the value that it found, a deletion the value alone. Who merges
//! changes of several sites takes of each register the newer one, and appends what comes out. The store itself merges
//! nothing: the newest entry of a key is its state, but for what was flushed.

use crate::entry::{Entry, Marks, Put};

/// The newest entry of a key, without the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyState {
    /// Of the value or the deletion; 0: neither is known, and there is an expiry alone.
    pub version: u64,
    /// See [`Put::base_version`](crate::Put).
    pub base_version: u64,
    /// `None`: the key was deleted, or nothing is known but its expiry.
    pub item: Option<ItemState>,
    /// Of the value that the expiry is said of; of an item at least `version`. 0: nothing is known.
    pub expiry_value_version: u64,
    /// Of the expiry, at least that of its value. 0: nothing is known.
    pub expiry_version: u64,
    /// Unix time in seconds; 0: never.
    pub exptime_secs: u64,
    /// See [`Put::origin`](crate::Put).
    pub origin: u8,
    /// Where the entry stands among all entries of the store.
    pub sequence: u64,
}

/// Takes keys, their states, and the values of items; `None`: an item's value cannot be read.
pub type VisitState<'v> = dyn FnMut(&[u8], &KeyState, Option<&[u8]>) + 'v;

/// What a client stored, without the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemState {
    /// The value's length.
    pub value_bytes: usize,
    /// The client's flags.
    pub client_flags: u32,
    /// The item's marks.
    pub marks: Marks,
}

impl KeyState {
    /// Of both registers.
    pub fn highest_version(&self) -> u64 {
        self.version.max(self.expiry_version)
    }

    /// True if there is an item with an exptime that has passed at this second.
    pub fn is_expired(&self, now_unix_secs: u64) -> bool {
        self.item.is_some() && self.exptime_secs != 0 && self.exptime_secs <= now_unix_secs
    }

    /// What is left when all below this version was flushed; `None`: nothing.
    pub fn flushed(mut self, version: u64) -> Option<Self> {
        if self.version < version {
            (self.version, self.base_version, self.item) = (0, 0, None);
        }
        if self.expiry_value_version < version {
            (self.expiry_value_version, self.expiry_version, self.exptime_secs) = (0, 0, 0);
        }
        (self.highest_version() != 0).then_some(self)
    }

    /// Passes on the entry that appends this state.
    pub(crate) fn visit(&self, key: &[u8], value: &[u8], visit: &mut dyn FnMut(Entry<'_>)) {
        let Self {
            version, base_version, expiry_value_version, expiry_version, exptime_secs, origin, ..
        } = *self;
        match self.item {
            Some(ItemState { client_flags, marks, .. }) => visit(Entry::Put(Put {
                key,
                value: &[value],
                client_flags,
                exptime_secs,
                version,
                marks,
                origin,
                base_version,
                expiry_value_version,
                expiry_version,
            })),
            None if expiry_version != 0 => {
                visit(Entry::Touch {
                    key,
                    expiry_value_version,
                    expiry_version,
                    exptime_secs,
                    version,
                    base_version,
                });
            }
            None => visit(Entry::Delete { key, version, base_version }),
        }
    }

    /// Nobody will ask for this state again: see [`Retention`](crate::Retention).
    pub(crate) fn is_obsolete(&self, horizon: u64, horizon_unix_secs: u64) -> bool {
        self.highest_version() <= horizon && (self.item.is_none() || self.is_expired(horizon_unix_secs))
    }
}
