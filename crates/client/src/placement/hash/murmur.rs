//! Austin Appleby's MurmurHash2 and MurmurHash3 (32 bits), little-endian.

use super::word;

/// MurmurHash2 with the seed of libmemcached, which depends on the length.
pub(super) fn murmur2(key: &[u8]) -> u32 {
    const M: u32 = 0x5BD1_E995;
    let bytes = key.len() as u32;
    let (words, tail) = key.as_chunks::<4>();
    let mut sum = words.iter().fold(length_seed(key) ^ bytes, |sum, bytes| {
        let mixed = u32::from_le_bytes(*bytes).wrapping_mul(M);
        sum.wrapping_mul(M) ^ (mixed ^ (mixed >> 24)).wrapping_mul(M)
    });
    if !tail.is_empty() {
        sum = (sum ^ word(tail)).wrapping_mul(M);
    }
    sum = (sum ^ (sum >> 13)).wrapping_mul(M);
    sum ^ (sum >> 15)
}

/// MurmurHash3_x86_32.
pub(in crate::placement) fn murmur3(key: &[u8], seed: u32) -> u32 {
    let scrambled = |word: u32| word.wrapping_mul(0xCC9E_2D51).rotate_left(15).wrapping_mul(0x1B87_3593);
    let (words, tail) = key.as_chunks::<4>();
    let mut sum = words.iter().fold(seed, |sum, bytes| {
        let sum = (sum ^ scrambled(u32::from_le_bytes(*bytes))).rotate_left(13);
        sum.wrapping_mul(5).wrapping_add(0xE654_6B64)
    });
    sum ^= scrambled(word(tail));
    sum ^= key.len() as u32;
    sum = (sum ^ (sum >> 16)).wrapping_mul(0x85EB_CA6B);
    sum = (sum ^ (sum >> 13)).wrapping_mul(0xC2B2_AE35);
    sum ^ (sum >> 16)
}

/// The seed of libmemcached and twemproxy.
pub(super) fn length_seed(key: &[u8]) -> u32 {
    0xDEAD_BEEF_u32.wrapping_mul(key.len() as u32)
}
