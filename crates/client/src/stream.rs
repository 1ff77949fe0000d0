//! A connection to a server: TCP, TLS over TCP, or a unix socket.

mod quiet;
mod steps;
mod tls;

use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

pub use quiet::QuietSocket;
use quiet::send_quietly;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, recv, socket_with};
use rustls::{ClientConnection, StreamOwned};
use steps::is_silent_session;
pub use tls::{Tls, TlsBuilder, TlsError};

use crate::Address;

/// A connection. Blocking, unless [`Stream::set_nonblocking`] changes that.
///
/// For an event loop: a read can leave bytes inside TLS that no poll reports, so read until `WouldBlock`. A write can
/// do so as well, so poll for writing and `flush` while [`Stream::has_unsent`].
#[derive(Debug)]
pub enum Stream {
    /// TCP, with `TCP_NODELAY`.
    Tcp(TcpStream),
    /// A unix socket.
    Unix(UnixStream),
    /// TLS over TCP.
    Tls(Box<StreamOwned<ClientConnection, QuietSocket>>),
}

impl Stream {
    /// Connects, and with `tls` performs the handshake. `timeout` applies to each address of the host, and to the
    /// handshake as a whole; the connection then has no timeout.
    ///
    /// # Errors
    /// The host is unknown, nothing listens there, `timeout` has passed (`TimedOut` or `WouldBlock`), or TLS fails: the
    /// certificate is not trusted. With `tls`, a Unix socket is refused.
    pub fn connect(address: &Address, tls: Option<&Tls>, timeout: Option<Duration>) -> io::Result<Self> {
        match (address, tls) {
            (Address::Inet { host, port }, None) => Ok(Self::Tcp(connect(host, *port, timeout)?)),
            (Address::Inet { host, port }, Some(tls)) => {
                let mut session = tls.session(host)?;
                let mut socket = QuietSocket(connect(host, *port, timeout)?);
                shake_hands(&mut session, &mut socket, timeout)?;
                socket.set_read_timeout(None)?;
                socket.set_write_timeout(None)?;
                Ok(Self::Tls(Box::new(StreamOwned::new(session, socket))))
            }
            (Address::Unix(path), None) => Ok(Self::Unix(connect_unix(path)?)),
            (Address::Unix(_), Some(_)) => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "no TLS over a unix socket"))
            }
        }
    }

    /// Sets whether reads and writes return at once.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.set_nonblocking(nonblocking),
            Self::Tcp(socket) => socket.set_nonblocking(nonblocking),
            Self::Tls(tls) => tls.sock.set_nonblocking(nonblocking),
        }
    }

    /// Sets how long a read or a write waits before it fails with `WouldBlock`.
    ///
    /// # Errors
    /// Those of the socket; a time of 0.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let socket = match self {
            Self::Unix(socket) => {
                socket.set_read_timeout(timeout)?;
                return socket.set_write_timeout(timeout);
            }
            Self::Tcp(socket) => socket,
            Self::Tls(tls) => &tls.sock,
        };
        socket.set_read_timeout(timeout)?;
        socket.set_write_timeout(timeout)
    }

    /// True if it is open and no unread bytes have arrived. Does not wait.
    pub fn is_silent(&mut self) -> bool {
        match self {
            Self::Tcp(socket) => is_silent(socket),
            Self::Unix(socket) => is_silent(socket),
            Self::Tls(tls) => is_silent_session(tls),
        }
    }

    /// True if written bytes are still inside TLS: [`Write::flush`] sends them.
    pub fn has_unsent(&self) -> bool {
        match self {
            Self::Tls(tls) => tls.conn.wants_write(),
            Self::Tcp(_) | Self::Unix(_) => false,
        }
    }
}

fn is_silent(socket: impl AsFd) -> bool {
    recv(socket, &mut [0u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT)
        .is_err_and(|error| error == Errno::AGAIN)
}

/// Does not wait for room among the connections that nobody has accepted: there is no limit for that wait.
fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn connect(host: &str, port: u16, timeout: Option<Duration>) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        let connected = match timeout {
            Some(timeout) => TcpStream::connect_timeout(&address, timeout),
            None => TcpStream::connect(address),
        };
        match connected {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Performs the handshake. Before each read or write it is set how long that may wait: a server that sends bit by bit
/// gets no more time.
fn shake_hands(
    session: &mut ClientConnection,
    socket: &mut QuietSocket,
    timeout: Option<Duration>,
) -> io::Result<()> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    // The last message may be left when it is over, and the server need not wait for that.
    while session.is_handshaking() || session.wants_write() {
        if let Some(deadline) = deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            socket.set_read_timeout(Some(left))?;
            socket.set_write_timeout(Some(left))?;
        }
        let moved = match session.wants_write() {
            true => session.write_tls(socket).map(|_| ()),
            false => session.read_tls(socket).and_then(|bytes| match bytes {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                _ => Ok(()),
            }),
        };
        match moved {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            moved => moved?,
        }
        if let Err(error) = session.process_new_packets() {
            // The alert that says why.
            let _ = session.write_tls(socket);
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
    }
    Ok(())
}

impl Read for Stream {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(buffer),
            Self::Unix(socket) => socket.read(buffer),
            Self::Tls(tls) => tls.read(buffer),
        }
    }
}

impl Write for Stream {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write(bytes),
            Self::Unix(socket) => send_quietly(socket, bytes),
            Self::Tls(tls) => tls.write(bytes),
        }
    }

    #[inline]
    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write_vectored(parts),
            Self::Unix(socket) => socket.write_vectored(parts),
            Self::Tls(tls) => tls.write_vectored(parts),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(_) | Self::Unix(_) => Ok(()),
            Self::Tls(tls) => tls.flush(),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
            Self::Tls(tls) => tls.sock.0.as_fd(),
        }
    }
}
