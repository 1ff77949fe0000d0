//! `stats settings`.

use std::path::PathBuf;

use super::{Lines, yes_no};
use larder_protocol::Dialect;

use crate::net::tls::{TlsSettings, Version};
use crate::shared::Shared;
use crate::startup::settings::{Port, Settings};

pub(super) fn report(shared: &Shared, lines: &mut Lines) {
    let settings = &shared.settings;
    lines.add("maxbytes", shared.namespaces.memory_limit());
    lines.add("maxconns", settings.connections_max);
    lines.add("tcpport", port(settings.tcp_port));
    lines.add("udpport", port(settings.udp_port));
    lines
        .add("inter", if settings.listen.is_empty() { "NULL".to_owned() } else { settings.listen.join(",") });
    lines.add("verbosity", shared.verbosity());
    lines.add("oldest", 0);
    lines.add("evictions", if settings.evict { "on" } else { "off" });
    let socket = settings.unix_socket.as_ref().map(|path| path.display().to_string());
    lines.add("domain_socket", socket.as_deref().unwrap_or("NULL"));
    lines.add("umask", format_args!("{:o}", settings.unix_mode));
    lines.add("shutdown_command", yes_no(settings.shutdown_command));
    accepted_options_and_threads(shared, lines);
    lines.add("cas_enabled", yes_no(settings.cas));
    lines.add("tcp_backlog", settings.backlog);
    let protocol = match settings.dialect {
        None => "auto-negotiate",
        Some(Dialect::Text) => "ascii",
        Some(Dialect::Binary) => "binary",
        Some(Dialect::Http) => "http",
    };
    lines.add("binding_protocol", protocol);
    lines.add("auth_enabled_sasl", yes_no(settings.sasl));
    let auth_file = settings.auth_file.as_ref().map(|path| path.display().to_string());
    lines.add("auth_enabled_ascii", auth_file.as_deref().unwrap_or("no"));
    lines.add("item_size_max", settings.item_bytes_max);
    lines.add("maxconns_fast", yes_no(settings.maxconns_fast));
    lines.add("hashpower_init", settings.hash_power.unwrap_or(0));
    slabs_and_lru(shared, lines);
    lines.add("idle_timeout", settings.idle_timeout_secs);
    buffers(settings, lines);
    tls(&settings.tls, lines);
    lines.add("num_napi_ids", settings.accepted.napi_ids);
    let memory_file = settings.memory_file.as_ref().map(|path| path.display().to_string());
    lines.add("memory_file", memory_file.as_deref().unwrap_or("(null)"));
    lines.add("client_flags_size", size_of::<u32>());
    // larder's own.
    lines.add("udp_cookie", yes_no(settings.udp_cookie));
    lines.add("noreply_close_on_error", yes_no(settings.noreply_close_on_error));
}

fn accepted_options_and_threads(shared: &Shared, lines: &mut Lines) {
    let settings = &shared.settings;
    let accepted = &settings.accepted;
    lines.add("growth_factor", format_args!("{:.2}", accepted.growth_factor));
    lines.add("chunk_size", accepted.chunk_bytes);
    lines.add("num_threads", settings.threads);
    lines.add("num_threads_per_udp", settings.threads);
    lines.add("stat_key_prefix", char::from(settings.prefix_delimiter));
    lines.add("detail_enabled", yes_no(shared.observers.counts_prefixes()));
    lines.add("reqs_per_event", settings.requests_per_event);
}

fn slabs_and_lru(shared: &Shared, lines: &mut Lines) {
    let settings = &shared.settings;
    let accepted = &settings.accepted;
    lines.add("slab_reassign", yes_no(accepted.slab_reassign));
    lines.add("slab_automove", accepted.slab_automove);
    lines.add("slab_automove_ratio", format_args!("{:.2}", accepted.slab_automove_ratio));
    lines.add("slab_automove_window", accepted.slab_automove_window);
    lines.add("slab_chunk_max", accepted.slab_chunk_bytes_max);
    lines.add("lru_crawler", yes_no(shared.crawler.is_enabled()));
    lines.add("lru_crawler_sleep", accepted.lru_crawler_sleep_micros);
    lines.add("lru_crawler_tocrawl", accepted.lru_crawler_tocrawl);
    lines.add("tail_repair_time", accepted.tail_repair_secs);
    lines.add("flush_enabled", yes_no(settings.flush_all));
    lines.add("dump_enabled", yes_no(settings.dump));
    // The one in use, whatever hash_algorithm says.
    lines.add("hash_algorithm", "nh");
    lines.add("lru_maintainer_thread", yes_no(accepted.lru_maintainer));
    lines.add("lru_segmented", yes_no(accepted.lru_maintainer));
    lines.add("hot_lru_pct", accepted.hot_lru_pct);
    lines.add("warm_lru_pct", accepted.warm_lru_pct);
    lines.add("hot_max_factor", format_args!("{:.2}", accepted.hot_max_factor));
    lines.add("warm_max_factor", format_args!("{:.2}", accepted.warm_max_factor));
    lines.add("temp_lru", yes_no(accepted.temporary_ttl.is_some()));
    lines.add("temporary_ttl", accepted.temporary_ttl.unwrap_or(TEMPORARY_TTL_DEFAULT));
}

fn buffers(settings: &Settings, lines: &mut Lines) {
    let accepted = &settings.accepted;
    lines.add("watcher_logbuf_size", settings.watcher_logbuf_bytes);
    lines.add("worker_logbuf_size", settings.worker_logbuf_bytes);
    lines.add("read_buf_mem_limit", accepted.read_buf_bytes_max);
    lines.add("track_sizes", yes_no(settings.track_sizes));
    lines.add("inline_ascii_response", "no");
}

fn tls(settings: &TlsSettings, lines: &mut Lines) {
    lines.add("ssl_enabled", yes_no(settings.is_enabled));
    if !settings.is_enabled {
        return;
    }
    let file = |file: &Option<PathBuf>, absent: &str| {
        file.as_ref().map_or_else(|| absent.to_owned(), |file| file.display().to_string())
    };
    lines.add("ssl_chain_cert", file(&settings.chain_file, "(null)"));
    lines.add("ssl_key", file(&settings.key_file, "(null)"));
    lines.add("ssl_verify_mode", settings.verify_mode);
    lines.add("ssl_keyformat", 1);
    lines.add("ssl_ciphers", settings.ciphers.as_ref().map_or("NULL", |ciphers| &ciphers.written));
    lines.add("ssl_ca_cert", file(&settings.ca_file, "NULL"));
    lines.add("ssl_wbuf_size", settings.write_buffer_bytes);
    lines.add("ssl_session_cache", yes_no(settings.session_cache));
    lines.add("ssl_kernel_tls", yes_no(settings.kernel_tls));
    let version_min = match settings.version_min {
        Version::Tls12 => "tlsv1.2",
        Version::Tls13 => "tlsv1.3",
    };
    lines.add("ssl_min_version", version_min);
}

fn port(port: Port) -> i32 {
    match port {
        Port::Off => 0,
        Port::Fixed(port) => port.into(),
        Port::Ephemeral => -1,
    }
}

const TEMPORARY_TTL_DEFAULT: u32 = 61;
