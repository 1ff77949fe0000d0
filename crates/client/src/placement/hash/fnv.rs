//! FNV, by Fowler, Noll and Vo. Clients use the low 32 bits of the 64-bit sums, and these depend on the low bits alone.

use crate::placement::Chars;

const BASIS_32: u32 = 0x811C_9DC5;
const PRIME_32: u32 = 0x0100_0193;
/// The low bits of 0xCBF29CE484222325.
const BASIS_64: u32 = 0x8422_2325;
/// The low bits of 0x100000001B3.
const PRIME_64: u32 = 0x0000_01B3;

pub(super) fn fnv1_32(key: &[u8], chars: Chars) -> u32 {
    chars.fold(key, BASIS_32, |sum, char| sum.wrapping_mul(PRIME_32) ^ char)
}

pub(super) fn fnv1a_32(key: &[u8], chars: Chars) -> u32 {
    chars.fold(key, BASIS_32, |sum, char| (sum ^ char).wrapping_mul(PRIME_32))
}

pub(super) fn fnv1_64(key: &[u8], chars: Chars) -> u32 {
    chars.fold(key, BASIS_64, |sum, char| sum.wrapping_mul(PRIME_64) ^ char)
}

pub(super) fn fnv1a_64(key: &[u8], chars: Chars) -> u32 {
    chars.fold(key, BASIS_64, |sum, char| (sum ^ char).wrapping_mul(PRIME_64))
}
