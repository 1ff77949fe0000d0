//! Cyclic redundancy checks.

/// 15 bits of CRC-32: the function of Perl's Cache::Memcached, which others took over.
pub(super) fn crc15(key: &[u8]) -> u32 {
    (crc32fast::hash(key) >> 16) & 0x7FFF
}

/// CRC-16/XMODEM, but what is shifted out at the top stays: twemproxy has the sum in 32 bits.
pub(super) fn crc16(key: &[u8]) -> u32 {
    key.iter().fold(0, |sum: u32, byte| (sum << 8) ^ remainder(((sum >> 8) as u8) ^ byte))
}

fn remainder(byte: u8) -> u32 {
    const POLYNOMIAL: u16 = 0x1021;
    let shifted = |sum: u16| if sum & 0x8000 == 0 { sum << 1 } else { (sum << 1) ^ POLYNOMIAL };
    u32::from((0..8).fold(u16::from(byte) << 8, |sum, _| shifted(sum)))
}
