//! What larderd answers from a store, beside what it answers from memory: restarts, faults of the disk, limits.

use std::net::TcpStream;

use larder_conformance::folder::Folder;
use larder_conformance::server::Server;
use larder_conformance::{Result, server};

#[path = "hostile/talk.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod talk;
use talk::{ask, connect, hit, set};

/// Starts larderd with a store in `folder/store`.
fn start(folder: &Folder, more: &[&str]) -> Result<Server> {
    let store = folder.arg("store");
    let args: Vec<&str> = ["-t", "2", "--store", &store].iter().chain(more).copied().collect();
    Server::start(&server::larderd()?, &args)
}

/// A value of this length, of which no two parts are alike.
fn value(bytes: usize) -> Vec<u8> {
    (0..).flat_map(|nth: u32| format!("{nth:x}.").into_bytes()).take(bytes).collect()
}

fn get(stream: &mut TcpStream, key: &str, value: &[u8]) -> Result<()> {
    ask(stream, format!("get {key}\r\n").as_bytes(), &hit(key, value))
}

/// Lengths around those at which a value is read, copied and kept in another way.
#[test]
fn values_of_every_length_come_back_from_the_disk() -> Result<()> {
    let folder = Folder::create();
    let lengths: Vec<usize> = [0, 1, 4 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 3 << 20]
        .into_iter()
        .flat_map(|length: usize| [length.saturating_sub(100), length, length + 1])
        .collect();
    let server = start(&folder, &["-I", "8m", "-m", "64"])?;
    let mut stream = connect(&server)?;
    for &length in &lengths {
        ask(&mut stream, &set(&format!("key{length}"), &value(length)), b"STORED\r\n")?;
    }
    server.kill()?;
    let server = start(&folder, &["-I", "8m", "-m", "64"])?;
    let mut stream = connect(&server)?;
    for &length in &lengths {
        get(&mut stream, &format!("key{length}"), &value(length))
            .map_err(|error| format!("{length}: {error}"))?;
    }
    Ok(())
}
