//! UDP, with real sockets. What both servers answer alike is what memcached 1.6.18 answers; it is asked as well.

use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use larder_conformance::server::{self, Server, eventually};
use larder_conformance::stats::Stats;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// A server with UDP.
fn start(program: &Path, args: &[&str]) -> Server {
    Server::start(program, &[&["-U", "-1"], args].concat()).expect("the server starts")
}

fn larderd() -> PathBuf {
    env!("CARGO_BIN_EXE_larderd").into()
}

/// larderd, and memcached where it is installed.
fn both() -> impl Iterator<Item = PathBuf> {
    [larderd()].into_iter().chain(server::reference())
}

/// A client: one socket, talking to one server.
struct Client(UdpSocket);

/// A datagram of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Datagram {
    id: u16,
    sequence: u16,
    total: u16,
    reserved: u16,
    payload: Vec<u8>,
}

impl Client {
    fn of(server: &Server) -> Self {
        Self::from("127.0.0.1:0", server)
    }

    fn from(source: &str, server: &Server) -> Self {
        let socket = UdpSocket::bind(source).expect("loopback can be bound");
        let address: SocketAddr = server.udp_address().expect("the server has a UDP port");
        socket.connect(address).expect("UDP connects at once");
        Self(socket)
    }

    fn send(&self, id: u16, payload: &[u8]) {
        self.send_raw(&framed([id, 0, 1, 0], payload));
    }

    fn send_raw(&self, datagram: &[u8]) {
        self.0.send(datagram).expect("the kernel takes it");
    }

    /// The next datagram; `None` if there is none within `wait`.
    fn receive(&self, wait: Duration) -> Option<Datagram> {
        self.0.set_read_timeout(Some(wait)).expect("a timeout can be set");
        let mut buffer = [0; 65536];
        let received = self.0.recv(&mut buffer).ok()?;
        assert!((8..=1400).contains(&received), "{received} bytes");
        let number = |at: usize| u16::from_be_bytes([buffer[at], buffer[at + 1]]);
        let payload = buffer[8..received].to_vec();
        Some(Datagram { id: number(0), sequence: number(2), total: number(4), reserved: number(6), payload })
    }

    /// Everything that is answered to `payload`. Sends `mn` after it, as a datagram of its own: its answer is the last,
    /// since a client's datagrams are served in order.
    fn ask(&self, payload: &[u8]) -> Vec<Datagram> {
        self.ask_raw(&framed([7, 0, 1, 0], payload))
    }

    fn ask_raw(&self, datagram: &[u8]) -> Vec<Datagram> {
        self.send_raw(datagram);
        self.send(LAST, b"mn\r\n");
        let mut datagrams = Vec::new();
        loop {
            let datagram = self.receive(PATIENCE).expect("an answer to mn");
            if datagram.id == LAST {
                return datagrams;
            }
            datagrams.push(datagram);
        }
    }

    /// The payloads of the answers to `payload`, in order.
    fn text(&self, payload: &[u8]) -> String {
        let all: Vec<u8> = self.ask(payload).into_iter().flat_map(|datagram| datagram.payload).collect();
        String::from_utf8(all).expect("text")
    }
}

fn framed(header: [u16; 4], payload: &[u8]) -> Vec<u8> {
    let mut datagram: Vec<u8> = header.into_iter().flat_map(u16::to_be_bytes).collect();
    datagram.extend_from_slice(payload);
    datagram
}

fn set(key: &str, value: &[u8]) -> Vec<u8> {
    [format!("set {key} 5 0 {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

/// Does something while the server is stopped, so that it finds all at once that is sent meanwhile.
fn while_stopped(server: &Server, act: impl FnOnce()) {
    let pid = Pid::from_raw(server.pid() as i32).expect("it is not 0");
    kill_process(pid, Signal::STOP).expect("it runs");
    // All threads have stopped once the kernel says so.
    let (_, status) =
        waitpid(Some(pid), WaitOptions::UNTRACED).expect("it is ours").expect("it was waited for");
    assert!(status.stopped(), "{status:?}");
    act();
    kill_process(pid, Signal::CONT).expect("it is there");
}

/// One worker: memcached's have one socket in common, and would answer out of order.
const ONE_WORKER: &[&str] = &["-t", "1"];
const LAST: u16 = 0xffff;
const PATIENCE: Duration = Duration::from_secs(60);
const A_MOMENT: Duration = Duration::from_millis(200);
const A_WHILE: Duration = Duration::from_secs(2);

#[test]
fn both_servers_answer_alike() {
    for program in both() {
        let server = start(&program, ONE_WORKER);
        let client = Client::of(&server);
        let one = |payload: &str| Datagram {
            id: 7,
            sequence: 0,
            total: 1,
            reserved: 0,
            payload: payload.as_bytes().to_vec(),
        };
        for (request, replies) in [
            ("set a 5 0 1\r\n1\r\nset b 0 0 1\r\n2\r\n", &["STORED\r\n", "STORED\r\n"][..]),
            ("get a\r\n", &["VALUE a 5 1\r\n1\r\nEND\r\n"]),
            (
                "get a\r\nget none\r\nget b\r\n",
                &["VALUE a 5 1\r\n1\r\nEND\r\n", "END\r\n", "VALUE b 0 1\r\n2\r\nEND\r\n"],
            ),
            (
                "mg a v\r\nmg none v\r\nmg b v\r\nmn\r\n",
                &["VA 1\r\n1\r\n", "EN\r\n", "VA 1\r\n2\r\n", "MN\r\n"],
            ),
            ("mg none v q\r\nmg a v q\r\nmn\r\n", &["VA 1\r\n1\r\n", "MN\r\n"]),
            ("ms m 2\r\nmm\r\nmd m\r\n", &["HD\r\n", "HD\r\n"]),
            ("incr a 41\r\ndecr a 2\r\n", &["42\r\n", "40\r\n"]),
            ("set a 0 0 1 noreply\r\n1\r\nincr a 1 noreply\r\n", &[]),
            ("get a\r\n", &["VALUE a 0 1\r\n2\r\nEND\r\n"]),
            ("bogus\r\n", &["ERROR\r\n"]),
        ] {
            let replies: Vec<_> = replies.iter().map(|reply| one(reply)).collect();
            assert_eq!(client.ask(request.as_bytes()), replies, "{}: {request:?}", program.display());
        }
    }
}

/// A packet of the binary protocol.
fn packet(opcode: u8, extras: &[u8], key: &str, value: &[u8], opaque: u32) -> Vec<u8> {
    let body_bytes = (extras.len() + key.len() + value.len()) as u32;
    [
        &[0x80, opcode][..],
        &(key.len() as u16).to_be_bytes(),
        &[extras.len() as u8, 0, 0, 0],
        &body_bytes.to_be_bytes(),
        &opaque.to_be_bytes(),
        &[0; 8],
        extras,
        key.as_bytes(),
        value,
    ]
    .concat()
}

#[test]
fn the_binary_protocol_is_told_by_the_first_byte_of_each_datagram() {
    let [get, setq, noop, getkq]: [u8; 4] = [0x00, 0x11, 0x0a, 0x0d];
    let mut answers = Vec::new();
    for program in both() {
        let server = start(&program, ONE_WORKER);
        let client = Client::of(&server);
        let mut all = Vec::new();
        assert_eq!(client.text(&set("text", b"1")), "STORED\r\n");
        for request in [
            packet(setq, &[0; 8], "binary", &[b'x'; 2000], 1),
            packet(get, &[], "binary", &[], 2),
            [
                packet(getkq, &[], "text", &[], 3),
                packet(getkq, &[], "none", &[], 4),
                packet(noop, &[], "", &[], 5),
            ]
            .concat(),
            packet(get, &[], "none", &[], 6),
        ] {
            // memcached sends an empty frame for a quiet miss.
            for mut datagram in client.ask(&request).into_iter().filter(|datagram| datagram.total > 0) {
                if datagram.sequence == 0 {
                    // CAS values are each server's own.
                    datagram.payload[16..24].fill(0);
                }
                all.push(datagram);
            }
        }
        assert_eq!(all.len(), 2 + 2 + 1, "{}", program.display());
        answers.push(all);
    }
    assert!(answers.windows(2).all(|both| both[0] == both[1]), "{answers:?}");
}

#[test]
fn errors_of_udp_are_told_in_the_binary_protocol_too() {
    let stat = 0x10;
    let server = start(&larderd(), ONE_WORKER);
    let client = Client::of(&server);
    let requests = [(packet(stat, &[], "", &[], 7), 0x0083_u16)];
    for (request, status) in requests {
        let [answer] = &client.ask(&request)[..] else { panic!("one datagram") };
        let expected = [&[0x81, request[1], 0, 0, 0, 0][..], &status.to_be_bytes()].concat();
        assert_eq!(answer.payload[..8], expected);
        assert_eq!(answer.payload[12..16], 7_u32.to_be_bytes());
    }
}

/// memcached keeps half a command and puts the next datagram behind it, whoever sent that.
#[test]
fn what_is_not_whole_is_lost_and_forgotten() {
    let server = start(&larderd(), ONE_WORKER);
    let client = Client::of(&server);
    assert_eq!(client.text(b"set a 0 0 1\r\n1\r\n"), "STORED\r\n");
    for (request, reply) in [
        ("get a b", ""),
        ("set a 0 0 10\r\n123", ""),
        ("set a 0 0 1000000\r\n123", ""),
        ("ms a 10\r\n", ""),
        ("mn\r\nset a 0 0 10\r\n123\r\nmn\r\n", "MN\r\n"),
        ("GET / HTTP/1.0\r\n\r\n", ""),
        ("\u{80}\u{0}", ""),
    ] {
        assert_eq!(client.text(request.as_bytes()), reply, "{request:?}");
        assert_eq!(client.text(b"get a\r\n"), "VALUE a 0 1\r\n1\r\nEND\r\n", "after {request:?}");
    }
    let long = [b"get ", &[b'k'; 60_000][..]].concat();
    assert_eq!(client.text(&long), "");
    assert_eq!(client.text(b"get a\r\n"), "VALUE a 0 1\r\n1\r\nEND\r\n");
}

#[test]
fn frames_that_are_no_request_are_dropped() {
    for program in both() {
        let server = start(&program, ONE_WORKER);
        let client = Client::of(&server);
        for dropped in [
            &b""[..],
            b"\x00",
            b"\x00\x07\x00\x00\x00\x01\x00",
            b"\x00\x07\x00\x00\x00\x01\x00\x00",
            b"\x00\x07\x00\x00\x00\x00\x00\x00version\r\n",
            b"\x00\x07\x00\x00\x00\x02\x00\x00version\r\n",
            b"\x00\x07\x00\x01\x00\x02\x00\x00version\r\n",
            b"\x00\x07\x00\x00\xff\xff\x00\x00version\r\n",
        ] {
            assert_eq!(client.ask_raw(dropped), [], "{}: {dropped:?}", program.display());
        }
        let odd = client.ask_raw(b"\x12\x34\x00\x05\x00\x01\x00\x09mn\r\n");
        assert_eq!(
            odd,
            [Datagram { id: 0x1234, sequence: 0, total: 1, reserved: 0, payload: b"MN\r\n".to_vec() }]
        );
    }
}

#[test]
fn large_replies_are_cut_into_numbered_datagrams() {
    let value: Vec<u8> = (0..5000_u32).map(|n| (n % 251) as u8).collect();
    let whole = [b"VALUE big 5 5000\r\n", &value[..], b"\r\nEND\r\n"].concat();
    for program in both() {
        let server = start(&program, ONE_WORKER);
        let client = Client::of(&server);
        assert_eq!(client.text(&set("big", &value)), "STORED\r\n");
        let datagrams = client.ask(b"get big\r\n");
        let frames: Vec<_> = datagrams.iter().map(|d| (d.id, d.sequence, d.total, d.payload.len())).collect();
        assert_eq!(frames, [(7, 0, 4, 1392), (7, 1, 4, 1392), (7, 2, 4, 1392), (7, 3, 4, 849)]);
        let payload: Vec<u8> = datagrams.into_iter().flat_map(|datagram| datagram.payload).collect();
        assert_eq!(payload, whole);
    }
}

/// memcached 1.6 makes every hit a message of its own, so a client that waits for all datagrams of its request id never
/// knows when it has them. Here the reply is one message, as doc/protocol.txt has it; its bytes are the same.
#[test]
fn a_get_of_many_keys_is_one_message() {
    let keys: Vec<String> = (0..100).map(|n| format!("key{n}")).collect();
    let get = format!("get {} none\r\n", keys.join(" "));
    let mut texts = Vec::new();
    for program in both() {
        let server = start(&program, ONE_WORKER);
        let client = Client::of(&server);
        for (n, key) in keys.iter().enumerate() {
            assert_eq!(client.text(&set(key, &vec![b'a' + n as u8 % 26; 10 + 5 * n])), "STORED\r\n");
        }
        let datagrams = client.ask(get.as_bytes());
        if program == larderd() {
            let total = datagrams.len();
            assert!(total > 10, "{total}");
            for (sequence, datagram) in (0..).zip(&datagrams) {
                assert_eq!((datagram.sequence, usize::from(datagram.total)), (sequence, total));
            }
        }
        // An empty frame for the key that is absent is memcached's own.
        let text: Vec<u8> = datagrams.into_iter().flat_map(|datagram| datagram.payload).collect();
        texts.push(String::from_utf8(text).expect("text"));
    }
    assert!(texts[0].starts_with("VALUE key0 5 10\r\naaaaaaaaaa\r\n") && texts[0].ends_with("\r\nEND\r\n"));
    assert!(texts.windows(2).all(|both| both[0] == both[1]));
}

/// memcached sends 72 datagrams.
#[test]
fn large_values_are_answered_by_both_servers() {
    let value: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
    let whole = [b"VALUE big 5 100000\r\n", &value[..], b"\r\nEND\r\n"].concat();
    for program in both() {
        let server = start(&program, ONE_WORKER);
        let client = Client::of(&server);
        store(&server, "big", &value);
        let datagrams = client.ask(b"get big\r\n");
        assert_eq!(datagrams.len(), 72, "{}", program.display());
        assert!(
            datagrams.iter().zip(0..).all(|(datagram, n)| (datagram.sequence, datagram.total) == (n, 72))
        );
        let payload: Vec<u8> = datagrams.into_iter().flat_map(|datagram| datagram.payload).collect();
        assert_eq!(payload, whole);
    }
}

#[test]
fn replies_beyond_4_mib_are_refused() {
    let server = start(&larderd(), &[]);
    let client = Client::of(&server);
    for key in ["a", "b", "c", "d", "e"] {
        store(&server, key, &[b'x'; 1_000_000]);
    }
    assert_eq!(client.text(b"get a b c d e\r\nmn\r\n"), "SERVER_ERROR too large for UDP\r\nMN\r\n");
    let stats = Stats::of(server.address()).expect("stats");
    assert_eq!(stats.get("udp_withheld").expect("a line"), 1);
}

/// Else one datagram could keep a worker for as long as tens of thousands of large values take.
#[test]
fn what_follows_in_a_get_that_is_refused_is_not_looked_up() {
    let server = start(&larderd(), &[]);
    let client = Client::of(&server);
    store(&server, "a", &[b'x'; 1_000_000]);
    let get = format!("get{}\r\nmn\r\n", " a".repeat(20_000));
    assert_eq!(client.text(get.as_bytes()), "SERVER_ERROR too large for UDP\r\nMN\r\n");
    let stats = Stats::of(server.address()).expect("stats");
    assert_eq!(stats.get("udp_withheld").expect("a line"), 1);
    let hits = stats.get("get_hits").expect("a line");
    assert!((5..10).contains(&hits), "{hits} looked up of 20000, 5 are too large");
}

/// Stores by TCP, as what is too long for a datagram has to be.
fn store(server: &Server, key: &str, value: &[u8]) {
    let mut stream = server.connect().expect("the server listens");
    stream.write_all(&set(key, value)).expect("the server reads");
    let mut reply = [0; 8];
    stream.read_exact(&mut reply).expect("the server answers");
    assert_eq!(&reply, b"STORED\r\n");
}

/// The source of a datagram is easily forged: nobody is to learn of the server by it, nor to steer it.
#[test]
fn only_items_are_served() {
    let server = start(&larderd(), &["-A"]);
    let client = Client::of(&server);
    for request in [
        "stats\r\n",
        "stats items\r\n",
        "stats reset\r\n",
        "verbosity 1\r\n",
        "shutdown\r\n",
        "refresh_certs\r\n",
        "lru_crawler metadump all\r\n",
        "lru_crawler mgdump all\r\n",
        "cache_memlimit 100\r\n",
        "watch\r\n",
        "slabs reassign 1 2\r\n",
    ] {
        assert_eq!(client.text(request.as_bytes()), "CLIENT_ERROR not over UDP\r\n", "{request:?}");
    }
    // As in memcached, less the empty frame.
    assert_eq!(client.text(b"mn\r\nquit\r\nmn\r\n"), "MN\r\n");
}

#[test]
fn a_clients_datagrams_are_served_in_order() {
    let server = start(&larderd(), &["-t", "4"]);
    for source in 1..=20 {
        let client = Client::from(&format!("127.0.0.{source}:0"), &server);
        client.send(0, b"set n 0 0 1\r\n0\r\n");
        for id in 1..100 {
            client.send(id, b"incr n 1\r\n");
        }
        for id in 0..100 {
            let reply = client.receive(PATIENCE).expect("an answer to each");
            assert_eq!(reply.id, id);
        }
        assert_eq!(client.text(b"get n\r\n"), "VALUE n 0 2\r\n99\r\nEND\r\n");
    }
}

/// Two servers set upon each other by a forged datagram would answer each other's answers for ever.
#[test]
fn servers_are_not_answered() {
    let server = start(&larderd(), &[]);
    let port = server.udp_address().expect("a UDP port").port();
    let other = Client::from(&format!("127.0.0.2:{port}"), &server);
    other.send(7, b"mn\r\n");
    assert_eq!(other.receive(A_MOMENT), None);
    assert_eq!(Client::of(&server).text(b"mn\r\n"), "MN\r\n");
    // Another worker may have answered.
    eventually(|| {
        Stats::of(server.address()).and_then(|stats| stats.get("udp_dropped")).expect("a line") == 1
    });
}

/// A worker has a socket of each family. (127.0.0.1 every server here listens at.)
#[test]
fn clients_of_both_families_are_answered_in_turn() {
    let Ok(six) = UdpSocket::bind("[::1]:0") else { return }; // a system without IPv6
    let four = UdpSocket::bind("127.0.0.1:0").expect("loopback can be bound");
    let port = server::free_port();
    let second_address = ["-U", &port.to_string(), "-l", "::1", "-t", "1"];
    let _server = start(&larderd(), &second_address);
    four.connect(("127.0.0.1", port)).expect("UDP connects at once");
    six.connect(("::1", port)).expect("UDP connects at once");
    for client in [four, six].map(Client).iter().cycle().take(6) {
        client.send(1, b"mn\r\n");
        assert_eq!(client.receive(PATIENCE).expect("an answer").payload, b"MN\r\n");
    }
}

#[test]
fn in_cookie_mode_a_stranger_gets_no_more_than_it_sent() {
    let server = start(&larderd(), &["--udp-cookie"]);
    let client = Client::of(&server);
    // What fits is answered, so that clients which only store need not know of cookies.
    client.send(1, &set("key", &[b'v'; 100]));
    assert_eq!(client.receive(PATIENCE).expect("an answer").payload, b"STORED\r\n");
    // What does not fit is not, and there is no room for a cookie either.
    client.send(2, b"get key\r\n");
    let challenge = client.receive(PATIENCE).expect("17 bytes came in, so 16 may go out");
    assert_eq!((challenge.id, challenge.sequence, challenge.total, challenge.reserved), (2, 0, 0, 0x436b));
    assert_eq!(challenge.payload.len(), 8);
    client.send(3, b"mg k v\n");
    assert_eq!(client.receive(PATIENCE).expect("a miss fits").payload, b"EN\r\n");
    client.send(4, b"gets key");
    assert_eq!(client.receive(A_MOMENT), None);

    let with_cookie = |payload: &[u8]| [&challenge.payload[..], payload].concat();
    client.send_raw(&framed([5, 0, 1, 0x436b], &with_cookie(b"get key\r\n")));
    let reply = client.receive(PATIENCE).expect("an answer");
    assert_eq!((reply.id, reply.reserved), (5, 0));
    assert_eq!(reply.payload, [b"VALUE key 5 100\r\n", &[b'v'; 100][..], b"\r\nEND\r\n"].concat());

    // Asking for a cookie, and nothing else.
    client.send_raw(&framed([6, 0, 1, 0x436b], &[0; 8]));
    assert_eq!(client.receive(PATIENCE).expect("a cookie"), Datagram { id: 6, ..challenge.clone() });
    // Of another port or another address it is worth nothing.
    for source in ["127.0.0.1:0", "127.0.0.2:0"] {
        let thief = Client::from(source, &server);
        thief.send_raw(&framed([7, 0, 1, 0x436b], &with_cookie(b"get key\r\n")));
        let answer = thief.receive(PATIENCE).expect("a cookie of its own");
        assert_eq!(answer.total, 0);
        assert_ne!(answer.payload, challenge.payload);
    }
}

#[test]
fn a_stranger_never_gets_more_than_it_sent_whatever_it_sends() {
    let server = start(&larderd(), &["--udp-cookie"]);
    let client = Client::of(&server);
    assert_eq!(client.text(&set("key", &[b'v'; 1000])), "STORED\r\n");
    let words = [
        "get key\r\n",
        "version\r\n",
        "mn\r\n",
        "\r\n",
        "mg key v k f c t\r\n",
        "get a b c\r\n",
        "stats\r\n",
    ];
    let mut random = Rng::with_seed(7);
    for _ in 0..300 {
        let request: String = (0..random.usize(..5)).map(|_| words[random.usize(..words.len())]).collect();
        client.send(1, request.as_bytes());
        let sent = 8 + request.len();
        let mut got = 0;
        // Its answer may be none at all, so an end is marked by the answer to a cookie request.
        client.send_raw(&framed([2, 0, 1, 0x436b], &[0; 8]));
        loop {
            let datagram = client.receive(PATIENCE).expect("a cookie");
            if datagram.id == 2 {
                break;
            }
            got += 8 + datagram.payload.len();
        }
        assert!(got <= sent, "{got} bytes for {sent}: {request:?}");
    }
}

#[test]
fn random_datagrams_do_no_harm() {
    let words: [&[u8]; 16] = [
        b"get ",
        b"set k 0 0 ",
        b"ms k ",
        b"mg k ",
        b"1",
        b"4294967295",
        b"\r\n",
        b"\n",
        b" ",
        b"\0",
        b"\x80\0\0\x01",
        b"key ",
        b"v t c k ",
        b"99999999999999999999",
        b"noreply",
        b"\xff\xff\xff\xff",
    ];
    for args in [&[][..], &["--udp-cookie"]] {
        let mut server = start(&larderd(), args);
        let client = Client::of(&server);
        let mut random = Rng::with_seed(1);
        for _ in 0..20_000 {
            let mut datagram = framed([1, 0, u16::from(random.u8(..8) > 0), 0], b"");
            if random.u8(..16) == 0 {
                datagram.truncate(random.usize(..8));
            }
            for _ in 0..random.u8(..12) {
                datagram.extend_from_slice(words[random.usize(..words.len())]);
            }
            if random.u8(..) == 0 {
                datagram.resize(60_000, random.u8(..));
            }
            client.send_raw(&datagram);
        }
        assert!(server.is_running());
        // The datagram that asks may itself be lost in the flood.
        let is_answered = (0..100).any(|_| {
            client.send(9, b"mn\r\n");
            std::iter::from_fn(|| client.receive(A_MOMENT)).any(|datagram| datagram.id == 9)
        });
        assert!(is_answered, "no answer to a hundred requests");
    }
}

#[test]
fn port_and_counters_are_told() {
    let server = start(&larderd(), &[]);
    assert_ne!(server.udp_address(), Some(server.address()));
    let client = Client::of(&server);
    let before = Stats::of(server.address()).expect("stats");
    assert_eq!(client.ask(b"mn\r\n").len(), 1);
    // What is sent is counted once it is sent: the answer may be here first.
    eventually(|| {
        let after = Stats::of(server.address()).expect("stats");
        let grown = |name: &str| after.get(name).expect("a line") - before.get(name).expect("a line");
        grown("udp_requests") == 2 && grown("bytes_read") >= 2 * 12 && grown("bytes_written") >= 2 * 12
    });
}

#[test]
fn without_u_there_is_no_udp() {
    let server = Server::start::<&str>(&larderd(), &[]).expect("larderd starts");
    assert_eq!(server.udp_address(), None);
}

/// With a worker's wake-up these are more than a ring takes with one system call.
#[test]
fn a_worker_serves_many_addresses() {
    let others: Vec<_> = (2..=64).map(|host| format!("127.0.0.{host}")).collect();
    let server = start(&larderd(), &["-t", "1", "-l", &others.join(",")]);
    assert_eq!(server.addresses().len(), 64);
    assert_eq!(Client::of(&server).text(b"mn\r\n"), "MN\r\n");
    assert!(Stats::of(server.address()).is_ok());
}

/// A datagram of a few bytes a command may name a large value thousands of times.
#[test]
fn a_datagram_may_copy_only_so_much() {
    let server = start(&larderd(), ONE_WORKER);
    let client = Client::of(&server);
    store(&server, "a", &[b'x'; 1_000_000]);
    // Not even the size of the value changes.
    let appends = "append a 0 0 0 noreply\r\n\r\n".repeat(2500);
    assert_eq!(client.text(appends.as_bytes()), "");
    let stats = Stats::of(server.address()).expect("stats");
    let stores = stats.get("cmd_set").expect("a line") - 1;
    assert!((1..=5).contains(&stores), "{stores} copies of a value of a megabyte");
    assert_eq!(stats.get("udp_dropped").expect("a line"), 1);
    // The next datagram has a budget of its own.
    assert_eq!(client.text(b"append a 0 0 1\r\nx\r\nmn\r\n"), "STORED\r\nMN\r\n");
}

/// Commands by the thousand in datagrams of others do not come before a command that was sent after them.
#[test]
fn long_datagrams_are_served_beside_new_ones() {
    let server = start(&larderd(), &["-t", "1", "-R", "20"]);
    let (hasty, patient) = (Client::of(&server), Client::of(&server));
    let long = "mg k\r\n".repeat(1000) + "set done 5 0 1 noreply\r\n1\r\n";
    while_stopped(&server, || {
        for _ in 0..4 {
            hasty.send(1, long.as_bytes());
        }
        patient.send(2, b"get done\r\n");
    });
    assert_eq!(patient.receive(PATIENCE).expect("an answer").payload, b"END\r\n");
    eventually(|| patient.text(b"get done\r\n") == "VALUE done 5 1\r\n1\r\nEND\r\n");
}

/// More than a host's room: as many as fit into a socket's receive buffer by default are too many, if all are long.
#[test]
fn what_a_host_sends_beyond_its_room_is_dropped() {
    let server = start(&larderd(), ONE_WORKER);
    let (hasty, patient) = (Client::of(&server), Client::of(&server));
    let stat = |name: &str| Stats::of(server.address()).and_then(|stats| stats.get(name)).expect("a line");
    // The kernel's default has room for six of them at least.
    let long = "mg k\r\n".repeat(10_000);
    while_stopped(&server, || {
        for _ in 0..40 {
            hasty.send(1, long.as_bytes());
        }
    });
    eventually(|| stat("udp_dropped") > 0);
    assert_eq!(patient.text(b"mn\r\n"), "MN\r\n");
}

/// Short datagrams that ask for megabytes each: few bytes a second keep as much waiting as a host may.
#[test]
fn a_flood_of_one_host_cuts_no_datagram_of_another() {
    let server = start(&larderd(), &["-t", "1", "-R", "20"]);
    store(&server, "large", &[b'x'; 262_000]);
    let stat = |name: &str| Stats::of(server.address()).and_then(|stats| stats.get(name)).expect("a line");
    let hasty = Client::from("127.0.0.9:0", &server);
    let flood = || {
        for _ in 0..300 {
            hasty.send(1, "get large\r\n".repeat(16).as_bytes());
        }
    };
    eventually(|| {
        flood();
        stat("udp_dropped") > 0
    });
    let victim = Client::of(&server);
    // Ten turns, which could take more than a second on a machine that stands still meanwhile.
    let is_whole = |id| {
        while_stopped(&server, || {
            flood();
            victim.send(id, "mn\r\n".repeat(200).as_bytes());
        });
        let mut replies = std::iter::from_fn(|| victim.receive(A_WHILE)).filter(|reply| reply.id == id);
        replies.by_ref().take(200).count() == 200
    };
    assert!((2..7).any(is_whole), "cut each time");
}

/// Else each port would have a new datagram begun before what others send.
#[test]
fn many_ports_of_one_host_come_before_no_other_host() {
    let server = start(&larderd(), &["-t", "1", "-R", "1"]);
    let long = "mg k\r\n".repeat(50);
    let hasty: Vec<_> = (0..150).map(|_| Client::from("127.0.0.9:0", &server)).collect();
    let other = Client::of(&server);
    while_stopped(&server, || {
        for client in &hasty {
            client.send(1, long.as_bytes());
        }
        let last = Client::from("127.0.0.9:0", &server);
        last.send(2, b"set done 5 0 1 noreply\r\n1\r\n");
        other.send(3, b"get done\r\n");
    });
    assert_eq!(other.receive(PATIENCE).expect("an answer").payload, b"END\r\n");
}

/// A client that has given up may have written something else meanwhile.
#[test]
fn a_datagram_that_has_waited_for_a_second_is_not_executed() {
    let server = start(&larderd(), ONE_WORKER);
    store(&server, "large", &[b'x'; 262_000]);
    let other = Client::of(&server);
    let has_waited = |attempt| {
        let hasty = Client::from("127.0.0.9:0", &server);
        while_stopped(&server, || {
            for _ in 0..250 {
                hasty.send(1, "get large\r\n".repeat(16).as_bytes());
            }
            hasty.send(2, b"set key 5 0 5 noreply\r\nstale\r\n");
            other.send(3, b"mn\r\n");
        });
        // The server has received what was sent before this.
        assert_eq!(other.receive(PATIENCE).expect("an answer").payload, b"MN\r\n");
        while_stopped(&server, || thread::sleep(Duration::from_millis(1100)));
        store(&server, "key", b"newer");
        // A client's datagrams are served in order, so what came before this one is done or dropped.
        let (done, is_done) = (format!("done{attempt}"), format!("VALUE done{attempt} 5 1\r\n1\r\nEND\r\n"));
        eventually(|| {
            hasty.send(4, format!("set {done} 5 0 1 noreply\r\n1\r\n").as_bytes());
            other.text(format!("get {done}\r\n").as_bytes()) == is_done
        });
        assert_eq!(other.text(b"get key\r\n"), "VALUE key 5 5\r\nnewer\r\nEND\r\n");
        let stats = Stats::of(server.address()).expect("stats");
        stats.get("udp_dropped").expect("a line") > 0
    };
    // This thread may be so late that all was served before it stopped the server.
    assert!((0..5).any(has_waited), "served in time each time");
}

/// As a connection does after so many bytes of replies.
#[test]
fn a_socket_yields_after_large_replies() {
    let server = start(&larderd(), &["-t", "1", "-R", "1000"]);
    let client = Client::of(&server);
    store(&server, "a", &[b'x'; 100_000]);
    let stat = |name: &str| Stats::of(server.address()).and_then(|stats| stats.get(name)).expect("a line");
    let before = stat("conn_yields");
    client.send(1, "get a\r\n".repeat(20).as_bytes());
    eventually(|| stat("get_hits") == 20);
    // Three of them exceed 256 KiB.
    assert_eq!(stat("conn_yields") - before, 6);
}

/// As a connection does after so many requests (`-R`), or so many bytes that were copied.
#[test]
fn a_socket_yields_within_a_datagram_and_between_datagrams() {
    let server = start(&larderd(), &["-t", "1", "-R", "10"]);
    let client = Client::of(&server);
    let stat = |name: &str| Stats::of(server.address()).and_then(|stats| stats.get(name)).expect("a line");
    let many = "set n 0 0 1\r\n0\r\n".to_owned() + &"incr n 1\r\n".repeat(100);
    assert!(client.text(many.as_bytes()).ends_with("\r\n99\r\n100\r\n"));
    assert!(stat("conn_yields") >= 10, "{} yields", stat("conn_yields"));

    store(&server, "a", &[b'x'; 1_000_000]);
    let before = stat("conn_yields");
    for _ in 0..20 {
        client.send(1, b"append a 0 0 0 noreply\r\n\r\nappend a 0 0 0\r\n\r\n");
    }
    for _ in 0..20 {
        assert_eq!(client.receive(PATIENCE).expect("an answer").payload, b"STORED\r\n");
    }
    assert!(stat("conn_yields") >= before + 20, "{} yields", stat("conn_yields") - before);
}
