//! The metrics of prometheus-memcached-exporter, computed from the same statistics by the same rules: names, labels,
//! and which are left out when. Source: github.com/prometheus/memcached_exporter, pkg/exporter/exporter.go.
//!
//! Types are correct here. The exporter declares some gauges as counters, such as the uptime, and one or two the other
//! way around.

use std::collections::BTreeMap;

use super::text::{Metric, Text};
use crate::namespaces::Rights;
use crate::observe::stats;
use crate::web::state::State;

/// A metric that is one line of `stats`, `stats settings` or `stats slabs`.
struct Single(&'static str, Metric);

/// A metric with a sample for each class, from lines of `stats items` or `stats slabs`: names of lines, with labels in
/// addition to the class.
struct ByClass(&'static [(&'static str, &'static [(&'static str, &'static str)])], Metric);

type Lines = BTreeMap<String, String>;

pub(super) fn write(state: &State, text: &mut Text) {
    let shared = &*state.shared;
    let lines =
        |sub_command| stats::lines(shared, Rights::ALL, sub_command).into_iter().flatten().collect::<Lines>();
    let (general, settings) = (lines(None), lines(Some(b"settings")));
    let (slabs, items) = (lines(Some(b"slabs")), lines(Some(b"items")));
    text.single(&Metric::gauge("memcached_up", "Could the memcached server be reached."), 1);
    if let Some(version) = general.get("version") {
        let metric = Metric::gauge("memcached_version", "The version of this memcached server.");
        text.metric(&metric).add(&[("version", version)], 1);
    }
    commands(&general, text);
    write_singles(GENERAL, &general, text);
    write_singles(&[TOTAL_MALLOCED], &slabs, text);
    write_singles(&[MAX_CONNECTIONS], &settings, text);
    if settings.get("lru_crawler").is_some_and(|enabled| enabled == "yes") {
        write_singles(SETTINGS, &settings, text);
    }
    // Lines of both differ in their names: `items:1:age`, `1:total_pages`.
    let items = items.into_iter().map(|(name, value)| (name.trim_start_matches("items:").to_owned(), value));
    by_class(&items.chain(slabs).collect(), text);
}

fn write_singles(singles: &[Single], lines: &Lines, text: &mut Text) {
    for Single(name, metric) in singles {
        if let Some(value) = lines.get(*name) {
            let value = match value.as_str() {
                "yes" => "1",
                "no" => "0",
                number => number,
            };
            text.single(metric, value);
        }
    }
}

fn commands(general: &Lines, text: &mut Text) {
    let help = "Total number of all requests broken down by command (get, set, etc.) and status.";
    let mut samples = text.metric(&Metric::counter("memcached_commands_total", help));
    for (command, status, value) in command_counts(|name| general.get(name)) {
        samples.add(&[("command", command), ("status", status)], value);
    }
}

fn by_class(lines: &Lines, text: &mut Text) {
    let classes: Vec<String> = (1..=3u8).map(|class| class.to_string()).collect();
    for ByClass(samples, metric) in CLASSES {
        let values: Vec<_> = classes
            .iter()
            .flat_map(|class| samples.iter().map(move |(name, labels)| (class, name, labels)))
            .filter_map(|(class, name, labels)| Some((class, labels, lines.get(&format!("{class}:{name}"))?)))
            .collect();
        if values.is_empty() {
            continue;
        }
        let mut samples = text.metric(metric);
        for (class, labels, value) in values {
            let labels: Vec<_> =
                [("slab", class.as_str())].into_iter().chain(labels.iter().copied()).collect();
            samples.add(&labels, value);
        }
    }
    let help = "Total number of all requests broken down by command (get, set, etc.) and status per slab.";
    let counts: Vec<_> = classes
        .iter()
        .flat_map(|class| {
            let counts = command_counts(|name| lines.get(&format!("{class}:{name}")));
            counts.into_iter().map(move |count| (class, count))
        })
        .collect();
    if counts.is_empty() {
        return;
    }
    let mut samples = text.metric(&Metric::counter("memcached_slab_commands_total", help));
    for (class, (command, status, value)) in counts {
        samples.add(&[("slab", class), ("command", command), ("status", status)], value);
    }
}

/// Command, status and count of the commands that are counted in `stats`, or for a class.
fn command_counts<'l>(get: impl Fn(&str) -> Option<&'l String>) -> Vec<(&'static str, &'static str, String)> {
    let count = |name: &str| get(name).and_then(|value| value.parse::<u64>().ok());
    let mut counts: Vec<_> = COMMANDS
        .iter()
        .filter_map(|&(command, status, name)| Some((command, status, count(name)?.to_string())))
        .collect();
    // memcached counts a cas as a set, too; its misses are not counted by class.
    let cas: Option<u64> = count("cas_hits").zip(count("cas_badval")).map(|(hits, badval)| hits + badval);
    if let (Some(sets), Some(cas)) = (count("cmd_set"), cas) {
        let cas = cas + count("cas_misses").unwrap_or(0);
        // A difference of two counters may be negative for a moment, as in the exporter.
        counts.push(("set", "hit", (i128::from(sets) - i128::from(cas)).to_string()));
    }
    counts
}

const COMMANDS: &[(&str, &str, &str)] = &[
    ("get", "hit", "get_hits"),
    ("get", "miss", "get_misses"),
    ("delete", "hit", "delete_hits"),
    ("delete", "miss", "delete_misses"),
    ("incr", "hit", "incr_hits"),
    ("incr", "miss", "incr_misses"),
    ("decr", "hit", "decr_hits"),
    ("decr", "miss", "decr_misses"),
    ("cas", "hit", "cas_hits"),
    ("cas", "miss", "cas_misses"),
    ("cas", "badval", "cas_badval"),
    ("touch", "hit", "touch_hits"),
    ("touch", "miss", "touch_misses"),
    ("flush", "hit", "cmd_flush"),
];

const fn counter(line: &'static str, name: &'static str, help: &'static str) -> Single {
    Single(line, Metric::counter(name, help))
}

const fn gauge(line: &'static str, name: &'static str, help: &'static str) -> Single {
    Single(line, Metric::gauge(name, help))
}

const TOTAL_MALLOCED: Single =
    gauge("total_malloced", "memcached_malloced_bytes", "Number of bytes of memory allocated to slab pages.");
const MAX_CONNECTIONS: Single =
    gauge("maxconns", "memcached_max_connections", "Maximum number of clients allowed.");

const GENERAL: &[Single] = &[
    gauge("uptime", "memcached_uptime_seconds", "Number of seconds since the server started."),
    gauge("time", "memcached_time_seconds", "current UNIX time according to the server."),
    counter(
        "rusage_user",
        "memcached_process_user_cpu_seconds_total",
        "Accumulated user time for this process.",
    ),
    counter(
        "rusage_system",
        "memcached_process_system_cpu_seconds_total",
        "Accumulated system time for this process.",
    ),
    gauge("bytes", "memcached_current_bytes", "Current number of bytes used to store items."),
    gauge(
        "limit_maxbytes",
        "memcached_limit_bytes",
        "Number of bytes this server is allowed to use for storage.",
    ),
    gauge("curr_items", "memcached_current_items", "Current number of items stored by this instance."),
    counter(
        "total_items",
        "memcached_items_total",
        "Total number of items stored during the life of this instance.",
    ),
    counter(
        "bytes_read",
        "memcached_read_bytes_total",
        "Total number of bytes read by this server from network.",
    ),
    counter(
        "bytes_written",
        "memcached_written_bytes_total",
        "Total number of bytes sent by this server to network.",
    ),
    gauge("curr_connections", "memcached_current_connections", "Current number of open connections."),
    counter(
        "total_connections",
        "memcached_connections_total",
        "Total number of connections opened since the server started running.",
    ),
    counter(
        "rejected_connections",
        "memcached_connections_rejected_total",
        "Total number of connections rejected due to hitting the memcached's -c limit in maxconns_fast mode.",
    ),
    counter(
        "conn_yields",
        "memcached_connections_yielded_total",
        "Total number of connections yielded running due to hitting the memcached's -R limit.",
    ),
    counter(
        "listen_disabled_num",
        "memcached_connections_listener_disabled_total",
        "Number of times that memcached has hit its connections limit and disabled its listener.",
    ),
    counter(
        "evictions",
        "memcached_items_evicted_total",
        "Total number of valid items removed from cache to free memory for new items.",
    ),
    counter(
        "reclaimed",
        "memcached_items_reclaimed_total",
        "Total number of times an entry was stored using memory from an expired entry.",
    ),
    counter(
        "store_too_large",
        "memcached_item_too_large_total",
        "The number of times an item exceeded the max-item-size when being stored.",
    ),
    counter(
        "store_no_memory",
        "memcached_item_no_memory_total",
        "The number of times an item could not be stored due to no more memory.",
    ),
    counter("lru_crawler_starts", "memcached_lru_crawler_starts_total", "Times an LRU crawler was started."),
    counter(
        "direct_reclaims",
        "memcached_direct_reclaims_total",
        "Times worker threads had to directly reclaim or evict items.",
    ),
    counter(
        "crawler_items_checked",
        "memcached_lru_crawler_items_checked_total",
        "Total items examined by LRU Crawler.",
    ),
    counter(
        "crawler_reclaimed",
        "memcached_lru_crawler_reclaimed_total",
        "Total items freed by LRU Crawler.",
    ),
    counter(
        "moves_to_cold",
        "memcached_lru_crawler_moves_to_cold_total",
        "Total number of items moved from HOT/WARM to COLD LRU's.",
    ),
    counter(
        "moves_to_warm",
        "memcached_lru_crawler_moves_to_warm_total",
        "Total number of items moved from COLD to WARM LRU.",
    ),
    counter(
        "moves_within_lru",
        "memcached_lru_crawler_moves_within_lru_total",
        "Total number of items reshuffled within HOT or WARM LRU's.",
    ),
    gauge(
        "accepting_conns",
        "memcached_accepting_connections",
        "The Memcached server is currently accepting new connections.",
    ),
];

const SETTINGS: &[Single] = &[
    gauge("lru_crawler", "memcached_lru_crawler_enabled", "Whether the LRU crawler is enabled."),
    gauge("lru_crawler_sleep", "memcached_lru_crawler_sleep", "Microseconds to sleep between LRU crawls."),
    gauge("lru_crawler_tocrawl", "memcached_lru_crawler_to_crawl", "Max items to crawl per slab per run."),
    gauge(
        "lru_maintainer_thread",
        "memcached_lru_crawler_maintainer_thread",
        "Split LRU mode and background threads.",
    ),
    gauge("hot_lru_pct", "memcached_lru_crawler_hot_percent", "Percent of slab memory reserved for HOT LRU."),
    gauge(
        "warm_lru_pct",
        "memcached_lru_crawler_warm_percent",
        "Percent of slab memory reserved for WARM LRU.",
    ),
    gauge(
        "hot_max_factor",
        "memcached_lru_crawler_hot_max_factor",
        "Set idle age of HOT LRU to COLD age * this",
    ),
    gauge(
        "warm_max_factor",
        "memcached_lru_crawler_warm_max_factor",
        "Set idle age of WARM LRU to COLD age * this",
    ),
];

macro_rules! by_class {
    ($($kind:ident $line:literal $name:literal $help:literal,)*) => {
        &[
            $(ByClass(&[($line, &[])], Metric::$kind(concat!("memcached_slab_", $name), $help)),)*
            ByClass(
                &[
                    ("hits_to_hot", &[("lru", "hot")]),
                    ("hits_to_warm", &[("lru", "warm")]),
                    ("hits_to_cold", &[("lru", "cold")]),
                    ("hits_to_temp", &[("lru", "temporary")]),
                ],
                Metric::counter("memcached_slab_lru_hits_total", "Number of get_hits to the LRU."),
            ),
        ]
    };
}

const CLASSES: &[ByClass] = by_class! {
    gauge "number" "current_items" "Number of items currently stored in this slab class.",
    gauge "age" "items_age_seconds" "Number of seconds the oldest item has been in the slab class.",
    counter "crawler_reclaimed" "items_crawler_reclaimed_total" "Number of items freed by the LRU Crawler.",
    counter "evicted" "items_evicted_total" "Total number of times an item had to be evicted from the LRU before it expired.",
    counter "evicted_nonzero" "items_evicted_nonzero_total" "Total number of times an item which had an explicit expire time set had to be evicted from the LRU before it expired.",
    gauge "evicted_time" "items_evicted_time_seconds" "Seconds since the last access for the most recent item evicted from this class.",
    counter "evicted_unfetched" "items_evicted_unfetched_total" "Total number of items evicted and never fetched.",
    counter "expired_unfetched" "items_expired_unfetched_total" "Total number of valid items evicted from the LRU which were never touched after being set.",
    counter "outofmemory" "items_outofmemory_total" "Total number of items for this slab class that have triggered an out of memory error.",
    counter "reclaimed" "items_reclaimed_total" "Total number of items reclaimed.",
    counter "tailrepairs" "items_tailrepairs_total" "Total number of times the entries for a particular ID need repairing.",
    counter "moves_to_cold" "items_moves_to_cold_total" "Number of items moved from HOT or WARM into COLD.",
    counter "moves_to_warm" "items_moves_to_warm_total" "Number of items moves from COLD into WARM.",
    counter "moves_within_lru" "items_moves_within_lru_total" "Number of times active items were bumped within HOT or WARM.",
    gauge "number_hot" "hot_items" "Number of items presently stored in the HOT LRU.",
    gauge "number_warm" "warm_items" "Number of items presently stored in the WARM LRU.",
    gauge "number_cold" "cold_items" "Number of items presently stored in the COLD LRU.",
    gauge "number_temp" "temporary_items" "Number of items presently stored in the TEMPORARY LRU.",
    gauge "age_hot" "hot_age_seconds" "Age of the oldest item in HOT LRU.",
    gauge "age_warm" "warm_age_seconds" "Age of the oldest item in WARM LRU.",
    gauge "chunk_size" "chunk_size_bytes" "Number of bytes allocated to each chunk within this slab class.",
    gauge "chunks_per_page" "chunks_per_page" "Number of chunks within a single page for this slab class.",
    gauge "total_pages" "current_pages" "Number of pages allocated to this slab class.",
    gauge "total_chunks" "current_chunks" "Number of chunks allocated to this slab class.",
    gauge "used_chunks" "chunks_used" "Number of chunks allocated to an item.",
    gauge "free_chunks" "chunks_free" "Number of chunks not yet allocated items.",
    gauge "free_chunks_end" "chunks_free_end" "Number of free chunks at the end of the last allocated page.",
    gauge "mem_requested" "mem_requested_bytes" "Number of bytes of memory actual items take up within a slab.",
};
