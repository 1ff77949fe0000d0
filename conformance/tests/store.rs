//! What larderd answers from a store, beside what it answers from memory: restarts, faults of the disk, limits.

use std::io::{Read as _, Write as _};
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

/// Versions have steps of 125 microseconds, and an item may be gone sooner: by a time to live that is over, by a
/// deletion, by a flush. The binary dialect tells the CAS value of each.
#[test]
fn a_cas_value_does_not_come_back_with_the_next_item() -> Result<()> {
    const SET: u8 = 0x01;
    const DELETE: u8 = 0x04;
    const FLUSH: u8 = 0x08;
    let request = |opcode: u8, extras: &[u8], key: &[u8], value: &[u8]| {
        let body_bytes = (extras.len() + key.len() + value.len()) as u8;
        let mut bytes =
            vec![0x80, opcode, 0, key.len() as u8, extras.len() as u8, 0, 0, 0, 0, 0, 0, body_bytes];
        bytes.resize(24, 0);
        [&bytes[..], extras, key, value].concat()
    };
    // A second more than 30 days: a date in 1970.
    let over = request(SET, &[0, 0, 0, 0, 0x00, 0x27, 0x8d, 0x01], b"key", b"value");
    let set = request(SET, &[0; 8], b"key", b"value");
    let folder = Folder::create();
    let server = start(&folder, &["--durability", "os"])?;
    for gone in [
        over,
        [&set[..], &request(DELETE, &[], b"key", b"")].concat(),
        [&set[..], &request(FLUSH, &[], b"", b"")].concat(),
    ] {
        let mut stream = connect(&server)?;
        let mut highest = 0;
        for _ in 0..300 {
            // One pair at a time: many would run ahead of the clock, and no longer depend on it.
            stream.write_all(&[&gone[..], &set[..]].concat())?;
            for _ in 0..if gone.len() > set.len() { 3 } else { 2 } {
                let mut reply = [0; 24];
                stream.read_exact(&mut reply)?;
                assert_eq!(reply[6..8], [0, 0], "{reply:?}");
                let cas = u64::from_be_bytes(std::array::from_fn(|n| reply[16 + n]));
                if reply[1] == SET {
                    assert!(cas > highest, "{cas} after {highest}");
                    highest = cas;
                }
            }
        }
    }
    Ok(())
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
