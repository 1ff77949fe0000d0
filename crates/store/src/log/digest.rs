//! The hash by which the index knows a key.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};

/// Bits of a digest.
pub(super) const DIGEST_BITS: u32 = 70;
/// Bits that choose the shard of the index.
pub(super) const SHARD_BITS: u32 = 10;
/// The other bits, which the index keeps.
pub(super) const TAG_BITS: u32 = DIGEST_BITS - SHARD_BITS;

/// A key's digest: 70 bits of SipHash-1-3 with the store's own secret.
///
/// Two keys with one digest would be one key to the index, and a `set` of the second would lose the first. The secret
/// keeps clients from choosing such keys; by chance, 100 million keys have a pair with probability n^2 / 2^71 = 4e-6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Digest {
    /// Below 2^10.
    pub(super) shard: u16,
    /// Below 2^60.
    pub(super) tag: u64,
}

/// The secret of a store: of its digests and its checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) [u8; 16]);

impl Secret {
    /// A fresh one, from the system's random numbers by way of the standard library.
    pub(crate) fn random() -> Self {
        use std::hash::{BuildHasher, RandomState};
        let halves = [RandomState::new().hash_one(1_u8), RandomState::new().hash_one(2_u8)];
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&halves[0].to_le_bytes());
        bytes[8..].copy_from_slice(&halves[1].to_le_bytes());
        Self(bytes)
    }

    pub(super) fn digest(self, key: &[u8]) -> Digest {
        let mut hasher = SipHasher13::new_with_key(&self.0);
        hasher.write(key);
        let hash = hasher.finish128();
        Digest { shard: (hash.h2 & ((1 << SHARD_BITS) - 1)) as u16, tag: hash.h1 >> (64 - TAG_BITS) }
    }

    /// Of a store of a format that had none: one that is always the same.
    pub(super) fn incarnation(self) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.0);
        hasher.write(b"incarnation");
        hasher.finish128().h1.max(1)
    }

    /// What the checksums of a segment begin with. A client does not know it, so no value that it stores can pass for a
    /// record, and no record of another segment for one of this.
    pub(super) fn checksum_seed(self, segment: u64) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.0), &segment.to_le_bytes())
    }
}
