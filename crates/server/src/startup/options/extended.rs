//! The options of `-o`.

use larder_engine::LargePages;

use super::Value::{Needed, None as NoValue, Possible};
use super::suggest::did_you_mean;
use super::table::NO_SLABS;
use super::{Act, Draft, EXIT_FAILURE, Refusal, Row, Status, Value, number, number_in, tls};

/// Applies one `-o` list: `name[=value]`, separated by commas.
pub(super) fn apply(draft: &mut Draft, list: &str) -> Result<(), Refusal> {
    for entry in list.split(',').filter(|entry| !entry.is_empty()) {
        let (name, value) = entry.split_once('=').unwrap_or((entry, ""));
        let row = EXTENDED.iter().find(|row| row.name == name).ok_or_else(|| {
            let meant = did_you_mean(name);
            Refusal::new(EXIT_FAILURE, format!("Illegal suboption \"{name}\"{meant}"))
        })?;
        row.apply(draft, value)?;
        if name.starts_with("ssl_") {
            draft.ssl_given.push(row.name);
        }
    }
    Ok(())
}

/// In the order of section "Extended options" of memcached's help; families that are refused come last.
pub(super) const EXTENDED: &[Row] = &[
    honoured(
        "maxconns_fast",
        NoValue,
        "on",
        "refuse connections beyond the limit with an error line",
        |d, _| {
            d.settings.maxconns_fast = true;
            Ok(())
        },
    ),
    honoured("no_maxconns_fast", NoValue, "", "leave connections beyond the limit waiting", |d, _| {
        d.settings.maxconns_fast = false;
        Ok(())
    }),
    honoured(
        "hashpower",
        Needed("<num>"),
        "",
        "log2 of the items the index starts with room for, 12 to 32",
        |d, v| {
            let power = number_in(v, 12..=32, "Initial hashtable multiplier must be from 12 to 32")?;
            d.settings.hash_power = Some(power);
            Ok(())
        },
    ),
    accepted("no_hashexpand", NoValue, "", "do not grow the index", INDEX_GROWS, |_, _| Ok(())),
    accepted("slab_reassign", NoValue, "on", "move pages between slab classes", NO_SLABS, |d, _| {
        d.settings.accepted.slab_reassign = true;
        Ok(())
    }),
    accepted("no_slab_reassign", NoValue, "", "do not move pages between slab classes", NO_SLABS, |d, _| {
        d.settings.accepted.slab_reassign = false;
        Ok(())
    }),
    accepted("slab_automove", Possible("<0|1|2>"), "1", "how eagerly pages move", NO_SLABS, |d, v| {
        let message = "slab_automove must be between 0 and 2";
        d.settings.accepted.slab_automove = if v.is_empty() { 1 } else { number_in(v, 0..=2, message)? };
        Ok(())
    }),
    accepted("no_slab_automove", NoValue, "", "pages do not move on their own", NO_SLABS, |d, _| {
        d.settings.accepted.slab_automove = 0;
        Ok(())
    }),
    accepted("slab_automove_ratio", Needed("<ratio>"), "0.8", "when pages move", NO_SLABS, |d, v| {
        let message = "slab_automove_ratio must be > 0 and <= 1";
        d.settings.accepted.slab_automove_ratio = number_in(v, f64::MIN_POSITIVE..=1.0, message)?;
        Ok(())
    }),
    accepted("slab_automove_window", Needed("<secs>"), "10", "when pages move", NO_SLABS, |d, v| {
        let message = "slab_automove_window must be between 3 and 1800";
        d.settings.accepted.slab_automove_window = number_in(v, 3..=1800, message)?;
        Ok(())
    }),
    accepted("slab_automove_freeratio", Needed("<ratio>"), "0.01", "memory kept free", NO_SLABS, |_, v| {
        number_in(v, f64::MIN_POSITIVE..=1.0, "slab_automove_freeratio must be > 0 and <= 1").map(drop)
    }),
    accepted(
        "tail_repair_time",
        Needed("<secs>"),
        "0",
        "repair of lists",
        "there are no lists to repair",
        |d, v| {
            let message = "Cannot set tail_repair_time to less than 10 seconds";
            d.settings.accepted.tail_repair_secs = number_in(v, 10.., message)?;
            Ok(())
        },
    ),
    accepted(
        "hash_algorithm",
        Needed("<name>"),
        "murmur3",
        "jenkins, murmur3 or xxh3",
        "keys are hashed with a secret key, so that nobody can choose colliding ones",
        |_, v| match v {
            "jenkins" | "murmur3" | "xxh3" => Ok(()),
            _ => Err(Refusal::new(EXIT_FAILURE, "Unknown hash_algorithm option (jenkins, murmur3, xxh3)")),
        },
    ),
    accepted(
        "lru_crawler",
        NoValue,
        "on",
        "reclaim expired items in the background",
        ALWAYS_CRAWLS,
        |d, _| {
            d.settings.accepted.lru_crawler = true;
            Ok(())
        },
    ),
    accepted("no_lru_crawler", NoValue, "", "no background reclaiming", ALWAYS_CRAWLS, |d, _| {
        d.settings.accepted.lru_crawler = false;
        Ok(())
    }),
    accepted("lru_crawler_sleep", Needed("<micros>"), "100", "pause between items", ALWAYS_CRAWLS, |d, v| {
        let message = "LRU crawler sleep must be between 0 and 1 second";
        d.settings.accepted.lru_crawler_sleep_micros = number_in(v, 0..=1_000_000, message)?;
        Ok(())
    }),
    accepted("lru_crawler_tocrawl", Needed("<num>"), "0", "items a run looks at", ALWAYS_CRAWLS, |d, v| {
        d.settings.accepted.lru_crawler_tocrawl =
            number_in(v, 0.., "lru_crawler_tocrawl takes a numeric 32bit value")?;
        Ok(())
    }),
    accepted("lru_maintainer", NoValue, "on", "segmented LRU", NO_LRU, |d, _| {
        d.settings.accepted.lru_maintainer = true;
        Ok(())
    }),
    accepted("no_lru_maintainer", NoValue, "", "flat LRU", NO_LRU, |d, _| {
        d.settings.accepted.lru_maintainer = false;
        Ok(())
    }),
    accepted("hot_lru_pct", Needed("<num>"), "20", "share of the hot list", NO_LRU, |d, v| {
        d.settings.accepted.hot_lru_pct = number_in(v, 1..=79, "hot_lru_pct must be > 1 and < 80")?;
        Ok(())
    }),
    accepted("warm_lru_pct", Needed("<num>"), "40", "share of the warm list", NO_LRU, |d, v| {
        d.settings.accepted.warm_lru_pct = number_in(v, 1..=79, "warm_lru_pct must be > 1 and < 80")?;
        Ok(())
    }),
    accepted("hot_max_factor", Needed("<num>"), "0.2", "age limit of the hot list", NO_LRU, |d, v| {
        let message = "hot_max_factor must be > 0";
        d.settings.accepted.hot_max_factor = number_in(v, f64::MIN_POSITIVE.., message)?;
        Ok(())
    }),
    accepted("warm_max_factor", Needed("<num>"), "2.0", "age limit of the warm list", NO_LRU, |d, v| {
        let message = "warm_max_factor must be > 0";
        d.settings.accepted.warm_max_factor = number_in(v, f64::MIN_POSITIVE.., message)?;
        Ok(())
    }),
    accepted(
        "temporary_ttl",
        Needed("<secs>"),
        "61",
        "items of short life on a list of their own",
        NO_LRU,
        |d, v| {
            d.settings.accepted.temporary_ttl =
                Some(number_in(v, 0.., "temporary_ttl takes a numeric 32bit value")?);
            Ok(())
        },
    ),
    honoured(
        "idle_timeout",
        Needed("<secs>"),
        "0",
        "close TCP connections idle for longer; 0: never",
        |d, v| {
            d.settings.idle_timeout_secs =
                number_in(v, 0..=i32::MAX as u32, "idle_timeout takes a number of seconds")?;
            Ok(())
        },
    ),
    honoured("watcher_logbuf_size", Needed("<KiB>"), "256", "what may wait for a watcher", |d, v| {
        d.settings.watcher_logbuf_bytes = kibibytes(v, 1..=1 << 20, "watcher_logbuf_size takes a number")?;
        Ok(())
    }),
    honoured(
        "worker_logbuf_size",
        Needed("<KiB>"),
        "64",
        "what may wait on a worker for watchers",
        |d, v| {
            d.settings.worker_logbuf_bytes = kibibytes(v, 1..=1 << 20, "worker_logbuf_size takes a number")?;
            Ok(())
        },
    ),
    accepted("slab_sizes", Needed("<a-b-c>"), "", "sizes of the slab classes", NO_SLABS, |_, v| {
        let increasing = v.split('-').map(|size| size.parse().unwrap_or(0)).is_sorted_by(|a: &u32, b| a < b);
        if increasing && !v.starts_with('0') {
            return Ok(());
        }
        Err(Refusal::new(EXIT_FAILURE, "slab_sizes takes increasing sizes, separated by '-'"))
    }),
    accepted("slab_chunk_max", Needed("<KiB>"), "512", "largest slab class", NO_SLABS, |d, v| {
        d.settings.accepted.slab_chunk_bytes_max =
            kibibytes(v, 1..=1024, "slab_chunk_max must be from 1 to 1024")?;
        Ok(())
    }),
    honoured("track_sizes", NoValue, "", "answer \"stats sizes\"", |d, _| {
        d.settings.track_sizes = true;
        Ok(())
    }),
    accepted("modern", NoValue, "on", "today's defaults", "they are larder's", |_, _| Ok(())),
    honoured(
        "no_modern",
        NoValue,
        "",
        "the defaults of memcached 1.4; of these only no_maxconns_fast means anything here",
        |d, _| {
            d.settings.maxconns_fast = false;
            let accepted = &mut d.settings.accepted;
            accepted.slab_reassign = false;
            accepted.slab_automove = 0;
            accepted.lru_crawler = false;
            accepted.lru_maintainer = false;
            Ok(())
        },
    ),
    accepted("no_chunked_items", NoValue, "", "items in one piece", NO_SLABS, |_, _| Ok(())),
    accepted("inline_ascii_resp", NoValue, "", "ready-made reply headers", NO_MORE, |_, _| Ok(())),
    accepted("no_inline_ascii_resp", NoValue, "", "no ready-made reply headers", NO_MORE, |_, _| Ok(())),
    honoured(
        "drop_privileges",
        NoValue,
        "",
        "deny the process files, programs, outward connections",
        |d, _| {
            d.settings.drop_privileges = true;
            Ok(())
        },
    ),
    honoured("no_drop_privileges", NoValue, "on", "do not sandbox the process", |d, _| {
        d.settings.drop_privileges = false;
        Ok(())
    }),
    honoured("latency_histograms", NoValue, "on", "measure how long requests take", |d, _| {
        d.settings.measured.latency = true;
        Ok(())
    }),
    honoured("no_latency_histograms", NoValue, "", "measure no latencies", |d, _| {
        d.settings.measured.latency = false;
        Ok(())
    }),
    honoured("hot_keys", NoValue, "on", "sample which keys are asked for most", |d, _| {
        d.settings.measured.keys = true;
        Ok(())
    }),
    honoured("no_hot_keys", NoValue, "", "do not look for hot keys", |d, _| {
        d.settings.measured.keys = false;
        Ok(())
    }),
    honoured(
        "hit_ratio_curve",
        NoValue,
        "on",
        "follow a sample of the keys to tell the hit ratio at other sizes",
        |d, _| {
            d.settings.measured.curve = true;
            Ok(())
        },
    ),
    honoured("no_hit_ratio_curve", NoValue, "", "do not follow keys", |d, _| {
        d.settings.measured.curve = false;
        Ok(())
    }),
    honoured("no_large_pages", NoValue, "", "leave full memory on small pages", |d, _| {
        d.settings.large_pages = LargePages::Never;
        Ok(())
    }),
    accepted("resp_obj_mem_limit", Needed("<MiB>"), "0", "memory for replies", NO_MORE, |_, _| Ok(())),
    honoured(
        "read_buf_mem_limit",
        Needed("<MiB>"),
        "0",
        "memory of all connections for unfinished requests and unsent replies, beyond 16 KiB each; 0: a sixteenth of -m, at least 32",
        |d, v| {
            let mebibytes: u64 = number_in(v, 0..=1 << 20, "read_buf_mem_limit takes a number of mebibytes")?;
            d.settings.accepted.read_buf_bytes_max = mebibytes << 20;
            Ok(())
        },
    ),
    accepted(
        "sock_cookie_id",
        Needed("<num>"),
        "",
        "mark sockets for filtering (Linux SO_MARK)",
        "sockets are not marked in this version",
        |_, v| number::<u32>(v, EXIT_FAILURE, "sock_cookie_id takes a number").map(drop),
    ),
    honoured(
        "ssl_chain_cert",
        Needed("<file>"),
        "",
        "certificate and intermediate certificates, in PEM",
        tls::chain_file,
    ),
    honoured("ssl_key", Needed("<file>"), "", "its private key, in PEM, if not in that file", tls::key_file),
    honoured(
        "ssl_keyformat",
        Needed("<num>"),
        "1",
        "format of the key; only 1 (PEM) is accepted",
        tls::key_format,
    ),
    honoured(
        "ssl_verify_mode",
        Needed("<num>"),
        "0",
        "certificates of clients: 0 not requested, 1 requested, 2 and 3 required",
        tls::verify_mode,
    ),
    honoured(
        "ssl_ciphers",
        Needed("<list>"),
        "",
        "cipher suites, by OpenSSL's names, separated by colons",
        tls::ciphers,
    ),
    honoured(
        "ssl_ca_cert",
        Needed("<file>"),
        "",
        "authorities of clients' certificates, in PEM",
        tls::ca_file,
    ),
    accepted(
        "ssl_wbuf_size",
        Needed("<KiB>"),
        "16",
        "buffer for what is sent",
        "connections share their worker's buffers",
        |d, v| {
            d.settings.tls.write_buffer_bytes = kibibytes(v, 0..=1 << 20, "ssl_wbuf_size takes a number")?;
            Ok(())
        },
    ),
    honoured("ssl_session_cache", NoValue, "", "let clients resume sessions", |d, _| {
        d.settings.tls.session_cache = true;
        Ok(())
    }),
    accepted(
        "ssl_kernel_tls",
        NoValue,
        "",
        "let the kernel encrypt",
        "encryption is larderd's own work in this version",
        |d, _| {
            d.settings.tls.kernel_tls = true;
            Ok(())
        },
    ),
    honoured(
        "ssl_min_version",
        Needed("<num>"),
        "2",
        "oldest version of TLS: 2 is 1.2, 3 is 1.3",
        tls::version_min,
    ),
    refused("ext_path", Needed("<file:size>"), STORAGE_OPTION, NO_STORAGE),
    refused("ext_page_size", Needed("<MiB>"), STORAGE_OPTION, NO_STORAGE),
    refused("ext_wbuf_size", Needed("<MiB>"), STORAGE_OPTION, NO_STORAGE),
    refused("ext_threads", Needed("<num>"), STORAGE_OPTION, NO_STORAGE),
    refused("ext_io_depth", Needed("<num>"), STORAGE_OPTION, NO_STORAGE),
    refused("ext_item_size", Needed("<bytes>"), STORAGE_OPTION, NO_STORAGE),
    refused("ext_item_age", Needed("<secs>"), STORAGE_OPTION, NO_STORAGE),
    refused("ext_low_ttl", Needed("<secs>"), STORAGE_OPTION, NO_STORAGE),
    refused("ext_recache_rate", Needed("<num>"), STORAGE_OPTION, NO_STORAGE),
    refused("ext_compact_under", Needed("<num>"), STORAGE_OPTION, NO_STORAGE),
    refused("ext_drop_under", Needed("<num>"), STORAGE_OPTION, NO_STORAGE),
    refused("ext_max_sleep", Needed("<micros>"), STORAGE_OPTION, NO_STORAGE),
    refused("ext_max_frag", Needed("<ratio>"), STORAGE_OPTION, NO_STORAGE),
    refused("ext_drop_unread", NoValue, STORAGE_OPTION, NO_STORAGE),
    refused("proxy_config", Needed("<file>"), PROXY_OPTION, NO_PROXY),
    refused("proxy_arg", Needed("<text>"), PROXY_OPTION, NO_PROXY),
    refused("proxy_uring", NoValue, PROXY_OPTION, NO_PROXY),
];

const ALWAYS_CRAWLS: &str = "expired segments are always reclaimed, in steps too small to need tuning";
const INDEX_GROWS: &str = "the index always grows, in steps that no request waits for";
const NO_LRU: &str = "eviction is two queues of segments, there are no LRU lists";
const NO_MORE: &str = "memcached itself ignores it";
const NO_PROXY: &str = "the proxy is not part of larder";
const NO_STORAGE: &str = "there is no extstore here; --store DIR keeps items on disk, with memory as their cache \
                          (docs/store.md), and -e FILE keeps the cache over a restart (docs/warm-restart.md)";
const PROXY_OPTION: &str = "see memcached's manual";
const STORAGE_OPTION: &str = "storage on disk";

const fn honoured(
    name: &'static str,
    value: Value,
    default: &'static str,
    help: &'static str,
    set: fn(&mut Draft, &str) -> Result<(), Refusal>,
) -> Row {
    Row::honoured(None, name, value, default, help, set)
}

const fn accepted(
    name: &'static str,
    value: Value,
    default: &'static str,
    help: &'static str,
    reason: &'static str,
    set: fn(&mut Draft, &str) -> Result<(), Refusal>,
) -> Row {
    Row { short: None, name, value, default, help, status: Status::Accepted(reason), act: Act::Set(set) }
}

const fn refused(name: &'static str, value: Value, help: &'static str, reason: &'static str) -> Row {
    Row { short: None, name, value, default: "", help, status: Status::Refused(reason), act: Act::Nothing }
}

/// Reads a number of kibibytes within bounds, returns bytes.
fn kibibytes(value: &str, bounds: std::ops::RangeInclusive<u32>, message: &str) -> Result<u32, Refusal> {
    Ok(number_in(value, bounds, message)?.saturating_mul(1024))
}
