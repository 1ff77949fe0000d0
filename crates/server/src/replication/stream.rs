//! A connection between two sites, with TLS if this server's listeners have it (`-Z`).

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use larder_replication::link::Closed;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};

use super::Site;
use super::peers::PeerAddress;
use super::waiters::{Until, Waiter};
use crate::shared::Shared;

/// Connects to a peer again and again, until the site stops or the peer is none any more. `serve`: one connection; true
/// if it was of use.
pub(super) fn keep_connected(peer: &PeerAddress<'_>, site: &Site, mut serve: impl FnMut() -> bool) {
    let mut backoff = BACKOFF_MIN;
    while !peer.is_over(site) {
        backoff = if serve() { BACKOFF_MIN } else { (backoff * 2).min(BACKOFF_MAX) };
        std::thread::park_timeout(backoff);
    }
}

/// A connection. Its socket never blocks.
pub(super) struct PeerStream {
    tcp: TcpStream,
    tls: Option<Connection>,
}

impl PeerStream {
    /// Of a site that connects to this one.
    pub(super) fn accepted(tcp: TcpStream, shared: &Shared, site: &Site) -> io::Result<Self> {
        let tls = match &shared.tls {
            None => None,
            Some(tls) => {
                let context = tls.context(shared.settings.tls.client_certificates());
                Some(ServerConnection::new(context).map_err(io::Error::other)?.into())
            }
        };
        Self { tcp, tls }.begun(site)
    }

    /// To a peer, host and port. Its name is looked up each time, and its certificate has to be for the host.
    pub(super) fn connect(address: &str, shared: &Shared, site: &Site) -> io::Result<Self> {
        let tls = match &shared.tls {
            None => None,
            Some(tls) => {
                let context = tls.outgoing().ok_or_else(|| io::Error::other("there is no ssl_ca_cert"))?;
                let name = ServerName::try_from(host_of(address).to_owned()).map_err(io::Error::other)?;
                Some(ClientConnection::new(context, name).map_err(io::Error::other)?.into())
            }
        };
        let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(tcp) => return Self { tcp, tls }.begun(site),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// After the handshake.
    fn begun(mut self, site: &Site) -> io::Result<Self> {
        self.tcp.set_nodelay(true)?;
        self.tcp.set_nonblocking(true)?;
        let start = Instant::now();
        loop {
            let is_sent = self.send(&mut &b""[..])?;
            let Some(tls) = &mut self.tls else { return Ok(self) };
            if !tls.is_handshaking() && is_sent {
                return Ok(self);
            }
            if site.is_stopping() || start.elapsed() > HANDSHAKE_MAX {
                return Err(io::Error::new(ErrorKind::TimedOut, "the TLS handshake takes too long"));
            }
            match tls.read_tls(&mut self.tcp) {
                Ok(0) => return Err(ended("the peer closed the connection within the TLS handshake")),
                Ok(_) => self.process()?,
                Err(error) if is_timeout(&error) => {
                    let flags = if is_sent { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
                    wait(&self.tcp, flags, LOOK_PAUSE)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits, and reads once if there is something. `None`: there is nothing yet; 0: the peer closed the connection.
    pub(super) fn read(
        &mut self,
        input: &mut [u8],
        waiter: &Waiter<'_>,
        until: Until,
    ) -> io::Result<Option<usize>> {
        self.exchange(&mut VecDeque::new(), input, waiter, until)
    }

    /// The same; also sends what the socket takes, from the front of `output`, and does not wait if that is something.
    pub(super) fn exchange(
        &mut self,
        output: &mut VecDeque<u8>,
        input: &mut [u8],
        waiter: &Waiter<'_>,
        until: Until,
    ) -> io::Result<Option<usize>> {
        let nothing_yet = |result: io::Result<usize>| match result {
            Ok(count) => Ok(Some(count)),
            Err(error) if is_timeout(&error) => Ok(None),
            Err(error) => Err(error),
        };
        let is_sent = loop {
            let mut front = output.as_slices().0;
            let before = front.len();
            let is_sent = self.send(&mut front)?;
            let sent = before - front.len();
            output.drain(..sent);
            if !is_sent || output.is_empty() {
                break is_sent;
            }
        };
        if let Some(tls) = &mut self.tls {
            // What came with the records before: the socket does not tell.
            let known = nothing_yet(tls.reader().read(input))?;
            if known.is_some() {
                return Ok(known);
            }
        }
        if !waiter.wait(&self.tcp, !is_sent, until)? {
            return Ok(None);
        }
        let Some(tls) = &mut self.tls else { return nothing_yet(self.tcp.read(input)) };
        match nothing_yet(tls.read_tls(&mut self.tcp))? {
            Some(1..) => self.process()?,
            other => return Ok(other),
        }
        let Some(tls) = &mut self.tls else { return Ok(None) };
        nothing_yet(tls.reader().read(input))
    }

    /// Writes all of it, as long as it is not `is_over`. Returns how many microseconds it waited for the network.
    /// Errors: also if the peer takes it too slowly.
    pub(super) fn write_all(&mut self, bytes: &[u8], is_over: impl Fn() -> bool) -> io::Result<u64> {
        let timeout = WRITE_TIMEOUT + Duration::from_secs((bytes.len() / RATE_MIN_BYTES_PER_SEC) as u64);
        self.write_within(bytes, timeout, is_over)
    }

    /// All of it within this time, however many pieces the socket takes.
    fn write_within(
        &mut self,
        mut bytes: &[u8],
        timeout: Duration,
        is_over: impl Fn() -> bool,
    ) -> io::Result<u64> {
        let mut began = None;
        while !self.send(&mut bytes)? {
            if is_over() {
                return Err(ended("the site stops, or the peer is none any more"));
            }
            let left = timeout.saturating_sub(began.get_or_insert_with(Instant::now).elapsed());
            if left.is_zero() {
                return Err(io::Error::new(ErrorKind::TimedOut, "the peer takes too long to read"));
            }
            wait(&self.tcp, PollFlags::OUT, left.min(LOOK_PAUSE))?;
        }
        Ok(began.map_or(0, |began| began.elapsed().as_micros() as u64))
    }

    /// Sends what the socket takes now, from the front of `bytes`. True: that is all of it, and of what TLS has kept.
    fn send(&mut self, bytes: &mut &[u8]) -> io::Result<bool> {
        loop {
            let sent = match &mut self.tls {
                Some(tls) if tls.wants_write() => tls.write_tls(&mut self.tcp),
                _ if bytes.is_empty() => return Ok(true),
                Some(tls) => tls.writer().write(bytes).inspect(|count| *bytes = &bytes[*count..]),
                None => self.tcp.write(bytes).inspect(|count| *bytes = &bytes[*count..]),
            };
            match sent {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => return Ok(false),
                sent => _ = sent?,
            }
        }
    }

    /// Decrypts what was read, and answers, with an alert if it is wrong.
    fn process(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        let processed = tls.process_new_packets();
        let sent = self.send(&mut &b""[..]);
        processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, format!("TLS: {error}")))?;
        sent.map(drop)
    }
}

/// Waits for a socket, so long at most.
fn wait(tcp: &TcpStream, flags: PollFlags, timeout: Duration) -> io::Result<()> {
    let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(tcp, flags)], Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Without the port, and the brackets of an IPv6 address.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Error of a connection that has ended for a reason which does not pass by itself.
#[derive(Debug)]
pub(super) struct Refused(pub(super) String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        Self::other(refused)
    }
}

impl Refused {
    /// Turns the end of a connection into an error: this type, if the reason does not pass by itself.
    pub(super) fn of(closed: &Closed) -> io::Error {
        if closed.refusal.stays() { Self(closed.to_string()).into() } else { ended(&closed.to_string()) }
    }

    pub(super) fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|error| error.is::<Self>())
    }
}

pub(super) fn ended(reason: &str) -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, reason)
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// What is read at once.
pub(super) const INPUT_BYTES: usize = 64 << 10;
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Of something short.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// A value of many megabytes gets as long as it takes over a link as slow as this.
const RATE_MIN_BYTES_PER_SEC: usize = 256 << 10;
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Between looks whether it is over.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

    use super::*;

    #[test]
    fn a_host_stands_before_its_port() {
        let cases = [("a.example:1", "a.example"), ("10.0.0.1:11311", "10.0.0.1"), ("[::1]:11311", "::1")];
        cases.iter().for_each(|(address, host)| assert_eq!(host_of(address), *host));
    }

    /// A peer that reads nothing: who waits for it looks around.
    #[test]
    fn a_write_ends_when_it_is_over() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let tcp = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        tcp.set_nonblocking(true).expect("it is open");
        let (_peer, _) = listener.accept().expect("somebody connects");
        let mut stream = PeerStream { tcp, tls: None };
        let looks = AtomicUsize::new(0);
        let is_over = || looks.fetch_add(1, SeqCst) == 2;
        let error = stream.write_all(&vec![0; 64 << 20], is_over).expect_err("nobody reads it");
        assert_eq!((error.kind(), looks.load(SeqCst)), (ErrorKind::UnexpectedEof, 3));
    }

    /// A peer that reads a little now and then, for ever: each send of its own gets something away.
    #[test]
    fn one_deadline_is_for_all_of_a_write() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let tcp = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        tcp.set_nonblocking(true).expect("it is open");
        let (mut peer, _) = listener.accept().expect("somebody connects");
        let is_over = AtomicBool::new(false);
        let mut stream = PeerStream { tcp, tls: None };
        std::thread::scope(|scope| {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut input = vec![0; 64 << 10];
                while !is_over.load(SeqCst) {
                    // On a busy machine it may have read all when the other end goes.
                    let count = peer.read(&mut input).expect("it is open");
                    assert!(count > 0 || is_over.load(SeqCst));
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            // At the reader's pace this takes many times as long.
            let error = stream.write_within(&vec![0; 1 << 30], Duration::from_millis(100), || false);
            is_over.store(true, SeqCst);
            assert_eq!(error.expect_err("the peer is slow").kind(), ErrorKind::TimedOut);
            drop(stream);
        });
    }
}
