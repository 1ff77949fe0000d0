//! What stands for a state in a digest.

use sha2::{Digest as _, Sha256};

use crate::state::State;
use crate::version::unix_secs_of;

/// Of a key and all that clients see of its state. Equal at all sites, and in all versions of this code that speak one
/// protocol.
pub type Fingerprint = u128;

/// True if the state is compared at this horizon: an item that clients could see then, and of which every register is
/// known everywhere. What is gone at the horizon may be forgotten here and not there.
pub fn is_compared<V>(state: &State<V>, horizon: u64) -> bool {
    state.highest_version() <= horizon && state.item(unix_secs_of(horizon)).is_some()
}

/// Of a key with an item. `None`: there is no item.
///
/// The base version is left out: it only counts conflicts, and a join does not mend it.
pub fn fingerprint<V: AsRef<[u8]>>(key: &[u8], state: &State<V>) -> Option<Fingerprint> {
    let register = state.value.as_ref()?;
    let item = register.item.as_ref()?;
    let expiry = state.expiry;
    let mut hash = Sha256::new();
    let numbers = [
        key.len() as u64,
        register.version,
        expiry.value_version,
        expiry.version,
        expiry.exptime_secs,
        u64::from(item.client_flags),
        u64::from(item.marks),
    ];
    numbers.iter().for_each(|number| hash.update(number.to_le_bytes()));
    hash.update(key);
    hash.update(item.value.as_ref());
    Some(u128::from_le_bytes(first(hash)))
}

/// The leaf of a key: the first two bytes of its hash, so that no order of keys makes leaves uneven.
pub fn leaf_of(key: &[u8]) -> u16 {
    let mut hash = Sha256::new();
    hash.update(key);
    u16::from_be_bytes(first(hash))
}

fn first<const N: usize>(hash: Sha256) -> [u8; N] {
    let digest = hash.finalize();
    std::array::from_fn(|place| digest[place])
}
