//! `/metrics`: the text format, and the names and values of prometheus-memcached-exporter.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::process::{Command, Stdio};

use larder_conformance::server::eventually;

use crate::server::Larderd;

/// Samples by name and labels, of a text that is checked as strictly as the format is written (Prometheus
/// documentation, "Exposition formats"): help, type and samples of a metric stand together, once.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let (mut metric, mut kind) = (String::new(), String::new());
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            metric = help.split(' ').next().expect("a name").to_owned();
            assert!(seen.insert(metric.clone()), "{metric} is told twice");
            assert!(help.len() > metric.len() + 1, "{metric} has no help");
            kind.clear();
        } else if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, of) = typed.split_once(' ').expect("a type");
            assert_eq!((name, kind.as_str()), (metric.as_str(), ""));
            assert!(["counter", "gauge", "histogram"].contains(&of), "{line}");
            // `promtool check metrics` requires this.
            assert_eq!(of == "counter", name.ends_with("_total"), "{line}");
            kind = of.to_owned();
        } else {
            let (sample, value) = line.rsplit_once(' ').expect("a value");
            let name = sample.split('{').next().expect("a name");
            let is_of_metric = match kind.as_str() {
                "histogram" => {
                    ["_bucket", "_sum", "_count"].map(|end| metric.clone() + end).iter().any(|n| n == name)
                }
                "" => false,
                _ => name == metric,
            };
            assert!(is_of_metric, "{line} stands below {metric} ({kind})");
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{line}");
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
            assert!(kind == "gauge" || value >= 0.0, "{line}");
            assert!(samples.insert(sample.to_owned(), value).is_none(), "{sample} is told twice");
        }
    }
    samples
}

fn stats(server: &Larderd, command: &str) -> BTreeMap<String, String> {
    let answer = server.cache(&format!("{command}\r\n"));
    let lines = answer.lines().filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '));
    lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn with_traffic(options: &[&str]) -> Larderd {
    let server = Larderd::start(options);
    let too_large = format!("set d 0 0 2000000\r\n{}\r\n", "d".repeat(2_000_000));
    server.cache(
        "set a 0 0 1\r\n1\r\nadd b 0 60 1\r\nx\r\nget a b c\r\ngets a\r\nincr a 2\r\ndecr a 1\r\nincr z 1\r\ndecr z 1\r\n\
         delete b\r\ndelete b\r\ntouch a 0\r\ntouch b 0\r\ncas a 0 0 1 1\r\n2\r\ncas z 0 0 1 1\r\n2\r\n",
    );
    server.cache(&(too_large + "flush_all\r\nset a 0 0 1\r\n1\r\nget a\r\nget a\r\n"));
    server
}

/// Left: a sample's name, without `memcached_`. Right: the line of statistics that it is. From the exporter's source,
/// github.com/prometheus/memcached_exporter, pkg/exporter/exporter.go.
const GENERAL: &str = "
    commands_total{command=\"get\",status=\"hit\"} get_hits
    commands_total{command=\"get\",status=\"miss\"} get_misses
    commands_total{command=\"delete\",status=\"hit\"} delete_hits
    commands_total{command=\"delete\",status=\"miss\"} delete_misses
    commands_total{command=\"incr\",status=\"hit\"} incr_hits
    commands_total{command=\"incr\",status=\"miss\"} incr_misses
    commands_total{command=\"decr\",status=\"hit\"} decr_hits
    commands_total{command=\"decr\",status=\"miss\"} decr_misses
    commands_total{command=\"cas\",status=\"hit\"} cas_hits
    commands_total{command=\"cas\",status=\"miss\"} cas_misses
    commands_total{command=\"cas\",status=\"badval\"} cas_badval
    commands_total{command=\"touch\",status=\"hit\"} touch_hits
    commands_total{command=\"touch\",status=\"miss\"} touch_misses
    commands_total{command=\"flush\",status=\"hit\"} cmd_flush
    current_bytes bytes
    limit_bytes limit_maxbytes
    current_items curr_items
    items_total total_items
    connections_rejected_total rejected_connections
    connections_yielded_total conn_yields
    connections_listener_disabled_total listen_disabled_num
    items_evicted_total evictions
    items_reclaimed_total reclaimed
    item_too_large_total store_too_large
    item_no_memory_total store_no_memory
    lru_crawler_starts_total lru_crawler_starts
    direct_reclaims_total direct_reclaims
    lru_crawler_items_checked_total crawler_items_checked
    lru_crawler_reclaimed_total crawler_reclaimed
    lru_crawler_moves_to_cold_total moves_to_cold
    lru_crawler_moves_to_warm_total moves_to_warm
    lru_crawler_moves_within_lru_total moves_within_lru
    accepting_connections accepting_conns";

const SETTINGS: &str = "
    max_connections maxconns
    lru_crawler_sleep lru_crawler_sleep
    lru_crawler_to_crawl lru_crawler_tocrawl
    lru_crawler_hot_percent hot_lru_pct
    lru_crawler_warm_percent warm_lru_pct
    lru_crawler_hot_max_factor hot_max_factor
    lru_crawler_warm_max_factor warm_max_factor";

const ITEMS: &str = "
    current_items number
    items_age_seconds age
    lru_hits_total{lru=\"hot\"} hits_to_hot
    lru_hits_total{lru=\"warm\"} hits_to_warm
    lru_hits_total{lru=\"cold\"} hits_to_cold
    lru_hits_total{lru=\"temporary\"} hits_to_temp
    items_crawler_reclaimed_total crawler_reclaimed
    items_evicted_total evicted
    items_evicted_nonzero_total evicted_nonzero
    items_evicted_time_seconds evicted_time
    items_evicted_unfetched_total evicted_unfetched
    items_expired_unfetched_total expired_unfetched
    items_outofmemory_total outofmemory
    items_reclaimed_total reclaimed
    items_tailrepairs_total tailrepairs
    mem_requested_bytes mem_requested
    items_moves_to_cold_total moves_to_cold
    items_moves_to_warm_total moves_to_warm
    items_moves_within_lru_total moves_within_lru
    hot_items number_hot
    warm_items number_warm
    cold_items number_cold
    hot_age_seconds age_hot
    warm_age_seconds age_warm";

const SLABS: &str = "
    commands_total{command=\"get\",status=\"hit\"} get_hits
    commands_total{command=\"delete\",status=\"hit\"} delete_hits
    commands_total{command=\"incr\",status=\"hit\"} incr_hits
    commands_total{command=\"decr\",status=\"hit\"} decr_hits
    commands_total{command=\"cas\",status=\"hit\"} cas_hits
    commands_total{command=\"touch\",status=\"hit\"} touch_hits
    commands_total{command=\"cas\",status=\"badval\"} cas_badval
    chunk_size_bytes chunk_size
    chunks_per_page chunks_per_page
    current_pages total_pages
    current_chunks total_chunks
    chunks_used used_chunks
    chunks_free free_chunks
    chunks_free_end free_chunks_end";

fn pairs(table: &str) -> impl Iterator<Item = (&str, &str)> {
    table.lines().filter_map(|line| line.trim().rsplit_once(' '))
}

#[test]
fn what_the_exporter_tells_is_told_and_equal() {
    let server = with_traffic(&[]);
    let metrics = parse(&server.get("/metrics").body);
    let (general, settings) = (stats(&server, "stats"), stats(&server, "stats settings"));
    let (items, slabs) = (stats(&server, "stats items"), stats(&server, "stats slabs"));
    let number = |stats: &BTreeMap<String, String>, name: &str| -> f64 {
        stats.get(name).and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no number {name}"))
    };
    let metric = |name: &str| *metrics.get(name).unwrap_or_else(|| panic!("no {name}"));

    for (table, stats) in [(GENERAL, &general), (SETTINGS, &settings)] {
        for (sample, line) in pairs(table) {
            assert_eq!(metric(&format!("memcached_{sample}")), number(stats, line), "{sample}");
        }
    }
    for (table, stats, prefix) in [(ITEMS, &items, "items:1:"), (SLABS, &slabs, "1:")] {
        for (sample, line) in pairs(table) {
            let sample = match sample.split_once('{') {
                Some((name, labels)) => format!("memcached_slab_{name}{{slab=\"1\",{labels}"),
                None => format!("memcached_slab_{sample}{{slab=\"1\"}}"),
            };
            let difference = metric(&sample) - number(stats, &format!("{prefix}{line}"));
            // Ages go on.
            assert!(difference == 0.0 || sample.contains("age"), "{sample}: {difference}");
        }
    }
    let cas = ["cas_misses", "cas_hits", "cas_badval"].map(|name| number(&general, name)).iter().sum::<f64>();
    let sets = number(&general, "cmd_set") - cas;
    assert_eq!(metric("memcached_commands_total{command=\"set\",status=\"hit\"}"), sets);
    assert_eq!(metric(&format!("memcached_version{{version=\"{}\"}}", general["version"])), 1.0);
    assert_eq!(metric("memcached_malloced_bytes"), number(&slabs, "total_malloced"));
    assert_eq!(metric("memcached_up"), 1.0);
    assert_eq!(metric("memcached_lru_crawler_enabled"), 1.0);
    assert_eq!(metric("memcached_lru_crawler_maintainer_thread"), 1.0);
    // These have moved on since: the statistics were asked for by connections.
    for (name, line) in [
        ("uptime_seconds", "uptime"),
        ("time_seconds", "time"),
        ("process_user_cpu_seconds_total", "rusage_user"),
        ("process_system_cpu_seconds_total", "rusage_system"),
        ("read_bytes_total", "bytes_read"),
        ("written_bytes_total", "bytes_written"),
        ("connections_total", "total_connections"),
    ] {
        let (then, now) = (metric(&format!("memcached_{name}")), number(&general, line));
        // A server this young may have used no CPU time that the kernel tells of.
        assert!((then > 0.0 || name.contains("cpu")) && then <= now, "{name}: {then}, {now}");
    }
    assert!(metrics.contains_key("memcached_current_connections"));
}

#[test]
fn without_the_crawler_its_metrics_are_absent() {
    let server = with_traffic(&["-o", "no_lru_crawler"]);
    let metrics = parse(&server.get("/metrics").body);
    assert!(!metrics.contains_key("memcached_lru_crawler_enabled"));
    assert!(!metrics.contains_key("memcached_lru_crawler_sleep"));
    assert!(metrics.contains_key("memcached_max_connections"));
}

#[test]
fn latencies_are_histograms_by_command_and_transport() {
    let server = with_traffic(&[]);
    let metrics = parse(&server.get("/metrics").body);
    let of = |suffix: &str, more: &str| {
        let labels = format!("command=\"get\",transport=\"tcp\"{more}");
        *metrics.get(&format!("larder_request_duration_seconds_{suffix}{{{labels}}}")).expect("it is there")
    };
    assert!(of("count", "") >= 4.0);
    assert_eq!(of("bucket", ",le=\"+Inf\""), of("count", ""));
    assert!(of("bucket", ",le=\"0.000001\"") <= of("bucket", ",le=\"0.001\""));
    assert!(of("bucket", ",le=\"2.5\"") == of("count", "") && of("sum", "") > 0.0);
    // No other way in has been opened.
    assert!(!metrics.keys().any(|name| name.contains("transport=\"tls\"")));

    let silent = with_traffic(&["-o", "no_latency_histograms"]);
    assert!(!silent.get("/metrics").body.contains("larder_request_duration"));
}

/// Names and help of the standard metrics of a process (Prometheus documentation, "Writing client libraries").
const PROCESS: &str = "
    process_cpu_seconds_total Total user and system CPU time spent in seconds.
    process_open_fds Number of open file descriptors.
    process_max_fds Maximum number of open file descriptors.
    process_virtual_memory_bytes Virtual memory size in bytes.
    process_virtual_memory_max_bytes Maximum amount of virtual memory available in bytes.
    process_resident_memory_bytes Resident memory size in bytes.
    process_start_time_seconds Start time of the process since unix epoch in seconds.
    process_threads Number of OS threads in the process.";

/// What the kernel tells of the process to others, in the sandbox as well: larderd opens no file there.
#[test]
fn the_process_is_told_as_the_kernel_tells_it() {
    for sandbox in ["no_drop_privileges", "drop_privileges"] {
        let server = with_traffic(&["-o", sandbox]);
        let text = server.get("/metrics").body;
        let metrics = parse(&text);
        for line in PROCESS.trim().lines().map(str::trim) {
            let (name, _) = line.split_once(' ').expect("it has help");
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            let head = format!("# HELP {line}\n# TYPE {name} {kind}\n");
            assert!(text.contains(&head), "{sandbox}: no {head}");
        }
        let metric =
            |name: &str| *metrics.get(&format!("process_{name}")).unwrap_or_else(|| panic!("no {name}"));
        let of_kernel =
            |file: &str| fs::read_to_string(format!("/proc/{}/{file}", server.pid())).expect("it runs");
        let status = of_kernel("status");
        let field = |name: &str| -> f64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel tells it");
            line.trim_start_matches(':')
                .split_whitespace()
                .next()
                .and_then(|n| n.parse().ok())
                .expect("a number")
        };
        assert_eq!(metric("threads"), field("Threads"), "{sandbox}");
        // Buffers, and the C library's heaps of threads, come and go between the two looks.
        for (name, line, differs_mib) in
            [("resident_memory_bytes", "VmRSS", 8.0), ("virtual_memory_bytes", "VmSize", 512.0)]
        {
            let difference_mib = (metric(name) / 1024.0 - field(line)).abs() / 1024.0;
            assert!(difference_mib < differs_mib, "{sandbox}: {name} {difference_mib} {status}");
        }
        assert!(metric("virtual_memory_max_bytes") >= metric("virtual_memory_bytes"));

        let limits = of_kernel("limits");
        let files =
            limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("there is one");
        let files: f64 = files.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a number");
        assert_eq!(metric("max_fds"), files, "{sandbox}");

        let stat = fs::read_to_string("/proc/stat").expect("it is there");
        let boot = stat.lines().find_map(|line| line.strip_prefix("btime ")).expect("it is there");
        let own = of_kernel("stat");
        let (_, fields) = own.rsplit_once(')').expect("a name");
        let ticks: f64 = fields.split_whitespace().nth(19).and_then(|n| n.parse().ok()).expect("a number");
        let started = boot.parse::<f64>().expect("a number") + ticks / 100.0;
        assert!((metric("start_time_seconds") - started).abs() < 2.0, "{sandbox}: {started}, {text}");
        let usage = metrics["memcached_process_user_cpu_seconds_total"]
            + metrics["memcached_process_system_cpu_seconds_total"];
        assert!(metric("cpu_seconds_total") >= usage - 1e-5, "{sandbox}: {text}");

        // Connections of clients that stay count, and no longer once they have gone.
        let open = |server: &Larderd| parse(&server.get("/metrics").body)["process_open_fds"];
        let before = open(&server);
        let clients: Vec<_> =
            (0..50).map(|_| TcpStream::connect(server.cache).expect("it listens")).collect();
        // Those of earlier questions may not have been closed before.
        eventually(|| open(&server) >= before + 40.0);
        drop(clients);
        eventually(|| open(&server) < before + 40.0);
    }
}

#[test]
fn the_build_is_told() {
    let metrics = parse(&Larderd::start(&[]).get("/metrics").body);
    let builds: Vec<_> = metrics.iter().filter(|(name, _)| name.starts_with("larder_build_info{")).collect();
    let [(labels, value)] = builds[..] else { panic!("{builds:?}") };
    assert_eq!(*value, 1.0);
    for label in [
        format!("version=\"{}\"", larder_server::LARDER_VERSION),
        format!("arch=\"{}\"", std::env::consts::ARCH),
    ] {
        assert!(labels.contains(&label), "{labels}");
    }
}

/// Runs Prometheus's own check, if it is installed (Debian: prometheus).
#[test]
fn promtool_has_nothing_to_say() {
    let body = with_traffic(&[]).get("/metrics").body;
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = promtool.spawn() else {
        eprintln!("promtool is not installed: skipped");
        return;
    };
    child.stdin.take().expect("it is piped").write_all(body.as_bytes()).expect("promtool reads");
    let output = child.wait_with_output().expect("promtool ends");
    let complaints = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert_eq!(complaints, "");
}
