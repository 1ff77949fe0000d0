//! HTTP, whatever pieces the requests arrive in. Expected responses: docs/http.md, RFC 9110 and RFC 9112.

use std::fmt::Write as _;

use larder_protocol::Dialect;
use larder_server::startup::settings::Settings;

use crate::harness::{Client, Server};
use crate::small;
use crate::splits::{assert_same, for_each_split_told};

/// The headers of every response.
const FENCES: &str = "Cache-Control: no-cache\r\nX-Content-Type-Options: nosniff\r\n\
                      Cross-Origin-Resource-Policy: same-origin\r\n";

/// A request with a Host and these lines.
fn request(first: &str, headers: &str, content: &str) -> String {
    format!("{first} HTTP/1.1\r\nHost: a\r\n{headers}\r\n{content}")
}

fn put(key: &str, headers: &str, value: &str) -> String {
    request(&format!("PUT /v1/items/{key}"), &format!("{headers}Content-Length: {}\r\n", value.len()), value)
}

fn get(key: &str) -> String {
    request(&format!("GET /v1/items/{key}"), "", "")
}

fn post(query: &str, headers: &str, content: &str) -> String {
    let length = format!("{headers}Content-Length: {}\r\n", content.len());
    request(&format!("POST /v1/items/{query}"), &length, content)
}

fn response(status: &str, headers: &str, content: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{FENCES}{headers}\r\n{content}")
}

fn created() -> String {
    response("201 Created", "Content-Length: 0\r\n", "")
}

fn done() -> String {
    response("204 No Content", "", "")
}

fn hit(value: &str, flags: u32, ttl_secs: u32) -> String {
    let headers = format!(
        "Content-Type: application/octet-stream\r\nContent-Length: {}\r\n\
         Larder-Flags: {flags}\r\nLarder-TTL: {ttl_secs}\r\n",
        value.len()
    );
    response("200 OK", &headers, value)
}

fn number(number: &str, ttl_secs: u32) -> String {
    let length = number.len();
    let headers =
        format!("Content-Type: text/plain\r\nContent-Length: {length}\r\nLarder-TTL: {ttl_secs}\r\n");
    response("200 OK", &headers, number)
}

/// A response for people; what it tells them is left out of the comparison.
fn refusal(status: &str) -> String {
    response(status, "Content-Type: text/plain\r\n", "")
}

fn closing(status: &str) -> String {
    response(status, "Connection: close\r\nContent-Type: text/plain\r\n", "")
}

/// Without what differs between runs (tags), what depends on the pieces (100 Continue), and the words for people.
fn told(replies: &[u8]) -> Vec<u8> {
    let mut rest = replies;
    let mut told = Vec::new();
    while let Some(at) = rest.windows(4).position(|end| end == b"\r\n\r\n") {
        let (head, after) = rest.split_at(at + 4);
        let head = String::from_utf8(head.to_vec()).expect("a head is text");
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let length: usize = length.map_or(0, |length| length.parse().expect("a number"));
        let is_for_people = head.contains("text/plain") && !head.starts_with("HTTP/1.1 200");
        let (content, after) = after.split_at(length.min(after.len()));
        rest = after;
        if head.starts_with("HTTP/1.1 100") {
            continue;
        }
        let left_out =
            |line: &str| line.starts_with("ETag:") || is_for_people && line.starts_with("Content-Length:");
        let lines = head.split_inclusive("\r\n").filter(|line| !left_out(line));
        lines.for_each(|line| told.extend_from_slice(line.as_bytes()));
        if !is_for_people {
            told.extend_from_slice(content);
        }
        if head.contains("chunked") {
            let end = rest.windows(5).position(|end| end == b"0\r\n\r\n").expect("a last chunk") + 5;
            told.extend_from_slice(&rest[..end]);
            rest = &rest[end..];
        }
    }
    told.extend_from_slice(rest);
    told
}

#[track_caller]
fn converse(input: &str, replies: &str) {
    converse_with(&small(), input, replies, false);
}

#[track_caller]
fn converse_with(settings: &Settings, input: &str, replies: &str, is_closed: bool) {
    for_each_split_told(settings, Some(Dialect::Http), input.as_bytes(), replies.as_bytes(), is_closed, told);
}

#[test]
fn storing_and_getting() {
    converse(
        &[
            get("a"),
            put("a", "Larder-Flags: 5\r\nLarder-TTL: 100\r\n", "abc"),
            get("a"),
            put("a", "", "\r\n\r\n"),
            get("%61"),
            request("DELETE /v1/items/a", "", ""),
            request("DELETE /v1/items/a", "Content-Length: 0\r\n", ""),
            put("a%20b%2F%00", "", ""),
            get("a%20b%2f%00"),
        ]
        .concat(),
        &[
            refusal("404 Not Found"),
            created(),
            hit("abc", 5, 100),
            done(),
            hit("\r\n\r\n", 0, 0),
            done(),
            refusal("404 Not Found"),
            created(),
            hit("", 0, 0),
        ]
        .concat(),
    );
}

/// The length of what GET sends, and nothing of it.
#[test]
fn head_is_get_without_content() {
    let input = format!("{}{}", put("a", "", "abc"), request("HEAD /v1/items/a", "", ""));
    let replies = format!("{}{}", created(), hit("abc", 0, 0));
    converse(&input, replies.strip_suffix("abc").expect("its content"));
    let list = request("HEAD /v1/items?key=a", "", "");
    let headers = "Content-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n";
    let mut server = Server::new(small());
    let mut client = Client::speaking(Dialect::Http);
    server.receive(&mut client, format!("{}{list}", put("a", "", "abc")).as_bytes());
    assert!(client.replies.ends_with(response("200 OK", headers, "").as_bytes()));
    client.replies.clear();
    server.receive(&mut client, request("HEAD /v1/items/none", "", "").as_bytes());
    assert!(client.replies.starts_with(b"HTTP/1.1 404") && client.replies.ends_with(b"\r\n\r\n"));
}

#[test]
fn changing() {
    converse(
        &[
            post("a?op=append", "", "x"),
            post("n?op=incr", "", ""),
            post("n?op=incr&initial=7&delta=5", "Larder-TTL: 50\r\n", ""),
            post("n?op=incr&initial=7&delta=5", "", ""),
            request("POST /v1/items/n?op=decr&delta=100", "", ""),
            put("a", "Larder-Flags: 3\r\n", "b"),
            post("a?op=append", "", "c"),
            post("a?op=prepend", "", "a"),
            post("a?op=touch", "Larder-TTL: 70\r\n", ""),
            get("a"),
            post("a?op=incr", "", ""),
            post("a?op=touch", "", ""),
            post("%62?op=touch", "Larder-TTL: 1\r\n", ""),
        ]
        .concat(),
        &[
            refusal("404 Not Found"),
            refusal("404 Not Found"),
            number("7", 50),
            number("12", 50),
            // As memcached: a number does not become shorter, but is padded with spaces in the cache.
            number("0", 50),
            created(),
            done(),
            done(),
            done(),
            hit("abc", 3, 70),
            refusal("409 Conflict"),
            refusal("400 Bad Request"),
            refusal("404 Not Found"),
        ]
        .concat(),
    );
}

#[test]
fn conditions() {
    let none = "If-None-Match: *\r\n";
    let any = "If-Match: *\r\n";
    converse(
        &[
            put("a", any, "x"),
            put("a", "If-Match: \"1\"\r\n", "x"),
            put("a", none, "x"),
            put("a", none, "y"),
            put("a", any, "z"),
            put("a", "If-Match: \"0\"\r\n", "y"),
            put("a", "If-Match: W/\"1\"\r\n", "y"),
            put("a", "If-Match: 1\r\n", "y"),
            put("a", "If-None-Match: \"1\"\r\n", "y"),
            put("a", &format!("{any}{none}"), "y"),
            request("GET /v1/items/a", none, ""),
            request("GET /v1/items/b", none, ""),
            request("GET /v1/items/a", any, ""),
            request("GET /v1/items/a", "If-Match: \"0\"\r\n", ""),
            request("GET /v1/items/b", "If-Match: \"0\"\r\n", ""),
            request("DELETE /v1/items/b", "If-Match: \"1\"\r\n", ""),
            request("DELETE /v1/items/b", any, ""),
            request("DELETE /v1/items/a", any, ""),
        ]
        .concat(),
        &[
            refusal("412 Precondition Failed"),
            refusal("412 Precondition Failed"),
            created(),
            refusal("412 Precondition Failed"),
            done(),
            refusal("412 Precondition Failed"),
            refusal("412 Precondition Failed"),
            refusal("400 Bad Request"),
            refusal("400 Bad Request"),
            refusal("400 Bad Request"),
            response("304 Not Modified", "", ""),
            refusal("404 Not Found"),
            hit("z", 0, 0),
            refusal("412 Precondition Failed"),
            refusal("404 Not Found"),
            refusal("404 Not Found"),
            refusal("404 Not Found"),
            done(),
        ]
        .concat(),
    );
}

#[test]
fn tags_name_one_state_of_an_item() {
    let mut server = Server::new(small());
    let mut client = Client::speaking(Dialect::Http);
    let mut ask = |request: &str| {
        client.replies.clear();
        server.receive(&mut client, request.as_bytes());
        let reply = String::from_utf8(client.replies.clone()).expect("it is text");
        let tag = reply.lines().find_map(|line| line.strip_prefix("ETag: ")).map(str::to_owned);
        (reply[9..12].to_owned(), tag)
    };
    let conditional = |first: &str, tag: &str| request(first, tag, "");
    let (status, first) = ask(&put("a", "", "1"));
    let first = first.expect("a tag");
    assert_eq!(status, "201");
    assert_eq!(ask(&get("a")), ("200".to_owned(), Some(first.clone())));
    let none_match = format!("If-None-Match: \"x\", W/{first}\r\n");
    assert_eq!(ask(&conditional("GET /v1/items/a", &none_match)), ("304".to_owned(), Some(first.clone())));
    assert_eq!(ask(&conditional("HEAD /v1/items/a", &none_match)), ("304".to_owned(), Some(first.clone())));
    let (status, second) = ask(&put("a", &format!("If-Match: {first}\r\n"), "2"));
    let second = second.expect("a tag");
    assert_eq!(status, "204");
    assert_ne!(first, second);
    for refused in [
        put("a", &format!("If-Match: {first}\r\n"), "3"),
        conditional("DELETE /v1/items/a", &format!("If-Match: {first}\r\n")),
        conditional("GET /v1/items/a", &format!("If-Match: {first}\r\n")),
        post("a?op=incr", &format!("If-Match: {first}\r\n"), ""),
        post("a?op=append", &format!("If-Match: {first}\r\n"), "3"),
    ] {
        assert_eq!(ask(&refused).0, "412", "{refused}");
    }
    let (status, third) = ask(&post("a?op=incr&delta=3", &format!("If-Match: {second}\r\n"), ""));
    let third = third.expect("a tag");
    assert_eq!(status, "200");
    assert_eq!(ask(&post("a?op=append", &format!("If-Match: {second}\r\n"), "0")).0, "412");
    let (status, fourth) = ask(&post("a?op=append", &format!("If-Match: {third}\r\n"), "0"));
    assert_eq!(status, "204");
    let last = format!("If-Match: {}\r\n", fourth.expect("a tag"));
    assert_eq!(ask(&conditional("DELETE /v1/items/a", &last)).0, "204");
    assert_eq!(ask(&get("a")).0, "404");
}

#[test]
fn without_cas_values_there_are_no_tags() {
    let settings = Settings { cas: false, ..small() };
    converse_with(
        &settings,
        &[put("a", "", "x"), put("a", "If-Match: \"1\"\r\n", "y"), put("b", "If-Match: \"1\"\r\n", "y")]
            .concat(),
        &[created(), refusal("412 Precondition Failed"), refusal("412 Precondition Failed")].concat(),
        false,
    );
    let mut server = Server::new(settings);
    let mut client = Client::speaking(Dialect::Http);
    server.receive(&mut client, format!("{}{}", put("a", "", "x"), get("a")).as_bytes());
    assert!(!client.replies.windows(4).any(|word| word == b"ETag"));
}

#[test]
fn many_keys_in_one_request() {
    let chunk = |record: &str| format!("{:X}\r\n{record}\r\n", record.len());
    let list = |chunks: &[String]| {
        let headers = "Content-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n";
        response("200 OK", headers, &format!("{}{}0\r\n\r\n", chunks.concat(), chunk("END\r\n")))
    };
    // More than the output of several turns.
    let value = "v".repeat(90_000);
    let mut input = put("a%20%C3%A9", "Larder-Flags: 7\r\n", "x");
    let mut replies = created();
    for n in 0..9 {
        write!(input, "{}", put(&format!("key{n}"), "", &value)).expect("memory");
        replies.push_str(&created());
    }
    let keys: String = (0..10).map(|n| format!("key=key{n}&")).collect();
    write!(input, "{}", request(&format!("GET /v1/items?{keys}key=a%20%C3%A9"), "", "")).expect("memory");
    let records: Vec<String> = (0..9).map(|n| format!("VALUE key{n} 0 90000 0\r\n{value}\r\n")).collect();
    let mut chunks: Vec<String> = records.iter().map(|record| chunk(record)).collect();
    chunks.push(chunk("VALUE a%20%C3%A9 7 1 0\r\nx\r\n"));
    replies.push_str(&list(&chunks));
    input.push_str(&request("GET /v1/items?key=none", "", ""));
    replies.push_str(&list(&[]));
    input.push_str(&get("none"));
    replies.push_str(&refusal("404 Not Found"));
    // Tags are never the same.
    let settings = Settings { memory_bytes: 64 << 20, cas: false, ..small() };
    converse_with(&settings, &input, &replies, false);
    // HTTP/1.0 knows no chunks.
    let head = "Connection: close\r\nContent-Type: application/octet-stream\r\n";
    converse_with(
        &Settings { cas: false, ..small() },
        &format!("{}GET /v1/items?key=a&key=b HTTP/1.0\r\n\r\n{}", put("a", "", "x"), get("a")),
        &format!("{}{}", created(), response("200 OK", head, "VALUE a 0 1 0\r\nx\r\nEND\r\n")),
        true,
    );
}

#[test]
fn large_values() {
    let settings = Settings { memory_bytes: 64 << 20, ..small() };
    let value = "L".repeat(700_000);
    let input = [
        put("a", "Larder-Flags: 1\r\n", &value),
        get("a"),
        put("b", "Expect: 100-continue\r\n", &value),
        put("c", "Expect: 100-continue\r\n", "small"),
        post("b?op=append", "", "M"),
        get("c"),
        get("b"),
    ];
    let replies = [
        created(),
        hit(&value, 1, 0),
        created(),
        created(),
        done(),
        hit("small", 0, 0),
        hit(&format!("{value}M"), 0, 0),
    ];
    converse_with(&settings, &input.concat(), &replies.concat(), false);
}

#[test]
fn a_client_that_waits_is_told_to_go_on_once() {
    let request = put("a", "Expect: 100-Continue\r\n", "abc");
    let head_bytes = request.len() - 3;
    for whole_at_once in [false, true] {
        let mut server = Server::new(small());
        let mut client = Client::speaking(Dialect::Http);
        let pieces: Vec<&[u8]> = match whole_at_once {
            true => vec![request.as_bytes()],
            false => request.as_bytes().chunks(1).collect(),
        };
        for (at, piece) in pieces.into_iter().enumerate() {
            server.receive(&mut client, piece);
            if !whole_at_once && at + 1 == head_bytes {
                assert_same(&client.replies, b"HTTP/1.1 100 Continue\r\n\r\n", "before the content");
            }
        }
        let replies = String::from_utf8(client.replies).expect("it is text");
        assert_eq!(replies.matches("100 Continue").count(), usize::from(!whole_at_once));
        assert_eq!(replies.matches("HTTP/1.1 201 Created").count(), 1);
    }
}

#[test]
fn too_much_is_refused() {
    let settings = Settings { memory_bytes: 8 << 20, item_bytes_max: 100_000, ..small() };
    let value = "L".repeat(100_000);
    // As a set: nobody reads a value that its owner meant to be gone. A condition keeps it.
    let input = [
        put("a", "", "x"),
        put("a", "If-Match: *\r\n", &value),
        get("a"),
        put("a", "", &value),
        get("a"),
        post("a?op=append", "", &value),
    ];
    let too_large = refusal("413 Content Too Large");
    let replies = [
        created(),
        too_large.clone(),
        hit("x", 0, 0),
        too_large.clone(),
        refusal("404 Not Found"),
        too_large,
    ];
    converse_with(&settings, &input.concat(), &replies.concat(), false);
    // Whether the content follows is not known.
    converse_with(
        &settings,
        &(put("a", "Expect: 100-continue\r\n", &value) + &get("a")),
        &closing("413 Content Too Large"),
        true,
    );
    let settings = Settings { memory_bytes: 1 << 20, evict: false, ..small() };
    let value = "A".repeat(524_288);
    let input = [put("a", "If-None-Match: *\r\n", &value), put("b", "", &value), get("b")];
    let replies = [created(), refusal("507 Insufficient Storage"), refusal("404 Not Found")];
    converse_with(&settings, &input.concat(), &replies.concat(), false);
}

/// Where a request ends is certain: the next one is served.
#[test]
fn refusals_skip_the_content_of_their_request() {
    let content = "Content-Length: 25\r\n";
    let smuggled = "GET /v1/items/a HTTP/1.1\r\n";
    let refused =
        |first: &str, headers: &str| request(first, &format!("{headers}{content}"), &smuggled[..25]);
    for (request, status) in [
        (refused("PUT /v1/items/", ""), "400 Bad Request"),
        (refused("PUT /v1/items/a/b", ""), "400 Bad Request"),
        (refused("PUT /v1/items/a?x", ""), "400 Bad Request"),
        (refused("PUT /v1/items/%zz", ""), "400 Bad Request"),
        (refused("PUT a", ""), "400 Bad Request"),
        (refused("PUT /else", ""), "404 Not Found"),
        (refused("PUT /v1/items?key=a", ""), "405 Method Not Allowed"),
        (refused("PATCH /v1/items/a", ""), "405 Method Not Allowed"),
        (refused("OPTIONS *", ""), "405 Method Not Allowed"),
        (refused("PUT /v1/items/a", "Origin: http://evil.example\r\n"), "403 Forbidden"),
        (refused("PUT /v1/items/a", "Sec-Fetch-Site: cross-site\r\n"), "403 Forbidden"),
        (refused("PUT /v1/items/a", "Larder-TTL: -1\r\n"), "400 Bad Request"),
        (refused("PUT /v1/items/a", "Larder-TTL: 2592001\r\n"), "400 Bad Request"),
        (refused("PUT /v1/items/a", "Larder-Flags: 4294967296\r\n"), "400 Bad Request"),
        (refused("PUT /v1/items/a", "Content-Encoding: gzip\r\n"), "415 Unsupported Media Type"),
        (refused("PUT /v1/items/a", "Content-Range: bytes 0-24/50\r\n"), "400 Bad Request"),
        (refused("POST /v1/items/a?op=append", "If-None-Match: *\r\n"), "400 Bad Request"),
        (refused("POST /v1/items/a?op=set", ""), "400 Bad Request"),
    ] {
        let (input, mut replies) = (request + &get("a"), refusal(status) + &refusal("404 Not Found"));
        if status.starts_with("405") {
            let allow = if input.starts_with("PUT") { "GET, HEAD" } else { "GET, HEAD, PUT, DELETE, POST" };
            replies = replies.replacen("\r\nContent-Type", &format!("\r\nAllow: {allow}\r\nContent-Type"), 1);
        }
        converse(&input, &replies);
    }
}

/// Where a request ends is not certain, or two readers could disagree: nothing after it is served.
#[test]
fn uncertain_requests_end_the_connection() {
    let chunk = "0\r\n\r\n";
    let bad = |lines: &str| format!("PUT /v1/items/a HTTP/1.1\r\nHost: a\r\n{lines}\r\n{chunk}");
    let long = "x".repeat(17_000);
    for (request, status) in [
        (bad("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), "400 Bad Request"),
        (bad("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), "400 Bad Request"),
        (bad("Content-Length: 5\r\nContent-Length: 6\r\n"), "400 Bad Request"),
        (bad("Content-Length: 5\r\nContent-Length: 5\r\n"), "400 Bad Request"),
        (bad("Content-Length: 5, 5\r\n"), "400 Bad Request"),
        (bad("Content-Length: +5\r\n"), "400 Bad Request"),
        (bad("Content-Length: -5\r\n"), "400 Bad Request"),
        (bad("Content-Length: 0x5\r\n"), "400 Bad Request"),
        (bad("Content-Length: 5 5\r\n"), "400 Bad Request"),
        (bad("Content-Length:\r\n"), "400 Bad Request"),
        (bad("Content-Length: 4294967296\r\n"), "413 Content Too Large"),
        (bad("Content-Length: 99999999999999999999999\r\n"), "413 Content Too Large"),
        (bad(""), "411 Length Required"),
        (bad("Transfer-Encoding: chunked\r\n"), "411 Length Required"),
        (bad("Transfer-Encoding: gzip, chunked\r\n"), "501 Not Implemented"),
        (bad("Transfer-Encoding: identity\r\n"), "501 Not Implemented"),
        (bad("Transfer-Encoding: xchunked\r\n"), "501 Not Implemented"),
        (bad("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), "501 Not Implemented"),
        (bad("Content-Length : 5\r\n"), "400 Bad Request"),
        (bad("Content-Length\t: 5\r\n"), "400 Bad Request"),
        (bad(" Content-Length: 5\r\n"), "400 Bad Request"),
        (bad("X: y\r\n Content-Length: 5\r\n"), "400 Bad Request"),
        (bad("Content-Length: 5\nX: y\r\n"), "400 Bad Request"),
        (bad("Content-Length: 5\rX: y\r\n"), "400 Bad Request"),
        (bad("Content-Length: 5\0\r\n"), "400 Bad Request"),
        (bad("X\0: y\r\nContent-Length: 5\r\n"), "400 Bad Request"),
        (bad("X\r\nContent-Length: 5\r\n"), "400 Bad Request"),
        (bad("Content-Length: 5\r\nHost: a\r\n"), "400 Bad Request"),
        (bad("Content-Length: 5\r\nExpect: 200-ok\r\n"), "417 Expectation Failed"),
        (bad(&format!("X: {long}\r\n")), "431 Request Header Fields Too Large"),
        (format!("GET /v1/items/{long} HTTP/1.1\r\nHost: a\r\n\r\n"), "431 Request Header Fields Too Large"),
        ("GET /v1/items/a HTTP/1.1\r\n\r\n".to_owned(), "400 Bad Request"),
        ("GET /v1/items/a HTTP/1.1\r\nHost: u@a\r\n\r\n".to_owned(), "400 Bad Request"),
        ("GET /v1/items/a HTTP/1.1\r\nHost: a/b\r\n\r\n".to_owned(), "400 Bad Request"),
        ("GET /v1/items/a HTTP/2.0\r\nHost: a\r\n\r\n".to_owned(), "505 HTTP Version Not Supported"),
        ("GET /v1/items/a\r\n\r\n".to_owned(), "400 Bad Request"),
        ("GET  /v1/items/a HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), "400 Bad Request"),
        ("GET /v1/items/a HTTP/1.1 \r\nHost: a\r\n\r\n".to_owned(), "400 Bad Request"),
        ("GET /v1/items/a http/1.1\r\nHost: a\r\n\r\n".to_owned(), "400 Bad Request"),
        ("GET\t/v1/items/a\tHTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), "400 Bad Request"),
        ("\r\n\r\nGET /v1/items/a HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), "400 Bad Request"),
        ("GET /v1/items/a HTTP/1.1\nHost: a\n\n".to_owned(), "400 Bad Request"),
        ("get a\r\nGET /v1/items/a HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), "400 Bad Request"),
        ("\u{16}\u{3}\u{1}".to_owned(), "400 Bad Request"),
        ("GET /v1/items/a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(), "400 Bad Request"),
        ("GET /v1/items/a HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n".to_owned(), "400 Bad Request"),
        (request("GET /v1/items/a", "Content-Length: 5\r\n", chunk), "400 Bad Request"),
        (request("DELETE /v1/items/a", "Content-Length: 5\r\n", chunk), "400 Bad Request"),
        (request("POST /v1/items/a?op=incr", "Content-Length: 5\r\n", chunk), "400 Bad Request"),
    ] {
        let input = request + &put("a", "", "smuggled");
        converse_with(&small(), &input, &closing(status), true);
    }
    // The answer says which methods there are, even to this one.
    let allow = closing("405 Method Not Allowed")
        .replace("\r\nContent-Type", "\r\nAllow: GET, HEAD, PUT, DELETE, POST\r\nContent-Type");
    let input = format!("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n{}", get("a"));
    converse_with(&small(), &input, &allow, true);
}

#[test]
fn targets_and_versions_that_are_served() {
    converse(
        &format!(
            "{}GET http://other:1/v1/items/a HTTP/1.1\r\nHost: a\r\n\r\n\r\n\
             {}GET /v1/items/a HTTP/1.9\r\nHOST:\ta\t\r\n\r\n",
            put("a", "", "x"),
            get("a")
        ),
        &[created(), hit("x", 0, 0), hit("x", 0, 0), hit("x", 0, 0)].concat(),
    );
    let close =
        |response: String| response.replace("\r\nContent-Type", "\r\nConnection: close\r\nContent-Type");
    converse_with(
        &small(),
        &format!(
            "{}{}{}",
            put("a", "", "x"),
            request("GET /v1/items/a", "Connection: x, close\r\n", ""),
            get("a")
        ),
        &[created(), close(hit("x", 0, 0))].concat(),
        true,
    );
    converse_with(
        &small(),
        &format!(
            "{}GET /v1/items/a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n{}",
            put("a", "", "x"),
            get("a")
        ),
        &[created(), close(hit("x", 0, 0))].concat(),
        true,
    );
}

#[test]
fn counters_move_as_those_of_other_dialects() {
    let mut server = Server::new(small());
    let mut client = Client::speaking(Dialect::Http);
    let requests = [
        put("a", "", "1"),
        put("a", "If-None-Match: *\r\n", "1"),
        put("a", "If-Match: \"1234567\"\r\n", "1"),
        put("b", "If-Match: \"1234567\"\r\n", "1"),
        get("a"),
        get("b"),
        request("HEAD /v1/items/a", "", ""),
        request("GET /v1/items?key=a&key=b&key=a", "", ""),
        post("a?op=incr", "", ""),
        post("b?op=decr", "", ""),
        post("a?op=touch", "Larder-TTL: 9\r\n", ""),
        request("DELETE /v1/items/a", "", ""),
        request("DELETE /v1/items/a", "", ""),
    ];
    server.receive(&mut client, requests.concat().as_bytes());
    let totals = server.shared.totals();
    for (name, counted, expected) in [
        ("cmd_get", totals.cmd_get, 3 + 3),
        ("get_hits", totals.get_hits, 2 + 2),
        ("get_misses", totals.get_misses, 1 + 1),
        ("cmd_set", totals.cmd_set, 4),
        ("cas_badval", totals.cas_badval, 1),
        ("cas_misses", totals.cas_misses, 1),
        ("incr_hits", totals.incr_hits, 1),
        ("decr_misses", totals.decr_misses, 1),
        ("cmd_touch", totals.cmd_touch, 1),
        ("touch_hits", totals.touch_hits, 1),
        ("delete_hits", totals.delete_hits, 1),
        ("delete_misses", totals.delete_misses, 1),
    ] {
        assert_eq!(counted, expected, "{name}");
    }
}

/// What one dialect stores, another reads under the same key.
#[test]
fn other_dialects_see_the_same_items() {
    let mut server = Server::new(Settings { cas: false, ..small() });
    let mut http = Client::speaking(Dialect::Http);
    let mut text = Client::default();
    server.receive(&mut text, b"set b 9 0 1\r\ny\r\nms YSBi 1 b\r\nz\r\nms s 1\r\nx\r\nmd s I T100\r\n");
    server.receive(
        &mut http,
        format!("{}{}", put("a", "Larder-Flags: 5\r\n", "x"), put("c%20d", "", "w")).as_bytes(),
    );
    http.replies.clear();
    text.replies.clear();
    server.receive(&mut http, format!("{}{}{}", get("b"), get("a%20b"), get("s")).as_bytes());
    let expected = [hit("y", 9, 0), hit("z", 0, 0), hit("x", 0, 100)].concat();
    assert_same(&told(&http.replies), expected.as_bytes(), "over HTTP");
    // The key with a space is shown in base64; the right to recompute the stale item is still to be had.
    server.receive(&mut text, b"get a\r\nmg YyBk b k v\r\nmg s\r\n");
    assert_same(&text.replies, b"VALUE a 5 1\r\nx\r\nEND\r\nVA 1 kYyBk b\r\nw\r\nHD X W\r\n", "by text");
}

#[test]
fn no_input_does_harm() {
    const WORDS: &[&[u8]] = &[
        b"GET ",
        b"HEAD ",
        b"PUT ",
        b"DELETE ",
        b"POST ",
        b"OPTIONS ",
        b"/v1/items/",
        b"/v1/items?",
        b"k",
        b"key=k",
        b"&",
        b"?op=incr",
        b"?op=append",
        b"&delta=5",
        b"&initial=1",
        b"%20",
        b"%",
        b"/",
        b" HTTP/1.1\r\n",
        b" HTTP/1.0\r\n",
        b"Host: a\r\n",
        b"Content-Length: 5\r\n",
        b"Content-Length: 70000\r\n",
        b"Content-Length: ",
        b"Transfer-Encoding: chunked\r\n",
        b"If-Match: *\r\n",
        b"If-Match: \"1\"\r\n",
        b"If-None-Match: *\r\n",
        b"Expect: 100-continue\r\n",
        b"Connection: close\r\n",
        b"Larder-TTL: 9\r\n",
        b"Larder-Flags: 9\r\n",
        b"Origin: x\r\n",
        b"\r\n",
        b"\r\n\r\n",
        b"\n",
        b"\r",
        b"\0",
        b"\xff",
        b"4294967295",
        b"12345",
        b" ",
        b":",
    ];
    let mut rng = fastrand::Rng::with_seed(7);
    let mut random = |below: usize| rng.usize(..below);
    let mut server = Server::new(Settings { item_bytes_max: 90_000, ..small() });
    for _ in 0..5_000 {
        let mut client = Client { uses_windows: random(2) == 0, ..Client::speaking(Dialect::Http) };
        for _ in 0..random(30) {
            let mut piece = Vec::new();
            if random(2) == 0 {
                let start = [
                    &b"PUT /v1/items/k HTTP/1.1\r\nHost: a\r\n"[..],
                    b"GET /v1/items/k HTTP/1.1\r\nHost: a\r\n",
                ];
                piece.extend_from_slice(start[random(2)]);
            }
            for _ in 0..random(6) {
                piece.extend_from_slice(WORDS[random(WORDS.len())]);
            }
            if random(10) == 0 {
                piece.resize(piece.len() + random(80_000), b'1');
            }
            server.receive(&mut client, &piece);
        }
    }
    // It still serves.
    let mut client = Client::speaking(Dialect::Http);
    server.receive(&mut client, (put("it", "", "x") + &get("it")).as_bytes());
    assert_same(&told(&client.replies), (created() + &hit("x", 0, 0)).as_bytes(), "at the end");
}
