//! A connection of a client: requests go out when they must, replies are taken one by one.

mod deadline;
mod input;
mod output;
mod replies;
mod socket;

use std::os::fd::{AsFd, BorrowedFd};

use deadline::Deadline;
use input::Input;
use larder_client::codec::{Event, Outcome, Pipeline, Protocol};
use larder_client::{Address, Tls};
use larder_protocol::udp::{DATAGRAM_BYTES_MAX, Header};
use rustix::net::{getsockname, sockopt};
pub(super) use socket::timespec;
use socket::{Socket, datagram, duration, stream};

use super::Options;
use super::change::refusal;
use super::failure::Failure;
use crate::abi::{Credentials, Return};

/// A connection.
pub(super) struct Link {
    socket: Socket,
    pipeline: Pipeline<Tag>,
    /// Requests that have not been sent.
    output: Vec<u8>,
    input: Input,
    /// Milliseconds that a read or a write of the socket waits; negative: for ever.
    socket_timeout: i32,
    request_id: u16,
    /// Bytes that were sent since something was received.
    unanswered_bytes: usize,
    /// A request was told not to be answered. An error may be meant for it, and no tag says so in text.
    pub(super) is_quiet: bool,
}

/// Memory that a request needs, as far as the program has chosen it.
#[derive(Clone, Copy, Default)]
pub(super) struct Allocation {
    /// To be sent.
    pub(super) request_bytes: usize,
    /// To know keys until they are answered.
    pub(super) log_bytes: usize,
}

impl Allocation {
    /// Of a request that has so many bytes from the program.
    pub(super) fn of(request_bytes: usize) -> Self {
        Self { request_bytes, log_bytes: 0 }
    }
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    /// Nobody waits for its reply: a buffered store.
    Ignored,
    /// The caller waits.
    Awaited,
    /// The values of a multi-get, to be fetched.
    Wanted,
}

impl Link {
    /// Connects, and logs in.
    pub(super) fn connect(
        address: &Address,
        options: &Options,
        tls: Option<&Tls>,
        login: Option<&Credentials>,
    ) -> Result<Self, Failure> {
        let protocol = if options.binary { Protocol::Binary } else { Protocol::Text };
        let mut link = Self {
            socket: if options.udp { datagram(address)? } else { stream(address, options, tls)? },
            pipeline: Pipeline::new(protocol),
            output: Vec::new(),
            input: Input::default(),
            socket_timeout: -1,
            request_id: 0,
            unanswered_bytes: 0,
            is_quiet: false,
        };
        if let Some(login) = login {
            link.reserve(Allocation::of(login.user.len().saturating_add(login.password.len())))?;
            link.pipeline.login(&mut link.output, &login.user, &login.password, Tag::Awaited);
            link.flush(options)?;
            link.await_reply_in_time(options, |event| {
                Ok(match event {
                    Event::Done(_, Outcome::Error(reply)) => Err(refusal(options, &reply)),
                    _ => Ok(()),
                })
            })??;
        }
        Ok(link)
    }

    /// Requests that wait for replies.
    pub(super) fn due(&self) -> usize {
        self.pipeline.len()
    }

    /// Takes memory for a request.
    pub(super) fn reserve(&mut self, allocation: Allocation) -> Result<(), Failure> {
        let reserved = self.output.try_reserve(allocation.request_bytes.saturating_add(REQUEST_BYTES));
        let reserved = reserved.and_then(|()| self.pipeline.try_reserve(allocation.log_bytes));
        reserved.map_err(|_| Failure::out_of_memory())
    }

    /// Adds a request to those that are sent next. A datagram is sent at once.
    pub(super) fn request(
        &mut self,
        request: impl FnOnce(&mut Pipeline<Tag>, &mut Vec<u8>),
    ) -> Result<(), Failure> {
        let Socket::Datagram(socket) = &self.socket else {
            request(&mut self.pipeline, &mut self.output);
            return Ok(());
        };
        self.output.clear();
        let header = Header { request_id: self.request_id, sequence: 0, total: 1, reserved: 0 };
        self.output.extend_from_slice(&header.to_bytes());
        self.request_id = self.request_id.wrapping_add(1);
        request(&mut self.pipeline, &mut self.output);
        let sent = match self.output.len() <= DATAGRAM_BYTES_MAX {
            true => socket.send(&self.output).map(|_| ()).map_err(|error| Failure::of_io(&error)),
            false => Err(Failure::new(Return::WRITE_FAILURE, "")),
        };
        self.output.clear();
        sent
    }

    /// Sends what waits if it is much, and takes the replies that nobody waits for if they are many.
    pub(super) fn flush_if_full(&mut self, options: &Options) -> Result<(), Failure> {
        if self.output.len() >= OUTPUT_BYTES_MAX {
            self.flush(options)?;
        }
        let is_over = self.due() > options.msg_watermark as usize
            || self.unanswered_bytes > options.bytes_watermark as usize;
        if is_over && self.due() > 0 {
            self.flush(options)?;
            self.drain(options)?;
        }
        Ok(())
    }

    pub(super) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Is there something that has been received, and not been taken?
    pub(super) fn has_input(&self) -> bool {
        !self.input.unread().is_empty()
    }

    /// For `poll`.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Stream(stream) => stream.as_fd(),
            Socket::Datagram(socket) => socket.as_fd(),
        }
    }

    pub(super) fn source_port(&self) -> u16 {
        let address = getsockname(self.descriptor()).ok();
        let address = address.and_then(|address| std::net::SocketAddr::try_from(address).ok());
        address.map_or(0, |address| address.port())
    }

    /// The sizes of the socket's buffers, for sending and for receiving.
    pub(super) fn buffer_sizes(&self) -> Option<(usize, usize)> {
        let socket = self.descriptor();
        Some((sockopt::socket_send_buffer_size(socket).ok()?, sockopt::socket_recv_buffer_size(socket).ok()?))
    }

    /// Says goodbye. With `wait`, until the server has read it all.
    pub(super) fn quit(mut self, options: &Options, wait: bool) {
        if let Socket::Datagram(_) = self.socket {
            return;
        }
        self.pipeline.quit(&mut self.output);
        if self.flush(options).is_err() || !wait {
            return;
        }
        // The server closes the connection when it is done. Replies on the way are dropped.
        let mut deadline = Deadline::after(options.poll_timeout);
        while self.fill(options, &mut deadline).is_ok() {
            self.input = Input::default();
        }
    }
}

/// Requests are buffered up to this size (`MEMCACHED_MAX_BUFFER`).
const OUTPUT_BYTES_MAX: usize = 8196;
/// What a request has besides its value, at most.
const REQUEST_BYTES: usize = 512;
