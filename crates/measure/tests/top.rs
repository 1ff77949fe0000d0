//! The busiest keys of a known load.

use larder_measure::{Sampler, Top};

/// A key of rank r is asked for with weight 1/r (Zipf), among a million keys: the first twenty are named, in order as
/// far as their shares tell them apart.
#[test]
fn the_first_twenty_of_a_zipf_load_are_named() {
    const KEYS: u32 = 1_000_000;
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=KEYS)
        .map(|rank| {
            sum += 1.0 / f64::from(rank);
            sum
        })
        .collect();
    let mut random = fastrand::Rng::with_seed(3);
    let mut sampler = Sampler::new(16, 1);
    let mut top = Top::new(1024);
    for _ in 0..8_000_000 {
        let drawn = random.f64() * sum;
        let rank = sums.partition_point(|&reached| reached < drawn);
        if sampler.pick() {
            top.record(format!("key:{rank}").as_bytes(), 16);
        }
    }
    let hot = Top::merged([&top], 20);
    let mut ranks: Vec<u32> = hot
        .iter()
        .map(|hot| {
            String::from_utf8_lossy(&hot.key).trim_start_matches("key:").parse().expect("it is one of ours")
        })
        .collect();
    assert_eq!(ranks[..4], [0, 1, 2, 3]);
    // 500,000 samples tell ranks apart whose counts differ by a few standard deviations: about one in ten at rank 20.
    ranks.sort_unstable();
    assert_eq!(ranks[..17], (0..17).collect::<Vec<_>>());
    assert!(ranks[17..].iter().all(|rank| *rank < 23), "{ranks:?}");
}

/// The bounds of the paper: a key with more than n/k requests is there, and no count is too high by more than n/k.
#[test]
fn counts_keep_within_the_bounds_of_the_paper() {
    let (counters, requests) = (50, 100_000_u64);
    let mut random = fastrand::Rng::with_seed(9);
    let mut top = Top::new(counters);
    let mut truth = std::collections::HashMap::<Vec<u8>, u64>::new();
    for _ in 0..requests {
        let number = (1.0 / (random.f64() + 1e-4)) as u64;
        let key = number.to_string().into_bytes();
        *truth.entry(key.clone()).or_default() += 1;
        top.record(&key, 1);
    }
    let hot = Top::merged([&top], usize::MAX);
    assert!(hot.len() <= counters);
    let bound = requests / counters as u64;
    for hot in &hot {
        let real = truth[&hot.key[..]];
        assert!(hot.count >= real && hot.count - hot.excess <= real && hot.count <= real + bound);
    }
    for (key, count) in &truth {
        assert!(*count <= bound || hot.iter().any(|hot| hot.key[..] == key[..]), "{count}");
    }
}
