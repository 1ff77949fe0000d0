//! SplitMix64: numbers that look random, each made of the one that is counted.

/// The next number. `state` may begin anywhere.
pub(crate) fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(STEP);
    mixed(*state)
}

/// The number at this position of those that begin at 0.
pub(crate) fn at(position: u64) -> u64 {
    mixed(position.wrapping_mul(STEP))
}

fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
