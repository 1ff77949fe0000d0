//! The floor server as a client sees it. Expected replies: memcached's doc/protocol.txt and doc/protocol-binary.txt.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use super::*;

/// Answers of a floor server with values of three bytes, until it closes or has nothing more to say.
fn ask(requests: &[&[u8]]) -> Vec<u8> {
    with_floor(|address| {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        for request in requests {
            stream.write_all(request).expect("sent");
            thread::sleep(Duration::from_millis(1));
        }
        stream.shutdown(std::net::Shutdown::Write).expect("half closed");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("answers");
        answer
    })
}

fn with_floor<T>(work: impl FnOnce(&str) -> T) -> T {
    let floor = Floor::bind(0, 3).expect("a free port");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| floor.serve(&stop));
        let result = work(floor.address());
        stop.store(true, Ordering::Relaxed);
        result
    })
}

#[track_caller]
fn check(request: &str, expected: &str) {
    assert_eq!(String::from_utf8_lossy(&ask(&[request.as_bytes()])), expected, "{request:?}");
    // Cut anywhere, it is the same request.
    for cut in 1..request.len() {
        let (first, rest) = request.as_bytes().split_at(cut);
        let answer = ask(&[first, rest]);
        assert_eq!(String::from_utf8_lossy(&answer), expected, "{request:?} cut at {cut}");
    }
}

#[test]
fn text() {
    check("get a bc\r\n", "VALUE a 0 3\r\nxxx\r\nVALUE bc 0 3\r\nxxx\r\nEND\r\n");
    check(
        "gats 0 a\r\nset a 0 0 5\r\nget a\r\ndelete a\r\n",
        "VALUE a 0 3 1\r\nxxx\r\nEND\r\nSTORED\r\nDELETED\r\n",
    );
    check("cas a 0 0 1 9 noreply\r\n1\r\nincr a 5\r\ntouch a 1\r\n", "1\r\nTOUCHED\r\n");
}

#[test]
fn meta() {
    check("mg a v k O5 f c s t\r\n", "VA 3 ka O5 f0 c1 s3 t-1\r\nxxx\r\n");
    check("mg a k q\r\nmn\r\n", "HD ka\r\nMN\r\n");
    check(
        "ms a 2 T0 q\r\nhi\r\nms b 2 O1\r\nhi\r\nmd b q\r\nma c v\r\nma c v q\r\nmn\r\n",
        "HD O1\r\nVA 1\r\n1\r\nMN\r\n",
    );
}

fn packet(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let body = (extras.len() + key.len() + value.len()) as u8;
    let head = [0x80, opcode, 0, key.len() as u8, extras.len() as u8, 0, 0, 0, 0, 0, 0, body, 1, 2, 3, 4];
    [&head, &[0; 8][..], extras, key, value].concat()
}

#[test]
fn binary() {
    let reply = |opcode, body: &[u8], key_bytes, extras_bytes| {
        let head = [0x81, opcode, 0, key_bytes, extras_bytes, 0, 0, 0, 0, 0, 0, body.len() as u8, 1, 2, 3, 4];
        [&head, &[0, 0, 0, 0, 0, 0, 0, 1][..], body].concat()
    };
    let requests = [
        packet(0x11, &[0; 8], b"a", b"value"),
        packet(0x01, &[0; 8], b"a", b"value"),
        packet(0x00, &[], b"a", &[]),
        packet(0x0d, &[], b"key", &[]),
        packet(0x05, &[0; 20], b"n", &[]),
        packet(0x0a, &[], &[], &[]),
    ]
    .concat();
    let expected = [
        reply(0x01, b"", 0, 0),
        reply(0x00, b"\0\0\0\0xxx", 0, 4),
        reply(0x0d, b"\0\0\0\0keyxxx", 3, 4),
        reply(0x05, b"\0\0\0\0\0\0\0\x01", 0, 0),
        reply(0x0a, b"", 0, 0),
    ]
    .concat();
    for cut in 0..requests.len() {
        let (first, rest) = requests.split_at(cut);
        assert_eq!(ask(&[first, rest]), expected, "cut at {cut}");
    }
}

#[test]
fn requests_are_counted() {
    let pid = std::process::id();
    check(
        "get a b\r\nset a 0 0 1\r\nx\r\nmn\r\nstats\r\n",
        &format!(
            "VALUE a 0 3\r\nxxx\r\nVALUE b 0 3\r\nxxx\r\nEND\r\nSTORED\r\nMN\r\nSTAT pid {pid}\r\nSTAT requests 3\r\nEND\r\n"
        ),
    );
}

#[test]
fn datagrams() {
    with_floor(|address| {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        socket.connect(address).expect("an address");
        // 150 keys of 24 bytes make more than two datagrams.
        let keys: Vec<String> = (0..150).map(|n| format!("{n:024}")).collect();
        let request = format!("\x12\x34\0\0\0\x01\0\0get {}\r\n", keys.join(" "));
        socket.send(request.as_bytes()).expect("sent");
        let expected: String = keys.iter().map(|key| format!("VALUE {key} 0 3\r\nxxx\r\n")).collect();
        let expected = format!("{expected}END\r\n");
        let total = expected.len().div_ceil(1392);
        let mut answer = Vec::new();
        for sequence in 0..total {
            let mut datagram = [0; 2000];
            let bytes = socket.recv(&mut datagram).expect("a datagram");
            let header = [0x12, 0x34, 0, sequence as u8, 0, total as u8, 0, 0];
            assert_eq!(datagram[..8], header);
            answer.extend_from_slice(&datagram[8..bytes]);
        }
        assert_eq!(String::from_utf8_lossy(&answer), expected);
    });
}

#[test]
fn endless_lines_are_not_kept() {
    with_floor(|address| {
        let mut stream = TcpStream::connect(address).expect("a connection");
        // It closes at some time while these are sent, or at the end.
        let _ = stream.write_all(&vec![b'x'; 1 << 20]);
        assert!(matches!(stream.read(&mut [0; 16]), Ok(0) | Err(_)));
    });
}
