//! memcached and larderd: all is right.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use larder_bench::Outcome;
use larder_bench::scenario::Kind;
use larder_conformance::folder::Folder;
use larder_conformance::server::{Server, any, eventually, free_port, larderd, reference};

use super::run_toml;

fn each_server(args: &[&str], check: impl Fn(&Server)) {
    let programs: Vec<PathBuf> = reference().into_iter().chain([larderd().unwrap()]).collect();
    for program in programs {
        check(&Server::start(&program, args).unwrap());
    }
}

#[track_caller]
fn assert_right(outcome: &Outcome) {
    assert!(!outcome.total.has_failed(), "{:?} {:?}", outcome.total.failures, outcome.total.examples);
}

/// Items left by an earlier run do not count against the server.
#[test]
fn the_same_run_twice_has_the_same_verdict() {
    let window = "popularity = { spread = \"window\", keys = 50, overwrite = 0.1 }";
    each_server(&[], |server| {
        let [of_window, of_any] = [("window", window), ("any", "")].map(|(prefix, popularity)| {
            [1, 2, 3].map(|seed| {
                let outcome = run_toml(
                    &server.address().to_string(),
                    &format!(
                        "seed = {seed}
                        until.requests = 1000
                        truth = {{ verify = 1.0, misses_fail = true }}
                        [[group]]
                        connections = 4
                        keys.count = 400
                        keys.prefix = \"{prefix}\"
                        {}
                        values.bytes = [{{ min = 1, max = 300, weight = 1.0 }}]
                        command = [{{ kind = \"get\", weight = 4.0 }}, {{ kind = \"set\" }}]",
                        if popularity.is_empty() { String::new() } else { format!("keys.{popularity}") }
                    ),
                );
                assert_right(&outcome);
                outcome.total
            })
        });
        // A run with a window of its own gets only keys that it has stored.
        assert_eq!(of_window[0].all().misses, 0);
        assert!(of_window.iter().chain(&of_any).all(|total| total.verified > 100));
    });
}

/// protocol.txt: more than 30 days is a Unix time, so 31 days would be a moment in 1970.
#[test]
fn what_is_to_live_for_more_than_30_days_does() {
    each_server(&[], |server| {
        for protocol in ["text", "meta", "binary"] {
            for (at, changes) in ["set", "touch", "gat"].iter().enumerate() {
                let outcome = run_toml(
                    &server.address().to_string(),
                    &format!(
                        "until.requests = 3
                        [[group]]
                        connections = 1
                        order = \"turn\"
                        protocol = \"{protocol}\"
                        keys = {{ count = 1, first = {at} }}
                        command = [
                            {{ kind = \"set\" }},
                            {{ kind = \"{changes}\", ttl = [{{ secs = 2_678_400, weight = 1.0 }}] }},
                            {{ kind = \"get\" }},
                        ]"
                    ),
                );
                assert_eq!(outcome.total.commands[&Kind::Get].hits, 1, "{protocol}, {changes}");
            }
        }
    });
}

/// Every command that leaves values as they can be verified, on keys that several connections share.
const MIX: &str = r#"
    [[group.command]]
    kind = "get"
    weight = 4.0
    [[group.command]]
    kind = "get"
    keys = 7
    [[group.command]]
    kind = "gets"
    [[group.command]]
    kind = "gat"
    ttl = [{ secs = 100, weight = 1.0 }, { secs = 0, weight = 1.0 }]
    [[group.command]]
    kind = "set"
    weight = 2.0
    ttl = [{ secs = 0, weight = 1.0 }, { secs = 2, weight = 0.1 }]
    [[group.command]]
    kind = "set"
    noreply = true
    [[group.command]]
    kind = "add"
    [[group.command]]
    kind = "replace"
    [[group.command]]
    kind = "append"
    weight = 0.2
    [[group.command]]
    kind = "prepend"
    weight = 0.2
    [[group.command]]
    kind = "cas"
    [[group.command]]
    kind = "delete"
    weight = 0.5
    [[group.command]]
    kind = "delete"
    noreply = true
    weight = 0.2
    [[group.command]]
    kind = "touch"
    ttl = [{ secs = 100, weight = 1.0 }]
    [[group.command]]
    kind = "version"
    weight = 0.1
    [[group.command]]
    kind = "noop"
    weight = 0.1
    [group.keys]
    count = 300
    popularity = { spread = "zipf", exponent = 0.9 }
    [group.values]
    bytes = [{ min = 16, max = 300, weight = 0.9 }, { min = 20000, max = 50000, weight = 0.1 }]
"#;

fn check_mix(address: &str, protocol: &str, more: &str) {
    let outcome = run_toml(
        address,
        &format!(
            "threads = 2
            fill = true
            flush = true
            until.requests = 8000
            truth = {{ verify = 1.0, verify_expiry = 1.0, misses_fail = true }}
            {more}
            [[group]]
            connections = 6
            pipeline = 5
            protocol = \"{protocol}\"
            {MIX}"
        ),
    );
    assert_right(&outcome);
    assert_eq!(outcome.total.all().requests, 8000);
    assert!(outcome.total.verified > 2000, "{}", outcome.total.verified);
    let kinds: Vec<Kind> = outcome.total.commands.keys().copied().collect();
    assert_eq!(kinds.len(), 13, "{kinds:?}");
}

#[test]
fn every_command_is_answered_right_in_text() {
    each_server(&[], |server| check_mix(&server.address().to_string(), "text", ""));
}

#[test]
fn every_command_is_answered_right_in_meta() {
    each_server(&[], |server| check_mix(&server.address().to_string(), "meta", ""));
}

#[test]
fn every_command_is_answered_right_in_binary() {
    each_server(&[], |server| check_mix(&server.address().to_string(), "binary", ""));
}

#[test]
fn numbers_are_counted_up_and_down() {
    each_server(&[], |server| {
        for protocol in ["text", "meta", "binary"] {
            let outcome = run_toml(
                &server.address().to_string(),
                &format!(
                    "flush = true
                    fill = true
                    until.requests = 3000
                    truth = {{ verify = 1.0, misses_fail = true }}
                    [[group]]
                    connections = 3
                    protocol = \"{protocol}\"
                    keys.count = 50
                    values.content = \"number\"
                    command = [{{ kind = \"incr\" }}, {{ kind = \"decr\", delta = 7 }}, {{ kind = \"get\" }},
                               {{ kind = \"incr\", noreply = true }}]"
                ),
            );
            assert_right(&outcome);
            assert_eq!(outcome.total.all().misses, 0);
            assert!(outcome.total.verified > 500);
        }
    });
}

#[test]
fn values_too_small_for_a_head_are_verified_too() {
    each_server(&[], |server| {
        let outcome = run_toml(
            &server.address().to_string(),
            "flush = true
            fill = true
            until.requests = 5000
            truth = { verify = 1.0, misses_fail = true }
            [[group]]
            connections = 4
            keys.count = 100
            values.bytes = [{ min = 0, max = 15, weight = 1.0 }]
            command = [{ kind = \"get\" }, { kind = \"set\" }]",
        );
        assert_right(&outcome);
        assert!(outcome.total.verified > 2000);
    });
}

#[test]
fn a_look_aside_cache_stores_what_it_misses() {
    each_server(&[], |server| {
        let outcome = run_toml(
            &server.address().to_string(),
            "flush = true
            until.requests = 800
            [[group]]
            connections = 1
            look_aside = true
            keys = { count = 100, popularity = { spread = \"sequential\" } }
            command = [{ kind = \"get\", keys = 5 }]",
        );
        assert_right(&outcome);
        let [get, set] = [Kind::Get, Kind::Set].map(|kind| &outcome.total.commands[&kind]);
        // One round misses all 100, and stores them; all others hit.
        assert_eq!((get.misses, set.requests), (100, 100));
        assert_eq!(get.hits, get.keys - 100);
        assert_eq!(get.requests + set.requests, 800);
    });
}

#[test]
fn connections_are_opened_again_as_often_as_asked_for() {
    each_server(&[], |server| {
        let outcome = run_toml(
            &server.address().to_string(),
            "until.requests = 1000
            [[group]]
            connections = 2
            reconnect_every = 10
            command = [{ kind = \"get\" }]",
        );
        assert_right(&outcome);
        // 1000 / 10, less the last one of each connection, if it had just been worn out.
        assert!((95..=100).contains(&outcome.total.reconnects), "{}", outcome.total.reconnects);
    });
}

#[test]
fn commands_without_an_answer_are_all_worked_off() {
    each_server(&[], |server| {
        let outcome = run_toml(
            &server.address().to_string(),
            "flush = true
            until.requests = 5000
            [[group]]
            connections = 1
            keys = { count = 5000, popularity = { spread = \"sequential\" } }
            command = [{ kind = \"set\", noreply = true }]",
        );
        assert_right(&outcome);
        let stored = outcome.servers[0].stats_deltas["cmd_set"];
        assert_eq!((outcome.total.all().requests, stored), (5000, 5000.0));
    });
}

/// Starts a server that listens for TCP and UDP at the same port. Its address.
fn start_with_udp(program: &std::path::Path) -> (Server, String) {
    let port = free_port().to_string();
    (Server::start(program, &["-p", &port, "-U", &port]).unwrap(), format!("127.0.0.1:{port}"))
}

#[test]
fn datagrams_are_answered_right() {
    for program in reference().into_iter().chain([larderd().unwrap()]) {
        for transport in ["udp", "udpgets"] {
            for protocol in ["text", "meta", "binary"] {
                let (_server, address) = start_with_udp(&program);
                let outcome = run_toml(
                    &address,
                    &format!(
                        "fill = true
                        until.requests = 3000
                        truth = {{ verify = 1.0, misses_fail = true }}
                        [[group]]
                        connections = 3
                        pipeline = 4
                        protocol = \"{protocol}\"
                        transport = \"{transport}\"
                        keys.count = 200
                        values.bytes = 1000
                        command = [{{ kind = \"get\" }}, {{ kind = \"set\" }}, {{ kind = \"get\", keys = 5 }}]"
                    ),
                );
                assert_right(&outcome);
                let answered = outcome.total.all().requests;
                assert_eq!(answered + outcome.total.datagrams_lost, 3000, "{transport} {protocol}");
                assert!(
                    answered > 2900 && outcome.total.verified > 2000,
                    "{transport} {protocol}: {answered}"
                );
            }
        }
    }
}

#[test]
fn a_unix_socket_is_a_road_as_well() {
    for program in reference().into_iter().chain([larderd().unwrap()]) {
        let folder = Folder::create();
        let path = folder.file("socket");
        let mut command = std::process::Command::new(&program);
        command.args(["-u", "nobody", "-a", "777", "-s"]).arg(&path);
        let mut server = command.spawn().unwrap();
        // Its file is there before it listens.
        eventually(|| UnixStream::connect(&path).is_ok());
        let outcome = run_toml(
            path.to_str().unwrap(),
            "fill = true
            until.requests = 2000
            truth.verify = 1.0
            [[group]]
            connections = 4
            keys.count = 100
            command = [{ kind = \"get\" }, { kind = \"set\" }]",
        );
        server.kill().unwrap();
        server.wait().unwrap();
        assert_right(&outcome);
        assert_eq!(outcome.total.all().requests, 2000);
    }
}

#[test]
fn a_trace_is_played_to_its_end() {
    each_server(&[], |server| {
        let folder = Folder::create();
        let lines: String = (0..60)
            .map(|n| format!("{n} get key{n} 50\n{n} get key{n} 50\n{n} set other{n} 10 60\n"))
            .collect();
        let path = folder.write("trace", lines);
        let outcome = run_toml(
            &server.address().to_string(),
            &format!(
                "until.trace_ends = true
                flush = true
                [[group]]
                connections = 4
                trace = {{ file = \"{}\", format = \"text\", repeat = 2 }}",
                path.display()
            ),
        );
        assert_right(&outcome);
        let [get, set] = [Kind::Get, Kind::Set].map(|kind| &outcome.total.commands[&kind]);
        // Each key misses once, is stored, and is found three times.
        assert_eq!((get.requests, get.misses, get.hits, set.requests), (240, 60, 180, 180));
        assert_eq!(set.value_bytes, 60 * 50 + 120 * 10);
    });
}

#[test]
fn keys_are_shared_out_over_servers() {
    let one = Server::start(&any().unwrap(), &[] as &[&str]).unwrap();
    let other = Server::start(&larderd().unwrap(), &[] as &[&str]).unwrap();
    let outcome = run_toml(
        &format!("{}\",\"{}", one.address(), other.address()),
        "fill = true
        until.requests = 6000
        truth = { verify = 1.0, misses_fail = true }
        [[group]]
        connections = 3
        pipeline = 4
        keys.count = 2000
        command = [{ kind = \"get\", keys = 3 }, { kind = \"set\" }]",
    );
    assert_right(&outcome);
    let sets = outcome.total.commands[&Kind::Set].requests as f64;
    for server in &outcome.servers {
        let stored = server.stats_deltas["cmd_set"];
        assert!((sets * 0.4..sets * 0.6).contains(&stored), "{stored} of {sets}");
    }
}
