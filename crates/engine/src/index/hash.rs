//! The keyed hash: NH, then one step of a multilinear hash, both with secret random words.
//!
//! NH (Black et al., UMAC, CRYPTO 1999) makes two keys collide in one of 2^64 draws of those words, for all keys chosen
//! without knowing the words. The second step makes the hashes of keys that NH distinguishes independent: any n bits of
//! two hashes are equal with a probability of 2^-n (strongly universal; Lemire and Kaser, The Computer Journal 2014).
//!
//! Every request hashes, and a get of a hundred keys waits for a hundred hashes: 24 bytes take 57 instructions, where
//! SipHash-1-3 takes 141. But SipHash allows its outputs to be public and this hash does not: the words could be
//! computed from many hashes. Only the order of `lru_crawler metadump` reveals anything of the hashes, and `-X`
//! withholds that.

use siphasher::sip::SipHasher24;

use crate::KEY_BYTES_MAX;

/// Bytes of a key that one product takes.
const BLOCK_BYTES: usize = 16;

/// A hashed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash(pub(crate) u64);

impl Hash {
    /// All 64 bits. Each is as good as random to anyone who does not know the words.
    pub fn bits(self) -> u64 {
        self.0
    }
}

/// The secret random words.
pub(crate) struct HashKey {
    length: u64,
    /// For the last block, then for the blocks before it.
    blocks: [[u64; 2]; KEY_BYTES_MAX.div_ceil(BLOCK_BYTES)],
    factors: [u128; 2],
    summand: u128,
}

/// A number that tells nothing of the words, from the same key.
pub(crate) fn checksum_seed(key: [u64; 2]) -> u32 {
    SipHasher24::new_with_keys(key[0], key[1]).hash(b"checksums") as u32
}

impl HashKey {
    pub(crate) fn new(key: [u64; 2]) -> Self {
        let source = SipHasher24::new_with_keys(key[0], key[1]);
        Self::of((0_u64..).map(|number| source.hash(&number.to_le_bytes())))
    }

    fn of(words: impl Iterator<Item = u64>) -> Self {
        let mut words = words.fuse();
        let mut word = || words.next().unwrap_or_default();
        let length = word();
        let blocks = std::array::from_fn(|_| [word(), word()]);
        let mut double = || u128::from(word()) | u128::from(word()) << 64;
        Self { length, blocks, factors: [double(), double()], summand: double() }
    }

    /// Keys longer than [`KEY_BYTES_MAX`] are hashed too, but not as well.
    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> Hash {
        // The last block overlaps the one before, so a partial block costs nothing extra. The length makes it
        // unambiguous.
        let (before, last) = match key.last_chunk() {
            Some(last) => (key[..key.len() - 1].as_chunks().0, words(last)),
            None => (&[][..], short(key)),
        };
        let [last_pad, pads @ ..] = &self.blocks;
        let mut sum = u128::from(self.length) * key.len() as u128;
        sum = sum.wrapping_add(product(last, last_pad));
        for (block, pad) in before.iter().zip(pads) {
            sum = sum.wrapping_add(product(words(block), pad));
        }
        let [low, high] = [sum & u128::from(u64::MAX), sum >> 64];
        let line = self.factors[0].wrapping_mul(low).wrapping_add(self.factors[1].wrapping_mul(high));
        Hash(scatter((line.wrapping_add(self.summand) >> 64) as u64))
    }
}

#[inline]
fn words(block: &[u8; BLOCK_BYTES]) -> [u64; 2] {
    let block = u128::from_le_bytes(*block);
    [block as u64, (block >> 64) as u64]
}

/// The words of a key shorter than a block.
#[inline]
fn short(key: &[u8]) -> [u64; 2] {
    if let (Some(first), Some(last)) = (key.first_chunk(), key.last_chunk()) {
        return [u64::from_le_bytes(*first), u64::from_le_bytes(*last)];
    }
    if let (Some(first), Some(last)) = (key.first_chunk(), key.last_chunk()) {
        return [u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into()];
    }
    [key.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)), 0]
}

#[inline]
fn product(block: [u64; 2], pad: &[u64; 2]) -> u128 {
    u128::from(block[0].wrapping_add(pad[0])) * u128::from(block[1].wrapping_add(pad[1]))
}

/// A bijection, so it adds no collisions. Without it the hashes of consecutive keys would be evenly spaced.
#[inline]
fn scatter(bits: u64) -> u64 {
    let bits = (bits ^ bits >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits ^ bits >> 29
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Expected values by exact arithmetic with the same words: Python integers, modulo 2^64 and 2^128 where the
    /// definition says so.
    #[test]
    fn it_is_the_function_that_it_says() {
        let words =
            (1..).map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x0123_4567_89ab_cdef));
        let function = HashKey::of(words);
        let key: Vec<u8> = (0..=255).map(|byte: u8| byte.wrapping_mul(167)).collect();
        for (key_bytes, expected) in [
            (0, 0xf9c6_9473_3bf7_6f8a),
            (1, 0x2edc_0b0c_1205_e796),
            (3, 0xa088_25a8_94c0_f884),
            (4, 0x1985_a790_71c4_a69d),
            (7, 0x8781_234a_aaaa_7cc8),
            (8, 0x8b77_5927_105a_25bc),
            (15, 0xec56_e2c9_44e4_e34a),
            (16, 0xf7b1_95ff_dfd4_ccb3),
            (17, 0x8ef6_1713_7b17_bbbd),
            (24, 0x4d03_9e71_53ca_0e9b),
            (32, 0x7882_e11b_b8d1_8194),
            (33, 0x64fc_ffb8_9e92_e32d),
            (48, 0xfb7b_c98b_4112_f0b7),
            (100, 0x8130_f0e8_78c3_6d11),
            (249, 0x5dbf_69f8_a878_7e9a),
            (250, 0x926e_6326_302b_a6f6),
        ] {
            assert_eq!(function.hash(&key[..key_bytes]).bits(), expected, "{key_bytes}");
        }
    }

    #[test]
    fn words_are_of_the_key_and_none_is_left_empty() {
        let words = |key| {
            let HashKey { length, blocks, factors, summand } = HashKey::new(key);
            let double = |word: u128| [word as u64, (word >> 64) as u64];
            let rest = [factors[0], factors[1], summand].into_iter().flat_map(double);
            blocks.into_iter().flatten().chain([length]).chain(rest).collect::<HashSet<u64>>()
        };
        let (some, others) = (words([1, 2]), words([1, 3]));
        assert_eq!((some.len(), others.len()), (39, 39));
        assert!(some.is_disjoint(&others) && !some.contains(&0));
    }

    /// Makes the key of a number.
    type Make = fn(u64) -> Vec<u8>;

    /// Typical keys lie in the index as random ones would: two share a bucket, or a tag, as often as chance has it.
    #[test]
    #[cfg_attr(miri, ignore = "takes minutes there, and nothing here is unsafe")]
    fn keys_that_are_alike_lie_as_if_by_chance() {
        const KEYS: u64 = 1 << 16;
        let makes: [(&str, Make); 8] = [
            ("numbers", |n| n.to_string().into_bytes()),
            ("numbers that end a name", |n| format!("user:profile:{n:08}").into_bytes()),
            ("numbers within a name", |n| format!("session/{n:x}/of/a/customer/of/ours").into_bytes()),
            ("24 bytes", |n| format!("key-{n:020}").into_bytes()),
            ("binary", |n| n.to_le_bytes().to_vec()),
            ("binary, the other way", |n| n.to_be_bytes().to_vec()),
            ("two bits of 160", |n| {
                let mut key = vec![0; 20 + n as usize / 16_384];
                for bit in [n % 128, n / 128 % 128] {
                    key[bit as usize / 8] ^= 1 << (bit % 8);
                }
                key.extend(n.to_le_bytes());
                key
            }),
            ("lengths", |n| vec![b'a'; n as usize % 200].into_iter().chain(n.to_le_bytes()).collect()),
        ];
        for seed in 0..3 {
            let function = HashKey::new([seed, 7]);
            for (name, make) in makes {
                let hashes: Vec<u64> = (0..KEYS).map(|n| function.hash(&make(n)).bits()).collect();
                assert_eq!(hashes.iter().collect::<HashSet<_>>().len(), hashes.len(), "{name}");
                for shift in [0, 16, 32, 48] {
                    let mut loads = vec![0_u64; 1 << 16];
                    for hash in &hashes {
                        loads[(hash >> shift) as usize & 0xffff] += 1;
                    }
                    // The expected value is 32,767.5, and the standard deviation 181 for random keys.
                    let pairs: u64 = loads.iter().map(|load| load * load.saturating_sub(1) / 2).sum();
                    assert!(pairs.abs_diff(32_767) < 1000, "{name}: {pairs} pairs at bit {shift}");
                    assert!(loads.iter().all(|&load| load < 13), "{name}, bit {shift}");
                }
            }
        }
    }
}
