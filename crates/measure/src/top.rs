//! The keys that are asked for most, in bounded memory: Space-Saving (Metwally, Agrawal, El Abbadi: "Efficient
//! computation of frequent and top-k elements in data streams", ICDT 2005).
//!
//! With k counters and n recorded requests, a key with more than n / k of them is always there, and no count is too
//! high by more than n / k.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// A bounded table of keys and counts.
#[derive(Clone, Debug)]
pub struct Top {
    counters: Vec<Counter>,
    places: HashMap<Arc<[u8]>, usize>,
    /// Counts with the places of their counters: the least first.
    order: BTreeSet<(u64, usize)>,
    counters_max: usize,
}

#[derive(Clone, Debug)]
struct Counter {
    key: Arc<[u8]>,
    count: u64,
    /// What the count may be too high by: the count of the key whose place it took.
    excess: u64,
}

/// A key and how often it was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hot {
    /// The key.
    pub key: Arc<[u8]>,
    /// At most so often.
    pub count: u64,
    /// And so much less at worst.
    pub excess: u64,
}

impl Top {
    /// A table of at most `counters_max` keys, at least one.
    pub fn new(counters_max: usize) -> Self {
        Self {
            counters: Vec::new(),
            places: HashMap::new(),
            order: BTreeSet::new(),
            counters_max: counters_max.max(1),
        }
    }

    /// Records that `key` was asked for `times` times.
    pub fn record(&mut self, key: &[u8], times: u64) {
        if let Some(&place) = self.places.get(key) {
            return self.raise(place, times);
        }
        let key: Arc<[u8]> = key.into();
        if self.counters.len() < self.counters_max {
            let place = self.counters.len();
            self.counters.push(Counter { key: Arc::clone(&key), count: 0, excess: 0 });
            self.places.insert(key, place);
            self.order.insert((0, place));
            return self.raise(place, times);
        }
        let Some(&(least, place)) = self.order.first() else { return };
        let counter = &mut self.counters[place];
        self.places.remove(&counter.key);
        counter.key = Arc::clone(&key);
        counter.excess = least;
        self.places.insert(key, place);
        self.raise(place, times);
    }

    fn raise(&mut self, place: usize, times: u64) {
        let counter = &mut self.counters[place];
        self.order.remove(&(counter.count, place));
        counter.count += times;
        self.order.insert((counter.count, place));
    }

    /// Halves every count, so that what was hot long ago fades; keys that come to nothing go.
    pub fn fade(&mut self) {
        let counters = std::mem::take(&mut self.counters);
        self.places.clear();
        self.order.clear();
        for mut counter in counters {
            counter.count /= 2;
            counter.excess /= 2;
            if counter.count > 0 {
                let place = self.counters.len();
                self.places.insert(Arc::clone(&counter.key), place);
                self.order.insert((counter.count, place));
                self.counters.push(counter);
            }
        }
    }

    /// All keys of several tables with the sums of their counts, the most frequent first, at most `keys_max`.
    pub fn merged<'t>(tables: impl IntoIterator<Item = &'t Self>, keys_max: usize) -> Vec<Hot> {
        let mut sums: HashMap<&Arc<[u8]>, (u64, u64)> = HashMap::new();
        for counter in tables.into_iter().flat_map(|table| &table.counters) {
            let sum = sums.entry(&counter.key).or_default();
            sum.0 += counter.count;
            sum.1 += counter.excess;
        }
        let mut hot: Vec<Hot> = sums
            .into_iter()
            .map(|(key, (count, excess))| Hot { key: Arc::clone(key), count, excess })
            .collect();
        hot.sort_unstable_by(|a, b| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
        hot.truncate(keys_max);
        hot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_hot_fades() {
        let mut top = Top::new(4);
        (0..8).for_each(|_| top.record(b"then", 1));
        for _ in 0..3 {
            top.fade();
        }
        (0..3).for_each(|_| top.record(b"now", 1));
        let hot = Top::merged([&top], 9);
        assert_eq!(hot[0], Hot { key: b"now"[..].into(), count: 3, excess: 0 });
        assert_eq!(hot[1].count, 1);
        top.fade();
        assert_eq!(Top::merged([&top], 9).len(), 1);
    }

    #[test]
    fn counts_of_several_tables_add_up() {
        let (mut one, mut two) = (Top::new(4), Top::new(4));
        for key in [&b"a"[..], b"b", b"a"] {
            one.record(key, 1);
        }
        two.record(b"b", 2);
        let hot: Vec<_> = Top::merged([&one, &two], 9).iter().map(|hot| (hot.key[0], hot.count)).collect();
        assert_eq!(hot, [(b'b', 3), (b'a', 2)]);
    }
}
