//! Sockets of connections: how they are made, and waited for.

use std::net::{ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use larder_client::{Address, Stream, Tls};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

use crate::abi::Return;
use crate::core::Options;
use crate::core::failure::Failure;

pub(super) enum Socket {
    Stream(Stream),
    Datagram(UdpSocket),
}

pub(super) fn stream(address: &Address, options: &Options, tls: Option<&Tls>) -> Result<Socket, Failure> {
    if options.connect_timeout == 0 {
        return Err(Failure::new(Return::TIMEOUT, "timeout was set to zero"));
    }
    let tls = tls.filter(|_| !matches!(address, Address::Unix(_)));
    let stream = Stream::connect(address, tls, duration(options.connect_timeout))
        .map_err(|error| Failure::of_connect(&error))?;
    let socket = stream.as_fd();
    if !matches!(address, Address::Unix(_)) {
        // They make a connection better, and none impossible: what the system refuses is left as it is.
        let _ = sockopt::set_socket_keepalive(socket, options.keepalive);
        if options.keepidle_secs > 0 {
            let _ = sockopt::set_tcp_keepidle(socket, Duration::from_secs(options.keepidle_secs.into()));
        }
    }
    if let Ok(size @ 1..) = usize::try_from(options.send_size) {
        let _ = sockopt::set_socket_send_buffer_size(socket, size);
    }
    if let Ok(size @ 1..) = usize::try_from(options.recv_size) {
        let _ = sockopt::set_socket_recv_buffer_size(socket, size);
    }
    Ok(Socket::Stream(stream))
}

pub(super) fn datagram(address: &Address) -> Result<Socket, Failure> {
    let Address::Inet { host, port } = address else {
        return Err(Failure::new(Return::INVALID_HOST_PROTOCOL, ""));
    };
    let mut failure = Failure::new(Return::HOST_LOOKUP_FAILURE, "");
    let addresses = (host.as_str(), *port).to_socket_addrs().map_err(|error| Failure::of_connect(&error))?;
    for address in addresses {
        let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        match UdpSocket::bind(any).and_then(|socket| socket.connect(address).map(|()| socket)) {
            Ok(socket) => return Ok(Socket::Datagram(socket)),
            Err(error) => failure = Failure::of_io(&error),
        }
    }
    Err(failure)
}

/// Waits until a socket is ready; `None`: for ever. False: a signal came.
pub(super) fn wait(
    socket: BorrowedFd<'_>,
    events: PollFlags,
    timeout: Option<Duration>,
) -> Result<bool, Failure> {
    let timeout = timeout.and_then(|timeout| timeout.try_into().ok());
    match poll(&mut [PollFd::from_borrowed_fd(socket, events)], timeout.as_ref()) {
        Ok(0) => Err(Failure::timeout()),
        Ok(_) => Ok(true),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(Failure::of_errno(error.raw_os_error(), "poll()")),
    }
}

/// The time that `poll` waits. `None`: for ever.
pub(in crate::core) fn timespec(timeout: i32) -> Option<Timespec> {
    duration(timeout).and_then(|timeout| timeout.try_into().ok())
}

/// A time in milliseconds. `None`: for ever.
pub(super) fn duration(timeout: i32) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}
