//! Workloads made up, always the same: what traces of a few hours do not show.

use fastrand::Rng;
use larder_bench::draw::{Zipf, mix};

use super::workload::{Request, Workload};

/// Their names.
pub(crate) const NAMES: [&str; 3] = ["zipf-scan", "changing", "ttl-sizes"];

/// One of [`NAMES`].
pub(crate) fn make(name: &str) -> Workload {
    match name {
        "zipf-scan" => zipf_with_scans(),
        "changing" => changing_popularity(),
        _ => mixed_ttls(),
    }
}

/// Popular keys by Zipf's law, and now and then somebody walks through a table from one end to the other.
fn zipf_with_scans() -> Workload {
    const KEYS: u64 = 300_000;
    const SCAN_KEYS: u64 = 1_000_000;
    const SCAN_REQUESTS: u64 = 20_000;
    let (mut random, zipf) = (Rng::with_seed(1), Zipf::new(KEYS, 0.9));
    let mut requests = Vec::new();
    let mut scanned = 0;
    while requests.len() < 3_000_000 {
        // A tenth of all requests are a scan's; the others go on meanwhile.
        for _ in 0..SCAN_REQUESTS {
            requests.extend((0..2).map(|_| zipf.draw(&mut random)));
            requests.push(KEYS + 1 + scanned % SCAN_KEYS);
            scanned += 1;
        }
        requests.extend((0..7 * SCAN_REQUESTS).map(|_| zipf.draw(&mut random)));
    }
    let request = |key| Request { key, value_bytes: sized(key, 200.0, 0.5), ttl_secs: 0 };
    Workload::new("zipf-scan", requests.into_iter().map(request).collect())
}

/// Popular keys by Zipf's law, each of which is followed by a new one sooner or later, as news are.
fn changing_popularity() -> Workload {
    const RANKS: u64 = 200_000;
    /// A rank has the same key for so many requests.
    const LIFE_REQUESTS: u64 = 1_000_000;
    let (mut random, zipf) = (Rng::with_seed(2), Zipf::new(RANKS, 0.9));
    let request = |at: u64| {
        let rank = zipf.draw(&mut random);
        let life = (at + mix(rank) % LIFE_REQUESTS) / LIFE_REQUESTS;
        let key = mix(rank << 16 | life);
        Request { key, value_bytes: sized(key, 300.0, 0.5), ttl_secs: 0 }
    };
    Workload::new("changing", (0..3_000_000).map(request).collect())
}

/// Some keys live for seconds and some for ever, and few values are large.
fn mixed_ttls() -> Workload {
    const KEYS: u64 = 200_000;
    const REQUESTS: u64 = 2_000_000;
    let (mut random, zipf) = (Rng::with_seed(3), Zipf::new(KEYS, 0.9));
    let request = |_| {
        let key = zipf.draw(&mut random);
        let ttl_secs = match mix(key) % 10 {
            0..3 => 3,
            3..6 => 15,
            _ => 0,
        };
        Request { key, value_bytes: sized(key, 400.0, 1.2), ttl_secs }
    };
    let requests = (0..REQUESTS).map(request).collect();
    Workload { requests_per_sec: Some(50_000.0), ..Workload::new("ttl-sizes", requests) }
}

/// The length of a key's value, always the same: log-normal around a median, at most 256 KiB.
fn sized(key: u64, median_bytes: f64, spread: f64) -> u32 {
    let mut random = Rng::with_seed(key);
    // Box and Muller's; 1 - x, since the logarithm of 0 is none.
    let normal = (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos();
    (median_bytes * (spread * normal).exp()).clamp(1.0, 262_144.0) as u32
}
