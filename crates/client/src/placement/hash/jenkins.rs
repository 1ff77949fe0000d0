//! Bob Jenkins' functions: one-at-a-time, and lookup3.

use super::word;
use crate::placement::Chars;

pub(super) fn one_at_a_time(key: &[u8], chars: Chars) -> u32 {
    let mut sum = chars.fold(key, 0, |sum, char| {
        let sum = sum.wrapping_add(char);
        let sum = sum.wrapping_add(sum << 10);
        sum ^ (sum >> 6)
    });
    sum = sum.wrapping_add(sum << 3);
    sum ^= sum >> 11;
    sum.wrapping_add(sum << 15)
}

/// lookup3's `hashlittle` with the initial value of libmemcached.
pub(super) fn lookup3(key: &[u8]) -> u32 {
    let start = 0xDEAD_BEEF_u32.wrapping_add(key.len() as u32).wrapping_add(INITIAL_VALUE);
    let mut state = [start; 3];
    let mut rest = key;
    while let Some((block, after)) = rest.split_at_checked(12).filter(|(_, after)| !after.is_empty()) {
        add(&mut state, block);
        mix(&mut state);
        rest = after;
    }
    if rest.is_empty() {
        return state[2];
    }
    add(&mut state, rest);
    finish(state)
}

/// Adds up to twelve bytes, little-endian, as if zeros followed.
fn add(state: &mut [u32; 3], block: &[u8]) {
    for (sum, bytes) in state.iter_mut().zip(block.chunks(4)) {
        *sum = sum.wrapping_add(word(bytes));
    }
}

fn mix([a, b, c]: &mut [u32; 3]) {
    let step = |x: &mut u32, y: &mut u32, z: u32, bits| {
        *x = x.wrapping_sub(*y) ^ y.rotate_left(bits);
        *y = y.wrapping_add(z);
    };
    step(a, c, *b, 4);
    step(b, a, *c, 6);
    step(c, b, *a, 8);
    step(a, c, *b, 16);
    step(b, a, *c, 19);
    step(c, b, *a, 4);
}

fn finish([mut a, mut b, mut c]: [u32; 3]) -> u32 {
    let step = |x: &mut u32, y: u32, bits| *x = (*x ^ y).wrapping_sub(y.rotate_left(bits));
    step(&mut c, b, 14);
    step(&mut a, c, 11);
    step(&mut b, a, 25);
    step(&mut c, b, 16);
    step(&mut a, c, 4);
    step(&mut b, a, 14);
    step(&mut c, b, 24);
    c
}

const INITIAL_VALUE: u32 = 13;
