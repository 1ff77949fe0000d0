//! Little memory: under a limit on address space (`ulimit -v`) clients are refused or cut off, and the server goes on.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use larder_conformance::server::{self, Server, eventually};

const MIB: u64 = 1 << 20;
const GREETING: &[u8] = b"version\r\n";

/// larderd with so much address space.
fn limited(address_space_bytes: u64, args: &[&str]) -> Command {
    let larderd = server::command(Path::new(env!("CARGO_BIN_EXE_larderd")));
    let mut command = Command::new("sh");
    let script = format!("ulimit -v {} && exec \"$0\" \"$@\"", address_space_bytes / 1024);
    command.arg("-c").arg(script).arg(larderd.get_program()).args(larderd.get_args()).args(args);
    command
}

/// Asks, and takes what comes of it; an error is an answer too.
fn ask(stream: &mut TcpStream, request: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(request)?;
    let mut reply = vec![0; 64 << 10];
    let length = stream.read(&mut reply)?;
    reply.truncate(length);
    Ok(reply)
}

fn serves(server: &Server) -> bool {
    server
        .connect()
        .is_ok_and(|mut stream| ask(&mut stream, GREETING).is_ok_and(|reply| reply.starts_with(b"VERSION ")))
}

/// What memcached needs (its 1.6.18 starts with 400 MiB and four threads) is enough.
#[test]
fn starts_with_the_address_space_that_memcached_needs() {
    let server = Server::start_command(limited(400 * MIB, &["-m", "64", "-t", "4"])).expect("larderd starts");
    assert!(serves(&server));
}

#[test]
fn says_what_is_too_little() {
    let output = limited(100 * MIB, &["-m", "64", "-t", "4"]).output().expect("sh runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("failed to reserve 67108864 bytes of memory") && said.contains("ulimit -v"),
        "{said}"
    );
}

/// Announces values, leaves lines without an end, and reads nothing of what it asks for, on many connections, until
/// memory is gone.
#[test]
fn clients_that_take_all_memory_are_refused() {
    let mut server =
        Server::start_command(limited(400 * MIB, &["-m", "64", "-t", "4"])).expect("larderd starts");
    let value = vec![b'v'; 60_000];
    let mut storer = server.connect().expect("it listens");
    let mut request = format!("set large 0 0 {}\r\n", value.len()).into_bytes();
    request.extend_from_slice(&value);
    request.extend_from_slice(b"\r\n");
    assert_eq!(ask(&mut storer, &request).expect("it answers"), b"STORED\r\n");

    let line = [b"get ".as_slice(), &b"key ".repeat(256 << 10)].concat();
    let gets = b"get large\r\n".repeat(200);
    let mut held = Vec::new();
    for number in 0..900 {
        let Ok(mut stream) = server.connect() else { continue };
        stream.set_nonblocking(true).expect("a socket");
        let bytes = match number % 3 {
            0 => b"set announced 0 0 60000\r\nv".as_slice(),
            1 => &line,
            _ => &gets,
        };
        // As much as the server takes within a moment; it may cut us off.
        for part in bytes.chunks(64 << 10) {
            for _ in 0..20 {
                match stream.write(part) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    _ => break,
                }
            }
        }
        held.push(stream);
        assert!(server.is_running(), "it ended at connection {number}");
    }
    drop(held);
    assert!(server.is_running());
    eventually(|| serves(&server));
}

/// A heap of a thread's own (glibc: 64 MiB of addresses, at a multiple of that) holds address space that other
/// threads lack.
#[cfg(target_env = "gnu")]
#[test]
fn threads_share_one_heap() {
    const HEAP_BYTES: u64 = 64 * MIB;
    let server = Server::start_command(limited(400 * MIB, &["-m", "64", "-t", "4"])).expect("larderd starts");
    assert!(serves(&server));
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", server.pid())).expect("it runs");
    let mappings: Vec<_> = maps
        .lines()
        .map(|line| {
            let (range, rest) = line.split_once(' ').expect("addresses and rights");
            let (from, to) = range.split_once('-').expect("a range");
            let address = |text| u64::from_str_radix(text, 16).expect("an address");
            (address(from), address(to), rest.split(' ').next().unwrap_or_default())
        })
        .collect();
    let heaps = mappings.windows(2).filter(|pair| {
        let &[(from, _, rights), (_, to, rights_behind)] = *pair else { return false };
        from % HEAP_BYTES == 0 && to == from + HEAP_BYTES && (rights, rights_behind) == ("rw-p", "---p")
    });
    assert_eq!(heaps.count(), 0, "{maps}");
}

/// Many clients that keep a little each: the process must not die of what is small, whichever thread asks for it.
#[test]
fn many_clients_that_keep_a_little_do_not_end_it() {
    let args = ["-m", "16", "-c", "4000", "-t", "4"];
    let mut server = Server::start_command(limited(330 * MIB, &args)).expect("larderd starts");
    let short = [b"get ".as_slice(), &b"k ".repeat(7_900)].concat();
    let line = [b"get ".as_slice(), &b"k ".repeat(40_000)].concat();
    let value = [b"set a 0 0 60000\r\n".as_slice(), &[b'y'; 15_000]].concat();
    for bytes in [&short, &line, &value].into_iter().cycle().take(9) {
        let mut held = Vec::new();
        for number in 0..CLIENTS {
            let Ok(mut stream) = server.connect() else { continue };
            stream.set_nonblocking(true).expect("a socket");
            // It may cut us off.
            let _ = stream.write(bytes);
            held.push(stream);
            assert!(server.is_running(), "it ended at connection {number}");
        }
    }
    eventually(|| serves(&server));
}

/// Of one wave; this process has as many descriptors at a time.
const CLIENTS: usize = 900;
