//! `larder watch`, `hotkeys` and `latency`.

use std::io::{self, BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use larder_conformance::server::{Server, eventually, reference};
use serde_json::Value;

use crate::{both, command, ended, larder, ok, start_larderd, start_memcached};

/// A tool that runs while the server is asked; it ends by itself.
fn started(servers: &str, args: &[&str]) -> Child {
    let mut command = command(servers, args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("larder runs")
}

/// Waits until the server has a watcher, as its statistics tell.
fn await_watcher(server: &Server) {
    eventually(|| ok(server, &["stat", "--grep", "log_watchers"]).contains("log_watchers: 1"));
}

#[test]
fn events_are_shown_as_they_come() {
    for server in both() {
        let address = server.address().to_string();
        let watch = started(&address, &["watch", "mutations", "--count", "2", "--grep", "key=a"]);
        await_watcher(&server);
        for key in ["a1", "b", "a%2"] {
            ok(&server, &["set", key, "x"]);
        }
        let told = ended(&watch.wait_with_output().expect("it ends"));
        assert_eq!(told.code, 0, "{told:?}");
        let lines: Vec<&str> = told.out.lines().collect();
        assert_eq!(lines.len(), 2, "{told:?}");
        assert!(lines[0].contains(" type=item_store key=a1 status=stored"), "{told:?}");
        assert!(lines[1].contains(" key=a%252 "), "{told:?}");
        assert!(told.err.contains("larder watch: 2 events"), "{told:?}");
    }
}

#[test]
fn an_interrupt_ends_a_watch() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let server = start_larderd(&[]);
        let watch = started(&server.address().to_string(), &["watch"]);
        await_watcher(&server);
        assert!(kill(signal, &watch), "{signal}");
        let told = ended(&watch.wait_with_output().expect("it ends"));
        assert_eq!((told.code, &told.err[..]), (0, "larder watch: 0 events\n"), "{signal}");
    }
}

fn kill(signal: &str, child: &Child) -> bool {
    Command::new("kill").args([signal, &child.id().to_string()]).status().is_ok_and(|status| status.success())
}

#[test]
fn a_second_interrupt_ends_a_watch_whose_reader_has_stopped() {
    let server = start_larderd(&[]);
    // As `larder watch | less`: the pipe is full, and nobody reads.
    let (reader, writer) = io::pipe().expect("a pipe");
    let writing = || Stdio::from(writer.try_clone().expect("a descriptor"));
    let fill = Command::new("head").args(["-c", "65536", "/dev/zero"]).stdout(writing()).status();
    assert!(fill.is_ok_and(|status| status.success()));
    let mut watch = command(&server.address().to_string(), &["watch", "mutations", "-q"]);
    let mut watch = watch.stdout(writing()).stderr(Stdio::piped()).spawn().expect("larder runs");
    await_watcher(&server);
    for _ in 0..9 {
        ok(&server, &["set", "a", "x"]);
    }
    // Time to read them, so that it waits for the pipe.
    thread::sleep(Duration::from_secs(1));
    eventually(|| {
        kill("-INT", &watch);
        watch.try_wait().expect("it is ours").is_some()
    });
    drop(reader);
}

#[test]
fn a_server_that_cannot_be_watched_is_named_at_once() {
    let server = start_larderd(&[]);
    let mut watch = started(&format!("127.0.0.1:1,{}", server.address()), &["watch", "mutations", "-n", "1"]);
    let mut line = String::new();
    let mut err = BufReader::new(watch.stderr.take().expect("it is piped"));
    err.read_line(&mut line).expect("it tells");
    assert!(line.starts_with("larder watch: 127.0.0.1:1: cannot connect"), "{line}");
    await_watcher(&server);
    ok(&server, &["set", "a", "x"]);
    let told = ended(&watch.wait_with_output().expect("it ends"));
    assert_eq!((told.code, told.out.lines().count()), (69, 1), "{told:?}");
    assert!(told.out.contains("key=a "), "{told:?}");
}

#[test]
fn a_time_without_measure_is_refused() {
    for tool in ["watch", "hotkeys", "latency"] {
        let told = ended(&command("", &[tool, "--secs", &u64::MAX.to_string()]).output().expect("it runs"));
        assert_eq!(told.code, 64, "{tool}: {told:?}");
    }
}

#[test]
fn a_server_that_does_not_show_its_events_is_named() {
    let server = start_larderd(&["-W"]);
    for tool in ["watch", "hotkeys"] {
        let told = larder(&server, &[tool]);
        assert_eq!(told.code, 1, "{told:?}");
        assert!(told.err.contains("watch commands not allowed"), "{told:?}");
    }
}

#[test]
fn hot_keys_are_those_that_are_asked_for_most() {
    for server in both() {
        let address = server.address().to_string();
        let hot_keys = started(&address, &["hotkeys", "--secs", "3", "--json"]);
        await_watcher(&server);
        for n in 0..8 {
            larder(&server, &["get", if n < 6 { "hot" } else { "cold" }]);
        }
        let told = ended(&hot_keys.wait_with_output().expect("it ends"));
        assert_eq!(told.code, 0, "{told:?}");
        let json: Value = serde_json::from_str(&told.out).expect("it is JSON");
        // A busy machine may not have asked for all of them in time.
        assert_eq!(json[0]["key"], "hot", "{told:?}");
        assert!(json[0]["share"].as_f64().is_some_and(|share| share >= 0.75), "{told:?}");
    }
}

#[test]
fn service_times_are_told_by_command() {
    let server = start_larderd(&[]);
    ok(&server, &["set", "a", "b"]);
    ok(&server, &["get", "a"]);
    let json: Value = serde_json::from_str(&ok(&server, &["latency", "--json"])).expect("it is JSON");
    let told = &json[server.address().to_string()];
    assert_eq!(told["source"], "server");
    for command in ["get", "store"] {
        let commands = told["commands"].as_array().expect("an array");
        let row = commands.iter().find(|row| row["command"] == command).expect(command);
        assert_eq!((&row["transport"], &row["requests"]), (&"tcp".into(), &1.into()), "{row}");
        assert!(row["p50_micros"].as_f64() <= row["max_micros"].as_f64(), "{row}");
    }
    // Of an interval in which nothing was asked but the statistics.
    let json = ok(&server, &["latency", "--json", "--secs", "1"]);
    let json: Value = serde_json::from_str(&json).expect("it is JSON");
    let rows = json[server.address().to_string()]["commands"].as_array().expect("an array");
    assert!(rows.iter().all(|row| row["command"] == "other"), "{json}");
    assert!(ok(&server, &["latency"]).contains("service times since the server's start"));
}

#[test]
fn a_server_without_service_times_is_measured_from_here() {
    if reference().is_none() {
        return;
    }
    let server = start_memcached(&[]);
    let json: Value = serde_json::from_str(&ok(&server, &["latency", "--json"])).expect("it is JSON");
    let told = &json[server.address().to_string()];
    assert_eq!((&told["source"], &told["commands"][0]["command"]), (&"client".into(), &"version".into()));
    assert!(told["commands"][0]["requests"].as_u64() > Some(0), "{told}");
}
