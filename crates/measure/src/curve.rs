//! The hit ratio that this workload would have with other amounts of memory.
//!
//! Keys are sampled by their hash, as SHARDS does (Waldspurger et al., FAST 2015): a key is followed for all its life
//! or not at all, and the share of the keys that is followed shrinks while there are too many of them. What is sampled
//! is played against caches in miniature (Waldspurger et al., "Cache Modeling and Optimization using Miniature
//! Simulations", ATC 2017), one for each amount of memory, all scaled by that share: our eviction is no LRU, and stack
//! distances would tell of another cache.
//!
//! The cache is taken for one beside a database: whoever misses stores what is missing. So where a miniature misses
//! what the cache has, that is stored there as well; and where it has what the cache misses, the store that follows
//! changes nothing.
//!
//! Of a busy cache with few keys it need not be told all the time: bursts with more accesses than the largest of the
//! caches has keys do, unless the keys that are asked for change faster than the bursts follow each other.
//!
//! Misses are counted, and divided by the number of reads that the sample should have seen (SHARDS-adj): whether a very
//! hot key happens to be in the sample must not matter.

use crate::mini::MiniCache;

/// What happened to a key, named by a hash that is even over all 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It was asked for.
    Read {
        /// Hash of the key.
        key: u64,
        /// What was found.
        found: Option<Footprint>,
    },
    /// It was stored.
    Write {
        /// Hash of the key.
        key: u64,
        /// What was stored.
        item: Footprint,
        /// There was no such key.
        is_new: bool,
    },
    /// It was deleted.
    Delete {
        /// Hash of the key.
        key: u64,
    },
}

/// What an item takes, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Memory, everything counted.
    pub bytes: u32,
    /// When it expires, in the seconds of `now_secs`; 0: never.
    pub expires_secs: u32,
}

/// A cache that there could be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// Times the memory that there is.
    pub factor: f64,
    /// What it has for items.
    pub memory_bytes: u64,
    /// It is cut into segments of so many: no item lies in two of them.
    pub segment_bytes: u64,
}

/// A point of the curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Times the memory that there is.
    pub factor: f64,
    /// Hits by reads; `None` while too little was seen.
    pub hit_ratio: Option<f64>,
}

/// See the module.
#[derive(Debug)]
pub struct Curve {
    caches: Vec<Sized>,
    /// Keys whose hash is not above this are followed.
    threshold: u64,
    keys_max: usize,
    /// Reads that the sample should have seen, and those that it has.
    expected_reads: f64,
    reads: u64,
}

#[derive(Debug)]
struct Sized {
    size: Size,
    cache: MiniCache,
    misses: f64,
}

impl Curve {
    /// A curve of caches of `sizes`. Follows at most about `keys_max` keys, in the largest of them; a key costs about
    /// 100 bytes in each.
    pub fn new(sizes: &[Size], keys_max: usize) -> Self {
        let sized = |size: &Size| Sized {
            size: *size,
            cache: MiniCache::new(size.memory_bytes, size.segment_bytes),
            misses: 0.0,
        };
        Self {
            caches: sizes.iter().map(sized).collect(),
            threshold: u64::MAX,
            keys_max: keys_max.max(16),
            expected_reads: 0.0,
            reads: 0,
        }
    }

    /// Accesses of keys whose hash is above this need not be told.
    pub fn threshold(&self) -> u64 {
        self.threshold
    }

    /// The share of the keys that is followed.
    pub fn share(&self) -> f64 {
        self.threshold as f64 / u64::MAX as f64
    }

    /// Keys that the largest of its caches knows of.
    pub fn followed_keys(&self) -> usize {
        self.caches.iter().map(|sized| sized.cache.keys()).max().unwrap_or(0)
    }

    /// Plays an access; those of keys that are not followed are left out. `now_secs` never goes back.
    pub fn play(&mut self, access: Access, now_secs: u32) {
        let (Access::Read { key, .. } | Access::Write { key, .. } | Access::Delete { key }) = access;
        if key > self.threshold {
            return;
        }
        if matches!(access, Access::Read { .. }) {
            self.reads += 1;
        }
        for sized in &mut self.caches {
            match access {
                Access::Read { found, .. } => {
                    if !sized.cache.read(key, now_secs) {
                        // What has expired here and lives on there was stored again while nobody told, or touched: so
                        // it would be here.
                        let is_renewed = found.is_some() && sized.cache.has_expired(key);
                        sized.misses += if is_renewed { 0.0 } else { 1.0 };
                        if let Some(item) = found {
                            sized.cache.write(key, item, true, now_secs);
                        }
                    }
                }
                Access::Write { item, is_new, .. } => sized.cache.write(key, item, is_new, now_secs),
                Access::Delete { .. } => sized.cache.remove(key),
            }
        }
        if self.followed_keys() > self.keys_max {
            self.halve_share();
        }
    }

    /// Tells how many reads there were in all, sampled or not, since this was last told.
    pub fn count_reads(&mut self, reads: u64) {
        self.expected_reads += reads as f64 * self.share();
    }

    /// Follows half as many keys: when there are too many of them, or too many accesses a second.
    pub fn halve_share(&mut self) {
        self.threshold /= 2;
        let (threshold, share) = (self.threshold, self.share());
        // What was counted of twice as many keys has twice the weight of what is counted from now on.
        self.expected_reads /= 2.0;
        for sized in &mut self.caches {
            sized.misses /= 2.0;
            sized.cache.retain(|key| key <= threshold);
            sized.cache.resize((sized.size.memory_bytes as f64 * share) as u64);
        }
    }

    /// Gives earlier reads half the weight: the curve follows a workload that changes.
    pub fn fade(&mut self) {
        self.expected_reads /= 2.0;
        self.reads /= 2;
        for sized in &mut self.caches {
            sized.misses /= 2.0;
        }
    }

    /// The curve.
    pub fn points(&self) -> Vec<Point> {
        let point = |sized: &Sized| Point {
            factor: sized.size.factor,
            hit_ratio: (self.reads >= READS_MIN && self.expected_reads > 0.0)
                .then(|| (1.0 - sized.misses / self.expected_reads).clamp(0.0, 1.0)),
        };
        self.caches.iter().map(point).collect()
    }
}

/// With fewer sampled reads a ratio says nothing.
const READS_MIN: u64 = 1_000;
