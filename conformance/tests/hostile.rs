//! Hostile and clumsy clients: a clear error or a close as the protocol specifies, never a crash, nothing left behind.
//!
//! What is expected comes from memcached (doc/protocol.txt and its behaviour). `LARDERD` names another server to test.

#[path = "hostile/talk.rs"]
mod talk;
#[path = "hostile/trace.rs"]
mod trace;
#[path = "hostile/watch.rs"]
mod watch;

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use larder_conformance::Result;
use rustix::net::sockopt::set_socket_linger;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use talk::{ask, connect, expect, hit, others_are_served, read_to_end, send_until_closed, set};
use trace::leaves_no_trace;

#[test]
fn a_hundred_thousand_commands_in_one_write() -> Result<()> {
    let mut commands = Vec::new();
    let mut replies = Vec::new();
    for round in 0..25_000 {
        let (key, value) = (format!("key{round}"), format!("value {round}"));
        commands.extend(set(&key, value.as_bytes()));
        replies.extend_from_slice(b"STORED\r\n");
        commands.extend(format!("get {key}\r\n").into_bytes());
        replies.extend(hit(&key, value.as_bytes()));
        commands.extend_from_slice(b"incr missing 1\r\n");
        replies.extend_from_slice(b"NOT_FOUND\r\n");
        commands.extend(format!("delete {key}\r\n").into_bytes());
        replies.extend_from_slice(b"DELETED\r\n");
    }

    leaves_no_trace(&[], |server| {
        let mut stream = connect(server)?;
        let mut writer = stream.try_clone()?;
        thread::scope(|scope| {
            let written = scope.spawn(|| writer.write_all(&commands));
            expect(&mut stream, &replies)?;
            written.join().map_err(|_| "the writer panicked")??;
            others_are_served(server)
        })
    })
}

#[test]
fn readers_that_never_read() -> Result<()> {
    const READERS: u64 = 20;
    // The default of -m.
    const MEMORY_MIB: u64 = 64;
    // What has to wait for a reader: at most a reply that was begun and the requests that were read; and the program.
    let resident_bytes_max = (MEMORY_MIB * 105 / 100 + READERS * 2 + 16) << 20;
    let value = vec![b'v'; MIB - 1024];

    leaves_no_trace(&[], |server| {
        let mut writer = connect(server)?;
        ask(&mut writer, &set("large", &value), b"STORED\r\n")?;
        let readers: Vec<TcpStream> = (0..READERS)
            .map(|_| {
                let mut reader = connect(server)?;
                // All together 20 GiB of replies.
                reader.write_all(&b"get large\r\n".repeat(1000))?;
                // Every reader may now be in the middle of another version of the value.
                ask(&mut writer, &set("large", &value), b"STORED\r\n")?;
                Ok(reader)
            })
            .collect::<Result<_>>()?;
        for _ in 0..10 {
            others_are_served(server)?;
            ask(&mut writer, &set("large", &value), b"STORED\r\n")?;
            let resident_bytes = server.resident_bytes()?;
            if resident_bytes > resident_bytes_max {
                return Err(format!("{resident_bytes} bytes resident, limit {resident_bytes_max}").into());
            }
        }
        drop(readers);
        ask(&mut writer, b"delete large\r\n", b"DELETED\r\n")
    })
}

#[test]
fn a_slow_reader_gets_what_it_asked_for() -> Result<()> {
    let old = vec![b'o'; MIB - 1024];
    let new = vec![b'n'; MIB - 1024];
    leaves_no_trace(&[], |server| {
        let mut reader = connect(server)?;
        let mut writer = connect(server)?;
        ask(&mut writer, &set("large", &old), b"STORED\r\n")?;
        reader.write_all(b"get large\r\n")?;
        // The reply begins, and then waits for the reader while others change the value.
        expect(&mut reader, b"VALUE large")?;
        ask(&mut writer, &set("large", &new), b"STORED\r\n")?;
        ask(&mut writer, b"delete large\r\n", b"DELETED\r\n")?;
        expect(&mut reader, &hit("large", &old)[b"VALUE large".len()..])
    })
}

#[test]
fn ten_thousand_connections_at_once() -> Result<()> {
    const CONNECTIONS: usize = 10_000;
    const BATCH: usize = 100;
    allow_descriptors(CONNECTIONS as u64 + 500)?;
    leaves_no_trace(&["-c", "11000"], |server| {
        // All of a batch ask before the first of them looks for its answer: a busy machine makes each wait a long one.
        let mut streams = Vec::new();
        for batch in 0..CONNECTIONS / BATCH {
            for id in batch * BATCH..(batch + 1) * BATCH {
                let mut stream = connect(server)?;
                stream.write_all(&set(&format!("key{id}"), b"value"))?;
                streams.push(stream);
            }
            for stream in &mut streams[batch * BATCH..] {
                expect(stream, b"STORED\r\n")?;
            }
        }
        others_are_served(server)?;
        for (batch, streams) in streams.chunks_mut(BATCH).enumerate() {
            for (id, stream) in (batch * BATCH..).zip(streams.iter_mut()) {
                stream.write_all(format!("get key{id}\r\ndelete key{id}\r\n").as_bytes())?;
            }
            for (id, stream) in (batch * BATCH..).zip(streams) {
                let replies = [hit(&format!("key{id}"), b"value").as_slice(), b"DELETED\r\n"].concat();
                expect(stream, &replies)?;
            }
        }
        Ok(())
    })
}

/// More than 2048 bytes without an end of line: closed without a word.
#[test]
fn lines_without_end() -> Result<()> {
    leaves_no_trace(&[], |server| {
        for start in ["", "set ", "gat 0 ", "mg ", "stats "] {
            // A pause keeps the line from arriving in one piece with much more behind it.
            let mut stream = connect(server)?;
            stream.write_all(start.as_bytes())?;
            for _ in 0..64 {
                send_until_closed(&mut stream, &[b'a'; 4096])?;
                thread::sleep(Duration::from_micros(200));
            }
            let got = read_to_end(&mut stream).map_err(|error| format!("{start:?}: {error}"))?;
            if !got.is_empty() {
                return Err(format!("{start:?} without end was answered: {}", got.escape_ascii()).into());
            }
            others_are_served(server)?;
        }
        Ok(())
    })
}

/// A `get` may be as long as it likes.
#[test]
fn a_get_of_a_megabyte() -> Result<()> {
    leaves_no_trace(&["-t", "1"], |server| {
        let mut stream = connect(server)?;
        ask(&mut stream, &set("here", b"value"), b"STORED\r\n")?;
        let mut line = b"get".to_vec();
        for n in 0..50_000 {
            line.extend(format!(" missing-key-{n}").into_bytes());
        }
        line.extend_from_slice(b" here\r\n");
        for piece in line.chunks(10_000) {
            stream.write_all(piece)?;
        }
        expect(&mut stream, &hit("here", b"value"))?;
        ask(&mut stream, b"delete here\r\n", b"DELETED\r\n")
    })
}

/// A `get` that never ends may be kept or refused, but it costs others nothing, and its memory comes back.
#[test]
fn a_get_without_end() -> Result<()> {
    leaves_no_trace(&["-t", "1"], |server| {
        let mut endless_key = connect(server)?;
        endless_key.write_all(b"get ")?;
        let mut endless_keys = connect(server)?;
        endless_keys.write_all(b"get")?;
        for _ in 0..64 {
            send_until_closed(&mut endless_key, &[b'a'; 64 * 1024])?;
            send_until_closed(&mut endless_keys, &b" key".repeat(16 * 1024))?;
        }
        others_are_served(server)
    })
}

#[test]
fn lengths_of_every_silly_kind() -> Result<()> {
    leaves_no_trace(&[], |server| {
        let mut stream = connect(server)?;
        // Not a length from 0 to 2147483645: nothing is swallowed, and the next line is a command again.
        for length in [
            "-1",
            "-2147483648",
            "-9223372036854775808",
            "2147483646",
            "2147483647",
            "2147483648",
            "4294967295",
            "4294967296",
            "4294967301",
            "9223372036854775807",
            "9223372036854775808",
            "18446744073709551615",
            "18446744073709551616",
            "18446744073709551621",
            "99999999999999999999999999999999999999999999999999",
            "",
            "abc",
            "5x",
            "x5",
            "+5",
            "1e3",
            "0x10",
            "5.0",
            "\t5",
            "-",
            "\0",
        ] {
            for command in ["set", "add", "replace", "append", "prepend", "cas"] {
                let cas = if command == "cas" && !length.is_empty() { " 1" } else { "" };
                let request = format!("{command} key 0 0 {length}{cas}\r\nmn\r\n");
                ask(&mut stream, request.as_bytes(), b"CLIENT_ERROR bad command line format\r\nMN\r\n")?;
            }
            let request = format!("ms key {length}\r\nmn\r\n");
            ask(&mut stream, request.as_bytes(), b"CLIENT_ERROR bad command line format\r\nMN\r\n")?;
        }
        // Odd to look at, but lengths.
        for length in ["5", "05", "0000005", "00000000005"] {
            let request = format!("set key 0 0 {length}\r\nvalue\r\nget key\r\ndelete key\r\n");
            let replies = [b"STORED\r\n", hit("key", b"value").as_slice(), b"DELETED\r\n"].concat();
            ask(&mut stream, request.as_bytes(), &replies)?;
        }
        ask(
            &mut stream,
            b"set key 0 0 0\r\n\r\nget key\r\n",
            &[b"STORED\r\n", hit("key", b"").as_slice()].concat(),
        )?;
        // Too large, but a length: the block is swallowed, the old value removed.
        let request = [set("key", &vec![b'v'; 2 * MIB]).as_slice(), b"get key\r\n"].concat();
        ask(&mut stream, &request, b"SERVER_ERROR object too large for cache\r\nEND\r\n")?;
        // The largest of all promises, and nothing behind it.
        for _ in 0..20 {
            let mut promising = connect(server)?;
            promising.write_all(b"set key 0 0 2147483645\r\nfirst bytes")?;
        }
        others_are_served(server)
    })
}

/// The block is longer or shorter than its length says.
#[test]
fn blocks_that_are_not_as_long_as_they_say() -> Result<()> {
    leaves_no_trace(&[], |server| {
        let mut stream = connect(server)?;
        for value_bytes in VALUE_SIZES {
            ask(&mut stream, &set("key", b"old"), b"STORED\r\n")?;
            // Length + 2 bytes are consumed, whatever they are.
            let mut request = set("key", &vec![b'v'; value_bytes]);
            let end = request.len();
            request[end - 2..].copy_from_slice(b"xx");
            request.extend_from_slice(b"get key\r\ndelete key\r\n");
            let replies =
                [b"CLIENT_ERROR bad data chunk\r\n", hit("key", b"old").as_slice(), b"DELETED\r\n"].concat();
            ask(&mut stream, &request, &replies)?;
        }
        Ok(())
    })
}

#[test]
fn half_a_value_and_then_silence() -> Result<()> {
    leaves_no_trace(&[], |server| {
        let mut owner = connect(server)?;
        ask(&mut owner, &set("key", b"old"), b"STORED\r\n")?;
        let mut silent = Vec::new();
        for value_bytes in VALUE_SIZES {
            for _ in 0..10 {
                let mut stream = connect(server)?;
                let request = set("key", &vec![b'n'; value_bytes]);
                stream.write_all(&request[..request.len() / 2])?;
                silent.push(stream);
            }
            others_are_served(server)?;
            ask(&mut owner, b"get key\r\n", &hit("key", b"old"))?;
        }
        drop(silent);
        ask(&mut owner, b"delete key\r\n", b"DELETED\r\n")
    })
}

#[test]
fn clients_that_die_in_the_middle_of_a_set() -> Result<()> {
    leaves_no_trace(&[], |server| {
        let mut owner = connect(server)?;
        ask(&mut owner, &set("key", b"old"), b"STORED\r\n")?;
        for value_bytes in VALUE_SIZES {
            let request = set("key", &vec![b'n'; value_bytes]);
            let header_bytes = request.len() - value_bytes - 2;
            // Behind the header, in the middle, before the CRLF, and within it.
            for sent in [header_bytes, header_bytes + value_bytes / 2, request.len() - 2, request.len() - 1] {
                for with_reset in [false, true] {
                    let mut stream = connect(server)?;
                    stream.write_all(&request[..sent])?;
                    if with_reset {
                        set_socket_linger(&stream, Some(Duration::ZERO))?;
                    }
                }
            }
            others_are_served(server)?;
            ask(&mut owner, b"get key\r\n", &hit("key", b"old"))?;
        }
        ask(&mut owner, b"delete key\r\n", b"DELETED\r\n")
    })
}

#[test]
fn bytes_dribbled_one_at_a_time() -> Result<()> {
    leaves_no_trace(&[], |server| {
        let mut stream = connect(server)?;
        let dialogue: [(&[u8], &[u8]); 8] = [
            (b"set key 5 0 10\r\n0123456789\r\n", b"STORED\r\n"),
            (b"get key none\r\n", b"VALUE key 5 10\r\n0123456789\r\nEND\r\n"),
            (b"ms key 3 k Oabc\r\nabc\r\n", b"HD kkey Oabc\r\n"),
            (b"mg key v\r\n", b"VA 3\r\nabc\r\n"),
            (b"bogus command\r\n", b"ERROR\r\n"),
            (b"get key\n", b"VALUE key 0 3\r\nabc\r\nEND\r\n"),
            (b"set key 0 0 3\r\nabcde", b"CLIENT_ERROR bad data chunk\r\n"),
            (b"delete key\r\n", b"DELETED\r\n"),
        ];
        for (request, reply) in dialogue {
            for byte in request {
                stream.write_all(&[*byte])?;
                thread::sleep(Duration::from_micros(300));
            }
            expect(&mut stream, reply)?;
        }
        Ok(())
    })
}

/// What was sent before the client shut down its side is answered, then the server closes.
#[test]
fn half_close() -> Result<()> {
    let large = vec![b'v'; MIB - 1024];
    leaves_no_trace(&[], |server| {
        let mut stream = connect(server)?;
        let request = [set("key", b"value").as_slice(), b"get key\r\ndelete key\r\n"].concat();
        stream.write_all(&request)?;
        stream.shutdown(Shutdown::Write)?;
        expect_all(&mut stream, &[b"STORED\r\n", hit("key", b"value").as_slice(), b"DELETED\r\n"].concat())?;

        // Replies that do not fit into the socket.
        let mut stream = connect(server)?;
        ask(&mut stream, &set("key", &large), b"STORED\r\n")?;
        stream.write_all(&b"get key\r\n".repeat(40))?;
        stream.shutdown(Shutdown::Write)?;
        thread::sleep(Duration::from_millis(50));
        expect_all(&mut stream, &hit("key", &large).repeat(40))?;

        // In the middle of a line, and of a value: there is nothing to answer.
        for unfinished in [b"get ke".as_slice(), b"set other 0 0 5\r\nval"] {
            let mut stream = connect(server)?;
            stream.write_all(unfinished)?;
            stream.shutdown(Shutdown::Write)?;
            expect_all(&mut stream, b"")?;
        }
        let mut stream = connect(server)?;
        ask(&mut stream, b"get other\r\ndelete key\r\n", b"END\r\nDELETED\r\n")
    })
}

#[test]
fn random_bytes() -> Result<()> {
    leaves_no_trace(&[], |server| {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..300 {
            let mut stream = connect(server)?;
            let mut bytes = vec![0; random.usize(1..20_000)];
            random.fill(&mut bytes);
            send_until_closed(&mut stream, &bytes)?;
        }
        others_are_served(server)
    })
}

/// Words of the protocol in no order.
#[test]
fn random_words() -> Result<()> {
    let words: Vec<&str> = "get gets gat gats set add replace append prepend cas incr decr touch delete mg ms md ma mn me flush_all stats \
        version a b c 0 1 -1 5 18446744073709551615 noreply v t k s N5 I MA T0 q Oxyz C1 settings items hello"
        .split(' ')
        .collect();
    leaves_no_trace(&[], |server| {
        let mut random = fastrand::Rng::with_seed(8);
        for _ in 0..100 {
            let mut stream = connect(server)?;
            stream.set_nonblocking(true)?;
            for _ in 0..500 {
                let mut line = String::new();
                for _ in 0..random.usize(1..8) {
                    line.push_str(words[random.usize(0..words.len())]);
                    line.push(if random.u8(0..30) == 0 { '\n' } else { ' ' });
                }
                line.push_str(if random.bool() { "\r\n" } else { "\n" });
                // A full socket or a closed one ends this client, not the test.
                if stream.write(line.as_bytes()).is_err() {
                    break;
                }
            }
            stream.set_nonblocking(false)?;
            stream.shutdown(Shutdown::Write).ok();
            read_to_end(&mut stream)?;
        }
        others_are_served(server)?;
        // Every word may be a key now. One delete each, and what was deleted does not matter.
        let mut stream = connect(server)?;
        for word in &words {
            stream.write_all(format!("delete {word}\r\n").as_bytes())?;
        }
        stream.shutdown(Shutdown::Write)?;
        read_to_end(&mut stream)?;
        Ok(())
    })
}

/// The connection that is too many is told so; the others notice nothing.
#[test]
fn more_connections_than_allowed() -> Result<()> {
    leaves_no_trace(&["-c", "100"], |server| {
        let mut streams = Vec::new();
        loop {
            let mut stream = connect(server)?;
            stream.write_all(b"mn\r\n").ok();
            match read_some(&mut stream)?.as_slice() {
                b"MN\r\n" if streams.len() < 100 => streams.push(stream),
                b"ERROR Too many open connections\r\n" => break,
                other => return Err(format!("connection {}: {}", streams.len(), other.escape_ascii()).into()),
            }
        }
        for stream in &mut streams {
            ask(stream, b"mn\r\n", b"MN\r\n")?;
        }
        streams.pop();
        Ok(())
    })
}

/// A reply line.
fn read_some(stream: &mut TcpStream) -> Result<Vec<u8>> {
    use std::io::Read;
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\n") && stream.read(&mut byte)? == 1 {
        line.push(byte[0]);
    }
    Ok(line)
}

/// These bytes, and then the end of the connection.
fn expect_all(stream: &mut TcpStream, expected: &[u8]) -> Result<()> {
    expect(stream, expected)?;
    let rest = read_to_end(stream)?;
    if rest.is_empty() { Ok(()) } else { Err(format!("and then: {}", rest.escape_ascii()).into()) }
}

/// Raises this process's limit on open descriptors.
fn allow_descriptors(needed: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    setrlimit(
        Resource::Nofile,
        Rlimit { current: Some(needed), maximum: limit.maximum.map(|max| max.max(needed)) },
    )
    .map_err(|error| format!("this test needs {needed} open files (ulimit -n): {error}").into())
}

const MIB: usize = 1 << 20;
/// Copied from the read buffer, or read straight into their place; the last nearly as large as a value may be.
const VALUE_SIZES: [usize; 4] = [100, 60_000, MIB / 2, MIB - 1024];
