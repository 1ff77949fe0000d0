//! Asks a server for its version and its `stats`, on a connection of its own.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use larder_client::Stream;
use larder_client::codec::Protocol;

use crate::run::roads::Roads;
use crate::scenario::Target;

/// How long a server may take for any step.
const TIMEOUT: Duration = Duration::from_secs(5);
/// More than any server answers to both questions: what comes beyond is not read.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// What a server told of itself.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) version: String,
    pub(super) stats: BTreeMap<String, String>,
    pub(super) peer: Peer,
}

/// Both ends of the connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Peer {
    Tcp {
        local: SocketAddr,
        server: SocketAddr,
    },
    /// The process that listens, as the kernel knows it.
    Unix {
        pid: u32,
    },
}

impl Answers {
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.stats.get(name)?.parse().ok()
    }

    /// See [`crate::outcome::ServerCost::software`].
    pub(super) fn software(&self) -> String {
        match self.stats.get("larder_version") {
            Some(version) => format!("larderd {version}"),
            // Only memcached itself tells of its library.
            None if self.stats.contains_key("libevent") => format!("memcached {}", self.version),
            None => self.version.clone(),
        }
    }
}

/// Asks a server in the text protocol. The error says in words why it could not be asked.
pub(super) fn ask(address: &str, target: &Target) -> Result<Answers, String> {
    let alone = Target { servers: vec![address.to_owned()], ..target.clone() };
    let roads = Roads::new(&alone).map_err(|error| error.to_string())?;
    let (stream, peer) = dial(&roads).map_err(|error| error.to_string())?;
    converse(stream, peer)
}

fn dial(roads: &Roads) -> io::Result<(Stream, Peer)> {
    let stream = roads.open_blocking(0, Protocol::Text)?;
    stream.set_timeout(Some(TIMEOUT))?;
    let tcp = |socket: &TcpStream| {
        Ok::<_, io::Error>(Peer::Tcp { local: socket.local_addr()?, server: socket.peer_addr()? })
    };
    let peer = match &stream {
        Stream::Tcp(socket) => tcp(socket)?,
        Stream::Tls(session) => tcp(session.get_ref())?,
        Stream::Unix(socket) => {
            let listener = rustix::net::sockopt::socket_peercred(socket)?.pid;
            Peer::Unix { pid: listener.as_raw_nonzero().get().unsigned_abs() }
        }
    };
    Ok((stream, peer))
}

fn converse(stream: Stream, peer: Peer) -> Result<Answers, String> {
    let mut lines = BufReader::new(stream);
    let mut left_bytes = ANSWER_BYTES_MAX;
    let version = say(&mut lines, "version\r\n", &mut left_bytes)?.trim_start_matches("VERSION ").to_owned();
    let mut stats = read_stats(&mut lines, "stats\r\n", &mut left_bytes)?;
    // larderd says so; its own lines are in a separate group.
    if stats.get("libevent").is_some_and(|libevent| libevent == "none") {
        stats.append(&mut read_stats(&mut lines, "stats larder\r\n", &mut left_bytes)?);
    }
    Ok(Answers { version, stats, peer })
}

fn read_stats(
    lines: &mut BufReader<impl Read + Write>,
    command: &str,
    left_bytes: &mut u64,
) -> Result<BTreeMap<String, String>, String> {
    let mut line = say(lines, command, left_bytes)?;
    let mut stats = BTreeMap::new();
    while line != "END" {
        let Some((name, value)) = line.strip_prefix("STAT ").and_then(|stat| stat.split_once(' ')) else {
            return Err(format!("{} was answered {line:?}", command.trim_end()));
        };
        stats.insert(name.to_owned(), value.to_owned());
        line = next_line(lines, left_bytes)?;
    }
    Ok(stats)
}

/// Sends a command, and reads the first line of its answer.
fn say(
    lines: &mut BufReader<impl Read + Write>,
    command: &str,
    left_bytes: &mut u64,
) -> Result<String, String> {
    lines.get_mut().write_all(command.as_bytes()).map_err(|error| error.to_string())?;
    next_line(lines, left_bytes)
}

/// Reads a line of at most `left_bytes`, which it takes off them. Its control characters are replaced: it is shown to
/// people.
fn next_line(lines: &mut impl BufRead, left_bytes: &mut u64) -> Result<String, String> {
    let mut line = String::new();
    let read = lines.take(*left_bytes).read_line(&mut line).map_err(|error| error.to_string())?;
    *left_bytes -= read as u64;
    match read {
        _ if *left_bytes == 0 => Err(format!("it answers with more than {ANSWER_BYTES_MAX} bytes")),
        0 => Err("it closed the connection".into()),
        _ => Ok(line.trim_end().replace(char::is_control, "\u{fffd}")),
    }
}
