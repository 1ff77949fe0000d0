//! The floor server: what epoll, read and writev cost with no cache behind them.
//!
//! Answers every key of a `get` line with one fixed value and every `set` with `STORED`. It looks for line ends and
//! skips data blocks, and knows no more of the protocol. A cache cannot be cheaper on this kernel with this kind of loop;
//! the distance to it is what a server's own work costs. One thread, one epoll loop, one read into a buffer of
//! 64 KiB and one writev for each readable connection.

use std::collections::HashMap;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::{env, fs};

use larder_conformance::Result;
use lexopt::prelude::*;
use rustix::event::epoll;

const HELP: &str = "\
The floor server: answers requests of memcached's shape with no work behind them.

usage: cargo xtask floor [--port N] [--value-bytes N]

  --port N         TCP port on 127.0.0.1; 0, the default: any free one. It is printed, and written to the file
                   $MEMCACHED_PORT_FILENAME in memcached's form
  --value-bytes N  size of the value with which every get is answered (default 100)";

/// Serves until it is killed. Errors: the port is taken, or the system refuses a listener.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut port = 0;
    let mut value_bytes = 100;
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("port") => port = parser.value()?.parse()?,
            Long("value-bytes") => value_bytes = parser.value()?.parse()?,
            Long("help") => {
                println!("{HELP}");
                return Ok(());
            }
            _ => return Err(arg.unexpected().into()),
        }
    }

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    announce(listener.local_addr()?.port())?;
    Ok(serve(&listener, &hit_of(value_bytes))?)
}

/// The reply to one key: as long as a real one for the 24-byte keys of the benchmark.
fn hit_of(value_bytes: usize) -> Vec<u8> {
    format!("VALUE {:024} 0 {value_bytes}\r\n{}\r\n", 0, "x".repeat(value_bytes)).into_bytes()
}

fn announce(port: u16) -> io::Result<()> {
    println!("floor: listening on 127.0.0.1:{port}");
    let Some(file) = env::var_os("MEMCACHED_PORT_FILENAME") else { return Ok(()) };
    let mut unfinished = file.clone();
    unfinished.push(".lck");
    fs::write(&unfinished, format!("TCP INET: {port}\n"))?;
    fs::rename(unfinished, file)
}

fn serve(listener: &TcpListener, hit: &[u8]) -> io::Result<()> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let event_of = |fd: i32| epoll::EventData::new_u64(u64::from(fd.unsigned_abs()));
    epoll::add(&poll, listener, event_of(listener.as_raw_fd()), epoll::EventFlags::IN)?;

    let listener_id = u64::from(listener.as_raw_fd().unsigned_abs());
    let mut connections: HashMap<u64, Connection> = HashMap::new();
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let mut input = vec![0; INPUT_BYTES];
    loop {
        events.clear();
        match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None) {
            Err(rustix::io::Errno::INTR) => continue,
            waited => waited?,
        };
        for event in &events {
            let id = event.data.u64();
            if id == listener_id {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true)?;
                    stream.set_nodelay(true)?;
                    let fd = stream.as_raw_fd();
                    epoll::add(&poll, &stream, event_of(fd), epoll::EventFlags::IN)?;
                    connections.insert(u64::from(fd.unsigned_abs()), Connection::new(stream));
                }
                continue;
            }
            let Some(connection) = connections.get_mut(&id) else { continue };
            let was_blocked = connection.is_blocked();
            match connection.turn(&mut input, hit) {
                Ok(Alive::Yes) if connection.is_blocked() == was_blocked => {}
                Ok(Alive::Yes) => {
                    let interest = if was_blocked { epoll::EventFlags::IN } else { epoll::EventFlags::OUT };
                    epoll::modify(&poll, &connection.stream, epoll::EventData::new_u64(id), interest)?;
                }
                // Closing the descriptor takes it out of the epoll set.
                Ok(Alive::No) | Err(_) => drop(connections.remove(&id)),
            }
        }
    }
}

enum Alive {
    Yes,
    No,
}

struct Connection {
    stream: TcpStream,
    /// Start of a line whose end has not arrived.
    line: Vec<u8>,
    /// Bytes of a data block, its CRLF included, still to be skipped.
    skip: usize,
    output: Vec<u8>,
    /// How much of `output` is written.
    written: usize,
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        Self { stream, line: Vec::new(), skip: 0, output: Vec::new(), written: 0 }
    }

    /// Output is waiting for a client that does not read: nothing more is read from it.
    fn is_blocked(&self) -> bool {
        !self.output.is_empty()
    }

    fn turn(&mut self, input: &mut [u8], hit: &[u8]) -> io::Result<Alive> {
        if !self.is_blocked() {
            let n = match self.stream.read(input) {
                Ok(0) => return Ok(Alive::No),
                Ok(n) => n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Alive::Yes),
                Err(error) => return Err(error),
            };
            self.answer_all(&input[..n], hit);
        }
        while self.written < self.output.len() {
            match self.stream.write_vectored(&[IoSlice::new(&self.output[self.written..])]) {
                Ok(n) => self.written += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Alive::Yes),
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(Alive::Yes)
    }

    fn answer_all(&mut self, mut input: &[u8], hit: &[u8]) {
        while !input.is_empty() {
            if self.skip > 0 {
                let n = self.skip.min(input.len());
                self.skip -= n;
                input = &input[n..];
                continue;
            }
            let Some(end) = memchr::memchr(b'\n', input) else {
                self.line.extend_from_slice(input);
                return;
            };
            let (line, rest) = input.split_at(end + 1);
            if self.line.is_empty() {
                self.skip = answer(line, hit, &mut self.output);
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.skip = answer(&whole, hit, &mut self.output);
            }
            input = rest;
        }
    }
}

/// Appends the reply to one line; returns how many bytes of data block follow the line.
fn answer(line: &[u8], hit: &[u8], output: &mut Vec<u8>) -> usize {
    if line.starts_with(b"get ") {
        for _ in memchr::memchr_iter(b' ', line) {
            output.extend_from_slice(hit);
        }
        output.extend_from_slice(b"END\r\n");
        return 0;
    }
    if line.starts_with(b"set ") {
        output.extend_from_slice(b"STORED\r\n");
        let digits = line.trim_ascii_end();
        let start = memchr::memrchr(b' ', digits).map_or(0, |at| at + 1);
        let value_bytes =
            std::str::from_utf8(&digits[start..]).ok().and_then(|text| text.parse::<usize>().ok());
        return value_bytes.map_or(0, |n| n.saturating_add(2));
    }
    output.extend_from_slice(b"ERROR\r\n");
    0
}

const INPUT_BYTES: usize = 64 * 1024;
const EVENTS_MAX: usize = 256;
