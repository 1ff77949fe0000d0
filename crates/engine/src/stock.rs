//! Memory got ahead: while the cache grows, the background lays the segments that are next on large pages, before anybody stores there.
//!
//! Whoever opens a bare segment gets its memory from the system in small pages, a fault for each; later all of it is copied to large ones
//! (`large_pages.rs`). A segment in stock spares both. It is bare in all else: nobody is charged for it until it is opened, and when the
//! cache has stopped growing it is given back.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

use crate::engine::Engine;
use crate::memory::LARGE_PAGE_BYTES;
use crate::request::Now;

/// What the stock needs.
#[derive(Default)]
pub(crate) struct Stock {
    /// [`ENOUGH`], [`LOW`] or [`CALLED`]. Read by every worker between requests, written a few times for each page.
    level: AtomicU8,
    /// The second in which a segment that had no memory was last opened.
    opened_secs: AtomicU32,
    /// Nothing is laid up before this second.
    rests_until_secs: AtomicU32,
}

/// Nothing is to be done.
const ENOUGH: u8 = 0;
/// Half of it is gone, and there is memory for more.
const LOW: u8 = 1;
/// The same, and the background knows.
const CALLED: u8 = 2;

impl Stock {
    /// Nothing is laid up ever: memory is to come from where the thread runs that stores there first.
    pub(crate) fn forbid(&self) {
        self.rests_until_secs.store(u32::MAX, Relaxed);
    }
}

impl Engine {
    /// Should a thread that has the time be told to call [`Engine::stock_up`], and soon? Says so once. Costs a load.
    #[inline]
    pub fn calls_for_stock(&self) -> bool {
        let level = &self.stock.level;
        level.load(Relaxed) == LOW && level.compare_exchange(LOW, CALLED, Relaxed, Relaxed).is_ok()
    }

    /// Gets the memory of some of the segments that are next, if it is time, on a large page. Takes some hundred microseconds, in a virtual
    /// machine whose host has to find it several thousand; no other thread waits for that. True: there is more to do.
    pub fn stock_up(&self) -> bool {
        if self.stock.level.load(Relaxed) == ENOUGH {
            return false;
        }
        let is_more = self.has_room_for_stock(self.segments.stocked_bytes() + LARGE_PAGE_BYTES as u64)
            && self.stock_page();
        if !is_more {
            self.stock.level.store(ENOUGH, Relaxed);
        }
        is_more
    }

    /// A segment that had no memory was opened, or one in stock: is it time for more?
    pub(crate) fn note_opened(&self) {
        self.stock.opened_secs.store(self.now_secs(), Relaxed);
        let is_low = self.has_room_for_stock(2 * self.segments.stocked_bytes() + LARGE_PAGE_BYTES as u64);
        if is_low && self.stock.level.load(Relaxed) == ENOUGH {
            self.stock.level.store(LOW, Relaxed);
        }
    }

    /// Gives back what nobody needed for a while, and what others need more.
    pub(crate) fn clear_stock(&self, now: Now) {
        let is_forgotten = now.secs.saturating_sub(self.stock.opened_secs.load(Relaxed)) >= KEPT_SECS;
        let is_excess =
            || self.budget.used_bytes() + self.segments.stocked_bytes() > self.budget.limit_bytes();
        while is_forgotten || is_excess() {
            // Both halves at once: a page of which one was given back is a large one no longer.
            let page = self.segments.with_pool(|pool| pool.take_stocked_page(self.segments_per_page()));
            let Some(ids) = page else { break };
            self.decommit_free_segments(ids);
        }
    }

    /// May there be so much in stock?
    fn has_room_for_stock(&self, stocked_bytes: u64) -> bool {
        let used_bytes = self.budget.used_bytes();
        stocked_bytes <= (used_bytes / USED_PART).min(STOCK_BYTES_MAX)
            && used_bytes + stocked_bytes <= self.budget.limit_bytes()
            && self.now_secs() >= self.stock.rests_until_secs.load(Relaxed)
    }

    fn segments_per_page(&self) -> usize {
        LARGE_PAGE_BYTES / self.segments.segment_bytes
    }

    /// Lays up a page more. False: there is no such page, or the system has none.
    fn stock_page(&self) -> bool {
        let page = self.segments.with_pool(|pool| pool.take_bare_page(self.segments_per_page()));
        let Some(ids) = page else { return false };
        let start = self.segments.start(ids.start);
        let is_large = self.log.get_large_pages(start..start + LARGE_PAGE_BYTES);
        for id in ids.clone() {
            self.segments.get(id).on_large_page.store(is_large, Relaxed);
        }
        self.segments.with_pool(|pool| pool.put_stocked(ids));
        if !is_large {
            self.stock.rests_until_secs.fetch_max(self.now_secs().saturating_add(REST_SECS), Relaxed);
        }
        is_large
    }
}

/// So much of what is in use may be in stock: less than what a round of stores takes while the background thread wakes, in caches of a
/// gigabyte and more; and nothing while so little is in use that one page would be more than that.
const USED_PART: u64 = 128;
/// At most.
const STOCK_BYTES_MAX: u64 = 16 << 20;
/// How long it is kept when no more of it is used.
const KEPT_SECS: u32 = 2;
/// How long nothing is laid up after the system had no large page.
const REST_SECS: u32 = 60;

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::{Config, LargePages, Store, Stored};

    const MEMORY_BYTES: u64 = 768 << 20;

    fn engine(large_pages: LargePages) -> std::sync::Arc<Engine> {
        let config = Config {
            memory_bytes: MEMORY_BYTES,
            item_bytes_max: 1 << 20,
            evict: true,
            handles_max: 2,
            index_power: None,
            large_pages,
            hash_key: [5, 6],
        };
        Engine::new(config).expect("address space")
    }

    fn now(secs: u32) -> Now {
        Now { secs, micros: u64::from(secs) * 1_000_000 }
    }

    /// Stores items of 64 KiB until so much is in use; the background has the time after each.
    fn grow(engine: &std::sync::Arc<Engine>, secs: u32, to_bytes: u64, mut look: impl FnMut()) {
        let mut worker = engine.handle().expect("a handle");
        let value = vec![7; 64 << 10];
        for number in 0u32.. {
            if engine.budget.used_bytes() >= to_bytes {
                break;
            }
            let turn = worker.enter(now(secs));
            let key = format!("{secs}:{number}").into_bytes();
            let stored = turn.store(turn.prepare(&key), &Store::set(&key, &value));
            assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
            drop(turn);
            if engine.calls_for_stock() {
                assert!(!engine.calls_for_stock(), "once is enough");
                while engine.stock_up() {}
            }
            look();
        }
    }

    /// Other machines may have no large pages to give, or give them unasked.
    fn has_stock(engine: &Engine) -> bool {
        let has_stock = engine.stock.rests_until_secs.load(Relaxed) == 0;
        if !has_stock {
            println!("not tested: no large pages to be had, or they come unasked");
        }
        has_stock
    }

    #[test]
    fn a_growing_cache_has_some_in_stock_and_gives_it_back() {
        let engine = engine(LargePages::Filled);
        let mut background = engine.handle().expect("a handle");
        while background.maintain(now(1), 1024) {}
        let mut stocked_max = 0;
        grow(&engine, 1, 200 << 20, || stocked_max = stocked_max.max(engine.segments.stocked_bytes()));
        assert_eq!(stocked_max, 0, "a small cache has none");
        grow(&engine, 1, 640 << 20, || stocked_max = stocked_max.max(engine.segments.stocked_bytes()));
        if !has_stock(&engine) {
            return;
        }
        assert!((1..=5 << 20).contains(&stocked_max), "{stocked_max}");
        let resident = engine.segments.stocked_bytes();
        while background.maintain(now(2), 1024) {}
        assert_eq!(engine.segments.stocked_bytes(), resident, "it may go on growing");
        while background.maintain(now(3), 1024) {}
        assert_eq!(engine.segments.stocked_bytes(), 0);
        grow(&engine, 3, 660 << 20, || ());
        assert!(engine.segments.stocked_bytes() > 0, "it grows again");
    }

    #[test]
    fn the_stock_is_never_beyond_the_limit() {
        let engine = engine(LargePages::Filled);
        let mut background = engine.handle().expect("a handle");
        grow(&engine, 1, MEMORY_BYTES - (3 << 20), || {
            let in_all = engine.budget.used_bytes() + engine.segments.stocked_bytes();
            // A segment is charged before it is taken from there.
            assert!(in_all <= MEMORY_BYTES + (1 << 20), "{in_all}");
        });
        engine.set_memory_limit(MEMORY_BYTES / 2);
        background.maintain(now(1), 1024);
        assert_eq!(engine.segments.stocked_bytes(), 0);
    }

    #[test]
    fn who_wants_none_gets_none() {
        let engine_without = engine(LargePages::Never);
        grow(&engine_without, 1, 400 << 20, || assert_eq!(engine_without.stock.level.load(Relaxed), ENOUGH));
        let engine_of_nodes = engine(LargePages::Filled);
        engine_of_nodes.stock.forbid();
        grow(&engine_of_nodes, 1, 400 << 20, || {
            assert_eq!(engine_of_nodes.stock.level.load(Relaxed), ENOUGH)
        });
    }
}
