//! Every command of every protocol before, during and after a login, on every kind of listener. What commands there are
//! is taken from memcached's doc/protocol.txt and doc/protocol-binary.txt; what a client gets before its login, from
//! there as well.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use larder_conformance::folder::Folder;
use larder_conformance::server::eventually;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A listener of a server of its own.
struct Endpoint {
    name: &'static str,
    child: Child,
    at: At,
    _folder: Folder,
}

enum At {
    Tcp(SocketAddr),
    Tls(SocketAddr, Arc<ClientConfig>),
    Unix(PathBuf),
}

trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

impl Endpoint {
    /// The kinds of listeners, each guarded by `scheme` (`-Y` or `-S`).
    fn all(scheme: &str) -> Vec<Self> {
        let of_its_own = match scheme {
            "-Y" => "proto[ascii]:127.0.0.1",
            _ => "proto[binary]:127.0.0.1",
        };
        vec![
            Self::open("TCP", scheme, Some("127.0.0.1"), false),
            Self::open("its own protocol", scheme, Some(of_its_own), false),
            Self::open("tagged", scheme, Some("tag[door]:127.0.0.1"), false),
            Self::open("Unix", scheme, None, false),
            Self::open("TLS", scheme, Some("127.0.0.1"), true),
            Self::open("plain beside TLS", scheme, Some("notls:127.0.0.1"), true),
        ]
    }

    fn open(name: &'static str, scheme: &str, listen: Option<&str>, has_tls: bool) -> Self {
        let folder = Folder::create();
        folder.write("passwords", "ann:pass\n");
        let mut command = Command::new(env!("CARGO_BIN_EXE_larderd"));
        match scheme {
            "-Y" => command.args(["-Y", &folder.arg("passwords")]),
            _ => command.arg("-S").env("MEMCACHED_SASL_PWDB", folder.file("passwords")),
        };
        command.args(["-u", "nobody", "-A", "-t", "1"]).stdin(Stdio::null()).stderr(Stdio::null());
        match listen {
            Some(entry) => {
                command.args(["-p", "-1", "-l", entry]).env("MEMCACHED_PORT_FILENAME", folder.file("port"))
            }
            None => command.args(["-s", &folder.arg("socket")]),
        };
        let client_config = has_tls.then(|| {
            let identity =
                rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
            let certificate = folder.write("certificate", identity.cert.pem());
            let key = folder.write("key", identity.signing_key.serialize_pem());
            let files = format!("ssl_chain_cert={},ssl_key={}", certificate.display(), key.display());
            command.args(["-Z", "-o", &files, "-o", "drop_privileges"]);
            client_config(identity.cert.der().clone())
        });
        let child = command.spawn().expect("larderd runs");
        let deadline = Instant::now() + Duration::from_secs(60);
        let at = loop {
            assert!(Instant::now() < deadline, "{name}: not within a minute");
            thread::sleep(Duration::from_millis(5));
            match listen {
                Some(_) => {
                    let ports = fs::read_to_string(folder.file("port")).unwrap_or_default();
                    if let Some(port) = ports.strip_prefix("TCP INET: ") {
                        let port: u16 = port.trim().parse().expect("it is a port");
                        let address = ([127, 0, 0, 1], port).into();
                        break match client_config {
                            Some(config) if name == "TLS" => At::Tls(address, config),
                            _ => At::Tcp(address),
                        };
                    }
                }
                None if UnixStream::connect(folder.file("socket")).is_ok() => {
                    break At::Unix(folder.file("socket"));
                }
                None => {}
            }
        };
        Self { name, child, at, _folder: folder }
    }

    fn connect(&self) -> Box<dyn Stream> {
        match &self.at {
            At::Tcp(address) => {
                let stream = TcpStream::connect(address).expect("it listens");
                stream.set_nodelay(true).expect("it is a socket");
                stream.set_nonblocking(true).expect("it is a socket");
                Box::new(stream)
            }
            At::Tls(address, config) => {
                let mut stream = TcpStream::connect(address).expect("it listens");
                let name = "localhost".try_into().expect("it is a name");
                let mut tls = ClientConnection::new(Arc::clone(config), name).expect("rustls is set up");
                while tls.is_handshaking() {
                    tls.complete_io(&mut stream).expect("the server shakes hands");
                }
                stream.set_nonblocking(true).expect("it is a socket");
                Box::new(StreamOwned::new(tls, stream))
            }
            At::Unix(path) => {
                let stream = UnixStream::connect(path).expect("it listens");
                stream.set_nonblocking(true).expect("it is a socket");
                Box::new(stream)
            }
        }
    }

    /// What the server answers to each request on a connection of its own, and whether it closes it.
    fn ask_each(&self, requests: &[Vec<u8>]) -> Vec<(Vec<u8>, bool)> {
        let mut streams: Vec<_> = requests.iter().map(|_| self.connect()).collect();
        let later: Vec<_> = (0..3).map(|_| self.connect()).collect();
        for (stream, request) in streams.iter_mut().zip(requests) {
            write(&mut **stream, request);
        }
        // One worker serves all of them: what came before these three is dealt with when the last of them is, or when
        // the server has been told to end.
        for mut later in later {
            write(&mut *later, b"version\r\nversion\r\nversion\r\n");
            eventually(|| !later.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
        }
        thread::sleep(SILENCE);
        streams.iter_mut().map(|stream| read_all(&mut **stream)).collect()
    }

    fn ask(&self, request: &[u8]) -> (Vec<u8>, bool) {
        self.ask_each(&[request.to_vec()]).remove(0)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Of a client that trusts this certificate.
fn client_config(certificate: CertificateDer<'static>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("it is a certificate");
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("there are some");
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Longer than a pause after a wrong password, so that what has not come then does not come.
const SILENCE: Duration = Duration::from_millis(500);

/// What has come, and whether the server has closed.
fn read_all(stream: &mut dyn Stream) -> (Vec<u8>, bool) {
    let mut reply = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return (reply, true),
            Ok(n) => reply.extend_from_slice(&buffer[..n]),
            Err(error) => return (reply, error.kind() != ErrorKind::WouldBlock),
        }
    }
}

fn write(stream: &mut dyn Stream, request: &[u8]) {
    // The server may have closed.
    let _ = stream.write_all(request);
}

/// Every command of the text protocol, with a value where there is one. `canary` is the key of an item that must not be
/// seen or change.
const TEXT: &[&str] = &[
    "get canary\r\n",
    "gets canary\r\n",
    "gat 0 canary\r\n",
    "gats 0 canary\r\n",
    "set canary 0 0 4\r\nx xx\r\n",
    "set canary 0 0 4 noreply\r\nx xx\r\n",
    "add other 0 0 1\r\nx\r\n",
    "replace canary 0 0 1\r\nx\r\n",
    "append canary 0 0 1\r\nx\r\n",
    "prepend canary 0 0 1\r\nx\r\n",
    "cas canary 0 0 1 1\r\nx\r\n",
    "delete canary\r\n",
    "incr canary 1\r\n",
    "decr canary 1\r\n",
    "touch canary 1\r\n",
    "mg canary v\r\n",
    "ms canary 1\r\nx\r\n",
    "md canary q\r\n",
    "ma canary\r\n",
    "me canary\r\n",
    "mn\r\n",
    "stats\r\n",
    "stats settings\r\n",
    "stats items\r\n",
    "stats slabs\r\n",
    "stats sizes\r\n",
    "stats conns\r\n",
    "stats reset\r\n",
    "stats detail on\r\n",
    "stats cachedump 1 0\r\n",
    "flush_all\r\n",
    "flush_all 0 noreply\r\n",
    "version\r\n",
    "verbosity 2\r\n",
    "cache_memlimit 1\r\n",
    "lru mode flat\r\n",
    "lru_crawler metadump all\r\n",
    "lru_crawler mgdump all\r\n",
    "slabs reassign 1 2\r\n",
    "watch fetchers\r\n",
    "refresh_certs\r\n",
    "misbehave\r\n",
    "shutdown\r\n",
    "shutdown graceful\r\n",
    "quit\r\n",
    "no such command\r\n",
    "GET / HTTP/1.1\r\n",
];

const TEXT_LOGIN: &str = "set x 0 0 8\r\nann pass\r\n";
const UNAUTHENTICATED: &str = "CLIENT_ERROR unauthenticated\r\n";

#[test]
fn text() {
    let endpoints = Endpoint::all("-Y");
    thread::scope(|scope| endpoints.iter().for_each(|door| drop(scope.spawn(|| text_at(door)))));
}

fn text_at(door: &Endpoint) {
    let all_after =
        |head: &str| TEXT.iter().map(|command| format!("{head}{command}").into_bytes()).collect::<Vec<_>>();
    let stored = door.ask(format!("{TEXT_LOGIN}set canary 0 0 1\r\n7\r\n").as_bytes());
    assert_eq!(stored, (b"STORED\r\nSTORED\r\n".to_vec(), false), "{}", door.name);

    // Before: no login, and one that fails.
    let wrong_login = "set x 0 0 8\r\nann bass\r\n";
    for (head, answer_to_it) in [("", ""), (wrong_login, "CLIENT_ERROR authentication failure\r\n")] {
        for (command, (reply, is_closed)) in TEXT.iter().zip(door.ask_each(&all_after(head))) {
            let what = format!("{}: {head:?} {command:?}", door.name);
            let reply = String::from_utf8_lossy(&reply).into_owned();
            let rest = reply.strip_prefix(answer_to_it).unwrap_or_else(|| panic!("{what}: {reply}"));
            let line_bytes = command.find('\n').expect("it is a line");
            // A value is a line of its own, and too short for one.
            let has_value = command.matches('\n').count() > 1;
            let expected = match () {
                // It is taken for a login.
                () if command.starts_with("set ") => ("CLIENT_ERROR authentication failure\r\n", false),
                () if line_bytes < 6 => ("", true),
                () => (UNAUTHENTICATED, has_value),
            };
            assert_eq!((rest, is_closed), expected, "{what}");
        }
    }

    // During: what stands in a login's value is no command.
    let answers = door.ask_each(&all_after("set x 0 0 100\r\n"));
    for (command, answer) in TEXT.iter().zip(answers) {
        assert_eq!(answer, (Vec::new(), false), "{}: in the middle of a login {command:?}", door.name);
    }

    // The binary protocol is no way around.
    let requests: Vec<_> = binary_commands().into_iter().chain([binary_login()]).collect();
    for (reply, _) in door.ask_each(&requests) {
        let reply = String::from_utf8_lossy(&reply).into_owned();
        assert!(reply.is_empty() || reply == UNAUTHENTICATED, "{}: {reply:?}", door.name);
    }

    // Nothing of all this had an effect.
    let (reply, _) = door.ask(format!("{TEXT_LOGIN}get canary other\r\nstats\r\n").as_bytes());
    let reply = String::from_utf8_lossy(&reply).into_owned();
    assert!(reply.starts_with("STORED\r\nVALUE canary 0 1\r\n7\r\nEND\r\n"), "{}: {reply}", door.name);
    for stat in ["cmd_get 2", "cmd_set 1", "cmd_flush 0", "cmd_touch 0", "cmd_meta 0", "curr_items 1"] {
        assert!(reply.contains(&format!("STAT {stat}\r\n")), "{}: {stat}", door.name);
    }

    // After.
    for (command, (reply, is_closed)) in TEXT.iter().zip(door.ask_each(&all_after(TEXT_LOGIN))) {
        let what = format!("{}: after a login {command:?}", door.name);
        let reply = String::from_utf8_lossy(&reply).into_owned();
        // The server may have stopped before it was this one's turn.
        let is_stopped = is_closed && reply.is_empty();
        assert!(reply.starts_with("STORED\r\n") || is_stopped, "{what}: {reply}");
        assert!(!reply.contains("unauthenticated"), "{what}: {reply}");
    }
}

/// A packet of the binary protocol.
fn packet(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let body_bytes = (extras.len() + key.len() + value.len()) as u32;
    let mut packet = vec![0x80, opcode];
    packet.extend_from_slice(&(key.len() as u16).to_be_bytes());
    packet.extend_from_slice(&[extras.len() as u8, 0, 0, 0]);
    packet.extend_from_slice(&body_bytes.to_be_bytes());
    packet.extend_from_slice(&[0; 12]);
    [&packet, extras, key, value].concat()
}

/// Status and body of the packets in a reply.
fn packets(mut reply: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut packets = Vec::new();
    while let [0x81, _, _, _, _, _, status0, status1, a, b, c, d, ..] = *reply {
        let body_bytes = u32::from_be_bytes([a, b, c, d]) as usize;
        packets.push((u16::from_be_bytes([status0, status1]), reply[24..24 + body_bytes].to_vec()));
        reply = &reply[24 + body_bytes..];
    }
    assert!(reply.is_empty(), "{reply:?}");
    packets
}

/// A well-formed packet of every opcode there is, and of some that there are not.
fn binary_commands() -> Vec<Vec<u8>> {
    let opcode = |opcode: u8| match opcode {
        // get*
        0x00 | 0x09 | 0x0c | 0x0d => packet(opcode, b"", b"canary", b""),
        // set, add, replace
        0x01..=0x03 | 0x11..=0x13 => packet(opcode, &[0; 8], b"canary", b"x"),
        // delete
        0x04 | 0x14 => packet(opcode, b"", b"canary", b""),
        // incr, decr
        0x05 | 0x06 | 0x15 | 0x16 => packet(opcode, &[0; 20], b"canary", b""),
        // append, prepend
        0x0e | 0x0f | 0x19 | 0x1a => packet(opcode, b"", b"canary", b"x"),
        // touch, gat*
        0x1c..=0x1e | 0x23 | 0x24 => packet(opcode, &[0; 4], b"canary", b""),
        // sasl-auth, sasl-step
        0x21 | 0x22 => packet(opcode, b"", b"PLAIN", b"\0ann\0bass"),
        // quit, flush, noop, version, stat, quitq, flushq, verbosity, sasl-list, and what is unknown
        _ => packet(opcode, b"", b"", b""),
    };
    (0x00..=0x50).map(opcode).collect()
}

fn binary_login() -> Vec<u8> {
    packet(0x21, b"", b"PLAIN", b"\0ann\0pass")
}

#[test]
fn binary() {
    let endpoints = Endpoint::all("-S");
    thread::scope(|scope| endpoints.iter().for_each(|door| drop(scope.spawn(|| binary_at(door)))));
}

fn binary_at(door: &Endpoint) {
    let all_after =
        |head: &[u8]| binary_commands().iter().map(|command| [head, command].concat()).collect::<Vec<_>>();
    let get_canary = packet(0x00, b"", b"canary", b"");
    let wrong_login = packet(0x21, b"", b"PLAIN", b"\0ann\0bass");
    let refused = (0x20, b"Auth failure.".to_vec());
    let (reply, is_closed) = door.ask(&[binary_login(), packet(0x01, &[0; 8], b"canary", b"7")].concat());
    assert_eq!(packets(&reply), [(0, b"Authenticated".to_vec()), (0, Vec::new())], "{}", door.name);
    assert!(!is_closed);

    // Before: no login, and one that fails. During: a login that waits for its next step.
    let scram_start = packet(0x21, b"", b"SCRAM-SHA-256", b"n,,n=ann,r=abc");
    for (head, status_of_it) in [(&[][..], None), (&wrong_login, Some(0x20)), (&scram_start, Some(0x21))] {
        for (command, (reply, is_closed)) in binary_commands().iter().zip(door.ask_each(&all_after(head))) {
            let opcode = command[1];
            let what = format!("{}: {status_of_it:?} {opcode:#x}", door.name);
            let mut replies = packets(&reply);
            if let Some(status) = status_of_it {
                assert_eq!(replies.remove(0).0, status, "{what}");
            }
            let [(status, body)] = &replies[..] else { panic!("{what}: {replies:?}") };
            let expected = match opcode {
                0x0b | 0x20 => (0, false),
                0x21 | 0x22 => (0x20, false),
                _ => (0x20, true),
            };
            assert_eq!((*status, is_closed), expected, "{what}");
            assert_eq!(body == b"Auth failure.", *status != 0, "{what}");
        }
    }
    // A value that has not arrived does not save a command from being refused, nor does a large one get memory.
    for value_bytes in [4096, 1 << 20] {
        let answer = door.ask(&packet(0x01, &[0; 8], b"canary", &vec![b'x'; value_bytes])[..100]);
        assert_eq!((packets(&answer.0), answer.1), (vec![refused.clone()], true), "{}", door.name);
    }

    // Text is no way around.
    let requests: Vec<_> =
        TEXT.iter().chain([&TEXT_LOGIN]).map(|command| command.as_bytes().to_vec()).collect();
    for (request, answer) in requests.iter().zip(door.ask_each(&requests)) {
        // Shorter than a packet's header, it might become one.
        let is_packet = request.len() >= 24;
        assert_eq!(answer, (Vec::new(), is_packet), "{}: {}", door.name, request.escape_ascii());
    }

    // Nothing of all this had an effect.
    let stat = packet(0x10, b"", b"", b"");
    let (reply, _) = door.ask(&[binary_login(), get_canary.clone(), stat].concat());
    let replies = packets(&reply);
    assert_eq!(replies[1], (0, b"\0\0\0\x007".to_vec()), "{}", door.name);
    let stats: Vec<_> = replies.iter().map(|(_, body)| String::from_utf8_lossy(body).into_owned()).collect();
    for stat in ["cmd_get1", "cmd_set1", "cmd_flush0", "cmd_touch0", "curr_items1"] {
        assert!(stats.iter().any(|line| line == stat), "{}: {stat}", door.name);
    }

    // After; and what fails then logs out.
    for (command, (reply, is_closed)) in
        binary_commands().iter().zip(door.ask_each(&all_after(&binary_login())))
    {
        let opcode = command[1];
        let what = format!("{}: after a login {opcode:#x}", door.name);
        let replies = packets(&reply);
        assert_eq!(replies[0], (0, b"Authenticated".to_vec()), "{what}");
        let is_login = matches!(opcode, 0x21 | 0x22);
        assert!(replies[1..].iter().all(|reply| (*reply == refused) == is_login), "{what}: {replies:?}");
        assert_eq!(is_closed, matches!(opcode, 0x07 | 0x17), "{what}");
    }
    for again in [wrong_login, packet(0x22, b"", b"PLAIN", b"\0ann\0pass"), scram_start] {
        let (reply, is_closed) = door.ask(&[binary_login(), again.clone(), get_canary.clone()].concat());
        assert_eq!(packets(&reply).last(), Some(&refused), "{}: {}", door.name, again.escape_ascii());
        assert!(is_closed, "{}: {}", door.name, again.escape_ascii());
    }
}
