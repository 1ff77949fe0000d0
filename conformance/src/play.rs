//! Plays a script against a running server.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use crate::notation::{self, Match, Memory, Notation};
use crate::script::{Exchange, Script, Side, Step};
use crate::{Result, server};

/// How the bytes of a block reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// In one write.
    Whole,
    /// One byte per write; of long blocks the first [`BYTES_SINGLE_MAX`] bytes and the last few.
    Bytes,
    /// In a few pieces with a pause after each, cut where a generator with this seed says.
    Split(u64),
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => write!(f, "whole"),
            Self::Bytes => write!(f, "byte by byte"),
            Self::Split(seed) => write!(f, "split with seed {seed}"),
        }
    }
}

/// Plays `script` and compares every reply. The error says which block differs and how.
pub fn check(script: &Script, address: SocketAddr, side: Side, delivery: Delivery) -> Result<()> {
    let mut memory = Memory::new();
    let mut connections = Connections::new(address);
    for step in script.steps() {
        let exchange = match step {
            Step::Sleep(duration) => {
                thread::sleep(duration);
                continue;
            }
            Step::Exchange(exchange) => exchange,
        };
        let connection = connections.get(&exchange.connection)?;
        let expected = exchange.expected(side)?;
        let bytes = exchange.sent.bytes(&memory)?;
        let may_be_busy = side == Side::Reference && exchange.is_one_line();
        let deadline = Instant::now() + REPLY_TIMEOUT;
        let play = |connection: &mut Connection| connection.expect(&expected, &mut memory);
        let mut outcome = connection.exchange(exchange, &bytes, delivery, play);
        while outcome.is_err() && may_be_busy && connection.take_busy() && Instant::now() < deadline {
            thread::sleep(BUSY_PAUSE);
            let play = |connection: &mut Connection| connection.expect(&expected, &mut memory);
            outcome = connection.exchange(exchange, &bytes, delivery, play);
        }
        outcome.map_err(|error| {
            format!("line {} [{}] {}: {error}", exchange.line, exchange.connection, exchange.title)
        })?;
    }
    for (name, connection) in connections.open {
        connection.expect_nothing_more().map_err(|error| format!("[{name}] at the end: {error}"))?;
    }
    Ok(())
}

/// Plays `script` and returns what was received for each exchange, as script lines. A line of the file that fits what
/// came stays as it is, with its matchers.
pub fn record(script: &Script, address: SocketAddr) -> Result<Vec<Vec<String>>> {
    let mut memory = Memory::new();
    let mut connections = Connections::new(address);
    let mut replies = Vec::new();
    for step in script.steps() {
        let exchange = match step {
            Step::Sleep(duration) => {
                thread::sleep(duration);
                continue;
            }
            Step::Exchange(exchange) => exchange,
        };
        let connection = connections.get(&exchange.connection)?;
        let bytes = exchange.sent.bytes(&memory)?;
        let deadline = Instant::now() + REPLY_TIMEOUT;
        let is_closed = loop {
            let is_closed =
                connection.exchange(exchange, &bytes, Delivery::Whole, Connection::read_until_quiet)?;
            let is_busy = exchange.is_one_line() && Instant::now() < deadline && connection.take_busy();
            if !is_busy {
                break is_closed;
            }
            thread::sleep(BUSY_PAUSE);
        };
        let mut lines = Vec::new();
        // Replies that fit as a whole stay as they are too: packets have no lines of their own.
        if Notation::parse(exchange.reply_lines())?.compare(&connection.received, &mut memory)
            == (Match::Whole { len: connection.received.len() })
        {
            lines.extend(exchange.reply_lines().iter().filter(|line| *line != "{closed}").cloned());
            connection.received.clear();
        }
        for (index, line) in notation::write(&connection.received).into_iter().enumerate() {
            let bytes = Notation::parse(std::slice::from_ref(&line))?.bytes(&memory)?;
            let fits = |old: &&String| {
                let matched =
                    Notation::parse(std::slice::from_ref(*old)).map(|old| old.compare(&bytes, &mut memory));
                matches!(matched, Ok(Match::Whole { len }) if len == bytes.len())
            };
            lines.push(exchange.reply_lines().get(index).filter(fits).cloned().unwrap_or(line));
        }
        if is_closed {
            lines.push("{closed}".to_owned());
        }
        connection.received.clear();
        replies.push(lines);
    }
    Ok(replies)
}

/// The connections of a script, opened at their first use.
struct Connections {
    address: SocketAddr,
    open: HashMap<String, Connection>,
}

impl Connections {
    fn new(address: SocketAddr) -> Self {
        Self { address, open: HashMap::new() }
    }

    fn get(&mut self, name: &str) -> Result<&mut Connection> {
        if !self.open.contains_key(name) {
            let stream = server::connect(self.address)?;
            self.open.insert(name.to_owned(), Connection { stream, received: Vec::new(), is_closed: false });
        }
        self.open.get_mut(name).ok_or_else(|| "just inserted".into())
    }
}

struct Connection {
    stream: TcpStream,
    /// Received and not yet matched.
    received: Vec<u8>,
    /// The script has seen the server close it.
    is_closed: bool,
}

impl Connection {
    /// Sends in a thread of its own, so that a server which answers while we send is read at once.
    fn exchange<T>(
        &mut self,
        exchange: &Exchange,
        bytes: &[u8],
        delivery: Delivery,
        receive: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let mut writer = self.stream.try_clone()?;
        let half_closes = exchange.sent.half_closes();
        thread::scope(|scope| {
            scope.spawn(move || {
                // A server that closed the connection is noticed by the reading side.
                let _ = deliver(&mut writer, bytes, delivery);
                if half_closes {
                    let _ = writer.shutdown(Shutdown::Write);
                }
            });
            let result = receive(self);
            if result.is_err() && !self.is_busy() {
                let _ = self.stream.shutdown(Shutdown::Both); // lets the writer end
            }
            result
        })
    }

    fn expect(&mut self, expected: &Notation, memory: &mut Memory) -> Result<()> {
        let deadline = Instant::now() + REPLY_TIMEOUT;
        loop {
            match expected.compare(&self.received, memory) {
                Match::Whole { len } => {
                    self.received.drain(..len);
                    break;
                }
                // Read to its end, so that it can be asked again.
                Match::Differs { .. } if self.starts_busy() && !self.is_busy() => {}
                Match::Differs { at } => return Err(self.differs(at)),
                Match::Prefix => {}
            }
            if !self.read(deadline)? {
                return Err(format!("closed too early, after: {}", shown(&self.received)).into());
            }
        }
        if expected.is_closed() {
            while self.received.is_empty() && self.read(deadline)? {}
            if !self.received.is_empty() {
                return Err(format!("not closed, but more: {}", shown(&self.received)).into());
            }
            self.is_closed = true;
        }
        Ok(())
    }

    /// Whether the reply is, as far as it has come, the one that memcached gives while its crawler is at work.
    fn starts_busy(&self) -> bool {
        !self.received.is_empty() && (BUSY.starts_with(&self.received) || self.is_busy())
    }

    /// Whether that reply, and nothing else, has come.
    fn is_busy(&self) -> bool {
        self.received == BUSY
    }

    /// Forgets that reply; false if it was another.
    fn take_busy(&mut self) -> bool {
        let is_busy = self.is_busy();
        if is_busy {
            self.received.clear();
        }
        is_busy
    }

    /// Nothing is left to read, and the server has closed the connection only where the script says so. Every byte that
    /// the server still had to send comes before the end that our half-close provokes.
    fn expect_nothing_more(mut self) -> Result<()> {
        if self.is_closed {
            return Ok(());
        }
        self.stream.set_nonblocking(true)?;
        let is_open =
            matches!(self.stream.peek(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        self.stream.set_nonblocking(false)?;
        let _ = self.stream.shutdown(Shutdown::Write);
        let deadline = Instant::now() + REPLY_TIMEOUT;
        while self.read(deadline)? {}
        if !self.received.is_empty() {
            return Err(format!("more than expected: {}", shown(&self.received)).into());
        }
        if is_open { Ok(()) } else { Err("closed by the server".into()) }
    }

    /// Reads some more; false when the server has closed the connection.
    fn read(&mut self, deadline: Instant) -> Result<bool> {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        self.stream.set_read_timeout(Some(left))?;
        let mut buffer = vec![0; 64 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => Ok(false),
            Ok(len) => {
                self.received.extend_from_slice(&buffer[..len]);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(format!("nothing more came, after: {}", shown(&self.received)).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Reads until nothing comes for a while; true when the server closed the connection.
    fn read_until_quiet(&mut self) -> Result<bool> {
        loop {
            let len = self.received.len();
            match self.read(Instant::now() + QUIET) {
                Ok(false) => return Ok(true),
                Err(_) if self.received.len() == len => return Ok(false),
                _ => {}
            }
        }
    }

    fn differs(&self, at: usize) -> crate::Error {
        let line_start =
            self.received[..at].iter().rposition(|&byte| byte == b'\n').map_or(0, |index| index + 1);
        format!("the reply differs in this line: {}", shown(&self.received[line_start..])).into()
    }
}

fn deliver(stream: &mut TcpStream, bytes: &[u8], delivery: Delivery) -> io::Result<()> {
    match delivery {
        Delivery::Whole => stream.write_all(bytes),
        Delivery::Bytes => {
            let single = bytes.len().min(BYTES_SINGLE_MAX);
            let last = bytes.len().saturating_sub(BYTES_SINGLE_LAST).max(single);
            write_single(stream, &bytes[..single])?;
            stream.write_all(&bytes[single..last])?;
            write_single(stream, &bytes[last..])
        }
        Delivery::Split(seed) => {
            let mut rest = bytes;
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ bytes.len() as u64;
            for _ in 0..3 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let (piece, after) = rest.split_at((random % (rest.len() as u64 + 1)) as usize);
                stream.write_all(piece)?;
                thread::sleep(Duration::from_millis(1));
                rest = after;
            }
            stream.write_all(rest)
        }
    }
}

fn write_single(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    for byte in bytes {
        stream.write_all(&[*byte])?;
    }
    Ok(())
}

/// The beginning of some bytes, in the notation of scripts.
fn shown(bytes: &[u8]) -> String {
    let lines = notation::write(&bytes[..bytes.len().min(4096)]);
    if lines.is_empty() { "(nothing)".to_owned() } else { lines[..lines.len().min(6)].join(" | ") }
}

/// How many bytes of a block go one by one at most.
pub const BYTES_SINGLE_MAX: usize = 1024;
const BYTES_SINGLE_LAST: usize = 16;

/// How long a reply may take, with room for a machine that is busy with other tests.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// When recording, how long nothing must come for a reply to be complete.
const QUIET: Duration = Duration::from_millis(150);

/// What memcached answers while its crawler is at work, which it is for a moment after the last line of a dump
/// (`lru_crawler_start` in crawler.c): of one command, so it is sent again.
const BUSY: &[u8] = b"BUSY currently processing crawler request\r\n";
const BUSY_PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use std::path::Path;

    use super::*;

    const DUMP: &str = "[a] dump\nlru_crawler metadump all\n---\nEND\n";

    /// Answers one line after the other with these, on one connection.
    fn server(replies: &'static [&'static str]) -> SocketAddr {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        let address = listener.local_addr().expect("it listens");
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client comes");
            let lines = BufReader::new(stream.try_clone().expect("it is a socket")).lines();
            for (_line, reply) in lines.zip(replies) {
                stream.write_all(reply.as_bytes()).expect("the client is there");
            }
        });
        address
    }

    #[test]
    fn a_reference_whose_crawler_is_busy_is_asked_again() {
        let script = Script::parse(Path::new("test"), DUMP).expect("it is a script");
        let busy = "BUSY currently processing crawler request\r\n";
        for delivery in [Delivery::Whole, Delivery::Bytes, Delivery::Split(1)] {
            check(&script, server(Box::leak(Box::new([busy, busy, "END\r\n"]))), Side::Reference, delivery)
                .expect("the third answer is the one");
        }
        let recorded = record(&script, server(Box::leak(Box::new([busy, "END\r\n"])))).expect("it answers");
        assert_eq!(recorded, [["END"]]);
        // larderd is never forgiven, nor is any other answer.
        let larder = server(Box::leak(Box::new([busy, "END\r\n"])));
        assert!(check(&script, larder, Side::Larder, Delivery::Whole).is_err());
        let wrong = server(&["ERROR\r\n", "END\r\n"]);
        assert!(check(&script, wrong, Side::Reference, Delivery::Whole).is_err());
    }
}
