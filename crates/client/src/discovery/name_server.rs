//! Questions to name servers. Blocking: names are looked up now and then.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};
use std::{fs, str};

use super::random;
use super::srv::{ANSWER_BYTES_MAX, Answer, BadAnswer, Question, Record, servers};
use crate::{Error, Server};

/// The servers that the SRV records of a name name. `name_server`: whom to ask; `None`: those of `/etc/resolv.conf`.
pub(crate) fn srv_servers(
    name: &str,
    name_server: Option<SocketAddr>,
    deadline: Option<Instant>,
) -> Result<Vec<Server>, Error> {
    let failed = |reason: &dyn std::fmt::Display| Error::Discovery(format!("{name}: {reason}"));
    let question =
        Question::new(random() as u16, name).ok_or_else(|| failed(&"this is not a name of the DNS"))?;
    let name_servers = name_server.map_or_else(name_servers, |server| vec![server]);
    let mut last = Error::Timeout;
    // A datagram may be lost.
    for server in name_servers.iter().cycle().take(name_servers.len() * ATTEMPTS) {
        let now = Instant::now();
        let until = deadline.unwrap_or(now + WAIT * 2).min(now + WAIT);
        if until <= now {
            break;
        }
        match ask(&question, *server, until) {
            Ok(Ok(records)) => {
                return servers(records).ok_or_else(|| failed(&"it has no records that name servers"));
            }
            Ok(Err(bad @ (BadAnswer::NoName | BadAnswer::TooMany))) => return Err(failed(&bad)),
            Ok(Err(bad)) => last = failed(&bad),
            Err(error) => last = failed(&error),
        }
    }
    Err(last)
}

fn ask(
    question: &Question,
    server: SocketAddr,
    until: Instant,
) -> io::Result<Result<Vec<Record>, BadAnswer>> {
    // From another port each time.
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect(server)?;
    socket.send(&question.to_bytes())?;
    let mut buffer = [0; ANSWER_BYTES_MAX as usize];
    loop {
        socket.set_read_timeout(Some(left(until)?))?;
        let bytes = socket.recv(&mut buffer)?;
        return Ok(match question.read(&buffer[..bytes]) {
            // Anybody may have sent it.
            Err(BadAnswer::Foreign | BadAnswer::Malformed) => continue,
            Ok(Answer::Records(records)) => Ok(records),
            Ok(Answer::Truncated) => ask_by_tcp(question, server, until)?,
            Err(bad) => Err(bad),
        });
    }
}

/// RFC 1035, 4.2.2: each message has its length before it.
fn ask_by_tcp(
    question: &Question,
    server: SocketAddr,
    until: Instant,
) -> io::Result<Result<Vec<Record>, BadAnswer>> {
    let mut stream = TcpStream::connect_timeout(&server, left(until)?)?;
    let message = question.to_bytes();
    stream.set_write_timeout(Some(left(until)?))?;
    stream.write_all(&[&(message.len() as u16).to_be_bytes(), &message[..]].concat())?;
    let mut length = [0; 2];
    read_until(&mut stream, &mut length, until)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    read_until(&mut stream, &mut answer, until)?;
    Ok(match question.read(&answer) {
        Ok(Answer::Records(records)) => Ok(records),
        Ok(Answer::Truncated) => Err(BadAnswer::Malformed),
        Err(bad) => Err(bad),
    })
}

fn read_until(stream: &mut TcpStream, mut buffer: &mut [u8], until: Instant) -> io::Result<()> {
    while !buffer.is_empty() {
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => buffer = &mut buffer[read..],
        }
    }
    Ok(())
}

/// The time that is left, which is not 0.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// As resolv.conf(5) says: three at most, and the local one if none is named.
fn name_servers() -> Vec<SocketAddr> {
    let file = fs::read("/etc/resolv.conf").unwrap_or_default();
    named_in(&String::from_utf8_lossy(&file))
}

fn named_in(file: &str) -> Vec<SocketAddr> {
    let named = file.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let address = (words.next()? == "nameserver").then(|| words.next())??;
        address.parse::<IpAddr>().ok()
    });
    let mut servers: Vec<_> = named.take(3).map(|address| SocketAddr::from((address, PORT))).collect();
    if servers.is_empty() {
        servers.push((Ipv4Addr::LOCALHOST, PORT).into());
    }
    servers
}

const PORT: u16 = 53;
/// How long a name server has, and how often it is asked, as in resolv.conf(5).
const WAIT: Duration = Duration::from_secs(5);
const ATTEMPTS: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_are_those_of_the_file() {
        let file = "# nameserver 9.9.9.9\nsearch x\nnameserver 10.0.0.1\n nameserver ::1 \nnameserver x\n\
                    nameserver 10.0.0.2\nnameserver 10.0.0.3\n";
        let named: Vec<_> = named_in(file).iter().map(ToString::to_string).collect();
        assert_eq!(named, ["10.0.0.1:53", "[::1]:53", "10.0.0.2:53"]);
        assert_eq!(named_in("options x\n"), ["127.0.0.1:53".parse().expect("an address")]);
    }
}
