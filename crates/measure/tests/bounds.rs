//! What the busiest keys are found with does not grow with the keys. A process of its own, so that its memory is nobody
//! else's.

use std::fs;

use larder_measure::Top;

/// A million keys, and prefixes of as many kinds, each as long as a key can be.
#[test]
fn a_million_keys_and_prefixes_take_no_more_memory_than_some() {
    let (mut keys, mut prefixes) = (Top::new(COUNTERS), Top::new(COUNTERS));
    let mut key = [b'k'; 250];
    let mut record = |numbers: std::ops::Range<u32>| {
        for number in numbers {
            key[..4].copy_from_slice(&number.to_be_bytes());
            keys.record(&key, 1);
            prefixes.record(&key[..240], 1);
            // As often as the server lets counts fade, at a high rate.
            if number.is_multiple_of(120_000) {
                keys.fade();
                prefixes.fade();
            }
        }
    };
    record(0..100_000);
    let before_bytes = resident_bytes();
    record(100_000..1_000_000);
    let grown_bytes = resident_bytes().saturating_sub(before_bytes);
    assert!(grown_bytes < 1 << 20, "{grown_bytes} bytes");
    for top in [&keys, &prefixes] {
        assert!(Top::merged([top], usize::MAX).len() <= COUNTERS);
    }
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux tells it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("it is a number") * 1024
}

/// As many as a worker of the server has.
const COUNTERS: usize = 512;
