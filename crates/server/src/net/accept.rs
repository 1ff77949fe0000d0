//! How connections come to a worker: from a listener, or from the worker that accepted them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::Arc;

use larder_protocol::{Dialect, error, http};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::conn::client::{Client, Peer};
use crate::conn::connection::Connection;
use crate::conn::session::{CloseReason, Session};
use crate::conn::waiter::Waiter;
use crate::heap;
use crate::net::listeners::Listener;
use crate::net::poller::Token;
use crate::net::socket::{ClientSocket, Wire};
use crate::net::tls::{Channel, ClientCertificates};
use crate::net::worker::Worker;
use crate::net::worker_pool::Accepted;
use crate::observe::trace;
use crate::observe::watch::Event;

impl Worker {
    /// Accepts connections that wait at a listener, a bounded number at a time.
    pub(super) fn accept(&mut self, listener: usize) {
        let shared = Arc::clone(&self.shared);
        let (connection_limiter, limit) =
            (&shared.connection_limiter, shared.settings.connections_max as usize);
        let refuses = shared.settings.maxconns_fast;
        for _ in 0..ACCEPTS_PER_EVENT {
            if !connection_limiter.is_accepting() {
                return self.stop_listening();
            }
            // Without `maxconns_fast` a connection is accepted only when there is a place for it.
            if !refuses && !connection_limiter.admit(limit) {
                connection_limiter.shut();
                self.refuse_connection("-c is reached");
                // A client may have left before we shut, and so found nothing to reopen.
                if connection_limiter.open_connections() < limit {
                    connection_limiter.reopen();
                    continue;
                }
                return self.stop_listening();
            }
            let Listener { fd, dialect, .. } = &self.pool.listeners()[listener];
            match rustix::net::acceptfrom_with(fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok((fd, _)) if refuses && !connection_limiter.admit(limit) => {
                    self.counters.rejected_connections.add(1);
                    self.refuse_connection("-c is reached");
                    // The socket is new: if it does not take one line at once, its client has gone.
                    let refusal = match dialect {
                        Some(Dialect::Http) => http::TOO_MANY_CONNECTIONS,
                        _ => error::TOO_MANY_CONNECTIONS.as_bytes(),
                    };
                    let _ = rustix::io::write(&fd, refusal);
                }
                Ok((fd, address)) => {
                    self.counters.total_connections.add(1);
                    let address = address.and_then(|address| SocketAddr::try_from(address).ok());
                    let accepted = Accepted { fd, listener, peer: address.map_or(Peer::Unix, Peer::Tcp) };
                    if let Some(accepted) = self.pool.assign(self.index, accepted) {
                        self.register(accepted);
                    }
                }
                Err(error) => {
                    if !refuses {
                        connection_limiter.leave();
                    }
                    match error {
                        Errno::AGAIN => return,
                        // Without this pause the poller would report the listener again and again.
                        Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => {
                            self.refuse_connection("no descriptors left");
                            connection_limiter.shut();
                            return self.stop_listening();
                        }
                        // The client has gone already, or a signal interrupted us.
                        _ => {}
                    }
                }
            }
        }
    }

    /// Logs that a client was refused, in memcached's words.
    fn refuse_connection(&self, reason: &str) {
        if let Some(times) = self.shared.turned_away.happened(self.shared.clock.now().secs) {
            let connections = self.shared.connection_limiter.open_connections();
            tracing::warn!(reason, connections, times, "Too many open connections");
        }
    }

    pub(super) fn drain_inbox(&mut self) {
        for accepted in self.pool.take_accepted(self.index) {
            self.register(accepted);
        }
        for Waiter { connection, .. } in self.pool.take_signalled(self.index) {
            self.unpark(connection);
        }
        if !self.is_listening && self.shared.connection_limiter.is_accepting() {
            // If the kernel refuses, the next tick tries again.
            let _ = self.listen();
        }
    }

    fn register(&mut self, Accepted { fd, listener, peer }: Accepted) {
        if !heap::has_headroom() || !self.has_room_for(&fd) {
            self.refuse_connection("no memory left");
            return self.forget();
        }
        let Listener { dialect, tls, hosts, .. } = &self.pool.listeners()[listener];
        if self.shared.observers.is_verbose() {
            trace::arrival(fd.as_raw_fd(), *dialect);
        }
        let Ok(channel) = tls.map(|certificates| self.channel(certificates)).transpose() else {
            return self.forget();
        };
        let now_secs = self.shared.clock.now().secs;
        let client = Arc::new(Client::new(fd.as_raw_fd(), peer, listener, *hosts, now_secs));
        self.shared.connection_table.enter(Arc::clone(&client));
        self.shared.tell(self.index, &Event::Arrival { client: &client });
        let connection = Connection::new(Session::new(*dialect));
        let socket = Box::new(ClientSocket::new(Wire::new(fd, channel), client, connection));
        let Ok(index) = usize::try_from(socket.as_fd().as_raw_fd()) else { return };
        let is_watched = self.poller.admit(&*socket, index, socket.interest).is_ok();
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, || None);
        }
        self.connections[index] = Some(socket);
        if !is_watched {
            self.close(index, CloseReason::Error);
        }
    }

    /// True if the table of connections has, or gets, room for this descriptor.
    fn has_room_for(&mut self, fd: &OwnedFd) -> bool {
        let length = usize::try_from(fd.as_raw_fd()).unwrap_or(0) + 1;
        let more = length.saturating_sub(self.connections.len());
        heap::reserve(&mut self.connections, more)
    }

    /// The TLS of a new connection. Errors: TLS is off, and then no listener asks for it.
    fn channel(&self, certificates: ClientCertificates) -> io::Result<Channel> {
        let context = self.shared.tls.as_ref().map(|tls| tls.context(certificates));
        let context = context.ok_or_else(|| io::Error::other("no certificates"))?;
        Channel::new(context, Arc::clone(&self.shared.buffers)).map_err(io::Error::other)
    }

    pub(super) fn listen(&mut self) -> io::Result<()> {
        for (number, listener) in self.pool.listeners().iter().enumerate() {
            self.poller.add_shared(&listener.fd, Token::Listener(number))?;
        }
        self.is_listening = true;
        Ok(())
    }

    fn stop_listening(&mut self) {
        for listener in self.pool.listeners() {
            let _ = self.poller.delete(&listener.fd);
        }
        self.is_listening = false;
    }
}

const ACCEPTS_PER_EVENT: u32 = 64;
