//! Counters: one set per handle, written by that handle alone, summed on demand.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A counter with one writer: no atomic read-modify-write, no cache line that two cores contend for.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds (or, wrapping, subtracts: the sum over all handles is what counts).
    #[inline]
    pub(crate) fn add(&self, n: i64) {
        self.0.store(self.0.load(Relaxed).wrapping_add_signed(n), Relaxed);
    }

    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The counters of one handle. Names as in [`Stats`].
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    pub(crate) items_total: Counter,
    pub(crate) bytes: Counter,
    pub(crate) evictions: Counter,
    pub(crate) evicted_unfetched: Counter,
    pub(crate) evicted_active: Counter,
    pub(crate) reclaimed: Counter,
    pub(crate) expired_unfetched: Counter,
    pub(crate) crawler_reclaimed: Counter,
    pub(crate) crawler_checked: Counter,
    pub(crate) moves_to_main: Counter,
    pub(crate) moves_within_main: Counter,
    pub(crate) compacted: Counter,
    pub(crate) refilled: Counter,
    pub(crate) out_of_memory: Counter,
    pub(crate) queues: [QueueCounters; 3],
}

/// Names as in [`QueueStats`].
#[derive(Default)]
pub(crate) struct QueueCounters {
    pub(crate) items: Counter,
    pub(crate) live_bytes: Counter,
    pub(crate) evictions: Counter,
    pub(crate) evicted_with_expiry: Counter,
    pub(crate) evicted_unfetched: Counter,
    pub(crate) evicted_idle_secs: Counter,
    pub(crate) reclaimed: Counter,
    pub(crate) expired_unfetched: Counter,
    pub(crate) hits: Counter,
}

/// Counters and gauges of the engine, summed over all handles.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Live items, and expired or flushed ones that were not removed yet.
    pub items: u64,
    /// Items ever linked.
    pub items_total: u64,
    /// Sum of the items' sizes (key + value + 59, + 4 with client flags: memcached's formula).
    pub bytes: u64,
    /// Memory budget.
    pub memory_bytes: u64,
    /// Memory taken from the budget.
    pub memory_used_bytes: u64,
    /// Live items evicted.
    pub evictions: u64,
    /// ... of which never fetched.
    pub evicted_unfetched: u64,
    /// ... of which fetched within the last minute.
    pub evicted_active: u64,
    /// Expired or flushed items removed, [`Self::crawler_reclaimed`] among them.
    pub reclaimed: u64,
    /// Expired or flushed items reclaimed that were never fetched.
    pub expired_unfetched: u64,
    /// Expired or flushed items removed by the background step and by `lru_crawler crawl`.
    pub crawler_reclaimed: u64,
    /// Items examined by the background step and by `lru_crawler crawl`.
    pub crawler_checked: u64,
    /// Items moved from the small to the main queue.
    pub moves_to_main: u64,
    /// Items kept at the end of the main queue because they were read.
    pub moves_within_main: u64,
    /// Items moved by compaction.
    pub compacted: u64,
    /// Segments whose holes were prepared for refilling.
    pub refilled: u64,
    /// Stores that found no memory.
    pub out_of_memory: u64,
    /// log2 of the number of index buckets, rounded down.
    pub index_power: u8,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// The index has more items than its buckets should hold, and grows with every store.
    pub index_growing: bool,
    /// Bytes of the ghost.
    pub ghost_bytes: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Segments with memory that are ready to be used.
    pub segments_free: u64,
    /// Bytes of these.
    pub free_bytes: u64,
    /// The small queue, the main queue, and large items (each in a segment run of its own, whichever queue they wait
    /// in).
    pub queues: [QueueStats; 3],
}

/// A queue, or the large items: see [`Stats::queues`].
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueStats {
    /// Items.
    pub items: u64,
    /// Memory used.
    pub memory_bytes: u64,
    /// Segments; runs for large items.
    pub segments: u64,
    /// Bytes of items as stored, with headers.
    pub live_bytes: u64,
    /// Age in seconds of the oldest segment.
    pub age_secs: u32,
    /// Live items evicted from here.
    pub evictions: u64,
    /// ... that had an expiry.
    pub evicted_with_expiry: u64,
    /// ... never fetched.
    pub evicted_unfetched: u64,
    /// Seconds since the last use of the item evicted last.
    pub evicted_idle_secs: u32,
    /// Expired or flushed items reclaimed from here.
    pub reclaimed: u64,
    /// ... never fetched.
    pub expired_unfetched: u64,
    /// Look-ups that found an item here, without those that touched it as well.
    pub hits: u64,
}

impl Stats {
    /// Adds a handle's counters.
    pub(crate) fn sum(&mut self, counters: &Counters) {
        let add = |total: &mut u64, counter: &Counter| *total = total.wrapping_add(counter.get());
        add(&mut self.items_total, &counters.items_total);
        add(&mut self.bytes, &counters.bytes);
        add(&mut self.evictions, &counters.evictions);
        add(&mut self.evicted_unfetched, &counters.evicted_unfetched);
        add(&mut self.evicted_active, &counters.evicted_active);
        add(&mut self.reclaimed, &counters.reclaimed);
        add(&mut self.expired_unfetched, &counters.expired_unfetched);
        add(&mut self.crawler_reclaimed, &counters.crawler_reclaimed);
        add(&mut self.crawler_checked, &counters.crawler_checked);
        add(&mut self.moves_to_main, &counters.moves_to_main);
        add(&mut self.moves_within_main, &counters.moves_within_main);
        add(&mut self.compacted, &counters.compacted);
        add(&mut self.refilled, &counters.refilled);
        add(&mut self.out_of_memory, &counters.out_of_memory);
        for (total, counters) in self.queues.iter_mut().zip(&counters.queues) {
            add(&mut total.items, &counters.items);
            add(&mut self.items, &counters.items);
            add(&mut total.live_bytes, &counters.live_bytes);
            add(&mut total.evictions, &counters.evictions);
            add(&mut total.evicted_with_expiry, &counters.evicted_with_expiry);
            add(&mut total.evicted_unfetched, &counters.evicted_unfetched);
            total.evicted_idle_secs = total.evicted_idle_secs.max(counters.evicted_idle_secs.get() as u32);
            add(&mut total.reclaimed, &counters.reclaimed);
            add(&mut total.expired_unfetched, &counters.expired_unfetched);
            add(&mut total.hits, &counters.hits);
        }
    }

    /// Adds those of another engine: counters and gauges are sums, except the highest of ages and of `index_power`, and
    /// `segment_bytes`, which stays.
    pub fn merge(&mut self, other: &Self) {
        let add = |total: &mut u64, more: u64| *total = total.wrapping_add(more);
        add(&mut self.items, other.items);
        add(&mut self.items_total, other.items_total);
        add(&mut self.bytes, other.bytes);
        add(&mut self.memory_bytes, other.memory_bytes);
        add(&mut self.memory_used_bytes, other.memory_used_bytes);
        add(&mut self.evictions, other.evictions);
        add(&mut self.evicted_unfetched, other.evicted_unfetched);
        add(&mut self.evicted_active, other.evicted_active);
        add(&mut self.reclaimed, other.reclaimed);
        add(&mut self.expired_unfetched, other.expired_unfetched);
        add(&mut self.crawler_reclaimed, other.crawler_reclaimed);
        add(&mut self.crawler_checked, other.crawler_checked);
        add(&mut self.moves_to_main, other.moves_to_main);
        add(&mut self.moves_within_main, other.moves_within_main);
        add(&mut self.compacted, other.compacted);
        add(&mut self.refilled, other.refilled);
        add(&mut self.out_of_memory, other.out_of_memory);
        self.index_power = self.index_power.max(other.index_power);
        add(&mut self.index_bytes, other.index_bytes);
        self.index_growing |= other.index_growing;
        add(&mut self.ghost_bytes, other.ghost_bytes);
        add(&mut self.segments_free, other.segments_free);
        add(&mut self.free_bytes, other.free_bytes);
        for (total, more) in self.queues.iter_mut().zip(&other.queues) {
            add(&mut total.items, more.items);
            add(&mut total.memory_bytes, more.memory_bytes);
            add(&mut total.segments, more.segments);
            add(&mut total.live_bytes, more.live_bytes);
            total.age_secs = total.age_secs.max(more.age_secs);
            add(&mut total.evictions, more.evictions);
            add(&mut total.evicted_with_expiry, more.evicted_with_expiry);
            add(&mut total.evicted_unfetched, more.evicted_unfetched);
            total.evicted_idle_secs = total.evicted_idle_secs.max(more.evicted_idle_secs);
            add(&mut total.reclaimed, more.reclaimed);
            add(&mut total.expired_unfetched, more.expired_unfetched);
            add(&mut total.hits, more.hits);
        }
    }

    /// Subtracts what the counters (not the gauges) were at a reset.
    pub(crate) fn since(&mut self, reset: &Self) {
        let sub = |total: &mut u64, before: u64| *total = total.wrapping_sub(before);
        sub(&mut self.items_total, reset.items_total);
        sub(&mut self.evictions, reset.evictions);
        sub(&mut self.evicted_unfetched, reset.evicted_unfetched);
        sub(&mut self.evicted_active, reset.evicted_active);
        sub(&mut self.reclaimed, reset.reclaimed);
        sub(&mut self.expired_unfetched, reset.expired_unfetched);
        sub(&mut self.crawler_reclaimed, reset.crawler_reclaimed);
        sub(&mut self.crawler_checked, reset.crawler_checked);
        sub(&mut self.moves_to_main, reset.moves_to_main);
        sub(&mut self.moves_within_main, reset.moves_within_main);
        sub(&mut self.compacted, reset.compacted);
        sub(&mut self.refilled, reset.refilled);
        sub(&mut self.out_of_memory, reset.out_of_memory);
        for (queue, reset) in self.queues.iter_mut().zip(&reset.queues) {
            sub(&mut queue.evictions, reset.evictions);
            sub(&mut queue.evicted_with_expiry, reset.evicted_with_expiry);
            sub(&mut queue.evicted_unfetched, reset.evicted_unfetched);
            sub(&mut queue.reclaimed, reset.reclaimed);
            sub(&mut queue.expired_unfetched, reset.expired_unfetched);
            sub(&mut queue.hits, reset.hits);
        }
    }
}
