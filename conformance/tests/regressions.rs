//! What once broke memcached, by the name it went by, and larder's answer to it.
//!
//! The list: memcached's CVEs, and the fixes of its releases up to 1.6.45. Expected answers are those of the fixed
//! versions (doc/protocol.txt, doc/protocol-binary.txt and their behaviour). What larder does not have, it refuses: a
//! test all the same.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use larder_conformance::Result;
use larder_conformance::folder::Folder;
use larder_conformance::server::{self, Server};

/// UDP answered anybody, with up to 51,000 times the bytes it was sent.
#[test]
fn cve_2018_1000115_udp_amplification() -> Result<()> {
    // At another port somebody else might listen for UDP.
    let server = start(&["-p", &server::free_port().to_string()])?;
    let socket = udp_to(server.address().port())?;
    socket.send(b"\0\x01\0\0\0\x01\0\0stats\r\n")?;
    assert!(socket.recv(&mut [0; 2048]).is_err(), "UDP is off unless -U asks for it");

    let (server, socket) = start_udp()?;
    let mut stream = connect(&server)?;
    ask(&mut stream, &[b"set a 0 0 100000\r\n", &[b'x'; 100_000][..], b"\r\n"].concat(), b"STORED\r\n")?;
    socket.send(b"\0\x01\0\0\0\x01\0\0stats\r\n")?;
    let mut received = 0;
    while let Ok(bytes) = socket.recv(&mut [0; 2048]) {
        received += bytes;
    }
    assert!(received <= 64, "{received} bytes of statistics by UDP");
    Ok(())
}

/// Short datagrams were read beyond their end.
#[test]
fn cve_2017_9951_short_datagrams() -> Result<()> {
    let (_server, socket) = start_udp()?;
    for bytes in 0..=8 {
        socket.send(&b"\0\x01\0\0\0\x01\0\0"[..bytes])?;
        socket.send(&[&b"\0\x01\0\0\0\x01\0\0"[..], &[0x80, 0, 0, 1][..bytes.min(4)]].concat())?;
    }
    answers_by_udp(&socket)
}

/// Requests of several datagrams crashed the server.
#[test]
fn cve_2022_48571_requests_of_several_datagrams() -> Result<()> {
    let (_server, socket) = start_udp()?;
    for (sequence, total) in [(0, 2), (1, 2), (0, 0), (7, 255)] {
        socket.send(&[&[0, 9, 0, sequence, 0, total, 0, 0][..], b"set a 0 0 5000\r\nxxx"].concat())?;
    }
    answers_by_udp(&socket)
}

/// Lengths of a header were subtracted from each other before they were compared: append and prepend (8704), set and
/// the like (8705), SASL (8706).
#[test]
fn cve_2016_8704_8705_8706_binary_lengths() -> Result<()> {
    let server = start(&[])?;
    for opcode in [0x01, 0x02, 0x03, 0x0e, 0x0f, 0x11, 0x19, 0x1a, 0x21, 0x22] {
        for (key_bytes, extras_bytes, body_bytes) in [(250, 8, 0), (10, 0, 9), (1, 8, 8), (0xffff, 0xff, 1)] {
            let reply = converse(&server, &header(opcode, key_bytes, extras_bytes, body_bytes))?;
            assert_status(&reply, &[0x04, 0x81], opcode);
        }
    }
    is_alive(&server)
}

/// Extras longer than what there is room for were copied.
#[test]
fn cve_2020_10931_extras() -> Result<()> {
    let server = start(&[])?;
    for opcode in 0..0x30 {
        let packet = [&header(opcode, 1, 0xff, 0x100)[..], &[b'e'; 0x100]].concat();
        let reply = converse(&server, &packet)?;
        assert!(reply.is_empty() || reply[6..8] != [0, 0], "{opcode:#x} is answered as if it were right");
    }
    is_alive(&server)
}

/// A body of more than 2 GiB was taken for a negative length, and the stream lost its place (1.6.42).
#[test]
fn binary_bodies_beyond_two_gib() -> Result<()> {
    let server = start(&[])?;
    for body_bytes in [0x4000_0001, 0x7fff_ffff, 0x8000_0000, 0x8000_0009, u32::MAX] {
        for opcode in [0x00, 0x01, 0x0e, 0x11] {
            let extras_bytes = if matches!(opcode, 0x01 | 0x11) { 8 } else { 0 };
            let reply = converse(&server, &header(opcode, 1, extras_bytes, body_bytes))?;
            assert_status(&reply, &[0x04], opcode);
        }
    }
    is_alive(&server)
}

/// The error path of mg wrote through a pointer that was not set.
#[test]
fn cve_2020_22570_errors_of_mg() -> Result<()> {
    let server = start(&[])?;
    let mut stream = connect(&server)?;
    const BAD: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
    ask(&mut stream, b"mg\r\n", BAD)?;
    ask(&mut stream, b"mg \r\n", BAD)?;
    ask(&mut stream, &[b"mg ", &[b'k'; 251][..], b" v\r\n"].concat(), BAD)?;
    ask(&mut stream, b"mg a v v\r\n", b"CLIENT_ERROR duplicate flag\r\n")?;
    ask(&mut stream, b"mg a S\r\n", b"CLIENT_ERROR invalid flag\r\n")?;
    ask(&mut stream, b"mg ! b\r\n", b"CLIENT_ERROR error decoding key\r\n")?;
    ask(&mut stream, b"mg a O12345678901234567890123456789012\r\n", b"CLIENT_ERROR opaque token too long\r\n")
}

/// A null pointer, for want of an argument.
#[test]
fn cve_2019_11596_lru_without_arguments() -> Result<()> {
    let server = start(&[])?;
    let mut stream = connect(&server)?;
    for line in ["lru mode", "lru temp_ttl", "lru", "lru tune", "lru tune 10"] {
        ask(&mut stream, format!("{line}\r\n").as_bytes(), b"ERROR\r\n")?;
    }
    Ok(())
}

/// `stats conns` read beyond the name of a Unix socket; the binary protocol never had it, and no address may be told.
#[test]
fn cve_2019_15026_and_2009_1255_no_look_inside() -> Result<()> {
    let server = start(&[])?;
    let mut stream = connect(&server)?;
    for line in ["stats maps", "stats malloc"] {
        ask(&mut stream, format!("{line}\r\n").as_bytes(), b"ERROR\r\n")?;
    }
    // One packet: status 1, key not found.
    let reply = converse(&server, &[&header(0x10, 5, 0, 5)[..], b"conns", &header(0x07, 0, 0, 0)].concat())?;
    assert_status(&reply, &[0x01], 0x10);
    Ok(())
}

/// More references to an item than its counter could count: freed while in use.
#[test]
fn cve_2018_1000127_references_to_one_item() -> Result<()> {
    const TIMES: usize = 70_000;
    let server = start(&[])?;
    let mut stream = connect(&server)?;
    ask(&mut stream, b"set a 0 0 1\r\nx\r\n", b"STORED\r\n")?;
    let line = [b"get".as_slice(), &b" a".repeat(TIMES), b"\r\n"].concat();
    let expected = [b"VALUE a 0 1\r\nx\r\n".repeat(TIMES), b"END\r\n".to_vec()].concat();
    ask(&mut stream, &line, &expected)?;
    ask(&mut stream, &b"mg a v\r\n".repeat(TIMES / 2), &b"VA 1\r\nx\r\n".repeat(TIMES / 2))?;

    // 1.6.43: the same by the binary protocol.
    let get = [&header(0x00, 1, 0, 1)[..], b"a"].concat();
    let mut binary = connect(&server)?;
    let mut writer = binary.try_clone()?;
    let writing = std::thread::spawn(move || writer.write_all(&get.repeat(TIMES)));
    let mut replies = vec![0; 29 * TIMES];
    binary.read_exact(&mut replies)?;
    assert!(replies.chunks(29).all(|reply| reply[6..8] == [0, 0] && reply[28] == b'x'));
    writing.join().map_err(|_| "the writer panicked")??;
    is_alive(&server)
}

/// A file of passwords with a long or broken line overflowed a buffer.
#[test]
fn cve_2021_37519_broken_password_files() -> Result<()> {
    let folder = Folder::create();
    for file in [&b"nocolon\n"[..], &[b'u'; 5000], &[&b"u:"[..], &[b'p'; 5000]].concat(), b"\0\0\0\n\xff\xfe"]
    {
        folder.write("passwords", file);
        assert_eq!(exit_code(&["-Y", &folder.arg("passwords")])?, Some(1), "{}", file.escape_ascii());
    }
    Ok(())
}

/// The proxy's tokenizer, where CR is missing (46853) or keys are many (46852): the server's own must not have it
/// either.
#[test]
fn cve_2023_46852_46853_many_keys_and_bare_line_feeds() -> Result<()> {
    let server = start(&[])?;
    let mut stream = connect(&server)?;
    ask(&mut stream, b"set a 0 0 1\nx\r\nget a\n", b"STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n")?;
    ask(&mut stream, b"get  a   a \n", b"VALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nEND\r\n")?;
    ask(&mut stream, &[b"get".as_slice(), &b" b".repeat(100_000), b"\n"].concat(), b"END\r\n")?;
    ask(&mut stream, &[&b"get "[..], &b" ".repeat(10_000), b"a\n"].concat(), b"VALUE a 0 1\r\nx\r\nEND\r\n")
}

/// Spaces alone were tokenized beyond their end (1.6.44).
#[test]
fn lines_of_spaces() -> Result<()> {
    let server = start(&[])?;
    let mut stream = connect(&server)?;
    for spaces in [4, 100, 2000] {
        ask(&mut stream, &[&b" ".repeat(spaces)[..], b"\r\n"].concat(), b"ERROR\r\n")?;
    }
    Ok(())
}

/// A client that had failed to log in could go on as if it had not (CVE-2013-7239).
#[test]
fn cve_2013_7239_sasl_retry() -> Result<()> {
    let folder = Folder::create();
    let path = folder.write("passwords", "user:password\n");
    let mut command = Command::new(server::larderd()?);
    command.args(["-l", "127.0.0.1", "-p", "-1", "-S", "-u", "nobody"]).env("MEMCACHED_SASL_PWDB", &path);
    let server = Server::start_command(command)?;
    let login =
        |message: &[u8]| [&header(0x21, 5, 0, 5 + message.len() as u32)[..], b"PLAIN", message].concat();
    let get = [&header(0x00, 1, 0, 1)[..], b"a"].concat();
    assert_status(&converse(&server, &get)?, &[0x20], 0x00);
    let reply = converse(&server, &[login(b"\0user\0wrong"), get.clone(), get.clone()].concat())?;
    assert_status(&reply, &[0x20], 0x21);
    let body_bytes = u32::from_be_bytes([reply[8], reply[9], reply[10], reply[11]]) as usize;
    assert_status(&reply[24 + body_bytes..], &[0x20], 0x00);
    // Other clients are not let in by one that was.
    assert_status(
        &converse(&server, &[login(b"\0user\0password"), header(0x07, 0, 0, 0)].concat())?,
        &[0],
        0x21,
    );
    assert_status(&converse(&server, &get)?, &[0x20], 0x00);
    Ok(())
}

/// Users who do not exist were refused sooner than those who do (CVE-2026-47783, 1.6.42). Here: in the same words. That
/// it costs as many hashes is counted in larder-auth (`a_refusal_costs_as_many_hashes_whoever_is_named`).
#[test]
fn cve_2026_47783_refusals_are_alike() -> Result<()> {
    let folder = Folder::create();
    // RFC 7677, section 3, with 4096 iterations.
    let verifier = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
                    wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
    folder.write("passwords", format!("user:{verifier}\n"));
    let server = start(&["-Y", &folder.arg("passwords")])?;
    for token in ["user guess", "nobody guess", "user guess", "nobody guess"] {
        let mut stream = connect(&server)?;
        let request = format!("set a 0 0 {}\r\n{token}\r\n", token.len());
        ask(&mut stream, request.as_bytes(), b"CLIENT_ERROR authentication failure\r\n")?;
    }
    Ok(())
}

/// UDP let clients past SASL (1.5.20), `proto[binary]` past the text protocol's login (1.6.43).
#[test]
fn logins_guard_every_door() -> Result<()> {
    let folder = Folder::create();
    folder.write("passwords", "user:password\n");
    let file = folder.arg("passwords");
    assert_eq!(exit_code(&["-Y", &file, "-U", "11299"])?, Some(64));
    assert_eq!(exit_code(&["-S", "-U", "11299"])?, Some(64));

    let server = start(&["-Y", &file])?;
    // 1.6.42: empty lines crashed the server.
    assert!(converse(&server, b"\r\n\r\n\r\n")?.is_empty());
    let mut stream = connect(&server)?;
    ask(&mut stream, b"get a_key\r\n", b"CLIENT_ERROR unauthenticated\r\n")?;
    // 1.6.42: a token of any length was given memory.
    ask(&mut stream, b"set x 0 0 20000\r\n", b"CLIENT_ERROR auth token too long\r\n")?;
    let get = [&header(0x00, 1, 0, 1)[..], b"a\r\n"].concat();
    let reply = converse(&server, &get)?;
    assert!(
        reply.is_empty() || reply.starts_with(b"CLIENT_ERROR unauthenticated"),
        "{}",
        reply.escape_ascii()
    );
    Ok(())
}

/// The table of `stats detail` grew without end under keys whose prefixes are all new (76dc58c6b).
#[test]
fn prefixes_without_end() -> Result<()> {
    let server = start(&["-t", "1"])?;
    let mut stream = connect(&server)?;
    ask(&mut stream, b"stats detail on\r\n", b"OK\r\n")?;
    for round in 0..50 {
        let keys: String = (0..1000).map(|number| format!(" {round}-{number}:x")).collect();
        ask(&mut stream, format!("get{keys}\r\n").as_bytes(), b"END\r\n")?;
    }
    stream.write_all(b"stats detail dump\r\nquit\r\n")?;
    let mut dump = String::new();
    stream.read_to_string(&mut dump)?;
    let prefixes = dump.matches("PREFIX ").count();
    assert!((1000..=10_000).contains(&prefixes), "{prefixes} of 50,000");
    is_alive(&server)
}

/// A watcher that left while lines were written for it was used after it was freed; a failed store by the binary
/// protocol broke the log (1.6.42 to 1.6.45).
#[test]
fn watchers_that_leave() -> Result<()> {
    let server = start(&[])?;
    let set_too_large = [&header(0x01, 1, 8, 9 + 2_000_000)[..], &[0; 8], b"a", &[b'x'; 2_000_000]].concat();
    for _ in 0..20 {
        let mut watchers = Vec::new();
        for _ in 0..5 {
            let mut watcher = connect(&server)?;
            ask(
                &mut watcher,
                b"watch fetchers mutations evictions connevents deletions sysevents\r\n",
                b"OK\r\n",
            )?;
            watchers.push(watcher);
        }
        let mut stream = connect(&server)?;
        let sets = b"set a 0 0 1\r\nx\r\n".repeat(2000);
        let expected = b"STORED\r\n".repeat(2000);
        std::thread::scope(|scope| {
            let setting =
                scope.spawn(|| ask(&mut stream, &sets, &expected).map_err(|error| error.to_string()));
            watchers.drain(..3).for_each(drop);
            setting.join().map_err(|_| "panicked")?
        })?;
        assert_status(&converse(&server, &set_too_large)?, &[0x03], 0x01);
    }
    is_alive(&server)
}

/// A dump to a client that does not read, and one to a client that leaves.
#[test]
fn dumps_to_idle_clients() -> Result<()> {
    const ITEMS: usize = 100_000;
    let server = start(&["-t", "1", "-m", "256"])?;
    let mut stream = connect(&server)?;
    let sets: String = (0..ITEMS).map(|number| format!("set key-{number} 0 0 1 noreply\r\nx\r\n")).collect();
    ask(&mut stream, (sets + "mn\r\n").as_bytes(), b"MN\r\n")?;
    let mut idle = connect(&server)?;
    idle.write_all(b"lru_crawler metadump all\r\nmn\r\n")?;
    for _ in 0..5 {
        let mut leaver = connect(&server)?;
        leaver.write_all(b"lru_crawler mgdump hash\r\n")?;
    }
    // The only worker serves others meanwhile.
    for number in 0..100 {
        ask(
            &mut stream,
            format!("get key-{number}\r\n").as_bytes(),
            format!("VALUE key-{number} 0 1\r\nx\r\nEND\r\n").as_bytes(),
        )?;
    }
    let mut dump = Vec::new();
    while !dump.ends_with(b"END\r\nMN\r\n") {
        let mut piece = [0; 65_536];
        match idle.read(&mut piece)? {
            0 => return Err("closed".into()),
            bytes => dump.extend_from_slice(&piece[..bytes]),
        }
    }
    let keys: std::collections::HashSet<_> = dump
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.strip_prefix(b"key=")?.split(|byte| *byte == b' ').next())
        .collect();
    assert_eq!(keys.len(), ITEMS);
    Ok(())
}

/// Bad arguments of slabs and extstore (1.6.42 to 1.6.45).
#[test]
fn slabs_with_bad_arguments() -> Result<()> {
    let server = start(&[])?;
    let mut stream = connect(&server)?;
    for (line, reply) in [
        ("slabs reassign", "ERROR"),
        ("slabs reassign -1 99999", "BADCLASS invalid src or dst class id"),
        ("slabs automove x", "CLIENT_ERROR bad command line format"),
        ("extstore free_memchunks 1 -1", "ERROR"),
    ] {
        ask(&mut stream, format!("{line}\r\n").as_bytes(), format!("{reply}\r\n").as_bytes())?;
    }
    Ok(())
}

/// The name of a Unix socket in `stats conns` was read beyond its end (CVE-2019-15026).
#[test]
fn cve_2019_15026_unix_sockets_in_stats_conns() -> Result<()> {
    let folder = Folder::create();
    let path = folder.file("socket");
    let mut command = Command::new(server::larderd()?);
    command.arg("-s").arg(&path).args(["-u", "root"]);
    let mut server = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let mut stream = (0..6000)
        .find_map(|_| {
            thread::sleep(Duration::from_millis(10));
            std::os::unix::net::UnixStream::connect(&path).ok()
        })
        .ok_or("no server")?;
    stream.write_all(b"stats conns\r\nquit\r\n")?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    server.kill()?;
    server.wait()?;
    let listeners = format!(":addr unix:{}\r\n", path.display());
    assert_eq!(reply.matches(&listeners).count(), 1, "{reply}");
    assert!(reply.contains(":addr unix:\r\n") && reply.contains(":state conn_parse_cmd\r\n"), "{reply}");
    Ok(())
}

/// What is not there says so.
#[test]
fn commands_that_do_not_exist() -> Result<()> {
    let server = start(&[])?;
    let mut stream = connect(&server)?;
    for line in ["extstore", "misbehave", "stats extstore", "stats proxy", "stats sizes_enable"] {
        ask(&mut stream, format!("{line}\r\n").as_bytes(), b"ERROR\r\n")?;
    }
    Ok(())
}

/// ms with an error leaked its item (1.6.43).
#[test]
fn errors_of_ms_leak_nothing() -> Result<()> {
    let server = start(&["-m", "8", "-M"])?;
    let mut stream = connect(&server)?;
    let value = vec![b'x'; 100_000];
    let refused = [b"ms a 100000 S\r\n", &value[..], b"\r\n"].concat();
    let cut_short = [b"ms a 100000\r\n", &value[..], b"xx"].concat();
    for _ in 0..200 {
        ask(&mut stream, &refused, b"CLIENT_ERROR invalid flag\r\n")?;
        ask(&mut stream, &cut_short, b"CLIENT_ERROR bad data chunk\r\n")?;
    }
    ask(&mut stream, &[b"ms a 100000\r\n", &value[..], b"\r\n"].concat(), b"HD\r\n")
}

/// What larder does not have can not be switched on: external storage, the proxy.
#[test]
fn options_that_are_refused() -> Result<()> {
    for args in [["-o", "ext_path=/tmp/x:64m"], ["-o", "proxy_config=/tmp/x"]] {
        assert!(exit_code(&args)?.is_some_and(|code| code != 0), "{args:?}");
    }
    Ok(())
}

fn start(args: &[&str]) -> Result<Server> {
    Server::start(&server::larderd()?, args)
}

/// A server with a UDP door, and a socket that speaks to it.
fn start_udp() -> Result<(Server, UdpSocket)> {
    let port = server::free_port();
    let server = start(&["-U", &port.to_string()])?;
    Ok((server, udp_to(port)?))
}

fn udp_to(port: u16) -> Result<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(Duration::from_millis(300)))?;
    Ok(socket)
}

/// The next datagram that comes is the answer to a request that has one.
fn answers_by_udp(socket: &UdpSocket) -> Result<()> {
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    socket.send(b"\x12\x34\0\0\0\x01\0\0get nothing\r\n")?;
    let mut datagram = [0; 2048];
    // What was cut short may have been answered with an error.
    for _ in 0..20 {
        let bytes = socket.recv(&mut datagram)?;
        if datagram[..2] == [0x12, 0x34] {
            assert_eq!(
                datagram[..bytes].escape_ascii().to_string(),
                "\\x124\\x00\\x00\\x00\\x01\\x00\\x00END\\r\\n"
            );
            return Ok(());
        }
    }
    Err("no answer".into())
}

fn connect(server: &Server) -> Result<TcpStream> {
    let stream = server.connect()?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    Ok(stream)
}

/// Sends and expects; a thread sends, so that replies are read meanwhile.
fn ask(stream: &mut TcpStream, request: &[u8], expected: &[u8]) -> Result<()> {
    let mut writer = stream.try_clone()?;
    std::thread::scope(|scope| {
        let writing = scope.spawn(move || writer.write_all(request));
        let mut reply = vec![0; expected.len()];
        stream.read_exact(&mut reply)?;
        let shown = |bytes: &[u8]| bytes[..bytes.len().min(200)].escape_ascii().to_string();
        assert!(reply == expected, "{}: {} instead of {}", shown(request), shown(&reply), shown(expected));
        Ok(writing.join().map_err(|_| "the writer panicked")??)
    })
}

/// Sends, and returns all that comes until the end.
fn converse(server: &Server, request: &[u8]) -> Result<Vec<u8>> {
    let mut stream = connect(server)?;
    stream.write_all(request)?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut reply = Vec::new();
    match stream.read_to_end(&mut reply) {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => Err(error.into()),
        _ => Ok(reply),
    }
}

/// The header of a request.
fn header(opcode: u8, key_bytes: u16, extras_bytes: u8, body_bytes: u32) -> Vec<u8> {
    let mut header = vec![0x80, opcode];
    header.extend_from_slice(&key_bytes.to_be_bytes());
    header.extend_from_slice(&[extras_bytes, 0, 0, 0]);
    header.extend_from_slice(&body_bytes.to_be_bytes());
    header.resize(24, 0);
    header
}

fn assert_status(reply: &[u8], expected: &[u16], opcode: u8) {
    assert!(reply.len() >= 24, "{opcode:#x}: {}", reply.escape_ascii());
    let status = u16::from_be_bytes([reply[6], reply[7]]);
    assert!(reply[0] == 0x81 && reply[1] == opcode && expected.contains(&status), "{}", reply.escape_ascii());
}

fn is_alive(server: &Server) -> Result<()> {
    ask(&mut connect(server)?, b"mn\r\n", b"MN\r\n")
}

/// How larderd ends that is not to start with these options. `None`: by a signal.
fn exit_code(args: &[&str]) -> Result<Option<i32>> {
    let mut command = Command::new(server::larderd()?);
    command.args(["-l", "127.0.0.1", "-p", "0", "-u", "nobody"]).args(args);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    Ok(status.code())
}
