//! Items of a store that memory has no room for.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use larder_conformance::folder::Folder;
use larder_conformance::server::{self, Server};

/// What a larderd with these options answers, which is stopped then.
fn ask(folder: &Folder, options: &[&str], commands: &[u8]) -> Vec<u8> {
    let mut command = server::command(Path::new(env!("CARGO_BIN_EXE_larderd")));
    command.arg("--store").arg(folder.file("store")).args(options);
    let server = Server::start_command(command).expect("larderd starts");
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
