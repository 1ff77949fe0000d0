//! Talking to a server with a time limit on everything.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use larder_conformance::Result;
use larder_conformance::server::Server;

/// A connection that fails rather than wait forever.
pub(crate) fn connect(server: &Server) -> Result<TcpStream> {
    let stream = server.connect()?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    Ok(stream)
}

/// Reads as many bytes as `expected` has, and fails at the first that differs.
pub(crate) fn expect(stream: &mut TcpStream, expected: &[u8]) -> Result<()> {
    let mut got = vec![0; expected.len().min(1 << 20)];
    let mut at = 0;
    while at < expected.len() {
        let room = got.len().min(expected.len() - at);
        let n =
            stream.read(&mut got[..room]).map_err(|error| format!("{error} after {at} bytes of reply"))?;
        let piece = &expected[at..at + n];
        if n == 0 || got[..n] != *piece {
            let wrong = got[..n].iter().zip(piece).take_while(|(a, b)| a == b).count();
            let from = wrong.saturating_sub(20);
            let head = |bytes: &[u8]| bytes[from..bytes.len().min(wrong + 80)].escape_ascii().to_string();
            return Err(format!(
                "byte {} of the reply: expected \"{}\", got \"{}\"",
                at + wrong,
                head(&expected[at..]),
                head(&got[..n])
            )
            .into());
        }
        at += n;
    }
    Ok(())
}

/// Sends and expects.
pub(crate) fn ask(stream: &mut TcpStream, request: &[u8], expected: &[u8]) -> Result<()> {
    stream.write_all(request)?;
    let asked = &request[..request.len().min(100)];
    expect(stream, expected).map_err(|error| format!("{}: {error}", asked.escape_ascii()).into())
}

/// Reads up to the end of the connection. A reset counts as its end: the server closed with our bytes unread.
pub(crate) fn read_to_end(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut got = Vec::new();
    match stream.read_to_end(&mut got) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => {
            Err(format!("the connection was not closed: {error}").into())
        }
        _ => Ok(got),
    }
}

/// Sends as much as the server takes; a server that closes the connection meanwhile is no error.
pub(crate) fn send_until_closed(stream: &mut TcpStream, bytes: &[u8]) -> Result<()> {
    match stream.write_all(bytes) {
        Err(error) if !matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
            Err(error.into())
        }
        _ => Ok(()),
    }
}

/// The bytes of a `set` with flags and expiry 0.
pub(crate) fn set(key: &str, value: &[u8]) -> Vec<u8> {
    [format!("set {key} 0 0 {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

/// The reply to a `get` of one key that is there.
pub(crate) fn hit(key: &str, value: &[u8]) -> Vec<u8> {
    [format!("VALUE {key} 0 {}\r\n", value.len()).as_bytes(), value, b"\r\nEND\r\n"].concat()
}

/// Fails if another client is not served, whatever else is going on.
pub(crate) fn others_are_served(server: &Server) -> Result<()> {
    let mut other = connect(server)?;
    for round in 0..200 {
        let value = format!("value {round}").into_bytes();
        ask(&mut other, &set("other", &value), b"STORED\r\n")?;
        ask(&mut other, b"get other\r\n", &hit("other", &value))?;
    }
    ask(&mut other, b"delete other\r\n", b"DELETED\r\n")?;
    Ok(())
}

/// How long a single reply may take, with room for a busy machine.
const SILENCE_MAX: Duration = Duration::from_secs(60);
