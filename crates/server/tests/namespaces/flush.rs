//! `flush_prefix` and `mf`, and flush_all.

use crate::server::Larderd;

const FILE: &str = "[namespace.\"a:\"]\n[namespace.\"b:\"]\n";
const FILLED: &str = "set a:1 0 0 1\r\n1\r\nset b:1 0 0 1\r\n1\r\nset c 0 0 1\r\n1\r\n";

fn filled(larderd: &Larderd) {
    assert_eq!(larderd.ask(FILLED), "STORED\r\n".repeat(3));
}

/// The keys that are there.
fn keys(larderd: &Larderd) -> Vec<String> {
    let answer = larderd.ask("get a:1 b:1 c\r\n");
    answer
        .lines()
        .filter_map(|line| line.strip_prefix("VALUE ")?.split(' ').next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_namespace_is_flushed_alone() {
    let larderd = Larderd::start(FILE, &[]);
    // "a:" and "b:" in base64.
    for (command, answer, left) in [
        ("flush_prefix a:", "OK", &["b:1", "c"][..]),
        ("flush_prefix a: 0", "OK", &["b:1", "c"]),
        ("flush_prefix a: -1", "OK", &["b:1", "c"]),
        ("flush_prefix <null>", "OK", &["a:1", "b:1"]),
        ("flush_prefix a: 100", "OK", &["a:1", "b:1", "c"]),
        ("flush_prefix a", "NOT_FOUND", &["a:1", "b:1", "c"]),
        ("flush_prefix a:1", "NOT_FOUND", &["a:1", "b:1", "c"]),
        ("flush_prefix", "CLIENT_ERROR bad command line format", &["a:1", "b:1", "c"]),
        ("flush_prefix a: x", "CLIENT_ERROR bad command line format", &["a:1", "b:1", "c"]),
        ("flush_prefix a: 0 0", "CLIENT_ERROR bad command line format", &["a:1", "b:1", "c"]),
        ("mf b:", "HD", &["a:1", "c"]),
        ("mf YTo= b k O7", "HD kYTo= b O7", &["b:1", "c"]),
        ("mf b: T100", "HD", &["a:1", "b:1", "c"]),
        ("mf <null> O1", "HD O1", &["a:1", "b:1"]),
        ("mf x: q O2", "NF O2", &["a:1", "b:1", "c"]),
        ("mf", "CLIENT_ERROR bad command line format", &["a:1", "b:1", "c"]),
        ("mf a: Tx", "CLIENT_ERROR bad token in command line format", &["a:1", "b:1", "c"]),
        ("mf a: !", "CLIENT_ERROR bad command line format", &["a:1", "b:1", "c"]),
        ("mf ! b", "CLIENT_ERROR error decoding key", &["a:1", "b:1", "c"]),
        ("flush_all", "OK", &[]),
    ] {
        filled(&larderd);
        assert_eq!(larderd.ask(&format!("{command}\r\n")), format!("{answer}\r\n"), "{command}");
        assert_eq!(keys(&larderd), left, "{command}");
    }
    for quiet in
        ["flush_prefix a: noreply\r\nmn\r\n", "flush_prefix a: 0 noreply\r\nmn\r\n", "mf a: q\r\nmn\r\n"]
    {
        filled(&larderd);
        assert_eq!(larderd.ask(quiet), "MN\r\n", "{quiet}");
        assert_eq!(keys(&larderd), ["b:1", "c"], "{quiet}");
    }
}

/// Only in debug builds a test can move the clock (`debugtime`).
#[test]
fn a_delayed_flush_comes_when_it_is_due() {
    let larderd = Larderd::start(FILE, &[]);
    filled(&larderd);
    let answer = larderd.ask("debugtime p\r\nflush_prefix a: 30\r\ndebugtime 20\r\nget a:1\r\n");
    if answer.starts_with("ERROR") {
        return;
    }
    assert!(answer.contains("VALUE a:1"), "{answer}");
    assert_eq!(larderd.ask("debugtime 40\r\nget a:1 b:1\r\n"), "OK\r\nVALUE b:1 0 1\r\n1\r\nEND\r\n");
}

#[test]
fn who_may_not_flush_may_flush_no_namespace() {
    let larderd = Larderd::start(FILE, &["-F"]);
    assert_eq!(
        larderd.ask("flush_prefix a:\r\nmf a:\r\n"),
        "CLIENT_ERROR flush_all not allowed\r\n".repeat(2)
    );
}

#[test]
fn without_a_file_there_is_the_default_alone() {
    let path = std::path::Path::new(env!("CARGO_BIN_EXE_larderd"));
    let server = larder_conformance::server::Server::start::<&str>(path, &[]).expect("larderd starts");
    let larderd = Larderd { server, folder: larder_conformance::folder::Folder::create() };
    filled(&larderd);
    assert_eq!(larderd.ask("flush_prefix a:\r\nstats namespaces\r\n"), "NOT_FOUND\r\nEND\r\n");
    assert_eq!(larderd.ask("flush_prefix <null>\r\nget a:1 c\r\n"), "OK\r\nEND\r\n");
}

#[test]
fn dumps_and_statistics_are_of_all_namespaces() {
    let larderd = Larderd::start(FILE, &["-m", "64", "-o", "track_sizes"]);
    filled(&larderd);
    let metadump = larderd.ask("lru_crawler metadump all\r\n");
    for key in ["key=a%3A1 ", "key=b%3A1 ", "key=c "] {
        assert_eq!(metadump.matches(key).count(), 1, "{metadump}");
    }
    assert_eq!(larderd.ask("lru_crawler mgdump all\r\n").matches("mg ").count(), 3);
    // Two of 3 + 1 + 59 bytes, one of 1 + 1 + 59.
    let stats = larderd.stats("");
    assert_eq!(
        (&stats["curr_items"][..], &stats["bytes"][..], &stats["limit_maxbytes"][..]),
        ("3", "187", "67108864")
    );
    assert_eq!(
        larderd.stats("sizes").values().map(|count| count.parse::<u32>().expect("a count")).sum::<u32>(),
        3
    );
    assert_eq!(larderd.stats("items")["items:1:number"], "3");
    larderd.ask("get a:1 a:2 c\r\n");
    assert_eq!(
        (larderd.stat("a:", "cmd_get"), larderd.stat("a:", "get_hits"), larderd.stat("a:", "get_misses")),
        (2, 1, 1)
    );
    assert_eq!((larderd.stat("b:", "cmd_get"), larderd.stat("<null>", "get_hits")), (0, 1));
    assert_eq!((larderd.stat("a:", "cmd_set"), larderd.stat("a:", "bytes")), (1, 63));
    assert_eq!(larderd.stats("namespaces")["namespace:a::keep"], "cache");
    assert_eq!(larderd.ask("stats reset\r\n"), "RESET\r\n");
    assert_eq!(
        (larderd.stat("a:", "cmd_get"), larderd.stat("a:", "cmd_set"), larderd.stat("a:", "curr_items")),
        (0, 0, 1)
    );
}
