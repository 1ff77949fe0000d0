//! States of the store, as sites tell each other of them.

use larder_policy::Table;
use larder_replication::state::{Expiry, Item, Register, State};
use larder_store::{KeyState, Put};

use crate::namespaces::is_replicated;

/// True if other sites are told of this key.
pub(in crate::replication) fn is_told(table: Option<&Table>, key: &[u8]) -> bool {
    table.is_some_and(|table| is_replicated(table, table.find(key)))
}

/// When the value of a key of the store expires.
pub(in crate::replication) fn expiry_of(state: &KeyState) -> Expiry {
    Expiry {
        value_version: state.expiry_value_version,
        version: state.expiry_version,
        exptime_secs: state.exptime_secs,
    }
}

/// A state of the store with its value.
pub(in crate::replication) fn state_of<'a>(state: &KeyState, value: &'a [u8]) -> State<&'a [u8]> {
    let KeyState { version, base_version, item, .. } = *state;
    let item = item.map(|item| Item { client_flags: item.client_flags, marks: item.marks.bits(), value });
    State {
        value: (version != 0).then_some(Register { version, base_version, item }),
        expiry: expiry_of(state),
    }
}

/// The key and the state of an entry of the log.
pub(super) fn state_of_entry<'a>(entry: &larder_store::Entry<'a>) -> Option<(&'a [u8], State<&'a [u8]>)> {
    Some(match *entry {
        larder_store::Entry::Put(Put {
            key,
            value,
            client_flags,
            exptime_secs,
            version,
            marks,
            base_version,
            expiry_value_version,
            expiry_version,
            ..
        }) => {
            let value = value.first().copied().unwrap_or_default();
            let mut state = State::set(
                version,
                base_version,
                exptime_secs,
                Item { client_flags, marks: marks.bits(), value },
            );
            state.expiry.value_version = expiry_value_version.max(version);
            state.expiry.version = expiry_version.max(version);
            (key, state)
        }
        larder_store::Entry::Delete { key, version, base_version } => {
            (key, State::deleted(version, base_version))
        }
        larder_store::Entry::Touch {
            key,
            expiry_value_version,
            expiry_version,
            exptime_secs,
            version,
            base_version,
        } => {
            let mut state = State::touched(Expiry {
                value_version: expiry_value_version,
                version: expiry_version,
                exptime_secs,
            });
            state.value = (version != 0).then_some(Register { version, base_version, item: None });
            (key, state)
        }
        _ => return None,
    })
}
