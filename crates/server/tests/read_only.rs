//! Read-only mode for maintenance: every protocol refuses changes with an error, reads go on, and nothing is lost.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use larder_conformance::folder::Folder;
use larder_conformance::server::Server;

const ERROR: &str = "SERVER_ERROR read-only for maintenance";

struct Client(BufReader<TcpStream>);

impl Client {
    fn of(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("larderd listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
        Self(BufReader::new(stream))
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).expect("larderd reads");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.0.read_line(&mut line).expect("larderd answers"), 0, "larderd hung up");
        line.trim_end().to_owned()
    }

    /// All lines up to the answer to `mn`.
    fn ask(&mut self, text: &str) -> Vec<String> {
        self.send(text.as_bytes());
        self.send(b"mn\r\n");
        let lines = std::iter::repeat_with(|| self.line()).take_while(|line| line != "MN");
        lines.collect()
    }

    /// Status, opaque and body of a binary response.
    fn response(&mut self) -> (u16, u8, Vec<u8>) {
        let mut header = [0; 24];
        self.0.read_exact(&mut header).expect("a header");
        assert_eq!(header[0], 0x81);
        let length = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        let mut body = vec![0; length as usize];
        self.0.read_exact(&mut body).expect("its body");
        (u16::from_be_bytes([header[6], header[7]]), header[1], body)
    }
}

const TOKEN: &str = "operators-know-this-token";

/// A file that contains the token.
fn token_file() -> &'static str {
    static WRITTEN: Once = Once::new();
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/read-only-token");
    WRITTEN.call_once(|| std::fs::write(path, TOKEN).expect("the folder is ours"));
    path
}

fn start(args: &[&str]) -> Server {
    let own = [
        "-u",
        "root",
        "-m",
        "32",
        "--admin-listen",
        "127.0.0.1:0",
        "-U",
        "-1",
        "--http-listen",
        "127.0.0.1:0",
        "--admin-token-file",
        token_file(),
    ];
    let args: Vec<_> = own.iter().chain(args).map(|arg| (*arg).to_owned()).collect();
    Server::start(Path::new(env!("CARGO_BIN_EXE_larderd")), &args).expect("larderd starts")
}

/// The status code and the text of a response of the HTTP for operators.
fn admin(server: &Server, request: &str) -> (u16, String) {
    admin_with(server, request, "")
}

/// With more header lines.
fn admin_with(server: &Server, request: &str, headers: &str) -> (u16, String) {
    let address = server.admin_address().expect("it listens");
    let mut stream = TcpStream::connect(address).expect("it listens");
    let headers = format!("Host: {address}\r\nAuthorization: Bearer {TOKEN}\r\n{headers}Content-Length: 0");
    let request = format!("{request} HTTP/1.0\r\n{headers}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("it answers");
    let status = response.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, response.split_once("\r\n\r\n").map(|(_, text)| text.trim().to_owned()).unwrap_or_default())
}

fn set(server: &Server, state: &str) {
    assert_eq!(admin(server, &format!("POST /api/read-only?state={state}")).0, 200);
}

fn stat(client: &mut Client, name: &str) -> String {
    let lines = client.ask("stats larder\r\n");
    let found = lines.iter().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
    found.expect("it is a statistic").to_owned()
}

/// A binary request: opcode, extras, key, value.
fn binary(opcode: u8, extras: &[u8], key: &str, value: &[u8]) -> Vec<u8> {
    let mut request = vec![0x80, opcode, 0, key.len() as u8, extras.len() as u8, 0, 0, 0];
    request.extend(((extras.len() + key.len() + value.len()) as u32).to_be_bytes());
    request.extend([0; 12]);
    [request, extras.to_vec(), key.as_bytes().to_vec(), value.to_vec()].concat()
}

/// Each kind of server: a plain cache, one with namespaces, one with a store.
fn each_kind(check: impl Fn(&Server)) {
    let folder = Folder::create();
    let store = folder.arg("store");
    folder.write("namespaces", "[namespace.\"a:\"]\nmemory = \"8m\"\n");
    let namespaces = folder.arg("namespaces");
    check(&start(&[]));
    check(&start(&["--namespaces", &namespaces]));
    check(&start(&["--store", &store, "--keep", "store"]));
}

#[test]
fn text_and_meta_refuse_changes_and_serve_reads() {
    each_kind(|server| {
        let mut client = Client::of(server.address());
        assert_eq!(client.ask("set k 5 0 2\r\n10\r\nset gone 0 0 1\r\nx\r\n"), ["STORED", "STORED"]);
        set(server, "on");
        for request in [
            "set k 0 0 1\r\nx\r\n",
            "add new 0 0 1\r\nx\r\n",
            "replace k 0 0 1\r\nx\r\n",
            "append k 0 0 1\r\nx\r\n",
            "prepend k 0 0 1\r\nx\r\n",
            "cas k 0 0 1 1\r\nx\r\n",
            "delete k\r\n",
            "incr k 1\r\n",
            "decr k 1\r\n",
            "touch k 1\r\n",
            "gat 1 k\r\n",
            "gats 1 k\r\n",
            "flush_all\r\n",
            "flush_prefix <null>\r\n",
            "ms k 1\r\nx\r\n",
            "ms k 1 q\r\nx\r\n",
            "ms k 1 MA\r\nx\r\n",
            "md k\r\n",
            "md k q\r\n",
            "md k I\r\n",
            "md k x\r\n",
            "ma k\r\n",
            "ma k q\r\n",
            "ma new N0\r\n",
            "mg k v T1\r\n",
            "mg new v N30\r\n",
            "mf <null>\r\n",
        ] {
            assert_eq!(client.ask(request), [ERROR], "{request}");
        }
        // In a batch, between reads.
        let batch = "get k\r\nset k 0 0 1\r\nx\r\nget k\r\n";
        assert_eq!(client.ask(batch), ["VALUE k 5 2", "10", "END", ERROR, "VALUE k 5 2", "10", "END"]);
        // Nobody would store what a token asks for: it is left.
        assert_eq!(client.ask("mg k v t R30\r\nmg gone v k\r\n"), ["VA 2 t-1", "10", "VA 1 kgone", "x"]);
        let silent =
            "set k 0 0 1 noreply\r\nx\r\ndelete k noreply\r\nincr k 1 noreply\r\ntouch k 1 noreply\r\n";
        assert_eq!(client.ask(silent), [""; 0]);
        assert_eq!(stat(&mut client, "larder_read_only"), "1");
        assert_eq!(stat(&mut client, "larder_refused_read_only"), "32");
        set(server, "off");
        assert_eq!(client.ask("incr k 1\r\nget gone\r\n"), ["11", "VALUE gone 0 1", "x", "END"]);
        assert_eq!(stat(&mut client, "larder_read_only"), "0");
    });
}

/// However large, and however cut: what was there stays, though `set` removes what it fails to replace elsewhere.
#[test]
fn large_values_are_refused_and_what_was_there_stays() {
    each_kind(|server| {
        let mut client = Client::of(server.address());
        assert_eq!(client.ask("set k 0 0 3\r\nold\r\n"), ["STORED"]);
        set(server, "on");
        for bytes in [1, 2_000, 100_000, 900_000, 30_000_000] {
            client.send(format!("set k 0 0 {bytes}\r\n").as_bytes());
            let value = vec![b'v'; bytes];
            for piece in value.chunks(300_000) {
                client.send(piece);
            }
            let answer = client.ask("\r\n");
            let expected = if bytes > 1 << 20 { "SERVER_ERROR object too large for cache" } else { ERROR };
            assert!(answer == [ERROR] || answer == [expected], "{bytes} bytes: {answer:?}");
            assert_eq!(client.ask("get k\r\n"), ["VALUE k 0 3", "old", "END"], "{bytes} bytes");
        }
    });
}

#[test]
fn binary_requests_are_refused_quiet_ones_too() {
    each_kind(|server| {
        let mut text = Client::of(server.address());
        assert_eq!(text.ask("set k 0 0 2\r\n10\r\n"), ["STORED"]);
        set(server, "on");
        let mut client = Client::of(server.address());
        let (store, arith) = ([0; 8], [[0; 7].as_slice(), &[1], &[0; 12]].concat());
        let requests: [(&[u8], &[u8], &[u8]); 6] = [
            // set, add, replace, and their quiet forms.
            (&[0x01, 0x02, 0x03, 0x11, 0x12, 0x13], &store, b"x"),
            // append, prepend
            (&[0x0e, 0x0f, 0x19, 0x1a], &[], b"x"),
            // delete
            (&[0x04, 0x14], &[], b""),
            // incr, decr
            (&[0x05, 0x06, 0x15, 0x16], &arith, b""),
            // touch, gat, gatq, gatk, gatkq
            (&[0x1c, 0x1d, 0x1e, 0x23, 0x24], &[0, 0, 0, 1], b""),
            // flush, flushq
            (&[0x08, 0x18], &[], b""),
        ];
        for (opcodes, extras, value) in requests {
            for opcode in opcodes {
                let key = if [0x08, 0x18].contains(opcode) { "" } else { "k" };
                client.send(&binary(*opcode, extras, key, value));
                let (status, answered, _) = client.response();
                // "Not supported" of memcached's protocol_binary.h.
                assert_eq!((status, answered), (0x83, *opcode));
            }
        }
        client.send(&binary(0x00, &[], "k", &[]));
        let (status, _, body) = client.response();
        assert_eq!((status, body), (0, [&[0; 4][..], b"10"].concat()));
    });
}

/// A server with a store refuses changes over UDP at any time, since a datagram cannot wait for the disk.
#[test]
fn datagrams_are_refused_too() {
    each_kind(|server| {
        let mut client = Client::of(server.address());
        assert_eq!(client.ask("set k 5 0 2\r\n10\r\n"), ["STORED"]);
        set(server, "on");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback can be bound");
        socket.connect(server.udp_address().expect("it has a UDP port")).expect("UDP connects at once");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
        // A request identifier, one datagram of one.
        let head = [0, 7, 0, 0, 0, 1, 0, 0];
        let ask = |request: &str| {
            socket.send(&[&head[..], request.as_bytes()].concat()).expect("the kernel takes it");
            let mut answer = [0; 2048];
            let bytes = socket.recv(&mut answer).expect("larderd answers");
            assert_eq!(answer[..8], head);
            String::from_utf8(answer[8..bytes].to_vec()).expect("it is text")
        };
        for request in [
            "set k 0 0 1\r\nx\r\n",
            "add new 0 0 1\r\nx\r\n",
            "append k 0 0 1\r\nx\r\n",
            "delete k\r\n",
            "incr k 1\r\n",
            "touch k 1\r\n",
            "gat 1 k\r\n",
            "ms k 1\r\nx\r\n",
            "md k\r\n",
            "ma k\r\n",
            "mg k v T1\r\n",
        ] {
            assert_eq!(ask(request), format!("{ERROR}\r\n"), "{request}");
        }
        let read = ask("get k\r\n");
        assert!(read == "VALUE k 5 2\r\n10\r\nEND\r\n" || read.contains("not over UDP"), "{read}");
        assert_eq!(client.ask("get k\r\n"), ["VALUE k 5 2", "10", "END"]);
        assert_eq!(stat(&mut client, "larder_refused_read_only"), "11");
    });
}

#[test]
fn requests_over_http_are_refused_too() {
    each_kind(|server| {
        let mut client = Client::of(server.address());
        assert_eq!(client.ask("set k 5 0 2\r\n10\r\n"), ["STORED"]);
        set(server, "on");
        let address = server.http_address().expect("it listens");
        let ask = |request: &str, content: &str| {
            let (request, header) = request.split_once('\n').unwrap_or((request, ""));
            let mut stream = TcpStream::connect(address).expect("it listens");
            let head = format!("{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}");
            let length = content.len();
            stream
                .write_all(format!("{head}Content-Length: {length}\r\n\r\n{content}").as_bytes())
                .expect("larderd reads");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("it is text");
            let (head, content) = answer.split_once("\r\n\r\n").expect("there is a head");
            (head[9..12].to_owned(), content.trim_end().to_owned())
        };
        // docs/http.md: 503 if the server does not take it for now.
        let refused = ("503".to_owned(), "the server is read-only for maintenance".to_owned());
        let large = "x".repeat(300_000);
        for (request, content) in [
            ("PUT /v1/items/k", "x"),
            ("PUT /v1/items/new", &large),
            ("DELETE /v1/items/k", ""),
            ("POST /v1/items/k?op=append", "x"),
            ("POST /v1/items/k?op=prepend", "x"),
            ("POST /v1/items/k?op=incr", ""),
            ("POST /v1/items/new?op=decr&initial=1", ""),
            ("POST /v1/items/k?op=touch\nLarder-TTL: 9\r\n", ""),
        ] {
            assert_eq!(ask(request, content), refused, "{request}");
        }
        assert_eq!(ask("GET /v1/items/k", ""), ("200".to_owned(), "10".to_owned()));
        assert_eq!(ask("GET /v1/items/new", "").0, "404");
        assert_eq!(stat(&mut client, "larder_refused_read_only"), "8");
        set(server, "off");
        assert_eq!(ask("POST /v1/items/k?op=incr", ""), ("200".to_owned(), "11".to_owned()));
    });
}

#[test]
fn operators_switch_it_and_are_told() {
    let server = start(&["--read-only"]);
    let mut client = Client::of(server.address());
    assert_eq!(client.ask("set k 0 0 1\r\nx\r\n"), [ERROR]);
    assert_eq!(admin(&server, "GET /readyz"), (200, "ready, but read-only for maintenance".into()));
    assert_eq!(admin(&server, "GET /api/read-only").1, r#"{"is_read_only":true,"refused":1}"#);
    assert_eq!(admin(&server, "POST /api/flush?prefix=%3Cnull%3E").0, 503);
    assert!(admin(&server, "GET /metrics").1.contains("\nlarder_read_only 1\n"));
    for bad in ["", "?state=", "?state=maybe", "?state=on&state=off", "?state=off&x=1"] {
        assert_eq!(admin(&server, &format!("POST /api/read-only{bad}")).0, 400, "{bad}");
    }
    assert_eq!(admin(&server, "DELETE /api/read-only").0, 405);
    let from_a_page = "Origin: http://a.example\r\n";
    assert_eq!(admin_with(&server, "POST /api/read-only?state=off", from_a_page).0, 403);
    assert_eq!(client.ask("set k 0 0 1\r\nx\r\n"), [ERROR]);
    set(&server, "off");
    assert_eq!(admin(&server, "GET /readyz"), (200, "ready".into()));
    assert_eq!(client.ask("set k 0 0 1\r\nx\r\n"), ["STORED"]);
}
