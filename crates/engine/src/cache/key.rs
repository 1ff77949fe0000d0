//! Keys of any length in an engine whose keys have 1 to 250 bytes.
//!
//! A key of such a length is the engine's key. Of any other, the engine's key is a digest, and the key itself stands in
//! front of the value, where it is compared: two keys with one digest share a place, but neither is found as the other.
//! The client flags tell the two kinds apart, so a key that equals another's digest is not taken for it.

use siphasher::sip128::{Hasher128, SipHasher24};

use crate::cache::clock::Deadline;
use crate::{Item, KEY_BYTES_MAX};

/// In the client flags of an item: its key stands in front of its value.
const LONG_KEY: u32 = 1 << 31;
/// In the client flags of an item that expires: [`Deadline::micros`].
const MICROS: u32 = (1 << 20) - 1;

/// The words of the digest, random, so that nobody can choose keys with one digest.
pub(super) struct DigestKey(pub(super) [u64; 2]);

/// A key of the cache.
pub(super) enum CacheKey<'k> {
    /// 1 to [`KEY_BYTES_MAX`] bytes.
    Short(&'k [u8]),
    /// Empty, or longer.
    Long { digest: [u8; 16], key: &'k [u8] },
}

impl<'k> CacheKey<'k> {
    #[inline]
    pub(super) fn new(key: &'k [u8], digest_key: &DigestKey) -> Self {
        if (1..=KEY_BYTES_MAX).contains(&key.len()) { Self::Short(key) } else { Self::long(key, digest_key) }
    }

    #[cold]
    fn long(key: &'k [u8], DigestKey([first, second]): &DigestKey) -> Self {
        let mut hasher = SipHasher24::new_with_keys(*first, *second);
        std::hash::Hasher::write(&mut hasher, key);
        Self::Long { digest: hasher.finish128().as_bytes(), key }
    }

    /// The engine's key.
    #[inline]
    pub(super) fn engine_key(&self) -> &[u8] {
        match self {
            Self::Short(key) => key,
            Self::Long { digest, .. } => digest,
        }
    }

    /// What the engine stores as the value: `Some` if that is not the value alone. `None` in it: too large for it.
    #[inline]
    pub(super) fn engine_value(&self, value: &[u8]) -> Option<Option<Vec<u8>>> {
        match self {
            Self::Short(_) => None,
            Self::Long { key, .. } => Some(u32::try_from(key.len()).ok().map(|key_bytes| {
                let mut joined = Vec::with_capacity(4 + key.len() + value.len());
                joined.extend(key_bytes.to_le_bytes());
                joined.extend_from_slice(key);
                joined.extend_from_slice(value);
                joined
            })),
        }
    }

    pub(super) fn client_flags(&self, deadline: Option<Deadline>) -> u32 {
        let long_key = if matches!(self, Self::Long { .. }) { LONG_KEY } else { 0 };
        long_key | deadline.map_or(0, |deadline| deadline.micros & MICROS)
    }

    /// The value of an item that the engine found, if the item is this key's.
    #[inline]
    pub(super) fn value_of<'t>(&self, item: &Item<'t>) -> Option<&'t [u8]> {
        let is_long = item.client_flags() & LONG_KEY != 0;
        match self {
            Self::Short(_) => (!is_long).then(|| item.value()),
            Self::Long { key, .. } if is_long => {
                let (key_bytes, rest) = item.value().split_first_chunk()?;
                let (stored, value) = rest.split_at_checked(u32::from_le_bytes(*key_bytes) as usize)?;
                (stored == *key).then_some(value)
            }
            Self::Long { .. } => None,
        }
    }
}

/// When an item expires, to the microsecond.
#[inline]
pub(super) fn deadline_of(item: &Item<'_>) -> Option<Deadline> {
    let secs = item.expiry().secs()?;
    Some(Deadline { secs, micros: item.client_flags() & MICROS })
}
