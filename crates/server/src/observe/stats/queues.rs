//! `stats items` and `stats slabs`: the engine's queues in place of slab classes.
//!
//! Class 1 is the small queue, 2 the main queue, 3 the large values. A segment is a page and a byte is a chunk, so the
//! sums that tools compute are correct. What is counted only for the whole cache, commands above all, is reported with
//! class 1, where stores begin, so sums over classes are correct as well.

use larder_engine::{QueueStats, Stats};

use super::Lines;
use crate::observe::counters::Totals;

/// Classes that hold items.
pub(super) fn report_items(engine: &Stats, lines: &mut Lines) {
    for (class, queue) in classes(engine).filter(|(_, queue)| queue.items > 0) {
        let (small, main, large) = (class == 1, class == 2, class == 3);
        let only_if = |is: bool, value: u64| if is { value } else { 0 };
        let age_secs = u64::from(queue.age_secs);
        for (name, value) in [
            ("number", queue.items),
            ("number_hot", only_if(small, queue.items)),
            ("number_warm", only_if(main, queue.items)),
            ("number_cold", only_if(large, queue.items)),
            ("age_hot", only_if(small, age_secs)),
            ("age_warm", only_if(main, age_secs)),
            ("age", age_secs),
            ("mem_requested", queue.live_bytes),
            ("evicted", queue.evictions),
            ("evicted_nonzero", queue.evicted_with_expiry),
            ("evicted_time", u64::from(queue.evicted_idle_secs)),
            ("outofmemory", only_if(small, engine.out_of_memory)),
            ("tailrepairs", 0),
            ("reclaimed", queue.reclaimed),
            ("expired_unfetched", queue.expired_unfetched),
            ("evicted_unfetched", queue.evicted_unfetched),
            ("evicted_active", only_if(small, engine.evicted_active)),
            ("crawler_reclaimed", only_if(small, engine.crawler_reclaimed)),
            ("crawler_items_checked", only_if(small, engine.crawler_checked)),
            ("lrutail_reflocked", 0),
            ("moves_to_cold", 0),
            ("moves_to_warm", only_if(small, engine.moves_to_main)),
            ("moves_within_lru", only_if(main, engine.moves_within_main)),
            ("direct_reclaims", 0),
            ("hits_to_hot", only_if(small, queue.hits)),
            ("hits_to_warm", only_if(main, queue.hits)),
            ("hits_to_cold", only_if(large, queue.hits)),
            ("hits_to_temp", 0),
        ] {
            lines.add(format_args!("items:{class}:{name}"), value);
        }
    }
}

/// Classes that hold memory.
pub(super) fn report_slabs(engine: &Stats, totals: &Totals, lines: &mut Lines) {
    let mut classes_held = 0;
    for (class, queue) in classes(engine).filter(|(_, queue)| queue.memory_bytes > 0) {
        classes_held += 1;
        let counted = if class == 1 { *totals } else { Totals::default() };
        for (name, value) in [
            ("chunk_size", 1),
            ("chunks_per_page", queue.memory_bytes.checked_div(queue.segments).unwrap_or(0)),
            ("total_pages", queue.segments),
            ("total_chunks", queue.memory_bytes),
            ("used_chunks", queue.live_bytes),
            ("free_chunks", queue.memory_bytes.saturating_sub(queue.live_bytes)),
            ("free_chunks_end", 0),
            ("get_hits", queue.hits),
            ("cmd_set", counted.cmd_set),
            ("delete_hits", counted.delete_hits),
            ("incr_hits", counted.incr_hits),
            ("decr_hits", counted.decr_hits),
            ("cas_hits", counted.cas_hits),
            ("cas_badval", counted.cas_badval),
            ("touch_hits", counted.touch_hits),
        ] {
            lines.add(format_args!("{class}:{name}"), value);
        }
    }
    lines.add("active_slabs", classes_held);
    lines.add("total_malloced", classes(engine).map(|(_, queue)| queue.memory_bytes).sum::<u64>());
}

fn classes(engine: &Stats) -> impl Iterator<Item = (usize, &QueueStats)> {
    (1..).zip(&engine.queues)
}
