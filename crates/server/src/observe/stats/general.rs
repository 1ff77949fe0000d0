//! `stats`.

use std::sync::atomic::Ordering::Relaxed;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};

use super::Lines;
use crate::net::socket::SCRATCH_BYTES;
use crate::shared::Shared;
use crate::startup::settings::{BUCKET_POWER, Port};

pub(super) fn report(shared: &Shared, lines: &mut Lines) {
    process(shared, lines);
    connections(shared, lines);
    commands(shared, lines);
    traffic(shared, lines);
    cache(shared, lines);
}

fn process(shared: &Shared, lines: &mut Lines) {
    let now = shared.clock.now();
    lines.add("pid", std::process::id());
    lines.add("uptime", now.secs);
    lines.add("time", shared.clock.wall_secs(now.secs));
    lines.add("version", crate::MEMCACHED_VERSION);
    // Tools expect a value here; larder does not use that library.
    lines.add("libevent", "none");
    lines.add("pointer_size", usize::BITS);
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok();
    let zero = TimeVal::zero();
    lines.add("rusage_user", seconds(usage.map_or(zero, |usage| usage.user_time())));
    lines.add("rusage_system", seconds(usage.map_or(zero, |usage| usage.system_time())));
}

fn connections(shared: &Shared, lines: &mut Lines) {
    let totals = shared.totals();
    let open = shared.connection_limiter.open_connections();
    lines.add("max_connections", shared.settings.connections_max);
    lines.add("curr_connections", open);
    lines.add("total_connections", totals.total_connections);
    if shared.settings.maxconns_fast {
        lines.add("rejected_connections", totals.rejected_connections);
    }
    lines.add("connection_structures", open);
    let threads = shared.settings.threads;
    lines.add_all([
        ("response_obj_oom", 0),
        ("response_obj_count", 0),
        ("response_obj_bytes", 0),
        // Each worker has one, for all its connections.
        ("read_buf_count", threads),
        ("read_buf_bytes", threads * SCRATCH_BYTES + shared.buffers.used_bytes() as usize),
        ("read_buf_bytes_free", 0),
        ("read_buf_oom", 0),
        ("reserved_fds", shared.settings.own_descriptors()),
    ]);
}

fn commands(shared: &Shared, lines: &mut Lines) {
    let totals = shared.totals();
    lines.add_all([
        ("cmd_get", totals.cmd_get),
        ("cmd_set", totals.cmd_set),
        ("cmd_flush", totals.cmd_flush),
        ("cmd_touch", totals.cmd_touch),
        ("cmd_meta", totals.cmd_meta),
        ("get_hits", totals.get_hits),
        ("get_misses", totals.get_misses),
        ("get_expired", totals.get_expired),
        ("get_flushed", totals.get_flushed),
        ("delete_misses", totals.delete_misses),
        ("delete_hits", totals.delete_hits),
        ("incr_misses", totals.incr_misses),
        ("incr_hits", totals.incr_hits),
        ("decr_misses", totals.decr_misses),
        ("decr_hits", totals.decr_hits),
        ("cas_misses", totals.cas_misses),
        ("cas_hits", totals.cas_hits),
        ("cas_badval", totals.cas_badval),
        ("touch_hits", totals.touch_hits),
        ("touch_misses", totals.touch_misses),
        ("store_too_large", totals.store_too_large),
        ("store_no_memory", totals.store_no_memory),
        ("auth_cmds", totals.auth_cmds),
        ("auth_errors", totals.auth_errors),
    ]);
    if shared.settings.idle_timeout_secs > 0 {
        lines.add("idle_kicks", totals.idle_kicks);
    }
}

fn traffic(shared: &Shared, lines: &mut Lines) {
    let totals = shared.totals();
    let (closed_times, closed_micros) = shared.connection_limiter.closed();
    lines.add_all([
        ("bytes_read", totals.bytes_read),
        ("bytes_written", totals.bytes_written),
        ("limit_maxbytes", shared.namespaces.memory_limit()),
        ("accepting_conns", shared.connection_limiter.is_accepting().into()),
        ("listen_disabled_num", closed_times),
        ("time_in_listen_disabled_us", closed_micros),
        ("threads", shared.settings.threads as u64),
        ("conn_yields", totals.conn_yields),
    ]);
    // larder's own.
    if shared.settings.udp_port != Port::Off {
        lines.add_all([
            ("udp_requests", totals.udp_requests),
            ("udp_dropped", totals.udp_dropped),
            ("udp_withheld", totals.udp_withheld),
        ]);
    }
}

fn cache(shared: &Shared, lines: &mut Lines) {
    let engine = shared.namespaces.stats();
    let accepted = &shared.settings.accepted;
    lines.add("hash_power_level", engine.index_power + BUCKET_POWER);
    lines.add("hash_bytes", engine.index_bytes);
    lines.add("hash_is_expanding", u8::from(engine.index_growing));
    if accepted.slab_reassign {
        lines.add_all([
            ("slab_reassign_rescues", engine.compacted),
            ("slab_reassign_chunk_rescues", 0),
            ("slab_reassign_inline_reclaim", 0),
            ("slab_reassign_busy_items", 0),
            ("slab_reassign_busy_deletes", 0),
            ("slab_reassign_busy_nomem", 0),
        ]);
        lines.add("slab_reassign_last_busy_status", "none");
        lines.add_all([("slab_reassign_running", 0), ("slabs_moved", 0)]);
    }
    if shared.crawler.is_enabled() {
        lines.add("lru_crawler_running", u8::from(shared.crawler.is_running()));
        lines.add("lru_crawler_starts", shared.crawler.starts());
    }
    if accepted.lru_maintainer {
        lines.add("lru_maintainer_juggles", 0);
    }
    let log = shared.log.counts();
    lines.add_all([
        ("malloc_fails", 0u64),
        ("log_worker_dropped", log.dropped.load(Relaxed)),
        ("log_worker_written", log.written.load(Relaxed)),
        ("log_watcher_skipped", log.skipped.load(Relaxed)),
        ("log_watcher_sent", log.sent.load(Relaxed)),
        ("log_watchers", shared.log.watchers() as u64),
    ]);
    tls(shared, lines);
    lines.add_all([
        ("unexpected_napi_ids", 0),
        ("round_robin_fallback", 0),
        ("bytes", engine.bytes),
        ("curr_items", engine.items),
        ("total_items", engine.items_total),
        ("slab_global_page_pool", engine.segments_free),
        ("expired_unfetched", engine.expired_unfetched),
        ("evicted_unfetched", engine.evicted_unfetched),
    ]);
    if accepted.lru_maintainer {
        lines.add("evicted_active", engine.evicted_active);
    }
    lines.add_all([
        ("evictions", engine.evictions),
        ("reclaimed", engine.reclaimed),
        ("crawler_reclaimed", engine.crawler_reclaimed),
        ("crawler_items_checked", engine.crawler_checked),
        ("lrutail_reflocked", 0),
    ]);
    if accepted.lru_maintainer {
        lines.add_all([
            ("moves_to_cold", 0),
            ("moves_to_warm", engine.moves_to_main),
            ("moves_within_lru", engine.moves_within_main),
            ("direct_reclaims", 0),
            ("lru_bumps_dropped", 0),
        ]);
    }
}

fn tls(shared: &Shared, lines: &mut Lines) {
    let Some(tls) = &shared.tls else { return };
    let totals = shared.totals();
    if shared.settings.tls.session_cache {
        lines.add("ssl_new_sessions", totals.ssl_new_sessions);
    }
    lines.add_all([
        ("ssl_handshake_errors", totals.ssl_handshake_errors),
        ("ssl_proto_errors", totals.ssl_proto_errors),
        ("time_since_server_cert_refresh", tls.secs_since_load()),
    ]);
}

fn seconds(time: TimeVal) -> String {
    format!("{}.{:06}", time.tv_sec(), time.tv_usec())
}
