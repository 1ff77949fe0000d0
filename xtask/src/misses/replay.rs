//! Asks a server for a workload in its order.
//!
//! Order decides what is evicted, so there is one connection, and what makes it fast is that several keys travel in one
//! get. The sets that follow come behind all gets of the batch: a key is stored at most a batch later than it would be.
//! A batch ends before a key that it has already, so each get finds what the requests before it have stored.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use larder_conformance::{Result, server};

use super::workload::{Request, Workload};

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) gets: u64,
    pub(super) misses: u64,
}

impl Tally {
    pub(super) fn miss_ratio(&self) -> f64 {
        self.misses as f64 / self.gets as f64
    }
}

/// Replays the workload. Errors: the server fails or answers nonsense.
pub(super) fn replay(workload: &Workload, address: SocketAddr) -> Result<Tally> {
    let mut player = Player::connect(address, workload)?;
    let mut tally = Tally::default();
    let start = Instant::now();
    let mut rest = &workload.requests[..];
    while !rest.is_empty() {
        let batch;
        (batch, rest) = rest.split_at(batch_len(rest));
        if let Some(rate) = workload.requests_per_sec {
            let due = Duration::from_secs_f64(tally.gets as f64 / rate);
            thread::sleep(due.saturating_sub(start.elapsed()));
        }
        tally.gets += batch.len() as u64;
        tally.misses += player.play(batch)?;
    }
    // The last sets ask for no answer: this tells that they are done.
    player.stream.get_mut().write_all(b"version\r\n")?;
    player.read_line()?;
    Ok(tally)
}

/// How many of the next requests have keys of their own.
fn batch_len(rest: &[Request]) -> usize {
    let mut keys = HashSet::with_capacity(BATCH_MAX);
    rest.iter().take(BATCH_MAX).take_while(|request| keys.insert(request.key)).count()
}

struct Player {
    stream: BufReader<TcpStream>,
    /// What is to be sent.
    output: Vec<u8>,
    line: Vec<u8>,
    /// Of the longest value.
    value: Vec<u8>,
}

impl Player {
    fn connect(address: SocketAddr, workload: &Workload) -> Result<Self> {
        let stream = server::connect(address)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        stream.set_write_timeout(Some(SILENCE_MAX))?;
        let longest = workload.requests.iter().map(|request| request.value_bytes).max().unwrap_or(0);
        Ok(Self {
            stream: BufReader::with_capacity(64 << 10, stream),
            output: Vec::new(),
            line: Vec::new(),
            value: vec![b'.'; longest as usize + 2],
        })
    }

    /// Gets a batch, and sets what is missing. Returns how many are.
    fn play(&mut self, batch: &[Request]) -> Result<u64> {
        self.output.clear();
        self.output.extend_from_slice(b"get");
        for request in batch {
            write!(self.output, " {:016x}", request.key)?;
        }
        self.output.extend_from_slice(b"\r\n");
        self.stream.get_mut().write_all(&self.output)?;

        self.output.clear();
        let mut misses = 0;
        // Hits come in the order in which they were asked for.
        let mut hit = self.read_hit()?;
        for request in batch {
            if hit == Some(request.key) {
                hit = self.read_hit()?;
                continue;
            }
            misses += 1;
            let bytes = request.value_bytes as usize;
            write!(self.output, "set {:016x} 0 {} {bytes} noreply\r\n", request.key, request.ttl_secs)?;
            self.output.resize(self.output.len() + bytes, b'.');
            self.output.extend_from_slice(b"\r\n");
        }
        if hit.is_some() {
            return Err("the server found what nobody asked for".into());
        }
        self.stream.get_mut().write_all(&self.output)?;
        Ok(misses)
    }

    /// The next key that was found, with its value read; `None` behind the last.
    fn read_hit(&mut self) -> Result<Option<u64>> {
        self.read_line()?;
        let line = std::str::from_utf8(&self.line)?;
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("VALUE"), Some(key), Some(_flags), Some(bytes)) => {
                let key = u64::from_str_radix(key, 16)?;
                let bytes: usize = bytes.parse()?;
                let value =
                    self.value.get_mut(..bytes + 2).ok_or("a value is longer than all that were set")?;
                self.stream.read_exact(value)?;
                Ok(Some(key))
            }
            (Some("END"), None, ..) => Ok(None),
            _ => Err(format!("the server answers a get with {line:?}").into()),
        }
    }

    fn read_line(&mut self) -> Result<()> {
        self.line.clear();
        self.stream.read_until(b'\n', &mut self.line)?;
        if self.line.ends_with(b"\r\n") { Ok(()) } else { Err("the server closed the connection".into()) }
    }
}

/// Keys in a get.
const BATCH_MAX: usize = 32;
/// A server that says nothing for this long has failed.
const SILENCE_MAX: Duration = Duration::from_secs(20);
