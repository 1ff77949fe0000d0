//! What clients hold that do not finish what they began: it costs others nothing, and it is bounded. memcached's
//! answers where it bounds it.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use larder_conformance::server::{self, Server, eventually};
use larder_conformance::stats::Stats;

const MIB: u64 = 1 << 20;
/// Stores of those who finish what they begin.
const OTHERS: usize = 20;

fn start(args: &str) -> Server {
    let args: Vec<&str> = args.split_whitespace().collect();
    Server::start(Path::new(env!("CARGO_BIN_EXE_larderd")), &args).expect("larderd starts")
}

fn connect(server: &Server) -> TcpStream {
    let stream = server.connect().expect("larderd listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

fn set(key: &str, value_bytes: usize, noreply: &str) -> Vec<u8> {
    let mut request = format!("set {key} 0 0 {value_bytes}{noreply}\r\n").into_bytes();
    request.resize(request.len() + value_bytes, b'v');
    request.extend(b"\r\n");
    request
}

/// Sends in two pieces, so that what is long does not arrive whole.
#[track_caller]
fn send(stream: &mut TcpStream, request: &[u8]) {
    let (head, tail) = request.split_at(request.len() / 2);
    stream.write_all(head).expect("larderd reads");
    thread::sleep(Duration::from_millis(if request.len() > 1000 { 5 } else { 0 }));
    stream.write_all(tail).expect("larderd reads");
}

/// Expects exactly `reply`.
#[track_caller]
fn ask(stream: &mut TcpStream, request: &[u8], reply: &str) {
    send(stream, request);
    let mut got = vec![0; reply.len()];
    stream.read_exact(&mut got).expect("larderd answers");
    assert_eq!(String::from_utf8_lossy(&got), reply);
}

fn fill(server: &Server, items: usize, value_bytes: usize) {
    let mut stream = connect(server);
    for number in 0..items {
        stream.write_all(&set(&format!("item:{number}"), value_bytes, " noreply")).unwrap();
    }
    ask(&mut stream, b"mn\r\n", "MN\r\n");
}

fn stat(server: &Server, name: &str) -> u64 {
    Stats::of(server.address()).and_then(|stats| stats.get(name)).unwrap()
}

#[track_caller]
fn others_can_store(server: &Server) {
    assert_eq!(stored(server), OTHERS);
}

/// How many stores go well, of [`OTHERS`].
#[track_caller]
fn stored(server: &Server) -> usize {
    let mut replies = BufReader::new(connect(server));
    let numbers = 0..OTHERS;
    let stores = numbers.map(|number| {
        let mut reply = String::new();
        send(replies.get_mut(), &set(&format!("real:{number}"), 100_000, ""));
        replies.read_line(&mut reply).expect("larderd answers");
        reply
    });
    stores.filter(|reply| reply == "STORED\r\n").count()
}

#[test]
fn announced_values_evict_nothing() {
    for (args, count, value_bytes) in [("-m 64 -I 32m", 9, 33_000_000), ("-m 64 -I 1m", 400, 1_000_000)] {
        let server = start(args);
        fill(&server, 30_000, 1000);
        let announcing: Vec<_> = (0..count)
            .map(|number| {
                let mut stream = connect(&server);
                let head = format!("set promise:{number} 0 0 {value_bytes}\r\n{}", "v".repeat(100));
                stream.write_all(head.as_bytes()).unwrap();
                stream
            })
            .collect();
        others_can_store(&server);
        assert_eq!(stat(&server, "evictions"), 0, "{args}");
        assert_eq!(stat(&server, "curr_items"), 30_020, "{args}");
        drop(announcing);
    }
}

#[test]
fn values_that_are_never_finished_lie_within_the_limit() {
    let server = start("-m 256 -t 1 -c 2000");
    fill(&server, 25_000, 10_000);
    let unfinished: Vec<_> = (0..600)
        .map(|number| {
            let request = set(&format!("unfinished:{number}"), 250_000, "");
            let mut stream = connect(&server);
            stream.write_all(&request[..240_000]).unwrap();
            stream
        })
        .collect();
    // Uploads that arrive at the same time compete for memory. Two seconds later these do not arrive any more.
    server::eventually(|| stored(&server) == OTHERS);
    let resident_bytes = server.resident_bytes().unwrap();
    // -m, what all connections may hold, what each has for itself, and the program.
    let resident_bytes_max = 256 * MIB * 105 / 100 + 32 * MIB + 600 * (16 << 10) + 24 * MIB;
    assert!(resident_bytes <= resident_bytes_max, "{resident_bytes} bytes resident");
    drop(unfinished);
}

#[test]
fn lines_of_keys_without_end_are_refused_and_honest_ones_are_not() {
    let server = start("-m 64 -c 2000");
    let piece = b" key".repeat(64 << 10);
    let begin = |_| {
        let mut stream = connect(&server);
        stream.write_all(b"get").unwrap();
        for _ in 0..60 {
            if stream.write_all(&piece).is_err() {
                break;
            }
        }
        stream.set_nonblocking(true).unwrap();
        stream
    };
    let mut endless: Vec<_> = (0..20).map(begin).collect();
    // Refused: closed, after a word if that got through; else it waits for more.
    let is_refused = |stream: &mut TcpStream| {
        let mut answer = [0; 100];
        match stream.read(&mut answer) {
            Ok(0) => true,
            Ok(n) => {
                let word = String::from_utf8_lossy(&answer[..n]);
                assert_eq!(word, "SERVER_ERROR out of memory reading request\r\n");
                true
            }
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    };
    eventually(|| {
        endless.retain_mut(|stream| !is_refused(stream));
        endless.len() <= 5
    });
    let mut honest = connect(&server);
    ask(&mut honest, &set("here", 3, ""), "STORED\r\n");
    let keys: String = (0..5000).map(|number| format!(" a-key-of-an-honest-length:{number}")).collect();
    ask(&mut honest, format!("get{keys} here\r\n").as_bytes(), "VALUE here 0 3\r\nvvv\r\nEND\r\n");
    drop(endless);
    ask(&mut honest, b"get here\r\n", "VALUE here 0 3\r\nvvv\r\nEND\r\n");
}

#[test]
fn slow_readers_of_what_is_gone_evict_nothing() {
    let server = start("-m 64");
    let mut writer = connect(&server);
    let readers: Vec<_> = (0..60)
        .map(|number| {
            let key = format!("gone:{number}");
            ask(&mut writer, &set(&key, 1_000_000, ""), "STORED\r\n");
            let mut reader = connect(&server);
            reader.write_all(format!("get {key}\r\n").repeat(20).as_bytes()).unwrap();
            let mut first = [0; 5];
            reader.read_exact(&mut first).unwrap();
            ask(&mut writer, format!("delete {key}\r\n").as_bytes(), "DELETED\r\n");
            reader
        })
        .collect();
    fill(&server, 30_000, 1000);
    assert_eq!(stat(&server, "evictions"), 0);
    assert_eq!(stat(&server, "curr_items"), 30_000);
    drop(readers);
}

#[test]
fn changes_of_large_values_share_the_time_with_others() {
    let server = start("-m 64 -t 1");
    let mut stream = connect(&server);
    ask(&mut stream, &set("large", 900_000, ""), "STORED\r\n");
    stream.write_all(b"append large 0 0 1\r\nx\r\n".repeat(40).as_slice()).unwrap();
    let mut got = vec![0; 40 * b"STORED\r\n".len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(got, b"STORED\r\n".repeat(40));
    // Each is as much work as a turn may take.
    assert!(stat(&server, "conn_yields") >= 30, "{} turns", stat(&server, "conn_yields"));
}
