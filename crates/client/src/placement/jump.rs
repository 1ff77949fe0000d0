//! Jump consistent hash.

/// The bucket of a key, below `buckets`; 0 if there are none. Source: Lamping and Veach, "A Fast, Minimal Memory,
/// Consistent Hash Algorithm", figure 1. Takes time in the logarithm of `buckets`.
pub fn jump_hash(mut key: u64, buckets: u32) -> u32 {
    let mut bucket = 0;
    let mut next = 0;
    while next < u64::from(buckets) {
        bucket = next;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        next = ((bucket + 1) as f64 * ((1u64 << 31) as f64 / ((key >> 33) + 1) as f64)) as u64;
    }
    bucket as u32
}
