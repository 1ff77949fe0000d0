//! Random commands, the same for the same seed.

use super::model::Change;
use crate::Marks;

/// One step.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Append(Vec<Change>),
    Sync,
    /// With so many bytes; the clock has advanced to so many seconds.
    Maintain(u64, u64),
    /// Opens the store again, after `close` or without.
    Reopen {
        clean: bool,
    },
}

/// Steps and the keys that occur in them.
pub(super) struct Script {
    pub(super) steps: Vec<Step>,
    pub(super) keys: Vec<Vec<u8>>,
}

/// Added to all seeds: `LARDER_STORE_SEED` for other scripts than always.
pub(super) fn seed_base() -> u64 {
    std::env::var("LARDER_STORE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0)
}

/// When scripts begin.
pub(super) const START_SECS: u64 = 1_900_000_000;

impl Script {
    /// `key_count` keys below two prefixes.
    pub(super) fn random(seed: u64, steps: usize, key_count: usize, reopens: bool) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let keys: Vec<Vec<u8>> = (0..key_count)
            .map(|nth| format!("{}:key-{nth}", if nth % 3 == 0 { "a" } else { "b" }).into())
            .collect();
        let mut now = START_SECS;
        let mut version = 0;
        let steps = (0..steps)
            .map(|_| match random.u32(0..100) {
                0..55 => {
                    let count = if random.u32(0..6) == 0 { random.usize(2..12) } else { 1 };
                    Step::Append((0..count).map(|_| change(&mut random, &keys, now, &mut version)).collect())
                }
                55..75 => Step::Sync,
                97..100 if reopens => Step::Reopen { clean: random.bool() },
                _ => {
                    now += random.u64(0..3);
                    Step::Maintain(if random.bool() { 300 } else { 1 << 20 }, now)
                }
            })
            .collect();
        Self { steps, keys }
    }
}

/// One change. Its version is above all before.
pub(super) fn change(random: &mut fastrand::Rng, keys: &[Vec<u8>], now: u64, version: &mut u64) -> Change {
    *version += random.u64(1..5);
    let version = *version;
    let prefix =
        |random: &mut fastrand::Rng| [b"".as_slice(), b"a:", b"b:", b"b:key-1"][random.usize(0..4)].to_vec();
    let key = keys[random.usize(0..keys.len())].clone();
    match random.u32(0..100) {
        0..68 => {
            let length = match random.u32(0..40) {
                0 => random.usize(3_000..40_000),
                1..5 => 0,
                _ => random.usize(0..400),
            };
            let value = std::iter::repeat_with(|| random.u8(..)).take(length).collect();
            let exptime_secs = if random.u32(0..4) == 0 { now + random.u64(0..20) } else { 0 };
            let marks = Marks::from_bits(random.u8(0..8)).unwrap_or_default();
            Change::Put { key, value, client_flags: random.u32(..), exptime_secs, version, marks }
        }
        68..95 => Change::Delete { key, version },
        95..97 => {
            let prefix = prefix(random);
            // Those that are nested in it, or some of them.
            let mut except =
                [b"a:".to_vec(), b"b:".to_vec(), b"b:key-1".to_vec(), b"b:key-10".to_vec()].to_vec();
            except
                .retain(|longer| longer.len() > prefix.len() && longer.starts_with(&prefix) && random.bool());
            Change::Flush { prefix, except, version }
        }
        97..99 => Change::FlushAt { prefix: prefix(random), at_secs: now + random.u64(0..50) },
        _ => Change::CancelFlushAt { prefix: prefix(random) },
    }
}
