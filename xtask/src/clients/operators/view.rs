//! What a tool tells of a server, and whether it tells the same of another.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use larder_conformance::Result;
use larder_conformance::script::Side;

/// Names, each with its value.
#[derive(Default)]
pub(super) struct View(BTreeMap<String, String>);

impl View {
    pub(super) fn add(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.insert(name.into(), value.into());
    }

    /// One of a class of memory, of which every server has its own: only their sum is alike, if they can be summed.
    pub(super) fn add_of_class(&mut self, name: String, value: &str) {
        let is_sum = SUMS.iter().any(|sum| name.ends_with(sum));
        let number = value.parse::<f64>().ok().filter(|_| is_sum);
        match (self.0.entry(name), number) {
            (Entry::Vacant(entry), Some(number)) => drop(entry.insert(number.to_string())),
            (Entry::Vacant(entry), None) => drop(entry.insert("of a class".into())),
            (Entry::Occupied(mut entry), Some(number)) => {
                let sum: f64 = entry.get().parse().unwrap_or(f64::NAN);
                entry.insert((sum + number).to_string());
            }
            (Entry::Occupied(_), None) => {}
        }
    }

    /// How many names it tells.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Compares with what the same tool tells of memcached; returns how many names it told.
    pub(super) fn judge(&self, reference: &Self, side: Side) -> Result<usize> {
        let mut differences = Vec::new();
        for (name, expected) in &reference.0 {
            match self.0.get(name) {
                Some(value) if value == expected || varies(name, side) => {}
                Some(value) => differences.push(format!("{name} is {value:?}, with memcached {expected:?}")),
                None if side == Side::Larder && matches_any(name, &MEMCACHEDS) => {}
                None => differences.push(format!("{name} is missing, with memcached it is {expected:?}")),
            }
        }
        for (name, value) in &self.0 {
            let is_known =
                reference.0.contains_key(name) || side == Side::Larder && matches_any(name, &LARDERS);
            if !is_known {
                differences.push(format!("{name} is {value:?}, with memcached it is missing"));
            }
        }
        if self.0.is_empty() {
            differences.push("it tells nothing".into());
        }
        if differences.is_empty() { Ok(self.0.len()) } else { Err(differences.join("; ").into()) }
    }
}

/// Does the value of this name differ from server to server, or from run to run?
pub(super) fn varies(name: &str, side: Side) -> bool {
    matches_any(name, &VARYING) || side == Side::Larder && matches_any(name, &DELIBERATE)
}

/// Is this one of the names, as it is or behind what the tool puts before it (`settings inter`)?
fn matches_any(name: &str, names: &[&str]) -> bool {
    names.iter().any(|suffix| {
        name.strip_suffix(suffix).is_some_and(|before| before.is_empty() || before.ends_with([' ', ':']))
    })
}

/// Counters that are kept for each class.
const SUMS: [&str; 16] = [
    "number",
    "evicted",
    "evicted_nonzero",
    "outofmemory",
    "reclaimed",
    "get_hits",
    "cmd_set",
    "delete_hits",
    "incr_hits",
    "decr_hits",
    "cas_hits",
    "cas_badval",
    "touch_hits",
    "slab_commands_total",
    "slab_current_items",
    "slab_items_evicted_total",
];

/// What no two servers, or no two moments, have alike: in `stats`, in collectd, in memcached_exporter.
const VARYING: [&str; 40] = [
    "pid",
    "uptime",
    "time",
    "rusage_user",
    "rusage_system",
    "tcpport",
    "curr_connections",
    "total_connections",
    "connection_structures",
    "response_obj_count",
    "response_obj_bytes",
    "read_buf_count",
    "read_buf_bytes",
    "read_buf_bytes_free",
    "bytes_read",
    "bytes_written",
    "lru_maintainer_juggles",
    "lrutail_reflocked",
    "lru_crawler_starts",
    "crawler_items_checked",
    "moves_to_cold",
    "moves_to_warm",
    "moves_within_lru",
    "memcached_connections-current",
    "connections-opened",
    "memcached_octets",
    "ps_cputime",
    "uptime_seconds",
    "time_seconds",
    "process_user_cpu_seconds_total",
    "process_system_cpu_seconds_total",
    "current_connections",
    "connections_total",
    "read_bytes_total",
    "written_bytes_total",
    "lru_crawler_starts_total",
    "lru_crawler_items_checked_total",
    "lru_crawler_moves_to_cold_total",
    "lru_crawler_moves_to_warm_total",
    "lru_crawler_moves_within_lru_total",
];

/// What larder has its own of, as docs/statistics.md and docs/compatibility.md say.
const DELIBERATE: [&str; 15] = [
    "version",
    "libevent",
    "reserved_fds",
    "hash_power_level",
    "hash_bytes",
    "hash_algorithm",
    "num_napi_ids",
    "reqs_per_event",
    "slab_automove_window",
    "slab_global_page_pool",
    "total_items",
    "items_total",
    "active_slabs",
    "total_malloced",
    "malloced_bytes",
];

/// What larder does not have: options of storage on disk, those of TLS without `-Z`, and what memcached 1.6.45 has no
/// longer.
const MEMCACHEDS: [&str; 22] = [
    "slab_reassign_evictions_nomem",
    "slab_automove_freeratio",
    "ext_item_size",
    "ext_item_age",
    "ext_low_ttl",
    "ext_recache_rate",
    "ext_wbuf_size",
    "ext_compact_under",
    "ext_drop_under",
    "ext_max_sleep",
    "ext_max_frag",
    "ext_drop_unread",
    "ssl_chain_cert",
    "ssl_key",
    "ssl_verify_mode",
    "ssl_keyformat",
    "ssl_ciphers",
    "ssl_ca_cert",
    "ssl_wbuf_size",
    "ssl_session_cache",
    "ssl_kernel_tls",
    "ssl_min_version",
];

/// What memcached 1.6.18 does not have: what came since, and larder's own.
const LARDERS: [&str; 5] = [
    "slab_reassign_busy_nomem",
    "slab_reassign_last_busy_status",
    "client_flags_size",
    "udp_cookie",
    "noreply_close_on_error",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn view(stats: &[(&str, &str)]) -> View {
        let mut view = View::default();
        stats.iter().for_each(|(name, value)| view.add(*name, *value));
        view
    }

    #[test]
    fn what_is_missing_added_or_other_is_told() {
        let reference = view(&[("curr_items", "3"), ("pid", "7"), ("ext_item_size", "512")]);
        let same = view(&[("curr_items", "3"), ("pid", "8"), ("udp_cookie", "no")]);
        assert_eq!(same.judge(&reference, Side::Larder).ok(), Some(3));
        // Of memcached beside itself nothing may be missing or added.
        assert!(same.judge(&reference, Side::Reference).is_err());
        for other in [
            &[("curr_items", "4"), ("pid", "7")][..],
            &[("curr_items", "3")],
            &[("curr_items", "3"), ("pid", "7"), ("news", "1")],
        ] {
            assert!(view(other).judge(&reference, Side::Larder).is_err(), "{other:?}");
        }
        assert!(view(&[]).judge(&view(&[]), Side::Larder).is_err());
    }

    #[test]
    fn classes_are_summed() {
        let mut view = View::default();
        for (name, value) in [("number", "3"), ("number", "4"), ("age", "9"), ("age", "10")] {
            view.add_of_class(name.into(), value);
        }
        assert_eq!((view.0["number"].as_str(), view.0["age"].as_str()), ("7", "of a class"));
    }
}
