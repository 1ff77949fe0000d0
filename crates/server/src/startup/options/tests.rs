//! Names, exit codes and messages are those of memcached 1.6.45 (`memcached -h`), and of 1.6.18 as it runs.

use std::collections::HashSet;

use larder_engine::LargePages;

use super::extended::EXTENDED;
use super::print::COMMON;
use super::table::COMMAND_LINE;
use super::*;
use crate::net::tls::Version;

/// The letter, the long name, and whether it takes a value. `-h` and `--help` are two options here.
const MEMCACHED_OPTIONS: &[(char, &str, bool)] = &[
    ('p', "port", true),
    ('U', "udp-port", true),
    ('s', "unix-socket", true),
    ('a', "unix-mask", true),
    ('A', "enable-shutdown", false),
    ('l', "listen", true),
    ('d', "daemon", false),
    ('r', "enable-coredumps", false),
    ('u', "user", true),
    ('m', "memory-limit", true),
    ('M', "disable-evictions", false),
    ('c', "conn-limit", true),
    ('k', "lock-memory", false),
    ('v', "verbose", false),
    ('i', "license", false),
    ('V', "version", false),
    ('P', "pidfile", true),
    ('f', "slab-growth-factor", true),
    ('n', "slab-min-size", true),
    ('L', "enable-largepages", false),
    ('t', "threads", true),
    ('R', "max-reqs-per-event", true),
    ('C', "disable-cas", false),
    ('b', "listen-backlog", true),
    ('B', "protocol", true),
    ('I', "max-item-size", true),
    ('S', "enable-sasl", false),
    ('F', "disable-flush-all", false),
    ('X', "disable-dumping", false),
    ('W', "disable-watch", false),
    ('Y', "auth-file", true),
    ('e', "memory-file", true),
    ('Z', "enable-ssl", false),
    ('o', "extended", true),
    ('N', "napi-ids", true),
];

const MEMCACHED_EXTENDED: &str = "maxconns_fast no_maxconns_fast hashpower no_hashexpand slab_reassign \
    no_slab_reassign slab_automove no_slab_automove slab_automove_ratio slab_automove_window \
    slab_automove_freeratio tail_repair_time hash_algorithm lru_crawler no_lru_crawler lru_crawler_sleep \
    lru_crawler_tocrawl lru_maintainer no_lru_maintainer hot_lru_pct warm_lru_pct hot_max_factor warm_max_factor \
    temporary_ttl idle_timeout watcher_logbuf_size worker_logbuf_size slab_sizes slab_chunk_max track_sizes modern \
    no_modern no_chunked_items inline_ascii_resp no_inline_ascii_resp drop_privileges no_drop_privileges \
    resp_obj_mem_limit read_buf_mem_limit ssl_chain_cert ssl_key ssl_keyformat ssl_verify_mode ssl_ca_cert \
    ssl_ciphers ssl_wbuf_size ssl_session_cache ssl_kernel_tls ssl_min_version ext_path ext_page_size ext_wbuf_size \
    ext_threads ext_item_size ext_item_age ext_low_ttl ext_drop_unread ext_recache_rate ext_compact_under \
    ext_drop_under ext_max_frag ext_max_sleep proxy_config sock_cookie_id";

fn parse_line(line: &str) -> Result<Outcome, Refusal> {
    parse(std::iter::once("larderd").chain(line.split_whitespace()).map(OsString::from))
}

#[track_caller]
fn settings(line: &str) -> Settings {
    match parse_line(line) {
        Ok(Outcome::Serve(settings)) => *settings,
        other => panic!("{line}: {other:?}"),
    }
}

#[track_caller]
fn refusal(line: &str) -> (u8, String) {
    match parse_line(line) {
        Err(refusal) => (refusal.exit_code, refusal.message),
        other => panic!("{line}: {other:?}"),
    }
}

#[track_caller]
fn printed(line: &str) -> String {
    match parse_line(line) {
        Ok(Outcome::Print(text)) => text,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn no_name_appears_twice_and_every_row_has_help() {
    for rows in [COMMAND_LINE, EXTENDED] {
        let mut names = HashSet::new();
        let mut sends = HashSet::new();
        for row in rows {
            assert!(names.insert(row.name), "{} twice", row.name);
            assert!(row.short.is_none_or(|short| sends.insert(short)), "{:?} twice", row.short);
            assert!(!row.help.is_empty(), "{} without help", row.name);
            let reason = match row.status {
                Status::Honoured => "honoured",
                Status::Accepted(reason) | Status::Refused(reason) => reason,
            };
            assert!(!reason.is_empty(), "{} without reason", row.name);
        }
    }
}

/// memcached 1.6.18 accepts --udp and --lo as unambiguous beginnings.
#[test]
fn long_names_may_be_cut_as_far_as_memcached_understands_them() {
    assert_eq!(settings("--udp=5 --po 0").udp_port, Port::Fixed(5));
    assert!(settings("--lo").lock_memory);
    assert_eq!(settings("--log-l=info --admin-l=/a").admin.listen, ["/a"]);
    for (line, complaint) in [
        ("--log=info", "ambiguous"),
        ("--enable", "ambiguous"),
        ("--l", "ambiguous"),
        ("--loud", "unrecognized"),
    ] {
        assert!(refusal(line).1.contains(complaint), "{line}");
    }
}

#[test]
fn every_option_of_memcached_has_a_row() {
    for &(short, long, takes_value) in MEMCACHED_OPTIONS {
        let row = table::by_short(short).unwrap_or_else(|_| panic!("-{short} is missing"));
        assert_eq!(row.name, long);
        assert_eq!(matches!(row.value, Value::Needed(_)), takes_value, "-{short}");
    }
    assert!(table::by_short('D').is_ok());
    for name in MEMCACHED_EXTENDED.split_whitespace() {
        assert!(EXTENDED.iter().any(|row| row.name == name), "{name} is missing");
    }
}

#[test]
fn help_names_the_features_there_are_and_no_others() {
    let help = printed("-h");
    assert!(help.starts_with("larderd "));
    assert!(help.contains("\n-s, --unix-socket=<file> "));
    assert!(help.contains("\n--noreply-close-on-error "));
    assert!(help.contains("\n   idle_timeout=<secs> "));
    assert!(help.contains("\n-Z, --enable-ssl "));
    for feature in ["ext_path", "proxy_config"] {
        assert!(!help.contains(feature), "{feature}");
    }
    assert_eq!(help, printed("--help-all"));
}

#[test]
fn the_short_help_fits_a_screen_and_has_only_options_that_work() {
    let help = printed("--help");
    assert_eq!(help.lines().next(), printed("-V").lines().next());
    assert!(help.lines().count() <= 50, "{} lines", help.lines().count());
    assert_eq!(help.lines().find(|line| line.chars().count() > 80), None);
    for name in COMMON.iter().flat_map(|(_, names)| *names) {
        let row = COMMAND_LINE.iter().chain(EXTENDED).find(|row| row.name == *name);
        assert!(row.is_some_and(|row| matches!(row.status, Status::Honoured)), "{name}");
        assert!(help.contains(name), "{name}");
    }
}

#[test]
fn the_first_option_that_acts_wins() {
    assert!(printed("-V -c 0").starts_with("larderd "));
    assert_eq!(refusal("-c 0 -V").0, EXIT_FAILURE);
}

#[test]
fn options_are_spelled_in_all_ways_of_getopt() {
    for line in ["-p 4", "-p4", "--port=4", "--port 4", "--por 4", "-Mp4"] {
        assert_eq!(settings(line).tcp_port, Port::Fixed(4), "{line}");
    }
    assert_eq!(refusal("word -p 4").0, EXIT_USAGE);
    assert_eq!(settings("-p -1").tcp_port, Port::Ephemeral);
    assert_eq!(settings("-p 0").tcp_port, Port::Off);
    assert_eq!(settings("-vvv").verbosity, 3);
    assert_eq!(settings("-v -v").verbosity, 2);
    assert_eq!(settings("--verbose").verbosity, 1);
    assert_eq!(settings("--verbose=2").verbosity, 2);
}

#[test]
fn values_arrive() {
    let all = settings(
        "-p 1 -s /tmp/x -a 0770 -A -l 127.0.0.1,::1 -l [::1]:5;a:6 -d -r -u me -m 100 -M -c 10 -k -L -P /tmp/p -t 2 -R 5 \
         -C -b 7 -B ascii -I 2m -F -X -W -U 0 --noreply-close-on-error --reload-secs 60 \
         -o no_maxconns_fast,hashpower=20,idle_timeout=9,slab_automove",
    );
    assert_eq!(all.unix_mode, 0o770);
    assert_eq!(all.listen, ["127.0.0.1", "::1", "[::1]:5", "a:6"]);
    assert_eq!(all.memory_bytes, 100 << 20);
    assert_eq!(all.item_bytes_max, 2 << 20);
    assert_eq!((all.connections_max, all.threads, all.requests_per_event, all.backlog), (10, 2, 5, 7));
    assert_eq!((all.hash_power, all.idle_timeout_secs, all.maxconns_fast), (Some(20), 9, false));
    assert!(
        all.shutdown_command
            && all.daemon
            && all.core_dumps
            && all.lock_memory
            && all.large_pages == LargePages::FromTheStart
            && all.noreply_close_on_error
            && all.reload_secs == 60
    );
    assert!(!(all.evict || all.cas || all.flush_all || all.dump || all.watch));
    assert_eq!(settings("-I 1024").item_bytes_max, 1024);
    assert_eq!(settings("-I 2k").item_bytes_max, 2048);
}

/// A tiny memory is accepted unless an item size is given (memcached refuses -m 1 altogether).
#[test]
fn the_item_size_is_held_against_the_memory_only_if_given() {
    assert_eq!(settings("-m 1 -M").memory_bytes, 1 << 20);
    let message = "Cannot set item size limit higher than 1/2 of memory max.";
    assert_eq!(refusal("-I 40m"), (EXIT_USAGE, message.to_owned()));
    assert_eq!(refusal("-m 1 -I 1m"), (EXIT_USAGE, message.to_owned()));
}

#[test]
fn bad_values_refuse_with_memcacheds_exit_codes_and_messages() {
    for (line, exit_code, message) in [
        ("-c 0", 1, "Maximum connections must be greater than 0"),
        ("-c x", 1, "Maximum connections must be greater than 0"),
        ("-t 0", 1, "Number of threads must be greater than 0"),
        ("-f 1", 1, "Factor must be greater than 1"),
        ("-n 0", 1, "Chunk size must be greater than 0"),
        ("-R 0", 1, "Number of requests per event must be greater than 0"),
        ("-p 70000", 64, "ERROR: Invalid port number 70000."),
        ("-U 70000", 64, "ERROR: Invalid port number 70000."),
        ("-I 10", 64, "Item max size cannot be less than 1024 bytes."),
        ("-o foo", 1, "Illegal suboption \"foo\""),
        ("-o hot_lru_pct=90", 1, "hot_lru_pct must be > 1 and < 80"),
        ("-o lru_crawler_sleep=9999999", 1, "LRU crawler sleep must be between 0 and 1 second"),
        ("-o slab_automove=9", 1, "slab_automove must be between 0 and 2"),
        ("-o hash_algorithm=foo", 1, "Unknown hash_algorithm option (jenkins, murmur3, xxh3)"),
    ] {
        assert_eq!(refusal(line), (exit_code, message.to_owned()), "{line}");
    }
    for (line, exit_code) in [
        ("-q", 1),
        ("--foo", 1),
        ("-p", 1),
        ("-o hashpower", 1),
        ("-o hashpower=99", 1),
        ("-o idle_timeout", 1),
        ("-B foo", 64),
        ("-o temporary_ttl=5,no_lru_maintainer", 64),
        ("-o hot_lru_pct=60,warm_lru_pct=60", 1),
    ] {
        assert_eq!(refusal(line).0, exit_code, "{line}");
    }
}

#[test]
fn protocols_have_the_names_of_memcached() {
    for (line, dialect) in [
        ("", None),
        ("-B auto", None),
        ("-B ascii", Some(Dialect::Text)),
        ("-B binary", Some(Dialect::Binary)),
    ] {
        assert_eq!(settings(line).dialect, dialect, "{line}");
    }
}

#[test]
fn logins_and_protocols_must_fit() {
    assert_eq!(settings("-Y f").dialect, Some(Dialect::Text));
    assert_eq!(settings("-Y f -B ascii").auth_file, Some("f".into()));
    assert_eq!(settings("-S").dialect, Some(Dialect::Binary));
    assert!(settings("-S -B binary").sasl);
    for line in ["-S -B auto", "-S -B ascii", "-S -Y f", "-S -U 1", "-Y f -U 1"] {
        assert_eq!(refusal(line).0, EXIT_USAGE, "{line}");
    }
    for line in ["-Y f -B auto", "-B auto -Y f", "-Y f -B binary"] {
        assert_eq!(refusal(line).0, EXIT_USAGE, "{line}");
    }
}

#[test]
fn the_udp_port_is_the_tcp_port_unless_that_is_given() {
    for (line, tcp, udp) in [
        ("", Port::Fixed(11211), Port::Off),
        ("-U 0", Port::Fixed(11211), Port::Off),
        ("-U 5", Port::Fixed(5), Port::Fixed(5)),
        ("-U -1", Port::Ephemeral, Port::Ephemeral),
        ("-U 5 -p 6", Port::Fixed(6), Port::Fixed(5)),
        ("-p 6 -U -1", Port::Fixed(6), Port::Ephemeral),
        ("-U 5 -p 0", Port::Off, Port::Fixed(5)),
    ] {
        let settings = settings(line);
        assert_eq!((settings.tcp_port, settings.udp_port), (tcp, udp), "{line}");
    }
    assert!(settings("-U 5 --udp-cookie").udp_cookie);
    assert_eq!(refusal("-U 70000").0, EXIT_USAGE);
    let message = "Cannot use UDP with ascii authentication enabled (-U 0 to disable)";
    assert_eq!(refusal("-U 5 -Y f"), (EXIT_USAGE, message.to_owned()));
    assert_eq!(refusal("-U 5 -S").0, EXIT_USAGE);
}

#[test]
fn tls_takes_its_options_in_any_number_of_lists() {
    let tls = settings("-o ssl_chain_cert=/c -Z -o ssl_key=/k,ssl_min_version=3 -o ssl_session_cache").tls;
    assert!(tls.is_enabled && tls.session_cache);
    assert_eq!(tls.version_min, Version::Tls13);
    assert_eq!((tls.chain_file, tls.key_file), (Some("/c".into()), Some("/k".into())));
    let message = "larderd: -o ssl_chain_cert needs -Z: without it clients are served without TLS";
    assert_eq!(refusal("-o ssl_chain_cert=/c"), (EXIT_USAGE, message.to_owned()));
}

#[test]
fn an_engine_that_there_is_not_is_refused() {
    let (exit_code, message) = refusal("--store /s --store-engine rocksdb");
    assert_eq!((exit_code, &message[..]), (EXIT_USAGE, "larderd: --store-engine=rocksdb: log or memory"));
    settings("--store /s --store-engine memory -m 1024 -I 65m");
}

/// Running without these would open access or lose data.
#[test]
fn what_is_not_there_yet_is_refused() {
    let (exit_code, message) = refusal("-o ext_path=f:1m");
    assert_eq!(exit_code, EXIT_USAGE);
    assert!(message.contains("there is no extstore here"), "{message}");
}

#[test]
fn options_without_effect_say_so() {
    assert_eq!(settings("-f 1.5 -n 100").notes.len(), 2);
    assert!(settings("-m 100").notes.is_empty());
}

/// The table of docs/warm-restart.md.
#[test]
fn what_no_policy_speaks_of_is_kept_as_the_options_say() {
    for (line, keep) in [
        ("", Keep::Cache),
        ("-e f", Keep::Warm),
        ("--store d", Keep::Store),
        ("--namespaces n", Keep::Cache),
        ("--namespaces n -e f", Keep::Warm),
        ("--namespaces n --store d", Keep::Cache),
        ("--namespaces n --store d -e f", Keep::Warm),
        ("--store d -e f", Keep::Store),
        ("--store d -e f --keep warm", Keep::Warm),
        ("--store d -e f --keep cache", Keep::Cache),
        ("--namespaces n --store d -e f --keep store", Keep::Store),
        ("-e f --keep cache", Keep::Cache),
    ] {
        assert_eq!(settings(line).default_policy().keep, keep, "{line}");
    }
    for (line, reason) in [
        ("--keep warm", "larderd: --keep=warm needs a file, -e FILE"),
        ("--keep warm --store d", "larderd: --keep=warm needs a file, -e FILE"),
        ("--keep store -e f", "larderd: --keep=store needs --store"),
        ("--keep disk -e f", "larderd: --keep=disk: cache, warm or store"),
    ] {
        assert_eq!(refusal(line), (64, reason.to_owned()));
    }
}

#[test]
fn a_site_needs_a_store_a_number_and_a_token() {
    let site = settings("--store d --site 7 --peer a:1 --peer b:2 --replication-token-file t");
    let replication = site.store.and_then(|store| store.replication).expect("it is a site");
    assert_eq!((replication.site, replication.peers.len()), (7, 2));
    for (line, reason) in [
        (
            "--store d --peer a:1",
            "larderd: --peer, --peers-file and those that begin with --replication- need --site",
        ),
        (
            "--store d --site 1 --peer a:1",
            "larderd: --replication-listen, --peer and --peers-file need --replication-token-file",
        ),
        (
            "--store d --site 1 --replication-token-file t --replication-listen 0.0.0.0:1",
            "larderd: --replication-listen: other machines may see only what TLS encrypts: it needs -Z, or an address \
             of the loopback interface",
        ),
        (
            "--store d --site 1 --replication-token-file t --peer a:1 -Z -o ssl_chain_cert=/c",
            "larderd: --peer and --peers-file with -Z need -o ssl_ca_cert=<file>, to check the peer's certificate",
        ),
        (
            "--store d --site 1 -o drop_privileges",
            "larderd: --site and -o drop_privileges cannot be combined: a site connects to others",
        ),
    ] {
        assert_eq!(refusal(line), (64, reason.to_owned()));
    }
    assert_eq!(refusal("--store d --site 0"), (1, "larderd: --site: 1 to 255".to_owned()));
    assert!(refusal("--site 1").1.ends_with("need --store"));
}
