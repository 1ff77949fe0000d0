//! A lean closed-loop load generator: one thread, one epoll loop, C connections, P requests in flight on each.
//!
//! Each connection writes a batch of P requests, waits for all P replies, and writes the next batch. Keys are drawn before
//! the clock starts, so that drawing them does not slow the loop. Replies are checked for their form, not their content.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use larder_conformance::{Result, server};
use rustix::event::{Timespec, epoll};

/// Length of every key in bytes.
pub(crate) const KEY_BYTES: usize = 24;

/// What is asked of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub connections: usize,
    /// Requests in flight on each connection.
    pub depth: usize,
    /// Keys are numbered 0 to `keys` - 1.
    pub keys: u32,
    pub spread: Spread,
    /// How many requests of a hundred are sets; the others are gets.
    pub set_percent: u8,
    pub value_bytes: usize,
    /// Keys in each get.
    pub keys_per_get: usize,
}

/// Which keys are asked for how often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Spread {
    /// All alike.
    Uniform,
    /// The key of rank r with a weight of 1 / r^exponent.
    Zipf { exponent: f64 },
    /// One after the other.
    Sequential,
}

/// When to stop asking.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// When this much time is over.
    Elapsed(Duration),
    /// After this many requests.
    Requests(u64),
}

/// What was answered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// Requests answered, a get of n keys counted as n.
    pub operations: u64,
    /// Keys asked for with get, and values that came.
    pub gets: u64,
    pub hits: u64,
    /// From the first byte sent to the last reply.
    pub secs: f64,
}

/// Puts keys `first` to `first + count` - 1 into the server at `address`.
pub(crate) fn fill(address: SocketAddr, first: u32, count: u32, value_bytes: usize) -> Result<Outcome> {
    let load = Load {
        connections: 4,
        depth: 64,
        keys: count,
        spread: Spread::Sequential,
        set_percent: 100,
        value_bytes,
        keys_per_get: 1,
    };
    let keys = Keys { drawn: (first..first + count).collect(), next: 0 };
    drive(address, &load, keys, Until::Requests(count.into()))
}

/// Keys in the order in which they will be asked for. Drawn once for all rounds of a scenario.
#[derive(Clone)]
pub(crate) struct Keys {
    drawn: Vec<u32>,
    next: usize,
}

impl Keys {
    /// Draws keys as `load` spreads them, always the same ones.
    pub(crate) fn draw(load: &Load) -> Self {
        let mut random = fastrand::Rng::with_seed(1);
        let drawn = match load.spread {
            Spread::Sequential => (0..load.keys).collect(),
            Spread::Uniform => (0..DRAWN_KEYS).map(|_| random.u32(0..load.keys)).collect(),
            Spread::Zipf { exponent } => {
                let mut sum = 0.0;
                let sums: Vec<f64> = (1..=load.keys)
                    .map(|rank| {
                        sum += f64::from(rank).powf(-exponent);
                        sum
                    })
                    .collect();
                let mut draw = || sums.partition_point(|&reached| reached < random.f64() * sum);
                // The last sum may be a rounding error below `sum`: hence the min.
                (0..DRAWN_KEYS).map(|_| (draw() as u32).min(load.keys - 1)).collect()
            }
        };
        Self { drawn, next: 0 }
    }

    fn next(&mut self) -> u32 {
        let key = self.drawn[self.next];
        self.next = if self.next + 1 == self.drawn.len() { 0 } else { self.next + 1 };
        key
    }
}

/// Asks until `until`, then waits for the replies that are still out. Errors: the server closes a connection, answers in
/// another form than the request asks for, or is silent for [`SILENCE_MAX`].
pub(crate) fn drive(address: SocketAddr, load: &Load, mut keys: Keys, until: Until) -> Result<Outcome> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut clients = Vec::new();
    for id in 0..load.connections {
        let stream = server::connect(address)?;
        stream.set_nonblocking(true)?;
        epoll::add(&poll, &stream, epoll::EventData::new_u64(id as u64), epoll::EventFlags::IN)?;
        clients.push(Client {
            stream,
            output: Vec::new(),
            written: 0,
            is_blocked: false,
            replies: Replies::default(),
        });
    }

    let mut requests = Requests {
        value: vec![b'x'; load.value_bytes],
        random: fastrand::Rng::with_seed(2),
        left: if let Until::Requests(n) = until { n } else { u64::MAX },
    };
    let start = Instant::now();
    let deadline = if let Until::Elapsed(time) = until { Some(start + time) } else { None };
    let mut outcome = Outcome::default();
    let mut busy = 0;
    for client in &mut clients {
        requests.write_batch(load, &mut keys, client, &mut outcome);
        if client.is_busy() {
            busy += 1;
            client.send(&poll, busy - 1)?;
        }
    }

    let mut events = Vec::with_capacity(load.connections);
    let mut input = vec![0; INPUT_BYTES];
    let silence = Timespec { tv_sec: SILENCE_MAX.as_secs() as i64, tv_nsec: 0 };
    while busy > 0 {
        events.clear();
        match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), Some(&silence)) {
            Ok(0) => return Err(format!("the server was silent for {SILENCE_MAX:?}").into()),
            Err(rustix::io::Errno::INTR) => continue,
            waited => waited?,
        };
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            requests.left = 0;
        }
        for event in &events {
            let id = event.data.u64() as usize;
            let client = &mut clients[id];
            let flags = event.flags;
            if flags.contains(epoll::EventFlags::OUT) {
                client.send(&poll, id)?;
            }
            if !client.receive(&mut input)? {
                continue;
            }
            requests.write_batch(load, &mut keys, client, &mut outcome);
            if client.is_busy() {
                client.send(&poll, id)?;
            } else {
                busy -= 1;
            }
        }
    }
    outcome.secs = start.elapsed().as_secs_f64();
    outcome.hits = clients.iter().map(|client| client.replies.hits).sum();
    Ok(outcome)
}

/// Writes requests.
struct Requests {
    value: Vec<u8>,
    random: fastrand::Rng,
    /// Requests that may still be sent.
    left: u64,
}

impl Requests {
    fn write_batch(&mut self, load: &Load, keys: &mut Keys, client: &mut Client, outcome: &mut Outcome) {
        let batch = (load.depth as u64).min(self.left);
        self.left -= batch;
        for _ in 0..batch {
            if load.set_percent > 0 && self.random.u8(0..100) < load.set_percent {
                client.output.extend_from_slice(b"set");
                write_key(&mut client.output, keys.next());
                let _ = write!(client.output, " 0 0 {}\r\n", self.value.len());
                client.output.extend_from_slice(&self.value);
                client.replies.due.push_back(Reply::Stored);
                outcome.operations += 1;
            } else {
                client.output.extend_from_slice(b"get");
                for _ in 0..load.keys_per_get {
                    write_key(&mut client.output, keys.next());
                }
                client.replies.due.push_back(Reply::Values);
                outcome.operations += load.keys_per_get as u64;
                outcome.gets += load.keys_per_get as u64;
            }
            client.output.extend_from_slice(b"\r\n");
        }
    }
}

/// Appends a space and the key of this number: `key:` and 20 digits.
fn write_key(output: &mut Vec<u8>, number: u32) {
    let mut key = *b" key:00000000000000000000";
    let mut rest = number;
    let mut at = key.len();
    while rest > 0 {
        at -= 1;
        key[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    output.extend_from_slice(&key);
}

struct Client {
    stream: TcpStream,
    output: Vec<u8>,
    /// How much of `output` is sent.
    written: usize,
    /// Part of `output` waits for the socket.
    is_blocked: bool,
    replies: Replies,
}

impl Client {
    fn is_busy(&self) -> bool {
        !self.replies.due.is_empty()
    }

    /// Sends what the socket takes; what remains goes when it can be written again.
    fn send(&mut self, poll: impl std::os::fd::AsFd, id: usize) -> Result<()> {
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(n) => self.written += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.is_blocked = true;
                    let both = epoll::EventFlags::IN | epoll::EventFlags::OUT;
                    epoll::modify(poll, &self.stream, epoll::EventData::new_u64(id as u64), both)?;
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.output.clear();
        self.written = 0;
        if std::mem::take(&mut self.is_blocked) {
            epoll::modify(poll, &self.stream, epoll::EventData::new_u64(id as u64), epoll::EventFlags::IN)?;
        }
        Ok(())
    }

    /// Reads what has arrived; true when the last reply of the batch was in it.
    fn receive(&mut self, input: &mut [u8]) -> Result<bool> {
        match self.stream.read(input) {
            Ok(0) => Err("the server closed a connection".into()),
            Ok(n) => {
                self.replies.feed(&input[..n])?;
                Ok(!self.is_busy())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// What a request is answered with.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reply {
    /// Any number of values, then `END`.
    Values,
    /// `STORED`.
    Stored,
}

/// Follows a stream of replies.
#[derive(Default)]
struct Replies {
    due: VecDeque<Reply>,
    hits: u64,
    /// Start of a line whose end has not arrived.
    line: Vec<u8>,
    /// Bytes of a data block, its CRLF included, still to be skipped.
    skip: usize,
}

impl Replies {
    fn feed(&mut self, mut input: &[u8]) -> Result<()> {
        while !input.is_empty() {
            if self.skip > 0 {
                let n = self.skip.min(input.len());
                self.skip -= n;
                input = &input[n..];
                continue;
            }
            let Some(end) = memchr::memchr(b'\n', input) else {
                self.line.extend_from_slice(input);
                return Ok(());
            };
            let (line, rest) = input.split_at(end + 1);
            if self.line.is_empty() {
                self.line(line)?;
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.line(&whole)?;
            }
            input = rest;
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<()> {
        let due = self.due.front();
        match (due, line) {
            (Some(Reply::Values), b"END\r\n") | (Some(Reply::Stored), b"STORED\r\n") => {
                self.due.pop_front();
                return Ok(());
            }
            (Some(Reply::Values), _) if line.starts_with(b"VALUE ") => {
                let header = line.strip_suffix(b"\r\n").unwrap_or_default();
                let digits = header.rsplit(|&byte| byte == b' ').next().unwrap_or_default();
                if let Some(value_bytes) =
                    std::str::from_utf8(digits).ok().and_then(|n| n.parse::<usize>().ok())
                {
                    self.hits += 1;
                    self.skip = value_bytes + 2;
                    return Ok(());
                }
            }
            _ => {}
        }
        Err(format!("{} is no reply to a request that waits for {due:?}", line.escape_ascii()).into())
    }
}

/// How many keys are drawn in advance; then they come again in the same order.
const DRAWN_KEYS: u32 = 1 << 22;
const INPUT_BYTES: usize = 256 * 1024;
/// A server that says nothing for this long has failed.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(10);
