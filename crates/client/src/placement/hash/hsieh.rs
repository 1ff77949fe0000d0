//! Paul Hsieh's SuperFastHash.

use crate::placement::Chars;
use crate::placement::chars::signed;

/// Only the last byte of a tail of three has a sign.
pub(super) fn hsieh(key: &[u8], chars: Chars) -> u32 {
    if key.is_empty() {
        return 0;
    }
    let (words, tail) = key.as_chunks::<4>();
    let mut sum = words.iter().fold(0, |sum: u32, [a, b, c, d]| {
        let sum = sum.wrapping_add(half(*a, *b));
        let sum = (sum << 16) ^ (half(*c, *d) << 11) ^ sum;
        sum.wrapping_add(sum >> 11)
    });
    match *tail {
        [a, b, c] => {
            sum = sum.wrapping_add(half(a, b));
            sum ^= sum << 16;
            sum ^= if chars == Chars::Signed { signed(c) } else { u32::from(c) } << 18;
            sum = sum.wrapping_add(sum >> 11);
        }
        [a, b] => {
            sum = sum.wrapping_add(half(a, b));
            sum ^= sum << 11;
            sum = sum.wrapping_add(sum >> 17);
        }
        [a] => {
            sum = sum.wrapping_add(u32::from(a));
            sum ^= sum << 10;
            sum = sum.wrapping_add(sum >> 1);
        }
        _ => {}
    }
    sum ^= sum << 3;
    sum = sum.wrapping_add(sum >> 5);
    sum ^= sum << 4;
    sum = sum.wrapping_add(sum >> 17);
    sum ^= sum << 25;
    sum.wrapping_add(sum >> 6)
}

fn half(low: u8, high: u8) -> u32 {
    u32::from(u16::from_le_bytes([low, high]))
}
