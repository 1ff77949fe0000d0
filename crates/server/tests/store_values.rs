//! Items of a store that memory has no room for.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use larder_conformance::folder::Folder;
use larder_conformance::server::{self, Server};

/// A larderd with these options. Serves items over HTTP on the socket `http` of the folder.
fn start(folder: &Folder, options: &[&str]) -> Server {
    let mut command = server::command(Path::new(env!("CARGO_BIN_EXE_larderd")));
    command.arg("--store").arg(folder.file("store")).arg("--http-listen").arg(folder.file("http"));
    command.args(options);
    Server::start_command(command).expect("larderd starts")
}

/// What a larderd with these options answers, which is stopped then.
fn ask(folder: &Folder, options: &[&str], commands: &[u8]) -> Vec<u8> {
    let server = start(folder, options);
    let mut stream = server.connect().expect("larderd listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it is no zero");
    stream.write_all(&[commands, b"quit\r\n"].concat()).expect("larderd reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("larderd answers");
    answer
}

/// Large values are read into their place in memory. Without one, the value is not there; it is not empty.
#[test]
fn a_value_without_room_in_memory_is_refused_and_stays() {
    let folder = Folder::create();
    let value = vec![b'v'; 400_000];
    let set = [&b"set key 5 0 400000\r\n"[..], &value, b"\r\n"].concat();
    assert_eq!(ask(&folder, &["-I", "1m"], &set), b"STORED\r\n");

    // A read of the largest item is refused, and so is what would build upon an empty one.
    let refused = ask(&folder, &["-I", "300k"], b"get key\r\nappend key 0 0 1\r\nX\r\n");
    let refused = String::from_utf8_lossy(&refused);
    assert!(refused.starts_with("SERVER_ERROR out of memory"), "{refused}");
    assert!(!refused.contains("STORED"), "{refused}");

    let whole = [&b"VALUE key 5 400000\r\n"[..], &value, b"\r\nEND\r\n"].concat();
    assert!(ask(&folder, &["-I", "1m"], b"get key\r\n") == whole, "the whole value");
}

/// Over HTTP a list is one response: an error within it would be a second, in the middle of the first.
#[test]
fn an_error_ends_a_list_over_http() {
    let folder = Folder::create();
    let value = vec![b'v'; 400_000];
    let sets = [&b"set small 0 0 1\r\ns\r\nset large 0 0 400000\r\n"[..], &value, b"\r\n"].concat();
    assert_eq!(ask(&folder, &["-I", "1m"], &sets), b"STORED\r\nSTORED\r\n");

    let _server = start(&folder, &["-I", "300k"]);
    let mut stream = UnixStream::connect(folder.file("http")).expect("larderd listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it is no zero");
    let request = b"GET /v1/items?key=small&key=large&key=small HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).expect("larderd reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("larderd answers, and closes");
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    assert_eq!(answer.matches("VALUE small").count(), 1, "{answer}");
    assert!(!answer.contains("END"), "the list is not complete: {answer}");
}
