//! A cache in miniature: larder's eviction, S3-FIFO (Yang et al., SOSP 2023), played with sizes instead of values.
//!
//! As the engine does it: a small queue of a tenth of the memory and a main queue; what was read by the time it reaches
//! the small queue's end moves to the main queue, what was not goes and is remembered by the ghost; a key that comes back while it
//! is remembered enters the main queue at once; the main queue gives up to three more rounds to what is read. An overwrite takes its
//! item to the end of its queue.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use crate::curve::Footprint;

/// Keys are hashes already: no need to hash them again.
pub(crate) type HashedMap<V> = HashMap<u64, V, BuildHasherDefault<Identity>>;

#[derive(Default)]
pub(crate) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        // The map wants differences in the lowest and in the highest bits; sampled hashes share their highest.
        self.0 = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct MiniCache {
    memory_bytes: u64,
    ghosts_max: usize,
    items: HashedMap<Item>,
    queues: [Queue; 2],
    /// Keys with the number of their last eviction, and the same in order.
    ghost: HashedMap<u64>,
    evicted: VecDeque<(u64, u64)>,
    evictions: u64,
    /// Numbers the places in the queues: an entry whose number is not its item's is stale.
    places: u64,
    /// Keys by the second in which they expire.
    expiries: BTreeMap<u32, Vec<u64>>,
}

#[derive(Debug)]
struct Item {
    bytes: u32,
    uses: u8,
    queue: usize,
    place: u64,
    expires_secs: u32,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(u64, u64)>,
    bytes: u64,
}

const SMALL: usize = 0;
const MAIN: usize = 1;
const USES_MAX: u8 = 3;
/// The engine's ghost has a 64th of its memory, four bytes a key, fifteen of sixteen words.
const BYTES_PER_GHOST: u64 = 64 * 4 * 16 / 15;

impl MiniCache {
    pub(crate) fn new(memory_bytes: u64) -> Self {
        let mut cache = Self {
            memory_bytes: 0,
            ghosts_max: 0,
            items: HashMap::default(),
            queues: Default::default(),
            ghost: HashMap::default(),
            evicted: VecDeque::new(),
            evictions: 0,
            places: 0,
            expiries: BTreeMap::new(),
        };
        cache.resize(memory_bytes);
        cache
    }

    /// Keys that it knows of, alive or remembered.
    pub(crate) fn keys(&self) -> usize {
        self.items.len() + self.ghost.len()
    }

    pub(crate) fn resize(&mut self, memory_bytes: u64) {
        self.memory_bytes = memory_bytes;
        self.ghosts_max = (memory_bytes / BYTES_PER_GHOST) as usize;
        self.evict();
    }

    /// Forgets the keys that are not `kept`.
    pub(crate) fn retain(&mut self, kept: impl Fn(u64) -> bool) {
        let gone: Vec<u64> = self.items.keys().copied().filter(|&key| !kept(key)).collect();
        for key in gone {
            self.remove(key);
        }
        for queue in &mut self.queues {
            queue.waiting.retain(|&(key, _)| kept(key));
        }
        self.ghost.retain(|&key, _| kept(key));
        self.evicted.retain(|&(key, _)| kept(key));
    }

    /// Whether the key is there.
    pub(crate) fn read(&mut self, key: u64, now_secs: u32) -> bool {
        self.expire(now_secs);
        let Some(item) = self.items.get_mut(&key) else { return false };
        item.uses = (item.uses + 1).min(USES_MAX);
        true
    }

    /// `is_new`: the real cache had no such key, so it was stored because it was missed, which it was not here if it is here.
    pub(crate) fn write(&mut self, key: u64, item: Footprint, is_new: bool, now_secs: u32) {
        let Footprint { bytes, expires_secs } = item;
        self.expire(now_secs);
        if is_new && self.items.contains_key(&key) {
            return;
        }
        let (queue, uses) = match self.items.get(&key) {
            Some(item) => (item.queue, item.uses),
            None if self.ghost.contains_key(&key) => (MAIN, 0),
            None => (SMALL, 0),
        };
        self.remove(key);
        self.push(key, Item { bytes, uses, queue, place: 0, expires_secs });
        if expires_secs > 0 {
            self.expiries.entry(expires_secs).or_default().push(key);
        }
        self.evict();
    }

    pub(crate) fn remove(&mut self, key: u64) {
        if let Some(item) = self.items.remove(&key) {
            self.queues[item.queue].bytes -= u64::from(item.bytes);
        }
    }

    fn push(&mut self, key: u64, mut item: Item) {
        self.places += 1;
        item.place = self.places;
        let queue = &mut self.queues[item.queue];
        queue.bytes += u64::from(item.bytes);
        queue.waiting.push_back((key, item.place));
        self.items.insert(key, item);
    }

    fn expire(&mut self, now_secs: u32) {
        while let Some(entry) = self.expiries.first_entry()
            && *entry.key() <= now_secs
        {
            for key in entry.remove() {
                // It may have been written again with more time.
                if self.items.get(&key).is_some_and(|item| (1..=now_secs).contains(&item.expires_secs)) {
                    self.remove(key);
                }
            }
        }
    }

    fn bytes(&self) -> u64 {
        self.queues[SMALL].bytes + self.queues[MAIN].bytes
    }

    fn evict(&mut self) {
        while self.bytes() > self.memory_bytes {
            let small_is_over = self.queues[SMALL].bytes * 10 > self.bytes();
            let from = if small_is_over { SMALL } else { MAIN };
            let Some((key, place)) = self.queues[from].waiting.pop_front() else {
                // Nothing in that queue: whatever is left is in the other.
                match self.queues[1 - from].waiting.pop_front() {
                    Some(other) => {
                        self.leave(other.0, other.1, 1 - from);
                        continue;
                    }
                    None => return,
                }
            };
            self.leave(key, place, from);
        }
        // Stale entries are dropped once they are the most of a queue.
        for queue in &mut self.queues {
            if queue.waiting.len() > 2 * self.items.len() + 64 {
                let items = &self.items;
                queue.waiting.retain(|(key, place)| items.get(key).is_some_and(|item| item.place == *place));
            }
        }
    }

    /// An item at the end of a queue stays or goes.
    fn leave(&mut self, key: u64, place: u64, from: usize) {
        let Some(item) = self.items.get(&key).filter(|item| item.place == place) else { return };
        let uses = item.uses;
        let Some(mut item) = self.items.remove(&key) else { return };
        self.queues[from].bytes -= u64::from(item.bytes);
        if uses > 0 {
            item.uses = if from == SMALL { 0 } else { uses - 1 };
            item.queue = MAIN;
            self.push(key, item);
        } else if from == SMALL {
            self.remember(key);
        }
    }

    fn remember(&mut self, key: u64) {
        self.evictions += 1;
        self.ghost.insert(key, self.evictions);
        self.evicted.push_back((key, self.evictions));
        while self.evicted.len() > self.ghosts_max {
            let Some((key, number)) = self.evicted.pop_front() else { return };
            if self.ghost.get(&key) == Some(&number) {
                self.ghost.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(bytes: u32, expires_secs: u32) -> Footprint {
        Footprint { bytes, expires_secs }
    }

    #[test]
    fn what_is_read_stays_and_what_is_not_goes() {
        let mut cache = MiniCache::new(1_000);
        for key in 0..9 {
            cache.write(key, item(100, 0), false, 0);
        }
        assert!(cache.read(0, 0));
        for key in 10..30 {
            cache.write(key, item(100, 0), false, 0);
        }
        assert!(cache.read(0, 0));
        assert!(!cache.read(1, 0));
        assert!(cache.bytes() <= 1_000);
    }

    #[test]
    fn expired_items_are_gone_and_make_room() {
        let mut cache = MiniCache::new(1_000);
        cache.write(1, item(500, 10), false, 0);
        cache.write(2, item(400, 0), false, 0);
        assert!(cache.read(1, 9));
        assert!(!cache.read(1, 10));
        assert_eq!(cache.bytes(), 400);
        // Written again with more time: the old time counts no longer.
        cache.write(2, item(400, 20), false, 10);
        cache.write(2, item(400, 30), false, 10);
        assert!(cache.read(2, 20));
        assert!(!cache.read(2, 30));
    }

    #[test]
    fn memory_is_bounded_whatever_comes() {
        let mut cache = MiniCache::new(10_000);
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..200_000 {
            let key = random.u64(0..5_000);
            match random.u8(0..4) {
                0 => cache.remove(key),
                1 => cache.write(key, item(random.u32(1..300), random.u32(0..3)), false, 1),
                _ => {
                    cache.read(key, 1);
                }
            }
            assert!(cache.bytes() <= 10_000);
        }
        assert!(cache.queues.iter().all(|queue| queue.waiting.len() <= 2 * cache.items.len() + 64));
    }
}
