//! Names, order and defaults of the statistics: memcached 1.6.45, `stats`, `stats settings`, `stats items`,
//! `stats slabs`.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

use larder_conformance::server::Server;

fn start(args: &str) -> Server {
    let args: Vec<&str> = args.split_whitespace().collect();
    Server::start(Path::new(env!("CARGO_BIN_EXE_larderd")), &args).expect("larderd starts")
}

/// The lines of the reply to the last of `commands`, each of the others being answered with one line.
fn lines(server: &Server, commands: &[&str]) -> Vec<String> {
    let mut stream = server.connect().expect("larderd listens");
    let mut replies = BufReader::new(stream.try_clone().expect("descriptors are left")).lines();
    let mut next = || replies.next().expect("larderd answers").expect("it is text");
    for (at, command) in commands.iter().enumerate() {
        stream.write_all(command.as_bytes()).expect("larderd reads");
        if at + 1 < commands.len() {
            next();
        }
    }
    let mut lines = Vec::new();
    loop {
        let line = next();
        if line == "END" || !line.starts_with("STAT ") {
            return lines;
        }
        lines.push(line["STAT ".len()..].to_owned());
    }
}

fn names(lines: &[String]) -> Vec<&str> {
    lines.iter().map(|line| line.split(' ').next().unwrap_or_default()).collect()
}

#[track_caller]
fn value<'l>(lines: &'l [String], name: &str) -> &'l str {
    let line = lines.iter().find(|line| line.split(' ').next() == Some(name));
    line.unwrap_or_else(|| panic!("no {name}")).split_once(' ').expect("a name has a value").1
}

const ALWAYS: &str = "pid uptime time version libevent pointer_size rusage_user rusage_system max_connections \
    curr_connections total_connections rejected_connections connection_structures response_obj_oom response_obj_count \
    response_obj_bytes read_buf_count read_buf_bytes read_buf_bytes_free read_buf_oom reserved_fds cmd_get cmd_set \
    cmd_flush cmd_touch cmd_meta get_hits get_misses get_expired get_flushed delete_misses delete_hits incr_misses \
    incr_hits decr_misses decr_hits cas_misses cas_hits cas_badval touch_hits touch_misses store_too_large \
    store_no_memory auth_cmds auth_errors bytes_read bytes_written limit_maxbytes accepting_conns listen_disabled_num \
    time_in_listen_disabled_us threads conn_yields hash_power_level hash_bytes hash_is_expanding slab_reassign_rescues \
    slab_reassign_chunk_rescues slab_reassign_inline_reclaim slab_reassign_busy_items slab_reassign_busy_deletes \
    slab_reassign_busy_nomem slab_reassign_last_busy_status slab_reassign_running slabs_moved [lru_crawler_running \
    lru_crawler_starts lru_maintainer_juggles] malloc_fails log_worker_dropped log_worker_written log_watcher_skipped \
    log_watcher_sent log_watchers unexpected_napi_ids round_robin_fallback bytes curr_items total_items \
    slab_global_page_pool expired_unfetched evicted_unfetched [evicted_active] evictions reclaimed crawler_reclaimed \
    crawler_items_checked lrutail_reflocked [moves_to_cold moves_to_warm moves_within_lru direct_reclaims \
    lru_bumps_dropped]";

/// Statistics that are in a separate group.
const OWN: &str = "larder_memory_used_bytes larder_read_only larder_refused_read_only larder_version";

const SETTINGS: &str = "maxbytes maxconns tcpport udpport inter verbosity oldest evictions domain_socket umask \
    shutdown_command growth_factor chunk_size num_threads num_threads_per_udp stat_key_prefix detail_enabled \
    reqs_per_event cas_enabled tcp_backlog binding_protocol auth_enabled_sasl auth_enabled_ascii item_size_max \
    maxconns_fast hashpower_init slab_reassign slab_automove slab_automove_ratio slab_automove_window slab_chunk_max \
    lru_crawler lru_crawler_sleep lru_crawler_tocrawl tail_repair_time flush_enabled dump_enabled hash_algorithm \
    lru_maintainer_thread lru_segmented hot_lru_pct warm_lru_pct hot_max_factor warm_max_factor temp_lru temporary_ttl \
    idle_timeout watcher_logbuf_size worker_logbuf_size read_buf_mem_limit track_sizes inline_ascii_response";

#[test]
fn stats_has_memcacheds_names_in_its_order() {
    let defaults = lines(&start("-t 1"), &["stats\r\n"]);
    let all = ALWAYS.replace(['[', ']'], "");
    assert_eq!(names(&defaults), all.split_whitespace().collect::<Vec<_>>());
    // memcached 1.6.45 has as many: its own test counts them.
    assert_eq!(defaults.len(), 93);
    let own = lines(&start("-t 1"), &["stats larder\r\n"]);
    assert_eq!(names(&own), OWN.split(' ').collect::<Vec<_>>());

    let bare = lines(&start("-t 1 -o no_lru_crawler,no_lru_maintainer"), &["stats\r\n"]);
    assert_eq!(bare.len(), 84);
    let with_timeout = lines(&start("-t 1 -o idle_timeout=100,no_slab_reassign"), &["stats\r\n"]);
    assert_eq!(value(&with_timeout, "idle_kicks"), "0");
    assert!(!names(&with_timeout).iter().any(|name| name.starts_with("slab_reassign")));
}

/// A client that parses versions, as Perl's version.pm does, takes digits and dots alone.
#[test]
fn the_version_is_memcacheds_and_nothing_more() {
    let server = start("-t 1");
    let general = lines(&server, &["stats\r\n"]);
    assert_eq!(value(&general, "version"), "1.6.45");
    let own = lines(&server, &["stats larder\r\n"]);
    assert_eq!(value(&own, "larder_version"), env!("CARGO_PKG_VERSION"));
    let mut stream = server.connect().expect("larderd listens");
    stream.write_all(b"version\r\n").expect("larderd reads");
    let mut reply = String::new();
    BufReader::new(&stream).read_line(&mut reply).expect("it is text");
    assert_eq!(reply, "VERSION 1.6.45\r\n");

    let mut stream = server.connect().expect("larderd listens");
    let mut request = [0; 24];
    (request[0], request[1]) = (0x80, 0x0b);
    stream.write_all(&request).expect("larderd reads");
    let mut reply = [0; 24 + 6];
    stream.read_exact(&mut reply).expect("larderd answers");
    assert_eq!((&reply[8..12], &reply[24..]), (&[0, 0, 0, 6][..], &b"1.6.45"[..]));
}

#[test]
fn latencies_are_told_by_command_and_transport() {
    let server = start("-t 1");
    let commands =
        ["get a\r\n", "get b\r\n", "get c\r\n", "delete a\r\n", "stats reset\r\n", "stats latency\r\n"];
    let told = lines(&server, &commands);
    let number = |name: &str| value(&told, name).parse::<u64>().expect("a number");
    assert_eq!((number("get:tcp:count"), number("delete:tcp:count")), (3, 1));
    let buckets = value(&told, "get:tcp:buckets").split(',').map(|bucket| {
        let (bound_nanos, count) = bucket.split_once('=').expect("a pair");
        (bound_nanos.parse::<u64>().expect("a number"), count.parse::<u64>().expect("a number"))
    });
    let buckets: Vec<_> = buckets.collect();
    assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), 3);
    // Of three the second is in the middle, and the third is above 99 of 100.
    let of_rank = |rank| {
        let mut reached = 0;
        let bucket = buckets.iter().find(|(_, count)| {
            reached += count;
            reached >= rank
        });
        bucket.expect("there are three").0
    };
    assert_eq!((number("get:tcp:p50_nanos"), number("get:tcp:p99_nanos")), (of_rank(2), of_rank(3)));
    assert!(number("get:tcp:sum_nanos") <= 3 * of_rank(3).max(256));
    assert!(!names(&told).iter().any(|name| name.starts_with("store:") || name.contains(":tls:")));
    let silent = start("-t 1 -o no_latency_histograms");
    assert!(lines(&silent, &["get a\r\n", "stats latency\r\n"]).is_empty());
}

#[test]
fn latencies_are_also_of_what_comes_and_goes_in_pieces() {
    let server = start("-t 1");
    let store = |bytes| format!("set key 0 0 {bytes}\r\n{}\r\n", "x".repeat(bytes));
    // Longer than a worker reads at once, more keys than it looks up at once, and what does not fit.
    let (long, list, too_long) =
        (store(100_000), format!("get{}\r\n", " none".repeat(5_000)), store(2_000_000));
    let told = lines(&server, &[&long, &list, &too_long, "stats latency\r\n"]);
    let number = |name: &str| value(&told, name).parse::<u64>().expect("a number");
    assert_eq!((number("store:tcp:count"), number("get:tcp:count")), (2, 1));
}

#[test]
fn stats_tells_what_a_fresh_server_is() {
    let lines = lines(&start("-t 3 -c 77 -m 100"), &["stats\r\n"]);
    // It begins at 2 s, as memcached's.
    let uptime_secs: u64 = value(&lines, "uptime").parse().expect("a number");
    assert!((2..60).contains(&uptime_secs), "{uptime_secs}");
    for (name, expected) in [
        ("pointer_size", "64"),
        ("max_connections", "77"),
        ("curr_connections", "1"),
        ("threads", "3"),
        ("limit_maxbytes", "104857600"),
        ("accepting_conns", "1"),
        ("curr_items", "0"),
        ("slab_reassign_last_busy_status", "none"),
    ] {
        assert_eq!(value(&lines, name), expected, "{name}");
    }
    let (secs, micros) = value(&lines, "rusage_user").split_once('.').expect("seconds.microseconds");
    assert!(secs.parse::<u64>().is_ok() && micros.len() == 6 && micros.parse::<u64>().is_ok());
}

#[test]
fn settings_have_memcacheds_names_and_defaults() {
    let lines = lines(&start(""), &["stats settings\r\n"]);
    let expected: Vec<&str> = SETTINGS.split_whitespace().collect();
    assert_eq!(names(&lines)[..expected.len()], expected);
    for (name, expected) in [
        ("maxbytes", "67108864"),
        ("maxconns", "1024"),
        ("udpport", "0"),
        ("inter", "127.0.0.1"),
        ("evictions", "on"),
        ("domain_socket", "NULL"),
        ("umask", "700"),
        ("growth_factor", "1.25"),
        ("chunk_size", "48"),
        ("num_threads", "4"),
        // memcached: 20. See docs/compatibility.md.
        ("reqs_per_event", "128"),
        ("cas_enabled", "yes"),
        ("tcp_backlog", "1024"),
        ("binding_protocol", "auto-negotiate"),
        ("auth_enabled_ascii", "no"),
        ("item_size_max", "1048576"),
        ("maxconns_fast", "yes"),
        ("slab_automove_ratio", "0.80"),
        ("slab_automove_window", "10"),
        ("slab_chunk_max", "524288"),
        ("hot_max_factor", "0.20"),
        ("temporary_ttl", "61"),
        ("watcher_logbuf_size", "262144"),
        ("worker_logbuf_size", "65536"),
        ("memory_file", "(null)"),
        ("client_flags_size", "4"),
    ] {
        assert_eq!(value(&lines, name), expected, "{name}");
    }
}

#[test]
fn settings_follow_the_command_line() {
    let server = start(
        "-m 100 -c 50 -M -C -F -X -R 7 -t 2 -n 64 -f 1.5 -I 2m -v -A -o idle_timeout=5,slab_automove=2",
    );
    let lines = lines(&server, &["stats settings\r\n"]);
    for (name, expected) in [
        ("maxbytes", "104857600"),
        ("maxconns", "50"),
        ("evictions", "off"),
        ("cas_enabled", "no"),
        ("flush_enabled", "no"),
        ("dump_enabled", "no"),
        ("reqs_per_event", "7"),
        ("num_threads", "2"),
        ("chunk_size", "64"),
        ("growth_factor", "1.50"),
        ("item_size_max", "2097152"),
        ("verbosity", "1"),
        ("shutdown_command", "yes"),
        ("idle_timeout", "5"),
        ("slab_automove", "2"),
    ] {
        assert_eq!(value(&lines, name), expected, "{name}");
    }
}

#[test]
fn a_reset_zeroes_counters_and_no_gauges() {
    let server = start("-t 2");
    let commands = ["set a 0 0 1\r\n1\r\n", "get b\r\n", "stats\r\n"];
    let before = lines(&server, &commands);
    assert_eq!((value(&before, "cmd_get"), value(&before, "total_items")), ("1", "1"));
    let after = lines(&server, &["stats reset\r\n", "stats\r\n"]);
    for name in ["cmd_get", "cmd_set", "get_misses", "total_items"] {
        assert_eq!(value(&after, name), "0", "{name}");
    }
    assert_eq!(value(&after, "curr_items"), "1");
    assert_ne!(value(&after, "bytes"), "0");
}

/// Class 1 is the queue that new items enter.
#[test]
fn items_and_slabs_tell_of_what_is_stored() {
    let server = start("-t 1");
    assert!(lines(&server, &["stats items\r\n"]).is_empty());
    let items = lines(&server, &["set a 0 0 1\r\n1\r\n", "stats items\r\n"]);
    assert_eq!(value(&items, "items:1:number"), "1");
    assert_eq!(items.len(), 28);
    let slabs = lines(&server, &["stats slabs\r\n"]);
    let number = |name: &str| value(&slabs, name).parse::<u64>().expect("it is a number");
    assert_eq!(number("active_slabs"), 1);
    assert_eq!(number("1:cmd_set"), 1);
    assert_eq!(number("1:chunk_size") * number("1:total_chunks"), number("total_malloced"));
    assert_eq!(number("1:used_chunks") + number("1:free_chunks"), number("1:total_chunks"));
    assert!(lines(&server, &["stats nonsense\r\n"]).is_empty());
}

/// memcached counts what touches an item as a touch alone, in `stats` and in `stats slabs` alike.
#[test]
fn a_touch_is_no_hit_of_its_class() {
    let server = start("-t 1");
    let commands = ["set a 0 0 1\r\n1\r\n", "mg a\r\n", "mg a T60\r\n", "touch a 60\r\n", "stats slabs\r\n"];
    let slabs = lines(&server, &commands);
    assert_eq!((value(&slabs, "1:get_hits"), value(&slabs, "1:touch_hits")), ("1", "2"));
    let stats = lines(&server, &["stats\r\n"]);
    assert_eq!((value(&stats, "get_hits"), value(&stats, "touch_hits")), ("1", "2"));
}

/// memcached, doc/protocol.txt, "LRU_Crawler": what is off refuses to work until it is on again.
#[test]
fn the_crawler_can_be_switched_off_and_on() {
    let server = start("-t 1");
    let reply = |command: &str| {
        let mut stream = server.connect().expect("larderd listens");
        stream.write_all(format!("{command}\r\n").as_bytes()).expect("larderd reads");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("it is text");
        line
    };
    let setting = || value(&lines(&server, &["stats settings\r\n"]), "lru_crawler").to_owned();
    assert_eq!((reply("lru_crawler disable").as_str(), setting().as_str()), ("OK\r\n", "no"));
    for command in ["lru_crawler crawl all", "lru_crawler metadump all", "lru_crawler mgdump all"] {
        assert_eq!(reply(command), "CLIENT_ERROR lru crawler disabled\r\n", "{command}");
    }
    assert_eq!((reply("lru_crawler enable").as_str(), setting().as_str()), ("OK\r\n", "yes"));
    assert_eq!(reply("lru_crawler crawl all"), "OK\r\n");
}

/// The binary protocol stores keys with line ends. In no dump may they pretend to be other lines.
#[test]
fn keys_with_line_ends_stay_in_their_line() {
    let server = start("");
    let mut text = server.connect().expect("larderd listens");
    let mut ask = |command: &str, end: &str| {
        text.write_all(command.as_bytes()).expect("larderd reads");
        let mut reply = Vec::new();
        while !reply.ends_with(end.as_bytes()) {
            let mut byte = [0];
            text.read_exact(&mut byte).expect("larderd answers");
            reply.push(byte[0]);
        }
        String::from_utf8(reply).expect("it is text")
    };
    ask("stats detail on\r\n", "OK\r\n");
    ask("set plain 0 0 1\r\nv\r\n", "STORED\r\n");
    let key = b"x\r\nEND\r\n:y z";
    let mut request = vec![0x80, 1, 0, u8::try_from(key.len()).expect("it is short"), 8, 0, 0, 0];
    request.extend_from_slice(&[0, 0, 0, 8 + request[3] + 1]);
    request.extend_from_slice(&[0; 12 + 8]);
    request.extend_from_slice(key);
    request.push(b'v');
    let mut binary = server.connect().expect("larderd listens");
    binary.write_all(&request).expect("larderd reads");
    let mut reply = [0; 24];
    binary.read_exact(&mut reply).expect("larderd answers");
    assert_eq!(reply[6..8], [0, 0]);

    assert_eq!(ask("stats cachedump 1 0\r\n", "END\r\n"), "ITEM plain [1 b; 0 s]\r\nEND\r\n");
    let commands = ask("lru_crawler mgdump all\r\n", "EN\r\n");
    let mut lines: Vec<_> = commands.lines().collect();
    lines[1..3].sort_unstable();
    assert_eq!(lines, ["OK", "mg eA0KRU5EDQo6eSB6 b", "mg plain", "EN"]);
    assert_eq!(ask("mg eA0KRU5EDQo6eSB6 b v\r\n", "v\r\n"), "VA 1\r\nv\r\n");
    let prefixes = ask("stats detail dump\r\n", "END\r\n");
    assert_eq!(prefixes, "PREFIX x%0D%0AEND%0D%0A get 0 hit 0 set 1 del 0\r\nEND\r\n");
}
