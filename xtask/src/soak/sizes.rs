//! The lengths of a soak's values.

use std::time::Duration;

/// The sizes of values.
#[derive(Clone, Copy)]
pub(crate) enum Sizes {
    /// As caches see them: many small, few large, up to 1 MiB.
    Mixed,
    /// From 100 B to 8 MB, three decades at a time: small ones, then large ones, then small ones again, within this
    /// time. The larger they are, the fewer keys are used, so that all values together stay as long.
    Shifting(Duration),
}

impl Sizes {
    /// A random size, so long after the start.
    pub(crate) fn draw(self, random: &mut fastrand::Rng, elapsed: Duration) -> usize {
        let (from, to) = match self {
            Self::Mixed => match random.u16(0..1000) {
                0..900 => (1.0, 4096.0),
                900..990 => (4096.0, 65_536.0),
                _ => (65_536.0, self.bytes_max() as f64),
            },
            Self::Shifting(_) => (100.0 * self.growth(elapsed), 1e5 * self.growth(elapsed)),
        };
        (from * f64::powf(to / from, random.f64())) as usize
    }

    /// The largest.
    pub(crate) fn bytes_max(self) -> usize {
        match self {
            // What a server with `-I 1m` must take: an item needs something besides its value.
            Self::Mixed => (1 << 20) - 1024,
            Self::Shifting(_) => 8_000_000,
        }
    }

    /// Values grow by appending up to twice this.
    pub(crate) fn pieced_bytes_max(self) -> usize {
        match self {
            Self::Mixed => 32 * 1024,
            Self::Shifting(_) => 3_000_000,
        }
    }

    /// The number of keys that are used, of `keys_max`, so long after the start.
    pub(crate) fn keys(self, elapsed: Duration, keys_max: usize) -> usize {
        (keys_max as f64 / self.growth(elapsed)) as usize
    }

    /// The factor by which values are longer than at the start.
    fn growth(self, elapsed: Duration) -> f64 {
        let Self::Shifting(cycle) = self else { return 1.0 };
        let at = elapsed.as_secs_f64() / cycle.as_secs_f64() % 1.0;
        GROWTH_MAX.powf(1.0 - (2.0 * at - 1.0).abs())
    }
}

const GROWTH_MAX: f64 = 80.0;
