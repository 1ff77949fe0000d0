//! The keyed hash. SipHash-1-3 with a random key: whoever does not know the key cannot choose keys that collide.

use siphasher::sip::SipHasher13;

/// A hashed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash(pub(crate) u64);

impl Hash {
    /// All 64 bits, each as good as random to whoever does not know the key of the hash function.
    pub fn bits(self) -> u64 {
        self.0
    }
}

/// The key of the hash function.
pub(crate) struct HashKey(SipHasher13);

impl HashKey {
    pub(crate) fn new(key: [u64; 2]) -> Self {
        Self(SipHasher13::new_with_keys(key[0], key[1]))
    }

    pub(crate) fn hash(&self, key: &[u8]) -> Hash {
        Hash(self.0.hash(key))
    }
}
