//! The floor server: the cost of epoll, read and write without a cache.
//!
//! It answers every key of a get with one value, and every store with success, in text, meta and binary, over TCP, UDP
//! and Unix sockets. It finds line ends and headers, repeats keys where the protocol requires it, skips values, and
//! does nothing else. On the same kernel, a cache with this kind of loop cannot be cheaper: the difference is the cost
//! of the server's own work. And a client cannot reach more than it reaches here. One thread, one epoll loop, one read
//! and one write for each readable connection.

use std::collections::HashMap;
use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, fs, io};

use lexopt::prelude::*;
use rustix::event::{Timespec, epoll};
use rustix::net::{SocketFlags, accept_with, sockopt};

use connection::{Alive, Connection};
use reply::Values;

use crate::Error;

mod binary;
mod connection;
mod reply;
mod udp;

/// The options of the floor server.
pub const OPTIONS: &str = "\
  -p N             TCP and UDP port on 127.0.0.1 (default 11211; 0: any free one)
  -s PATH          a unix socket instead
  --value-bytes N  size of the value with which every get is answered (default 100)";

/// Parses [`OPTIONS`] and serves until the process is killed.
///
/// # Errors
/// An option is unknown, or the port is in use.
pub fn main<I>(args: I) -> Result<(), Error>
where
    I: IntoIterator,
    I::Item: Into<OsString>,
{
    let (mut port, mut path, mut value_bytes) = (11211, None, 100);
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Short('p') => port = parser.value()?.parse()?,
            Short('s') => path = Some(PathBuf::from(parser.value()?)),
            Long("value-bytes") => value_bytes = parser.value()?.parse()?,
            _ => return Err(arg.unexpected().into()),
        }
    }
    let floor = match path {
        Some(path) => Floor::bind_unix(&path, value_bytes)?,
        None => Floor::bind(port, value_bytes)?,
    };
    floor.announce()?;
    Ok(floor.serve(&AtomicBool::new(false))?)
}

/// A floor server that listens.
#[derive(Debug)]
pub struct Floor {
    listener: OwnedFd,
    datagrams: Option<UdpSocket>,
    address: String,
    values: Values,
}

impl Floor {
    /// Listens on a port of 127.0.0.1, TCP and UDP. 0: any free port.
    ///
    /// # Errors
    /// The port is in use.
    pub fn bind(port: u16, value_bytes: usize) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let address = listener.local_addr()?;
        let datagrams = UdpSocket::bind(address)?;
        datagrams.set_nonblocking(true)?;
        Self::new(listener.into(), Some(datagrams), address.to_string(), value_bytes)
    }

    /// Listens on a Unix socket. An existing socket is removed, as in memcached.
    ///
    /// # Errors
    /// Another file exists there, or the directory is missing.
    pub fn bind_unix(path: &Path, value_bytes: usize) -> io::Result<Self> {
        if fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
            fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        Self::new(listener.into(), None, path.display().to_string(), value_bytes)
    }

    fn new(
        listener: OwnedFd,
        datagrams: Option<UdpSocket>,
        address: String,
        value_bytes: usize,
    ) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&listener, true)?;
        Ok(Self { listener, datagrams, address, values: Values::new(value_bytes) })
    }

    /// `127.0.0.1:port`, or the path.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Prints the address, and writes the port to the file `$MEMCACHED_PORT_FILENAME`, in memcached's format.
    fn announce(&self) -> io::Result<()> {
        println!("floor: listening on {}, pid {}", self.address, std::process::id());
        let Some(file) = env::var_os("MEMCACHED_PORT_FILENAME") else { return Ok(()) };
        let Some((_, port)) = self.address.rsplit_once(':') else { return Ok(()) };
        let mut unfinished = file.clone();
        unfinished.push(".lck");
        fs::write(&unfinished, format!("TCP INET: {port}\nUDP INET: {port}\n"))?;
        fs::rename(unfinished, file)
    }

    /// Serves until `stop` is set, which it checks ten times a second.
    ///
    /// # Errors
    /// No epoll or descriptor is available.
    pub fn serve(&self, stop: &AtomicBool) -> io::Result<()> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        add(&poll, &self.listener)?;
        if let Some(datagrams) = &self.datagrams {
            add(&poll, datagrams)?;
        }

        let listener_id = id_of(&self.listener);
        let datagrams_id = self.datagrams.as_ref().map(id_of);
        let mut connections: HashMap<u64, Connection> = HashMap::new();
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut input = vec![0; INPUT_BYTES];
        let mut output = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            events.clear();
            match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), Some(&PATIENCE)) {
                Err(rustix::io::Errno::INTR) => continue,
                waited => waited?,
            };
            for event in &events {
                let id = event.data.u64();
                if id == listener_id {
                    self.accept(&poll, &mut connections)?;
                } else if let Some(connection) = connections.get_mut(&id) {
                    let was_blocked = connection.is_blocked();
                    match connection.turn(&mut input, &self.values) {
                        Ok(Alive::Yes) if connection.is_blocked() == was_blocked => {}
                        Ok(Alive::Yes) => {
                            let interest =
                                if was_blocked { epoll::EventFlags::IN } else { epoll::EventFlags::OUT };
                            epoll::modify(&poll, connection, epoll::EventData::new_u64(id), interest)?;
                        }
                        // Closing the descriptor removes it from the epoll set.
                        Ok(Alive::No) | Err(_) => drop(connections.remove(&id)),
                    }
                } else if let Some(datagrams) = self.datagrams.as_ref().filter(|_| Some(id) == datagrams_id) {
                    udp::turn(datagrams, &mut input, &mut output, &self.values);
                }
            }
        }
        Ok(())
    }

    fn accept(&self, poll: &OwnedFd, connections: &mut HashMap<u64, Connection>) -> io::Result<()> {
        while let Ok(stream) = accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            // A unix socket has no such option, and needs none.
            let _ = sockopt::set_tcp_nodelay(&stream, true);
            add(poll, &stream)?;
            connections.insert(id_of(&stream), Connection::new(stream));
        }
        Ok(())
    }
}

fn add(poll: &OwnedFd, fd: &(impl AsFd + AsRawFd)) -> io::Result<()> {
    Ok(epoll::add(poll, fd, epoll::EventData::new_u64(id_of(fd)), epoll::EventFlags::IN)?)
}

/// A descriptor is never negative.
fn id_of(fd: &impl AsRawFd) -> u64 {
    u64::from(fd.as_raw_fd().unsigned_abs())
}

/// Twice the longest line that is supported: a get of some thousand keys.
const INPUT_BYTES: usize = 256 * 1024;
const EVENTS_MAX: usize = 256;
/// How often `stop` is checked.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

#[cfg(test)]
mod tests;
