//! A curve from a sample against caches of full size.

use std::collections::{HashMap, HashSet, VecDeque};

use larder_measure::curve::Size;
use larder_measure::{Access, Curve, Footprint};

const FACTORS: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];
const MEMORY_BYTES: u64 = 10_000_000;

fn curve(keys_max: usize) -> Curve {
    let memory_bytes = |factor: f64| (MEMORY_BYTES as f64 * factor) as u64;
    let size = |factor| Size { factor, memory_bytes: memory_bytes(factor), segment_bytes: 1 << 20 };
    Curve::new(&FACTORS.map(size), keys_max)
}

/// A key asked for, the size of its item, and the second in which that is.
struct Request {
    key: u64,
    item: Footprint,
    now_secs: u32,
}

/// What a cache beside a database is asked for: some keys much more often than others.
fn requests() -> impl Iterator<Item = Request> {
    const KEYS: u32 = 400_000;
    let mut random = fastrand::Rng::with_seed(5);
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=KEYS)
        .map(|rank| {
            sum += f64::from(rank).powf(-0.9);
            sum
        })
        .collect();
    (0..3_000_000_u32).map(move |step| {
        let drawn = random.f64() * sum;
        let rank = sums.partition_point(|&reached| reached < drawn) as u64;
        // splitmix64: even over all bits.
        let mut key = rank.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        key = (key ^ key >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        key = (key ^ key >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        key ^= key >> 31;
        let item = Footprint { bytes: 100 + (key % 400) as u32, expires_secs: 0 };
        Request { key, item, now_secs: 1 + step / 100_000 }
    })
}

/// Tells a curve of a request to a cache that has the key or stores it now.
fn play(curve: &mut Curve, &Request { key, item, now_secs }: &Request, has: bool) {
    curve.play(Access::Read { key, found: has.then_some(item) }, now_secs);
    if !has {
        curve.play(Access::Write { key, item, is_new: true }, now_secs);
    }
    curve.count_reads(1);
}

/// `curves` are told what happens to a cache that is as large as said, or has nothing at all.
fn load(curves: &mut [&mut Curve], has: impl Fn(u64) -> bool) {
    for request in requests() {
        for curve in &mut *curves {
            play(curve, &request, has(request.key));
        }
    }
}

#[test]
fn a_sample_tells_what_all_keys_tell() {
    let mut full = curve(usize::MAX);
    let mut sampled = curve(8_192);
    load(&mut [&mut full, &mut sampled], |_| false);
    assert_eq!(full.share(), 1.0);
    assert!(sampled.share() < 0.2, "{}", sampled.share());
    let (full, sampled) = (full.points(), sampled.points());
    for (full, sampled) in full.iter().zip(&sampled) {
        let (full, sampled) =
            (full.hit_ratio.expect("enough reads"), sampled.hit_ratio.expect("enough reads"));
        assert!((full - sampled).abs() < 0.02, "{full} {sampled}");
    }
    assert!(full.windows(2).all(|pair| pair[0].hit_ratio <= pair[1].hit_ratio));
}

/// Whether the cache that is watched hit or missed must not matter to the others.
#[test]
fn the_curve_is_the_same_whatever_the_cache_has() {
    let mut curves = [(); 3].map(|()| curve(8_192));
    let [nothing, half, all] = &mut curves;
    load(&mut [nothing], |_| false);
    load(&mut [half], |key| key % 2 == 0);
    load(&mut [all], |_| true);
    let [nothing, half, all] = curves.map(|curve| curve.points());
    assert_eq!(nothing, half);
    assert_eq!(nothing, all);
}

/// A busy cache: at first the curve is told all, then in bursts, as many accesses in each as there are keys in the
/// largest cache.
#[test]
fn bursts_tell_what_the_whole_time_tells() {
    let mut whole = curve(usize::MAX);
    let mut bursts = curve(usize::MAX);
    let (mut cached, mut order, mut bytes) = (HashSet::new(), VecDeque::new(), 0);
    for (step, request) in requests().enumerate() {
        let has = !cached.insert(request.key);
        if !has {
            order.push_back((request.key, request.item.bytes));
            bytes += u64::from(request.item.bytes);
        }
        while bytes > MEMORY_BYTES
            && let Some((key, item_bytes)) = order.pop_front()
        {
            cached.remove(&key);
            bytes -= u64::from(item_bytes);
        }
        play(&mut whole, &request, has);
        match step % 600_000 {
            0 if step == 600_000 => {
                // What was told until now is to count for nothing.
                for _ in 0..20 {
                    whole.fade();
                    bursts.fade();
                }
            }
            120_000.. if step > 600_000 => continue,
            _ => {}
        }
        play(&mut bursts, &request, has);
    }
    for (whole, bursts) in whole.points().iter().zip(bursts.points()) {
        let (whole, bursts) =
            (whole.hit_ratio.expect("enough reads"), bursts.hit_ratio.expect("enough reads"));
        assert!((whole - bursts).abs() < 0.02, "{whole} {bursts}");
    }
}

/// Items that live for five seconds, and are stored again most of the time while nobody tells: as busy keys are that
/// expire.
#[test]
fn what_was_stored_again_between_bursts_is_no_miss() {
    const ITEM: Footprint = Footprint { bytes: 100, expires_secs: 0 };
    let mut curve = curve(1 << 20);
    let mut random = fastrand::Rng::with_seed(7);
    let mut expiries = HashMap::new();
    let (mut reads, mut misses) = (0, 0);
    for step in 0..4_000_000_u32 {
        let (key, now_secs) = (random.u64(0..1_000).wrapping_mul(0x9E37_79B9_7F4A_7C15), 1 + step / 100_000);
        let found = expiries.get(&key).copied().filter(|&expires_secs| expires_secs > now_secs);
        let expires_secs = *expiries
            .entry(key)
            .and_modify(|secs| *secs = found.unwrap_or(now_secs + 5))
            .or_insert(now_secs + 5);
        let item = Footprint { expires_secs, ..ITEM };
        reads += 1;
        misses += u32::from(found.is_none());
        if (50_000..52_000).contains(&(step % 100_000)) {
            curve.count_reads(1);
            curve.play(Access::Read { key, found: found.map(|_| item) }, now_secs);
            if found.is_none() {
                curve.play(Access::Write { key, item, is_new: true }, now_secs);
            }
        }
    }
    let truth = 1.0 - f64::from(misses) / f64::from(reads);
    // The keys that it first hears of are missed once: a thousand of the 80,000 reads that it is told of.
    for point in curve.points() {
        let told = point.hit_ratio.expect("enough was read");
        assert!((told - truth).abs() < 0.02, "{} times the memory: {told}, and it is {truth}", point.factor);
    }
}

#[test]
fn too_little_tells_nothing() {
    let mut curve = curve(8_192);
    for key in 0..900 {
        curve.play(Access::Read { key, found: None }, 1);
    }
    curve.count_reads(900);
    assert!(curve.points().iter().all(|point| point.hit_ratio.is_none()));
}
