//! A connection between two sites, with TLS if this server's listeners have it (`-Z`).

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};

use super::Site;
use super::waiters::{Until, Waiter};
use crate::shared::Shared;

/// A connection. Each write takes a bounded time.
pub(super) struct PeerStream {
    tcp: TcpStream,
    tls: Option<Connection>,
}

impl PeerStream {
    /// Of a site that connects to this one.
    pub(super) fn accepted(tcp: TcpStream, shared: &Shared, site: &Site) -> io::Result<Self> {
        tcp.set_nonblocking(false)?;
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
        self.tcp.set_write_timeout(Some(WRITE_TIMEOUT))?;
        // Where poll(2) was wrong, or a handshake waits.
        self.tcp.set_read_timeout(Some(READ_TIMEOUT))?;
        let Some(tls) = &mut self.tls else { return Ok(self) };
        let start = Instant::now();
        while tls.is_handshaking() || tls.wants_write() {
            if site.is_stopping() || start.elapsed() > HANDSHAKE_MAX {
                return Err(io::Error::new(ErrorKind::TimedOut, "the TLS handshake takes too long"));
            }
            flush(tls, &mut self.tcp)?;
            if !tls.is_handshaking() {
                break;
            }
            match tls.read_tls(&mut self.tcp) {
                Ok(0) => return Err(ended("the peer closed the connection within the TLS handshake")),
                Ok(_) => process(tls, &mut self.tcp)?,
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self)
    }

    /// Waits, and reads once if there is something. `None`: there is nothing yet; 0: the peer closed the connection.
    pub(super) fn read(
        &mut self,
        input: &mut [u8],
        waiter: &Waiter<'_>,
        until: Until,
    ) -> io::Result<Option<usize>> {
        let nothing_yet = |result: io::Result<usize>| match result {
            Ok(count) => Ok(Some(count)),
            Err(error) if is_timeout(&error) => Ok(None),
            Err(error) => Err(error),
        };
        if let Some(tls) = &mut self.tls {
            // What came with the records before: the socket does not tell.
            let known = nothing_yet(tls.reader().read(input))?;
            if known.is_some() {
                return Ok(known);
            }
        }
        if !waiter.wait(&self.tcp, until)? {
            return Ok(None);
        }
        let Some(tls) = &mut self.tls else { return nothing_yet(self.tcp.read(input)) };
        match nothing_yet(tls.read_tls(&mut self.tcp))? {
            Some(1..) => process(tls, &mut self.tcp)?,
            other => return Ok(other),
        }
        nothing_yet(tls.reader().read(input))
    }

    /// Writes all of it.
    pub(super) fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return self.tcp.write_all(bytes) };
        while !bytes.is_empty() {
            let count = tls.writer().write(bytes)?;
            bytes = &bytes[count..];
            flush(tls, &mut self.tcp)?;
        }
        Ok(())
    }
}

/// Decrypts what was read, and answers, with an alert if it is wrong.
fn process(tls: &mut Connection, tcp: &mut TcpStream) -> io::Result<()> {
    let processed = tls.process_new_packets();
    let flushed = flush(tls, tcp);
    processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, format!("TLS: {error}")))?;
    flushed
}

fn flush(tls: &mut Connection, tcp: &mut TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        if tls.write_tls(tcp)? == 0 {
            return Err(ErrorKind::WriteZero.into());
        }
    }
    Ok(())
}

/// Without the port, and the brackets of an IPv6 address.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

pub(super) fn ended(reason: &str) -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, reason)
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
const READ_TIMEOUT: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_stands_before_its_port() {
        let cases = [("a.example:1", "a.example"), ("10.0.0.1:11311", "10.0.0.1"), ("[::1]:11311", "::1")];
        cases.iter().for_each(|(address, host)| assert_eq!(host_of(address), *host));
    }
}
