//! Asks a server for its version and its `stats`, on a connection of its own.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::scenario::Target;

/// How long a server may take for any step.
const TIMEOUT: Duration = Duration::from_secs(5);
/// More than any server answers: what comes beyond is not read.
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
}

/// Asks a server. The error says in words why it could not be asked.
pub(super) fn ask(address: &str, target: &Target) -> Result<Answers, String> {
    if target.tls.is_some() {
        return Err("it speaks TLS".into());
    }
    if address.contains('/') {
        let (stream, peer) = dial_unix(address).map_err(|error| error.to_string())?;
        converse(stream, target, peer)
    } else {
        let (stream, peer) = dial_tcp(address).map_err(|error| error.to_string())?;
        converse(stream, target, peer)
    }
}

fn dial_unix(path: &str) -> io::Result<(UnixStream, Peer)> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let listener = rustix::net::sockopt::socket_peercred(&stream)?.pid;
    Ok((stream, Peer::Unix { pid: listener.as_raw_nonzero().get().unsigned_abs() }))
}

fn dial_tcp(address: &str) -> io::Result<(TcpStream, Peer)> {
    let server =
        address.to_socket_addrs()?.next().ok_or_else(|| io::Error::other("its name has no address"))?;
    let stream = TcpStream::connect_timeout(&server, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let local = stream.local_addr()?;
    Ok((stream, Peer::Tcp { local, server }))
}

fn converse(stream: impl Read + Write, target: &Target, peer: Peer) -> Result<Answers, String> {
    let mut lines = BufReader::new(stream);
    if let Some(login) = &target.login {
        let secret = format!("{} {}", login.user, login.password);
        let reply = say(&mut lines, &format!("set login 0 0 {}\r\n{secret}\r\n", secret.len()))?;
        if reply != "STORED" {
            return Err(format!("the login was answered {reply:?}"));
        }
    }
    let version = say(&mut lines, "version\r\n")?.trim_start_matches("VERSION ").to_owned();
    let mut line = say(&mut lines, "stats\r\n")?;
    let mut stats = BTreeMap::new();
    while line != "END" {
        let Some((name, value)) = line.strip_prefix("STAT ").and_then(|stat| stat.split_once(' ')) else {
            return Err(format!("stats was answered {line:?}"));
        };
        stats.insert(name.to_owned(), value.to_owned());
        line = next_line(&mut lines)?;
    }
    Ok(Answers { version, stats, peer })
}

/// Sends a command, and reads the first line of its answer.
fn say(lines: &mut BufReader<impl Read + Write>, command: &str) -> Result<String, String> {
    lines.get_mut().write_all(command.as_bytes()).map_err(|error| error.to_string())?;
    next_line(lines)
}

fn next_line(lines: &mut impl BufRead) -> Result<String, String> {
    let mut line = String::new();
    let read = lines.take(ANSWER_BYTES_MAX).read_line(&mut line).map_err(|error| error.to_string())?;
    if read == 0 { Err("it closed the connection".into()) } else { Ok(line.trim_end().to_owned()) }
}
