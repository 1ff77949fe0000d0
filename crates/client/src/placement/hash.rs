//! Hash functions of clients.

mod crc;
mod fnv;
mod hsieh;
mod jenkins;
pub(super) mod murmur;

use md5::{Digest, Md5};

use super::Chars;
use super::chars::utf16;

/// The hash function of a key. The names are libmemcached's, where it has the function.
///
/// | libmemcached (`MEMCACHED_HASH_…`) | twemproxy (`hash:`) | spymemcached | here |
/// |---|---|---|---|
/// | `DEFAULT` | `one_at_a_time` | | `OneAtATime` |
/// | `MD5` | `md5` | `KETAMA_HASH` | `Md5` |
/// | `CRC` | `crc32` | `CRC_HASH` | `Crc` |
/// | | `crc32a` | | `Crc32` |
/// | | `crc16` | | `Crc16` |
/// | `FNV1_32` | `fnv1_32` | `FNV1_32_HASH` | `Fnv32` |
/// | `FNV1A_32` | `fnv1a_32` | `FNV1A_32_HASH` | `Fnv32a` |
/// | `FNV1_64` | `fnv1_64` | `FNV1_64_HASH` | `Fnv64` |
/// | `FNV1A_64` | `fnv1a_64` | `FNV1A_64_HASH` | `Fnv64a` |
/// | `HSIEH`, in few builds | `hsieh` | | `Hsieh` |
/// | `MURMUR` | `murmur` | | `Murmur` |
/// | `MURMUR3` | | | `Murmur3` |
/// | `JENKINS` | `jenkins` | | `Jenkins` |
/// | | | `NATIVE_HASH` | `JavaString` |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyHash {
    /// Bob Jenkins' one-at-a-time, libmemcached's default.
    #[default]
    OneAtATime,
    /// The first four bytes of the MD5 sum, little-endian.
    Md5,
    /// 15 bits of CRC-32: `(crc >> 16) & 0x7FFF`.
    Crc,
    /// The same, but 1 for 0: python-memcached until 1.59.
    CrcNonzero,
    /// CRC-32: dalli, PHP's memcache, python-memcached with `useOldServerHashFunction`.
    Crc32,
    /// twemproxy's sum of CRC-16, which has 32 bits.
    Crc16,
    /// FNV-1, 32 bits.
    Fnv32,
    /// FNV-1a, 32 bits.
    Fnv32a,
    /// FNV-1, the low 32 of 64 bits.
    Fnv64,
    /// FNV-1a, the low 32 of 64 bits.
    Fnv64a,
    /// Paul Hsieh's SuperFastHash.
    Hsieh,
    /// MurmurHash2.
    Murmur,
    /// MurmurHash3 for x86, 32 bits.
    Murmur3,
    /// Bob Jenkins' lookup3.
    Jenkins,
    /// Java's `String.hashCode`, without sign.
    JavaString,
    /// Java's `String.hashCode`, the amount: Whalin's `NATIVE_HASH`.
    JavaStringAmount,
    /// Whalin's `OLD_COMPAT_HASH`: times 33 in 64 bits, the amount.
    Times33,
}

impl KeyHash {
    /// The hash of a key. Only [`KeyHash::Times33`] needs more than 32 bits. `chars` matters where a function adds
    /// characters one by one; the others take bytes.
    pub fn of(self, key: &[u8], chars: Chars) -> u64 {
        let hash = match self {
            Self::OneAtATime => jenkins::one_at_a_time(key, chars),
            Self::Md5 => md5(key)[0],
            Self::Crc => crc::crc15(key),
            Self::CrcNonzero => crc::crc15(key).max(1),
            Self::Crc32 => crc32fast::hash(key),
            Self::Crc16 => crc::crc16(key),
            Self::Fnv32 => fnv::fnv1_32(key, chars),
            Self::Fnv32a => fnv::fnv1a_32(key, chars),
            Self::Fnv64 => fnv::fnv1_64(key, chars),
            Self::Fnv64a => fnv::fnv1a_64(key, chars),
            Self::Hsieh => hsieh::hsieh(key, chars),
            Self::Murmur => murmur::murmur2(key),
            Self::Murmur3 => murmur::murmur3(key, murmur::length_seed(key)),
            Self::Jenkins => jenkins::lookup3(key),
            Self::JavaString => java_string(key),
            Self::JavaStringAmount => java_string(key).cast_signed().unsigned_abs(),
            Self::Times33 => return times33(key),
        };
        u64::from(hash)
    }
}

/// `String.hashCode`.
fn java_string(key: &[u8]) -> u32 {
    utf16(key, 0, |sum: u32, char| sum.wrapping_mul(31).wrapping_add(u32::from(char)))
}

fn times33(key: &[u8]) -> u64 {
    utf16(key, 0, |sum: i64, char| sum.wrapping_mul(33).wrapping_add(i64::from(char))).unsigned_abs()
}

/// An MD5 sum, of which rings are made.
pub fn md5_sum(bytes: &[u8]) -> [u8; 16] {
    Md5::digest(bytes).into()
}

/// An MD5 sum as four numbers, little-endian.
pub(super) fn md5(bytes: &[u8]) -> [u32; 4] {
    let sum = Md5::digest(bytes);
    std::array::from_fn(|n| sum.get(n * 4..n * 4 + 4).map_or(0, word))
}

/// Up to four bytes, little-endian.
fn word(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).rev().fold(0, |word, byte| (word << 8) | u32::from(*byte))
}
