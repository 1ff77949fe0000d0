//! A cache in miniature: larder's eviction, played with sizes instead of values.
//!
//! As the engine does it (its modules `queues` and `worth`): an item is due when the clock has gone on by its reads for
//! each of its bytes; what is due first is looked at first, and sets the clock. What was read by then goes on in the
//! main queue, what was not goes and is remembered by the ghost; a key that comes back while it is remembered enters
//! the main queue at once. How much a key is worth that was never read is learned from which queue's keys come back.
//! Items of like worth wait in one line. An overwrite takes its item to the end of its line.
//!
//! Segments are played as batches, shorter by the share of the keys that is followed: what enters a line together is
//! due together. An item takes its share of what the end of a segment in full size has no room for.

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
    /// Of a segment in full size.
    segment_bytes: u64,
    /// What goes into a batch.
    batch_bytes: u64,
    items: HashedMap<Item>,
    bytes: u64,
    /// By queue and class of worth: batches, of which the last is still being filled.
    lines: [[VecDeque<Batch>; CLASSES]; 2],
    /// Places in all batches, those that are stale included.
    waiting: usize,
    /// When what was looked at last was due.
    clock: f64,
    /// Weight of an item that was never read.
    novelty: f64,
    lesson: Adaptation,
    /// Keys with the number of their last eviction and the queue that they left, and the same in order.
    ghost: HashedMap<(u32, u8)>,
    evicted: VecDeque<(u64, u32)>,
    evictions: u32,
    /// Numbers the places in the lines: an entry whose number is not its item's is stale.
    places: u32,
    /// Keys by the second in which they expire, or would have if they had not been written again.
    expiries: BTreeMap<u32, Vec<u64>>,
    /// So many keys are named there.
    expiring: usize,
    /// Keys that expired, and were not heard of since.
    expired: HashedMap<()>,
}

#[derive(Debug)]
struct Item {
    bytes: u32,
    place: u32,
    expires_secs: u32,
    uses: u8,
    queue: u8,
}

/// Items that are due together.
#[derive(Debug)]
struct Batch {
    /// The clock when it was begun.
    begun: f64,
    weight: f64,
    bytes: u64,
    places: Vec<Place>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    key: u64,
    number: u32,
}

impl Batch {
    fn due(&self) -> f64 {
        self.begun + self.weight / self.bytes as f64
    }
}

/// How many keys left each queue, and how many of them came back.
#[derive(Debug, Default)]
struct Adaptation {
    evicted: [f64; 2],
    returned: [f64; 2],
    /// Evictions since the last conclusion.
    fresh: usize,
}

const SMALL: u8 = 0;
const MAIN: u8 = 1;
const USES_MAX: u8 = 3;
const CLASSES: usize = 7;
const NOVELTY_MIN: f64 = 1.0 / 8.0;
const NOVELTY_MAX: f64 = 2.0;
/// The engine's ghost has at most a 64th of its memory, four bytes a key, fifteen of sixteen words.
const BYTES_PER_GHOST: u64 = 64 * 4 * 16 / 15;
/// More than a curve follows: most of them never come back.
const EXPIRED_MAX: usize = 8 << 10;
/// Runs of large items have whole pages.
const PAGE_BYTES: u64 = 4096;

impl MiniCache {
    /// `segment_bytes`: those of a cache in full size.
    pub(crate) fn new(memory_bytes: u64, segment_bytes: u64) -> Self {
        Self {
            memory_bytes,
            segment_bytes,
            batch_bytes: segment_bytes,
            items: HashMap::default(),
            bytes: 0,
            lines: Default::default(),
            waiting: 0,
            clock: 0.0,
            novelty: 1.0,
            lesson: Adaptation::default(),
            ghost: HashMap::default(),
            evicted: VecDeque::new(),
            evictions: 0,
            places: 0,
            expiries: BTreeMap::new(),
            expiring: 0,
            expired: HashMap::default(),
        }
    }

    /// Keys that it knows of, alive or remembered.
    pub(crate) fn keys(&self) -> usize {
        self.items.len() + self.ghost.len()
    }

    pub(crate) fn resize(&mut self, memory_bytes: u64) {
        let share = memory_bytes as f64 / self.memory_bytes.max(1) as f64;
        self.batch_bytes = (self.batch_bytes as f64 * share) as u64;
        self.memory_bytes = memory_bytes;
        self.evict();
    }

    /// Forgets the keys that are not `kept`.
    pub(crate) fn retain(&mut self, kept: impl Fn(u64) -> bool) {
        let gone: Vec<u64> = self.items.keys().copied().filter(|&key| !kept(key)).collect();
        for key in gone {
            self.remove(key);
        }
        self.drop_stale();
        self.drop_stale_expiries();
        // Made for more keys than there will be.
        self.lines.iter_mut().flatten().flatten().for_each(|batch| batch.places.shrink_to_fit());
        self.expired.retain(|&key, ()| kept(key));
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

    /// Did it go because its time was over, and for no other reason?
    pub(crate) fn has_expired(&self, key: u64) -> bool {
        self.expired.contains_key(&key)
    }

    /// `is_new`: the real cache had no such key, so it was stored because it was missed, which it was not here if it is
    /// here.
    pub(crate) fn write(&mut self, key: u64, item: Footprint, is_new: bool, now_secs: u32) {
        self.expire(now_secs);
        self.expired.remove(&key);
        let (bytes, expires_secs) = (self.memory_of(item.bytes), item.expires_secs);
        match self.items.get(&key) {
            Some(_) if is_new => return,
            Some(&Item { queue, .. }) => {
                let place = self.line_up(key, queue, bytes, self.weight_at_first(queue));
                if let Some(old) = self.items.get_mut(&key) {
                    self.bytes -= u64::from(old.bytes);
                    *old = Item { bytes, place, expires_secs, ..*old };
                }
            }
            None => {
                let from = self.ghost.get(&key).map(|&(_, from)| usize::from(from));
                if let Some(from) = from {
                    self.lesson.returned[from] += 1.0;
                }
                let queue = if from.is_some() { MAIN } else { SMALL };
                let place = self.line_up(key, queue, bytes, self.weight_at_first(queue));
                self.items.insert(key, Item { bytes, place, expires_secs, uses: 0, queue });
            }
        }
        if expires_secs > 0 {
            self.expiries.entry(expires_secs).or_default().push(key);
            self.expiring += 1;
        }
        self.evict();
        if self.expiring > 2 * self.items.len() + 64 {
            self.drop_stale_expiries();
        }
    }

    pub(crate) fn remove(&mut self, key: u64) {
        self.expired.remove(&key);
        if let Some(item) = self.items.remove(&key) {
            self.bytes -= u64::from(item.bytes);
        }
    }

    /// What an item takes, with its share of what lies fallow beside it: on average a segment's end has room for half
    /// an item.
    fn memory_of(&self, bytes: u32) -> u32 {
        let (bytes, segment_bytes) = (u64::from(bytes), self.segment_bytes);
        let memory_bytes = if bytes > segment_bytes / 2 {
            bytes.next_multiple_of(PAGE_BYTES)
        } else {
            bytes * 2 * segment_bytes / (2 * segment_bytes - bytes)
        };
        u32::try_from(memory_bytes).unwrap_or(u32::MAX)
    }

    fn weight_at_first(&self, queue: u8) -> f64 {
        if queue == SMALL { self.novelty } else { self.novelty.max(1.0) }
    }

    /// Counts an item's bytes, and gives it a place at the end of its line. Returns the place's number.
    fn line_up(&mut self, key: u64, queue: u8, bytes: u32, weight: f64) -> u32 {
        self.places = self.places.wrapping_add(1);
        self.bytes += u64::from(bytes);
        let bytes_per_read = (f64::from(bytes) / weight) as u64;
        // Up to 256 bytes, 1, 4, 16, 64, 256 KiB, and more.
        let class = (bytes_per_read.max(1).ilog2() as usize / 2).saturating_sub(3).min(CLASSES - 1);
        let line = &mut self.lines[usize::from(queue)][class];
        let bytes = u64::from(bytes);
        let has_room = |batch: &&mut Batch| batch.bytes + bytes <= self.batch_bytes;
        let place = Place { key, number: self.places };
        match line.back_mut().filter(has_room) {
            Some(batch) => {
                batch.weight += weight;
                batch.bytes += bytes;
                batch.places.push(place);
            }
            None => line.push_back(Batch { begun: self.clock, weight, bytes, places: vec![place] }),
        }
        self.waiting += 1;
        place.number
    }

    fn expire(&mut self, now_secs: u32) {
        while let Some(entry) = self.expiries.first_entry()
            && *entry.key() <= now_secs
        {
            let keys = entry.remove();
            self.expiring -= keys.len();
            for key in keys {
                // It may have been written again with more time.
                if self.items.get(&key).is_some_and(|item| (1..=now_secs).contains(&item.expires_secs)) {
                    self.remove(key);
                    self.expired.insert(key, ());
                }
            }
        }
        if self.expired.len() > EXPIRED_MAX {
            self.expired.clear();
        }
    }

    fn evict(&mut self) {
        while self.bytes > self.memory_bytes
            && let Some(batch) = self.take_first_due()
        {
            self.waiting -= batch.places.len();
            self.clock = self.clock.max(batch.due());
            for place in batch.places {
                if self.items.get(&place.key).is_some_and(|item| item.place == place.number) {
                    self.look_at(place.key);
                }
            }
        }
        if self.waiting > 2 * self.items.len() + 64 {
            self.drop_stale();
        }
    }

    /// What is less than half full waits until there is nothing else.
    fn take_first_due(&mut self) -> Option<Batch> {
        let full_bytes = self.batch_bytes / 2;
        let mut first: Option<(bool, f64, &mut VecDeque<Batch>)> = None;
        for line in self.lines.iter_mut().flatten() {
            let Some(batch) = line.front() else { continue };
            let (is_filling, due) = (line.len() == 1 && batch.bytes < full_bytes, batch.due());
            if first.as_ref().is_none_or(|&(filling, least, _)| (is_filling, due) < (filling, least)) {
                first = Some((is_filling, due, line));
            }
        }
        first?.2.pop_front()
    }

    /// An item that is due stays or goes.
    fn look_at(&mut self, key: u64) {
        let Some(&Item { bytes, uses, queue, .. }) = self.items.get(&key) else { return };
        if uses == 0 {
            self.remove(key);
            return self.remember(key, queue);
        }
        self.bytes -= u64::from(bytes);
        let place = self.line_up(key, MAIN, bytes, f64::from(uses));
        if let Some(item) = self.items.get_mut(&key) {
            (item.place, item.queue, item.uses) = (place, MAIN, 0);
        }
    }

    fn remember(&mut self, key: u64, from: u8) {
        self.lesson.evicted[usize::from(from)] += 1.0;
        self.lesson.fresh += 1;
        if self.lesson.fresh >= (self.items.len() / 64).max(16) {
            self.conclude();
        }
        self.evictions = self.evictions.wrapping_add(1);
        self.ghost.insert(key, (self.evictions, from));
        self.evicted.push_back((key, self.evictions));
        let ghosts_max = self.items.len().min((self.memory_bytes / BYTES_PER_GHOST) as usize);
        while self.evicted.len() > ghosts_max {
            let Some((key, number)) = self.evicted.pop_front() else { return };
            if self.ghost.get(&key).is_some_and(|&(last, _)| last == number) {
                self.ghost.remove(&key);
            }
        }
    }

    /// Changes the worth of new keys after what was learned.
    fn conclude(&mut self) {
        let Adaptation { evicted, returned, fresh } = &mut self.lesson;
        let share = |queue: u8| returned[usize::from(queue)] / evicted[usize::from(queue)].max(1.0);
        let step = if share(SMALL) > share(MAIN) { 1.05 } else { 0.95 };
        self.novelty = (self.novelty * step).clamp(NOVELTY_MIN, NOVELTY_MAX);
        for sum in evicted.iter_mut().chain(returned) {
            *sum *= 0.95;
        }
        *fresh = 0;
    }

    fn drop_stale(&mut self) {
        let items = &self.items;
        let is_fresh = |place: &Place| items.get(&place.key).is_some_and(|item| item.place == place.number);
        for line in self.lines.iter_mut().flatten() {
            line.iter_mut().for_each(|batch| batch.places.retain(is_fresh));
            line.retain(|batch| !batch.places.is_empty());
        }
        let batches = self.lines.iter().flatten().flatten();
        self.waiting = batches.map(|batch| batch.places.len()).sum();
    }

    fn drop_stale_expiries(&mut self) {
        self.expiries.clear();
        for (&key, item) in self.items.iter().filter(|(_, item)| item.expires_secs > 0) {
            self.expiries.entry(item.expires_secs).or_default().push(key);
        }
        self.expiring = self.expiries.values().map(Vec::len).sum();
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
        let mut cache = MiniCache::new(1_000, 1 << 30);
        for key in 0..9 {
            cache.write(key, item(100, 0), false, 0);
        }
        assert!(cache.read(0, 0));
        for key in 10..30 {
            cache.write(key, item(100, 0), false, 0);
        }
        assert!(cache.read(0, 0));
        assert!(!cache.read(1, 0));
        assert!(cache.bytes <= 1_000);
    }

    #[test]
    fn expired_items_are_gone_and_make_room() {
        let mut cache = MiniCache::new(1_000, 1 << 30);
        cache.write(1, item(500, 10), false, 0);
        cache.write(2, item(400, 0), false, 0);
        assert!(cache.read(1, 9));
        assert!(!cache.read(1, 10));
        assert_eq!(cache.bytes, 400);
        // Written again with more time: the old time counts no longer.
        cache.write(2, item(400, 20), false, 10);
        cache.write(2, item(400, 30), false, 10);
        assert!(cache.read(2, 20));
        assert!(!cache.read(2, 30));
    }

    #[test]
    fn memory_is_bounded_whatever_comes() {
        let mut cache = MiniCache::new(10_000, 1 << 16);
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
            assert!(cache.bytes <= 10_000);
        }
        assert!(cache.waiting <= 2 * cache.items.len() + 65);
    }

    #[test]
    fn overwritten_keys_leave_no_times_behind() {
        let mut cache = MiniCache::new(10_000, 1 << 16);
        for second in 0..100_000 {
            cache.write(u64::from(second % 10), item(100, second + 1_000_000), false, second);
        }
        let times: usize = cache.expiries.values().map(Vec::len).sum();
        assert!(times <= 2 * 10 + 64, "{times} times of 10 keys");
        assert!(cache.read(9, 1_099_998));
        assert!(!cache.read(9, 1_099_999));
    }

    #[test]
    fn keys_that_are_forgotten_leave_no_room_behind() {
        let mut cache = MiniCache::new(1 << 20, 1 << 20);
        (0..4096).for_each(|key| cache.write(key, item(100, 0), false, 0));
        cache.retain(|key| key % 64 == 0);
        let room: usize = cache.lines.iter().flatten().flatten().map(|batch| batch.places.capacity()).sum();
        assert_eq!(cache.items.len(), 64);
        assert!(room < 128, "{room} places");
    }
}
