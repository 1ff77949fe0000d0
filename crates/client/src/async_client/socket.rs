//! A connected socket: TCP, TLS over TCP, a unix socket, or what the user connects by.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::TIMEOUT_MAX;
use super::builder::Settings;
use super::connector::Transport;
use super::end::End;
use crate::{Address, Error, Login, Protocol, Tls, login};

/// See [the module](self).
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
    Other(Box<dyn Transport>),
}

impl Socket {
    /// Connects, performs the handshake of TLS, and logs in, all within the time for connecting.
    pub(super) async fn open(address: &Address, settings: &Settings) -> Result<Self, End> {
        let opened = async {
            let deadline = Instant::now() + settings.connect_timeout.min(TIMEOUT_MAX);
            let connected = match (&settings.connector, &settings.tls) {
                (Some(connector), None) => connector.connect(address).await.map(Self::Other),
                (Some(_), Some(_)) => {
                    Err(io::Error::new(io::ErrorKind::Unsupported, "no TLS over a connector"))
                }
                (None, tls) => Self::connect(address, tls.as_ref(), deadline).await,
            };
            let mut socket = connected.map_err(|error| End::of_connect(&error))?;
            if let Some(login) = &settings.login {
                socket.log_in(login, settings.protocol).await?;
            }
            Ok(socket)
        };
        let opened = timeout(settings.connect_timeout, opened).await;
        opened.unwrap_or_else(|_| Err(End::of_connect(&io::ErrorKind::TimedOut.into())))
    }

    async fn connect(address: &Address, tls: Option<&Tls>, deadline: Instant) -> io::Result<Self> {
        match (address, tls) {
            (Address::Inet { host, port }, None) => Ok(Self::Tcp(connect(host, *port, deadline).await?)),
            (Address::Inet { host, port }, Some(tls)) => {
                let name = tls.name(host)?;
                let socket = connect(host, *port, deadline).await?;
                let session = TlsConnector::from(tls.context()).connect(name, socket).await?;
                Ok(Self::Tls(Box::new(session)))
            }
            (Address::Unix(path), None) => Ok(Self::Unix(UnixStream::connect(path).await?)),
            (Address::Unix(_), Some(_)) => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "no TLS over a unix socket"))
            }
        }
    }

    /// The socket of TCP.
    pub(super) fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(socket) => Some(socket),
            Self::Tls(session) => Some(session.get_ref().0),
            Self::Unix(_) | Self::Other(_) => None,
        }
    }

    /// Sends all of it.
    pub(super) async fn send(&mut self, mut unsent: &[u8]) -> Result<(), End> {
        while !unsent.is_empty() {
            let sent = poll_fn(|cx| Pin::new(&mut *self).poll_write(cx, unsent)).await.map_err(End::of_io)?;
            if sent == 0 {
                return Err(End::Closed);
            }
            unsent = &unsent[sent..];
        }
        poll_fn(|cx| Pin::new(&mut *self).poll_flush(cx)).await.map_err(End::of_io)
    }

    /// Appends what comes next: up to 512 bytes.
    pub(super) async fn receive(&mut self, input: &mut Vec<u8>) -> Result<(), End> {
        let mut part = [0; 512];
        let mut buffer = ReadBuf::new(&mut part);
        poll_fn(|cx| Pin::new(&mut *self).poll_read(cx, &mut buffer)).await.map_err(End::of_io)?;
        if buffer.filled().is_empty() {
            return Err(End::Closed);
        }
        input.extend_from_slice(buffer.filled());
        Ok(())
    }

    async fn log_in(&mut self, login: &Login, protocol: Protocol) -> Result<(), End> {
        let (mut pipeline, output) = login.request(protocol);
        self.send(&output).await?;
        let mut input = Vec::new();
        loop {
            self.receive(&mut input).await?;
            match login::is_accepted(&mut pipeline, &input) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(Error::Refused { kind, text }) => return Err(End::Login(kind, text)),
                Err(Error::Violation(violation)) => return Err(End::Violation(violation)),
                Err(error) => return Err(End::Io(io::ErrorKind::Other, error.to_string())),
            }
        }
    }
}

/// Connects to one address of the host after the other. None of them takes the time of those that follow.
async fn connect(host: &str, port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    let addresses: Vec<_> = lookup_host((host, port)).await?.collect();
    let mut left = addresses.len() as u32;
    for address in addresses {
        let now = Instant::now();
        let share = deadline.saturating_duration_since(now) / left.max(1);
        left -= 1;
        match timeout_at(now + share, TcpStream::connect(address)).await {
            Ok(Ok(socket)) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            Ok(Err(error)) => failure = error,
            Err(_) => failure = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failure)
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_read(cx, buffer),
            Self::Unix(socket) => Pin::new(socket).poll_read(cx, buffer),
            Self::Tls(session) => Pin::new(session).poll_read(cx, buffer),
            Self::Other(transport) => Pin::new(transport).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Unix(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Tls(session) => Pin::new(session).poll_write(cx, bytes),
            Self::Other(transport) => Pin::new(transport).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_flush(cx),
            Self::Unix(socket) => Pin::new(socket).poll_flush(cx),
            Self::Tls(session) => Pin::new(session).poll_flush(cx),
            Self::Other(transport) => Pin::new(transport).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Unix(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Tls(session) => Pin::new(session).poll_shutdown(cx),
            Self::Other(transport) => Pin::new(transport).poll_shutdown(cx),
        }
    }
}
