//! The roads to the servers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs, UdpSocket};
use std::path::Path;
use std::time::Duration;

use larder_client::address::BadAddress;
use larder_client::codec::{Event, Outcome, Pipeline, Protocol};
use larder_client::{Address, Client, Login, Stream, Tls};

use super::RunError;
use crate::scenario::{self, Target};

/// Opens connections to the servers of a scenario.
#[derive(Debug)]
pub(crate) struct Roads {
    addresses: Vec<Address>,
    tls: Option<Tls>,
    login: Option<Login>,
}

impl Roads {
    /// Reads certificates, if there are any.
    pub(crate) fn new(target: &Target) -> Result<Self, RunError> {
        let addresses = target.servers.iter().map(|server| {
            server.parse().map_err(|bad: BadAddress| RunError::Scenario {
                field: "target.servers".into(),
                reason: bad.to_string(),
            })
        });
        let login = target.login.as_ref();
        Ok(Self {
            addresses: addresses.collect::<Result<_, _>>()?,
            tls: target.tls.as_ref().map(tls).transpose()?,
            login: login.map(|login| Login { user: login.user.clone(), password: login.password.clone() }),
        })
    }

    /// A connection to server `server` that is logged in and does not block.
    pub(crate) fn open(&self, server: usize, protocol: Protocol) -> io::Result<Stream> {
        let stream = self.open_blocking(server, protocol)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    /// A socket that sends datagrams to server `server`.
    pub(crate) fn open_udp(&self, server: usize) -> io::Result<UdpSocket> {
        let Address::Inet { host, port } = &self.addresses[server] else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "no UDP over a unix socket"));
        };
        let mut addresses = (host.as_str(), *port).to_socket_addrs()?;
        let address = addresses.next().ok_or(io::ErrorKind::NotFound)?;
        let any: IpAddr =
            if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(address)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// A client of server `server` alone.
    pub(crate) fn client(&self, server: usize, protocol: Protocol) -> Client {
        let mut builder = Client::builder().server(self.addresses[server].clone()).protocol(protocol);
        if let Some(tls) = &self.tls {
            builder = builder.tls(tls.clone());
        }
        if let Some(login) = &self.login {
            builder = builder.login(login.clone());
        }
        builder.build()
    }

    /// Empties every server.
    pub(crate) fn flush_all(&self) -> Result<(), RunError> {
        for (server, address) in self.addresses.iter().enumerate() {
            self.flush_one(server).map_err(|error| RunError::Server {
                address: address.to_string(),
                reason: format!("flush_all: {error}"),
            })?;
        }
        Ok(())
    }

    /// The same, but it blocks.
    pub(crate) fn open_blocking(&self, server: usize, protocol: Protocol) -> io::Result<Stream> {
        let mut stream = Stream::connect(&self.addresses[server], self.tls.as_ref(), Some(TIMEOUT))?;
        if let Some(login) = &self.login {
            stream.set_timeout(Some(TIMEOUT))?;
            login.on(&mut stream, protocol).map_err(io::Error::other)?;
        }
        Ok(stream)
    }

    fn flush_one(&self, server: usize) -> io::Result<()> {
        use io::{Read, Write};
        let mut stream = self.open_blocking(server, Protocol::Text)?;
        stream.set_timeout(Some(TIMEOUT))?;
        let mut pipeline = Pipeline::new(Protocol::Text);
        let mut output = Vec::new();
        pipeline.flush_all(&mut output, 0, Some(()));
        stream.write_all(&output)?;
        stream.flush()?;
        let mut input = Vec::new();
        loop {
            let mut part = [0; 512];
            let bytes = stream.read(&mut part)?;
            if bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            input.extend_from_slice(&part[..bytes]);
            match pipeline.receive(&mut &input[..]).map_err(io::Error::other)? {
                Some(Event::Done((), Outcome::Error(error))) => {
                    return Err(io::Error::other(error.to_string()));
                }
                Some(_) => return Ok(()),
                None => {}
            }
        }
    }
}

fn tls(tls: &scenario::Tls) -> Result<Tls, RunError> {
    let wrong = |error: larder_client::stream::TlsError| RunError::Scenario {
        field: "target.tls".into(),
        reason: error.to_string(),
    };
    let mut builder = match &tls.ca_file {
        Some(file) => Tls::trusting(Path::new(file)),
        None => Tls::accepting_anything(),
    }
    .map_err(wrong)?;
    if let Some(name) = &tls.server_name {
        builder = builder.server_name(name).map_err(wrong)?;
    }
    match (&tls.certificate_file, &tls.key_file) {
        (None, None) => Ok(builder.anonymous()),
        (Some(chain), Some(key)) => builder.with_certificate(Path::new(chain), Path::new(key)).map_err(wrong),
        _ => Err(RunError::Scenario {
            field: "target.tls".into(),
            reason: "certificate_file and key_file go together".into(),
        }),
    }
}

/// For connecting, and for each message of a handshake or a login.
const TIMEOUT: Duration = Duration::from_secs(1);
