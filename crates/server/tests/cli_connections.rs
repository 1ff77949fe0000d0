//! Limits on connections, and how they end.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use larder_conformance::folder::Folder;
use larder_conformance::server::{Server, eventually};
use larder_conformance::stats::Stats;

fn start(args: &str) -> Server {
    let args: Vec<&str> = args.split_whitespace().collect();
    Server::start(Path::new(env!("CARGO_BIN_EXE_larderd")), &args).expect("larderd starts")
}

fn connect(server: &Server) -> TcpStream {
    let stream = server.connect().expect("larderd listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout can be set");
    stream
}

/// Sends `request`, expects exactly `reply`.
#[track_caller]
fn ask(stream: &mut TcpStream, request: &str, reply: &str) {
    stream.write_all(request.as_bytes()).expect("larderd reads");
    let mut got = vec![0; reply.len()];
    stream.read_exact(&mut got).expect("larderd answers");
    assert_eq!(String::from_utf8_lossy(&got), reply);
}

fn read_to_end(stream: &mut TcpStream) -> String {
    let mut got = Vec::new();
    stream.read_to_end(&mut got).expect("larderd closes");
    String::from_utf8_lossy(&got).into_owned()
}

#[test]
fn connections_beyond_the_limit_are_told_and_closed() {
    let server = start("-c 3 -t 2");
    let mut inside: Vec<TcpStream> = (0..3).map(|_| connect(&server)).collect();
    for stream in &mut inside {
        ask(stream, "get a\r\n", "END\r\n");
    }
    assert_eq!(read_to_end(&mut connect(&server)), "ERROR Too many open connections\r\n");
    ask(&mut inside[0], "get a\r\n", "END\r\n");
    drop(inside.pop());
    // stats, too, needs a connection, and the last one may not be gone yet.
    eventually(|| {
        Stats::of(server.address()).and_then(|stats| stats.get("rejected_connections")).is_ok_and(|n| n >= 1)
    });
}

/// memcached asks the system for no more than `-c` says; so who was given just that must not be refused.
#[test]
fn as_many_connections_as_open_files_are_enough_to_start() {
    let mut command = Command::new("sh");
    command.args(["-c", r#"ulimit -n 300 && exec "$0" "$@""#, env!("CARGO_BIN_EXE_larderd")]);
    command.args("-l 127.0.0.1 -p -1 -U 0 -t 2 -c 300".split(' '));
    let server = Server::start_command(command).expect("larderd starts");
    ask(&mut connect(&server), "get a\r\n", "END\r\n");
}

/// Clients that open as many connections as they may take no descriptor from the store.
#[test]
fn connections_leave_the_store_its_descriptors() {
    let folder = Folder::create();
    let mut command = Command::new("sh");
    // Only root may raise the limit.
    let script = r#"ulimit -n 500
        if [ "$(id -u)" = 0 ]; then exec setpriv --bounding-set=-sys_resource "$0" "$@"; fi
        exec "$0" "$@""#;
    command.args(["-c", script, env!("CARGO_BIN_EXE_larderd")]);
    command.args("-l 127.0.0.1 -p -1 -U 0 -u root -t 1 -c 450 --store-segment-kib 16".split(' '));
    command.args(["--store", &folder.arg("store")]);
    let server = Server::start_command(command).expect("larderd starts");
    let connections = Stats::of(server.address()).and_then(|stats| stats.get("max_connections"));
    let connections = connections.expect("it is told") as usize;
    assert!((300..450).contains(&connections), "{connections}");
    let mut stream = connect(&server);
    let mut others: Vec<TcpStream> = (0..450).filter_map(|_| server.connect().ok()).collect();
    // By then all have been accepted or refused.
    for other in &mut others {
        other.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout can be set");
        let _ = other.write_all(b"mn\r\n");
        let _ = other.read(&mut [0; 4]);
    }
    let value = "v".repeat(5_000);
    for nth in 0..60 {
        ask(&mut stream, &format!("set key{nth} 0 0 5000\r\n{value}\r\n"), "STORED\r\n");
    }
}

#[test]
fn connections_beyond_the_limit_wait_with_no_maxconns_fast() {
    let server = start("-c 1 -t 2 -o no_maxconns_fast");
    for _ in 0..20 {
        let mut inside = connect(&server);
        ask(&mut inside, "get a\r\n", "END\r\n");
        let mut waiting = connect(&server);
        waiting.write_all(b"get b\r\n").expect("the kernel queues it");
        waiting.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout can be set");
        let error = waiting.read(&mut [0; 8]).expect_err("it is not accepted yet");
        assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
        drop(inside);
        waiting.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout can be set");
        ask(&mut waiting, "", "END\r\n");
    }
}

#[test]
fn all_that_was_received_is_answered_before_a_half_closed_connection_closes() {
    let server = start("-t 1");
    let mut stream = connect(&server);
    stream.write_all("get a\r\n".repeat(1000).as_bytes()).expect("larderd reads");
    stream.shutdown(Shutdown::Write).expect("it is open");
    assert_eq!(read_to_end(&mut stream), "END\r\n".repeat(1000));
}

/// More than a socket's buffers hold, in both directions.
#[test]
fn a_client_that_reads_late_gets_every_reply_in_order() {
    let server = start("-t 1");
    let mut stream = connect(&server);
    let value = "v".repeat(100_000);
    ask(&mut stream, &format!("set a 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    let mut writer = stream.try_clone().expect("descriptors are left");
    let requests = thread::spawn(move || writer.write_all("get a\r\nmn\r\n".repeat(500).as_bytes()));
    thread::sleep(Duration::from_millis(300));
    let reply = format!("VALUE a 0 {}\r\n{value}\r\nEND\r\nMN\r\n", value.len());
    for _ in 0..500 {
        ask(&mut stream, "", &reply);
    }
    requests.join().expect("no panic").expect("larderd reads");
}

/// Replies so small that those of several connections are sent together, until none of the sockets takes any more.
#[test]
fn clients_that_read_late_get_every_small_reply_in_order() {
    const REQUESTS: usize = 2000;
    let server = start("-t 1");
    let mut barrier = connect(&server);
    let value = "v".repeat(3000);
    ask(&mut barrier, &format!("set a 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    let mut streams: Vec<TcpStream> = (0..4).map(|_| connect(&server)).collect();
    for n in 0..REQUESTS {
        for stream in &mut streams {
            write!(stream, "mg a v O{n}\r\n").expect("what larderd does not read, the kernel keeps");
        }
        // So that no two requests of a connection are read at once.
        ask(&mut barrier, "mn\r\n", "MN\r\n");
    }
    for stream in &mut streams {
        for n in 0..REQUESTS {
            ask(stream, "", &format!("VA {} O{n}\r\n{value}\r\n", value.len()));
        }
    }
}

#[test]
fn a_pipelining_client_does_not_starve_others() {
    let server = start("-t 1 -R 5");
    let mut greedy = connect(&server);
    let mut modest = connect(&server);
    let mut writer = greedy.try_clone().expect("descriptors are left");
    let requests = thread::spawn(move || writer.write_all("get a\r\n".repeat(200_000).as_bytes()));
    for _ in 0..100 {
        ask(&mut modest, "get b\r\n", "END\r\n");
    }
    ask(&mut greedy, "", &"END\r\n".repeat(200_000));
    requests.join().expect("no panic").expect("larderd reads");
    assert!(Stats::of(server.address()).and_then(|stats| stats.get("conn_yields")).is_ok_and(|n| n > 0));
}

/// As memcached 1.6.18, which counts nine here.
#[test]
fn a_client_that_is_alone_yields_too() {
    let server = start("-t 1 -R 5");
    let mut client = connect(&server);
    ask(&mut client, &"mn\r\n".repeat(50), &"MN\r\n".repeat(50));
    assert!(Stats::of(server.address()).and_then(|stats| stats.get("conn_yields")).is_ok_and(|n| n == 9));
}

/// As memcached 1.6.18, which counts nothing here: no request of its own waits behind the large value.
#[test]
fn a_large_value_alone_is_no_yield() {
    let server = start("-t 1");
    let mut client = connect(&server);
    let value = "v".repeat(600_000);
    ask(&mut client, &format!("set large 0 0 600000\r\n{value}\r\n"), "STORED\r\n");
    let found = format!("VALUE large 0 600000\r\n{value}\r\n");
    ask(&mut client, "get large\r\n", &format!("{found}END\r\n"));
    ask(&mut client, "get large large large\r\n", &format!("{}END\r\n", found.repeat(3)));
    assert_eq!(Stats::of(server.address()).and_then(|stats| stats.get("conn_yields")).ok(), Some(0));
}

#[test]
fn idle_connections_are_closed_after_the_timeout() {
    let server = start("-t 1 -o idle_timeout=3");
    let mut idle = connect(&server);
    let mut busy = connect(&server);
    // In the middle of a command: not idle.
    let mut uploading = connect(&server);
    uploading.write_all(b"set a 0 0 5\r\nab").expect("larderd reads");
    idle.set_read_timeout(Some(Duration::from_millis(100))).expect("it is no zero");
    eventually(|| {
        ask(&mut busy, "get a\r\n", "END\r\n");
        idle.read(&mut [0]).map_or_else(|error| error.kind() != ErrorKind::WouldBlock, |n| n == 0)
    });
    ask(&mut uploading, "cde\r\n", "STORED\r\n");
    let kicks = Stats::of(server.address()).and_then(|stats| stats.get("idle_kicks"));
    assert_eq!(kicks.expect("the line is there with the option"), 1);
}

#[test]
fn connections_spread_over_the_workers() {
    let server = start("-t 4");
    let mut streams: Vec<TcpStream> = (0..16).map(|_| connect(&server)).collect();
    for stream in &mut streams {
        ask(stream, "get a\r\n", "END\r\n");
    }
    // One busy loop per connection; each worker then has time of its own on the clock.
    for _ in 0..200 {
        for stream in &mut streams {
            ask(stream, "get a\r\n", "END\r\n");
        }
    }
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("it runs");
    let busy = tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok())
        .filter(|status| status.contains("Name:\tlarder-"))
        .filter(|status| {
            let switches = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            switches.and_then(|n| n.trim().parse::<u32>().ok()).is_some_and(|n| n > 100)
        })
        .count();
    assert_eq!(busy, 4);
}

/// What is about the server may cost a thousand times as much as a get.
#[test]
fn a_client_yields_after_each_command_about_the_server() {
    let server = start("-t 1");
    let mut client = connect(&server);
    ask(&mut client, &"verbosity 0\r\n".repeat(50), &"OK\r\n".repeat(50));
    let yields = Stats::of(server.address()).and_then(|stats| stats.get("conn_yields")).expect("a line");
    assert_eq!(yields, 49);
}

/// A round has room for few commands about the server; those that find none are first in the next.
#[test]
fn every_client_has_its_turn_for_commands_about_the_server() {
    let server = start("-t 1");
    let mut clients: Vec<_> = (0..40).map(|_| connect(&server)).collect();
    let asked = "verbosity 0\r\nstats cachedump 1 1\r\nmn\r\n";
    for client in &mut clients {
        client.write_all(asked.repeat(20).as_bytes()).expect("larderd reads");
    }
    let answer = "OK\r\nEND\r\nMN\r\n".repeat(20);
    for client in &mut clients {
        ask(client, "", &answer);
    }
}
