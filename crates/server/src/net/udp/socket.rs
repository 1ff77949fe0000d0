//! UDP sockets.
//!
//! Every worker has its own socket for every address (SO_REUSEPORT). The kernel routes all datagrams of a client's
//! socket to the same one, so they are served in order. With one socket for all workers a get could overtake the set
//! before it, and workers would contend for its queue.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use larder_protocol::Dialect;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::net::listeners::{self, ListenSpec, is_absent_family};
use crate::startup::options::{EXIT_OS_ERROR, Refusal};
use crate::startup::settings::{Port, Settings};

/// A UDP socket. Nonblocking.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    address: SocketAddr,
    dialect: Option<Dialect>,
}

impl Socket {
    /// A socket that another process bound. Errors: it has no address.
    pub(crate) fn passed(fd: OwnedFd, dialect: Option<Dialect>) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        make_room(&fd)?;
        let address = SocketAddr::try_from(rustix::net::getsockname(&fd)?)?;
        Ok(Self { fd, address, dialect })
    }

    /// The address that it is bound to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The dialect of its clients. `None`: the first byte of each datagram tells.
    pub(super) fn dialect(&self) -> Option<Dialect> {
        self.dialect
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Binds what `-U` asks for, on the addresses of `-l`: for every worker one socket for each address, in the same order.
/// There is no UDP with a Unix socket. Errors: exit code 71.
pub fn bind(settings: &Settings) -> Result<Vec<Vec<Socket>>, Refusal> {
    let mut workers: Vec<Vec<Socket>> = (0..settings.threads).map(|_| Vec::new()).collect();
    if settings.udp_port == Port::Off || settings.unix_socket.is_some() {
        return Ok(workers);
    }
    for ListenSpec { protocol, host, port, .. } in listeners::listen_specs(settings)? {
        let refuse = |error: io::Error| {
            Refusal::new(EXIT_OS_ERROR, format!("failed to listen on UDP port: {host}: {error}"))
        };
        let dialect = protocol.dialect(settings);
        let port = port.unwrap_or(settings.udp_port);
        let mut absent = None;
        let mut is_bound = false;
        for address in listeners::addresses(host, port).map_err(refuse)? {
            match bind_group(address, dialect, settings.threads) {
                Ok(group) => {
                    is_bound = true;
                    workers.iter_mut().zip(group).for_each(|(worker, socket)| worker.push(socket));
                }
                Err(error) if is_absent_family(&error) => absent = Some(error),
                Err(error) => return Err(refuse(error)),
            }
        }
        if let Some(error) = absent.filter(|_| !is_bound) {
            return Err(refuse(error));
        }
    }
    Ok(workers)
}

/// Distributes sockets that were passed to us among the workers, each to one: only the user who bound them could bind
/// more at the same address.
pub fn share(sockets: Vec<Socket>, threads: usize) -> Vec<Vec<Socket>> {
    let mut workers: Vec<Vec<Socket>> = (0..threads).map(|_| Vec::new()).collect();
    for (index, socket) in sockets.into_iter().enumerate() {
        workers[index % threads].push(socket);
    }
    workers
}

/// One socket for each worker. The first is bound before it allows sharing, so that a port that is in use is noticed,
/// for example by another server of the same user.
fn bind_group(address: SocketAddr, dialect: Option<Dialect>, sockets: usize) -> io::Result<Vec<Socket>> {
    let first = socket(address)?;
    rustix::net::bind(&first, &address)?;
    sockopt::set_socket_reuseport(&first, true)?;
    let address = SocketAddr::try_from(rustix::net::getsockname(&first)?)?;
    let mut group = vec![Socket { fd: first, address, dialect }];
    for _ in 1..sockets {
        let fd = socket(address)?;
        sockopt::set_socket_reuseport(&fd, true)?;
        rustix::net::bind(&fd, &address)?;
        group.push(Socket { fd, address, dialect });
    }
    Ok(group)
}

fn socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    make_room(&fd)?;
    Ok(fd)
}

/// The kernel grants as much of it as its limits allow.
fn make_room(fd: &OwnedFd) -> io::Result<()> {
    sockopt::set_socket_recv_buffer_size(fd, BUFFER_BYTES)?;
    Ok(sockopt::set_socket_send_buffer_size(fd, BUFFER_BYTES)?)
}

/// The kernel's receive buffer of a socket: for bursts of many clients.
const BUFFER_BYTES: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            udp_port: Port::Ephemeral,
            listen: vec!["127.0.0.1".to_owned(), "127.0.0.2".to_owned()],
            threads: 3,
            ..Settings::default()
        }
    }

    #[test]
    fn every_worker_has_a_socket_for_every_address() {
        let workers = bind(&settings()).expect("loopback can be bound");
        let addresses: Vec<Vec<SocketAddr>> =
            workers.iter().map(|sockets| sockets.iter().map(Socket::address).collect()).collect();
        assert_eq!(addresses.len(), 3);
        assert!(addresses.iter().all(|worker| *worker == addresses[0] && worker.len() == 2));
        assert_ne!(addresses[0][0].port(), 0);
    }

    #[test]
    fn a_port_that_is_taken_is_refused() {
        let first = bind(&settings()).expect("loopback can be bound");
        let taken = Settings { udp_port: Port::Fixed(first[0][0].address().port()), ..settings() };
        assert_eq!(bind(&taken).expect_err("the port is taken").exit_code, EXIT_OS_ERROR);
    }

    #[test]
    fn without_a_port_or_with_a_unix_socket_there_is_none() {
        let off = Settings { udp_port: Port::Off, ..settings() };
        let unix = Settings { unix_socket: Some("s".into()), ..settings() };
        for settings in [off, unix] {
            assert!(bind(&settings).expect("nothing to refuse").iter().all(Vec::is_empty));
        }
    }
}
