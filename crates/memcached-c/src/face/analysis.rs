//! A summary of statistics.

use std::ptr::null_mut;

use crate::abi::{AnalysisPtr, AnalysisSt, Heap, Memc, Out, Return, StatArray, StatSt, export};

export! {
    fn memcached_analyze(memc: Memc, stats: StatArray, error: Out<Return>) -> *mut AnalysisSt {
        let count = memc.read(|core| core.instances.len()).unwrap_or(0);
        let (Some(settings), Some(stats)) = (memc.settings(), stats.slice(count)) else { return null_mut() };
        let analysis = Heap::of(settings).store(&[analyze(AnalysisSt::empty(memc.address()), stats)]);
        error.set(if analysis.is_null() { Return::MEMORY_ALLOCATION_FAILURE } else { Return::SUCCESS });
        analysis
    }

    fn memcached_analyze_free(analysis: AnalysisPtr) {
        analysis.free();
    }
}

fn analyze(mut analysis: AnalysisSt, stats: &[StatSt]) -> AnalysisSt {
    let (mut items, mut bytes, mut gets, mut hits) = (0u64, 0u64, 0u64, 0u64);
    for (server, stat) in (0u32..).zip(stats) {
        if analysis.most_used_bytes < stat.bytes {
            (analysis.most_used_bytes, analysis.most_consumed_server) = (stat.bytes, server);
        }
        let uptime = stat.uptime as u32;
        if analysis.longest_uptime < uptime {
            (analysis.longest_uptime, analysis.oldest_server) = (uptime, server);
        }
        let remaining = stat.limit_maxbytes.wrapping_sub(stat.bytes);
        if analysis.least_remaining_bytes == 0 || remaining < analysis.least_remaining_bytes {
            (analysis.least_remaining_bytes, analysis.least_free_server) = (remaining, server);
        }
        items = items.saturating_add(stat.curr_items);
        bytes = bytes.saturating_add(stat.bytes);
        gets = gets.saturating_add(stat.cmd_get);
        hits = hits.saturating_add(stat.get_hits);
    }
    analysis.average_item_size = bytes.checked_div(items).unwrap_or(0) as u32;
    if gets > 0 && hits > 0 {
        analysis.pool_hit_ratio = hits as f64 / gets as f64 * 100.0;
    }
    analysis
}
