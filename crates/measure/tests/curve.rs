//! A curve from a sample against caches of full size.

use larder_measure::curve::Size;
use larder_measure::{Access, Curve, Footprint};

const FACTORS: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];
const MEMORY_BYTES: u64 = 10_000_000;

fn curve(keys_max: usize) -> Curve {
    let memory_bytes = |factor: f64| (MEMORY_BYTES as f64 * factor) as u64;
    let size = |factor| Size { factor, memory_bytes: memory_bytes(factor), segment_bytes: 1 << 20 };
    Curve::new(&FACTORS.map(size), keys_max)
}

/// A cache beside a database: `curves` are told what happens to a cache that is as large as said, or has nothing at all.
fn load(curves: &mut [&mut Curve], has: impl Fn(u64) -> bool) {
    const KEYS: u32 = 400_000;
    let mut random = fastrand::Rng::with_seed(5);
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=KEYS)
        .map(|rank| {
            sum += f64::from(rank).powf(-0.9);
            sum
        })
        .collect();
    for step in 0..3_000_000_u32 {
        let drawn = random.f64() * sum;
        let rank = sums.partition_point(|&reached| reached < drawn) as u64;
        // splitmix64: even over all bits.
        let mut key = rank.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        key = (key ^ key >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        key = (key ^ key >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        key ^= key >> 31;
        let bytes = 100 + (key % 400) as u32;
        let now_secs = 1 + step / 100_000;
        for curve in &mut *curves {
            let item = Footprint { bytes, expires_secs: 0 };
            curve.play(Access::Read { key, found: has(key).then_some(item) }, now_secs);
            if !has(key) {
                curve.play(Access::Write { key, item, is_new: true }, now_secs);
            }
            if step % 1000 == 999 {
                curve.count_reads(1000);
            }
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

#[test]
fn too_little_tells_nothing() {
    let mut curve = curve(8_192);
    for key in 0..900 {
        curve.play(Access::Read { key, found: None }, 1);
    }
    curve.count_reads(900);
    assert!(curve.points().iter().all(|point| point.hit_ratio.is_none()));
}
