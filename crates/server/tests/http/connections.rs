//! What becomes of connections: slow clients, many of them, and those that send too much or read too little.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use larder_conformance::server::eventually;

use crate::server::{Larderd, request};

#[test]
fn connections_stay_open_and_requests_may_be_pipelined() {
    let server = Larderd::start(&[]);
    let mut client = server.connect();
    let mut requests = String::new();
    for n in 0..500 {
        requests += &request(&format!("PUT /v1/items/{n}"), "", &format!("value {n}"));
        requests += &request(&format!("GET /v1/items/{n}"), "", "");
    }
    client.send(&requests);
    for n in 0..500 {
        assert_eq!(client.receive().expect("it is kept").status, 201);
        assert_eq!(client.receive().expect("it is kept").content, format!("value {n}").into_bytes());
    }
    client.send(&request("GET /v1/items/0", "Connection: close\r\n", ""));
    let response = client.receive().expect("the last one");
    assert!(response.head.contains("\r\nconnection: close\r\n"));
    assert!(client.receive().is_none());
}

#[test]
fn statistics_count_requests() {
    let server = Larderd::start(&[]);
    server.ask("PUT /v1/items/a", "", "x");
    server.ask("GET /v1/items/a", "", "");
    server.ask("GET /v1/items/b", "", "");
    for (name, value) in [("cmd_set", "1"), ("cmd_get", "2"), ("get_hits", "1"), ("get_misses", "1")] {
        assert_eq!(server.stat(name), value, "{name}");
    }
    let connections = || server.stat("curr_connections").parse::<u32>().expect("a number");
    let mut clients: Vec<_> = (0..10).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(&request("GET /v1/items/a", "", ""));
        assert_eq!(client.receive().expect("an answer").status, 200);
    }
    let with_clients = connections();
    drop(clients);
    eventually(|| connections() + 10 <= with_clients);
}

#[test]
fn a_client_beyond_the_limit_is_told_so() {
    let server = Larderd::start(&["-c", "2"]);
    let mut clients = [server.connect(), server.connect()];
    for client in &mut clients {
        client.send(&request("GET /v1/items/a", "", ""));
        assert_eq!(client.receive().expect("an answer").status, 404);
    }
    let mut third = server.connect();
    assert_eq!(third.receive().expect("an answer").status, 503);
    assert!(third.receive().is_none());
}

#[test]
fn idle_connections_are_closed_and_others_are_not() {
    let server = Larderd::start(&["-o", "idle_timeout=1"]);
    // A value that is arriving is no pause between requests.
    let mut slow = server.connect();
    slow.send("PUT /v1/items/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\na");
    let mut unfinished = server.connect();
    unfinished.send("GET /v1/items/a HT");
    let mut idle = server.connect();
    assert!(idle.receive().is_none());
    assert!(unfinished.receive().is_none());
    slow.send("bc");
    assert_eq!(slow.receive().expect("an answer").status, 201);
    eventually(|| server.stat("idle_kicks").parse::<u32>().expect("a number") >= 2);
}

#[test]
fn clients_that_send_slowly_or_read_nothing_delay_nobody() {
    let server = Larderd::start(&["-t", "1", "-m", "64"]);
    let value = "v".repeat(900_000);
    assert_eq!(server.ask("PUT /v1/items/large", "", &value).status, 201);
    let mut slow = server.connect();
    let mut deaf = server.connect();
    let list = format!("GET /v1/items?{}", vec!["key=large"; 40].join("&"));
    deaf.send(&request(&list, "", ""));
    let asked = request("PUT /v1/items/slow", "Larder-Flags: 4\r\n", "slow");
    for byte in asked.chars() {
        slow.send(&byte.to_string());
        assert_eq!(server.ask("GET /v1/items/none", "", "").status, 404);
    }
    assert_eq!(slow.receive().expect("an answer").status, 201);
    // All that was announced comes, once it is read: 40 records, in chunks.
    let mut received = Vec::new();
    let mut piece = vec![0; 1 << 20];
    while !received.ends_with(b"\r\nEND\r\n\r\n0\r\n\r\n") {
        let n = deaf.0.read(&mut piece).expect("it goes on");
        assert!(n > 0, "the end is missing");
        received.extend_from_slice(&piece[..n]);
    }
    assert!(received.len() > 40 * value.len());
    let records = received.windows(12).filter(|window| window == b"VALUE large ").count();
    assert_eq!(records, 40);
}

#[test]
fn lengths_that_are_only_announced_take_no_memory() {
    let server = Larderd::start(&["-m", "64", "-I", "32m"]);
    let before = server.server.resident_bytes().expect("it runs");
    let head = "PUT /v1/items/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30000000\r\n\r\nabc";
    let mut clients: Vec<_> = (0..100).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(head));
    let mut long: Vec<_> = (0..100).map(|_| server.connect()).collect();
    let unfinished = format!("GET /v1/items/a HTTP/1.1\r\nX: {}", "x".repeat(16_000));
    long.iter_mut().for_each(|client| client.send(&unfinished));
    let received = || server.stat("bytes_read").parse::<usize>().expect("a number");
    eventually(|| received() >= 100 * (head.len() + unfinished.len()));
    assert_eq!(server.ask("GET /v1/items/a", "", "").status, 404);
    let grown = server.server.resident_bytes().expect("it runs").saturating_sub(before);
    assert!(grown < 40 << 20, "{grown}");
    drop(clients);
    // A head that does not end is refused at 16 KiB.
    let mut client = long.pop().expect("there are some");
    client.send(&"x".repeat(1000));
    assert_eq!(client.receive().expect("an answer").status, 431);
    assert!(client.receive().is_none());
}

#[test]
fn whoever_expects_to_be_told_is_told_before_the_content() {
    let server = Larderd::start(&[]);
    let mut client = server.connect();
    let head = "PUT /v1/items/a HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n";
    client.send(&format!("{head}Content-Length: 5\r\n\r\n"));
    assert_eq!(client.receive().expect("it is told").status, 100);
    client.send("hello");
    assert_eq!(client.receive().expect("an answer").status, 201);
    client.send(&format!("{head}Content-Length: 5000000\r\n\r\n"));
    assert_eq!(client.receive().expect("an answer").status, 413);
    assert!(client.receive().is_none());
}

/// The server takes what comes for a second.
const SENDS_ON_MAX: Duration = Duration::from_millis(500);

/// A program that sends everything before it reads must not meet a closed connection.
#[test]
fn a_client_that_sends_on_reads_why_it_is_refused() {
    let server = Larderd::start(&[]);
    let mut client = server.connect();
    let since = Instant::now();
    client.send("PUT /v1/items/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    // It has been refused by now.
    client.0.get_mut().peek(&mut [0]).expect("an answer");
    for _ in (0..20).take_while(|_| since.elapsed() < SENDS_ON_MAX) {
        client.send(&format!("1000\r\n{}\r\n", "v".repeat(4096)));
        // So that a reset would have arrived before the next write.
        assert_eq!(server.ask("GET /v1/items/a", "", "").status, 404);
    }
    assert_eq!(client.receive().expect("an answer").status, 411);
    assert!(client.receive().is_none());
}

/// Nor one that has asked for the end itself, and does not keep to it.
#[test]
fn a_client_that_sends_on_after_the_last_request_reads_its_answer() {
    let server = Larderd::start(&[]);
    for last in [
        "GET /v1/items/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "GET /v1/items/a HTTP/1.0\r\nHost: localhost\r\n\r\n",
        "PUT /v1/items/b HTTP/1.0\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx",
    ] {
        let mut client = server.connect();
        let since = Instant::now();
        client.send(&format!("{last}{}", request("GET /v1/items/a", "", "")));
        client.0.get_mut().peek(&mut [0]).expect("an answer");
        for _ in (0..20).take_while(|_| since.elapsed() < SENDS_ON_MAX) {
            client.send(&request("PUT /v1/items/a", "", &"v".repeat(4096)));
            assert_eq!(server.ask("GET /v1/items/a", "", "").status, 404);
        }
        let response = client.receive().expect("an answer");
        assert!([201, 404].contains(&response.status), "{last}");
        assert!(response.head.contains("\r\nconnection: close\r\n"), "{last}");
        assert!(client.receive().is_none());
    }
}

#[test]
fn a_graceful_end_finishes_requests() {
    let server = Larderd::start(&["-A"]);
    let mut client = server.connect();
    client.send(&request("PUT /v1/items/a", "", "x"));
    assert_eq!(client.receive().expect("an answer").status, 201);
    let mut text = server.server.connect().expect("larderd listens");
    text.set_read_timeout(Some(Duration::from_secs(60))).expect("it is no zero");
    text.write_all(b"shutdown graceful\r\n").expect("larderd reads");
    assert!(client.receive().is_none());
}

/// "Append; if there is no such item, store" must not overwrite one that is there.
#[test]
fn an_append_that_cannot_be_made_is_told_from_one_to_no_item() {
    let server = Larderd::start(&[]);
    assert_eq!(server.ask("PUT /v1/items/large", "", &"a".repeat(1_000_000)).status, 201);
    for headers in ["", "If-Match: *\r\n"] {
        for operation in ["append", "prepend"] {
            let first = format!("POST /v1/items/large?op={operation}");
            assert_eq!(
                server.ask(&first, headers, &"b".repeat(60_000)).status,
                413,
                "{operation} {headers:?}"
            );
        }
    }
    assert_eq!(server.ask("GET /v1/items/large", "", "").content.len(), 1_000_000);
    assert_eq!(server.ask("POST /v1/items/none?op=append", "", "b").status, 404);
}

#[test]
fn a_number_is_not_created_where_one_is_expected() {
    let server = Larderd::start(&[]);
    for tag in ["*", "\"5\""] {
        let answer = server.ask("POST /v1/items/n?op=incr&initial=3", &format!("If-Match: {tag}\r\n"), "");
        assert_eq!(answer.status, 404, "{tag}");
    }
    assert_eq!(server.ask("GET /v1/items/n", "", "").status, 404);
    assert_eq!(server.ask("POST /v1/items/n?op=incr&initial=3", "", "").status, 200);
}

/// What follows may be taken for another request by what stands in front.
#[test]
fn a_control_character_in_the_target_ends_the_connection() {
    let server = Larderd::start(&[]);
    for control in ["\r", "\0", "\t", "\x0b", "\x1b[2J", "\x7f"] {
        let mut client = server.connect();
        client.send(&request(&format!("GET /v1/items/a{control}X:"), "", ""));
        client.send(&request("PUT /v1/items/smuggled", "", "x"));
        assert_eq!(client.receive().expect("an answer").status, 400, "{control:?}");
        assert!(client.receive().is_none(), "{control:?}");
    }
    assert_eq!(server.ask("GET /v1/items/smuggled", "", "").status, 404);
}

#[test]
fn a_refused_client_that_sends_no_more_is_idle() {
    let folder = larder_conformance::folder::Folder::create();
    let token = folder.write("token", "0123456789abcdef0123456789abcdef");
    let server =
        Larderd::start(&["-o", "idle_timeout=1", "--http-token-file", token.to_str().expect("it is text")]);
    let mut client = server.connect();
    client.send("PUT /v1/items/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n");
    assert_eq!(client.receive().expect("an answer").status, 401);
    assert!(client.receive().is_none());
}
