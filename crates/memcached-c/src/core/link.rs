//! A connection of a client: requests go out when they must, replies are taken one by one.

mod deadline;
mod input;
mod socket;

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

use deadline::Deadline;
use input::Input;
use larder_client::codec::{Event, Outcome, Pipeline, Protocol};
use larder_client::{Address, Tls};
use larder_protocol::udp::{DATAGRAM_BYTES_MAX, Header};
use rustix::event::PollFlags;
use rustix::net::{getsockname, sockopt};
pub(super) use socket::timespec;
use socket::{Socket, datagram, duration, stream, wait};

use super::Options;
use super::change::{is_doubtful, refusal};
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
pub(super) struct Room {
    /// To be sent.
    pub(super) request_bytes: usize,
    /// To know keys until they are answered.
    pub(super) log_bytes: usize,
}

impl Room {
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
            link.reserve(Room::of(login.user.len().saturating_add(login.password.len())))?;
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
    pub(super) fn reserve(&mut self, room: Room) -> Result<(), Failure> {
        let reserved = self.output.try_reserve(room.request_bytes.saturating_add(REQUEST_BYTES));
        let reserved = reserved.and_then(|()| self.pipeline.try_reserve(room.log_bytes));
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

    /// Sends all requests.
    pub(super) fn flush(&mut self, options: &Options) -> Result<(), Failure> {
        if self.output.is_empty() || matches!(self.socket, Socket::Datagram(_)) {
            return Ok(());
        }
        self.unanswered_bytes = self.unanswered_bytes.saturating_add(self.output.len());
        // What fits into the buffers of the system cannot block for a server that waits to be read.
        let is_short = self.pipeline.len() <= 1 || self.unanswered_bytes <= SAFE_BYTES;
        if is_short && self.output.len() <= SAFE_BYTES && options.poll_timeout != 0 {
            let sent = self.send_briefly(options);
            self.output.clear();
            return sent;
        }
        let Socket::Stream(stream) = &self.socket else { return Ok(()) };
        stream.set_nonblocking(true).map_err(|error| Failure::of_io(&error))?;
        let sent = self.send_while_reading(options);
        self.output.clear();
        self.output.shrink_to(OUTPUT_BYTES_MAX);
        let Socket::Stream(stream) = &self.socket else { return sent };
        stream.set_nonblocking(false).map_err(|error| Failure::of_io(&error))?;
        sent
    }

    /// Sends in the time that one wait may take: a server that does not read fills those buffers.
    fn send_briefly(&mut self, options: &Options) -> Result<(), Failure> {
        self.limit_waits(options)?;
        let Socket::Stream(stream) = &mut self.socket else { return Ok(()) };
        let deadline = Deadline::after(options.poll_timeout);
        let mut rest = self.output.as_slice();
        loop {
            let written = if rest.is_empty() { stream.flush().map(|()| 0) } else { stream.write(rest) };
            match written {
                Ok(_) if rest.is_empty() => return Ok(()),
                Ok(bytes) => rest = rest.get(bytes..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::of_io(&error)),
            }
            if deadline.has_passed() {
                return Err(Failure::timeout());
            }
        }
    }

    /// Makes reads and writes of the socket wait as long as they may. Not for a time of 0.
    fn limit_waits(&mut self, options: &Options) -> Result<(), Failure> {
        if let Socket::Stream(stream) = &self.socket
            && self.socket_timeout != options.poll_timeout
        {
            stream.set_timeout(duration(options.poll_timeout)).map_err(|error| Failure::of_io(&error))?;
            self.socket_timeout = options.poll_timeout;
        }
        Ok(())
    }

    /// Sends without blocking. While the server does not read, it waits to be read itself: so replies are taken in.
    fn send_while_reading(&mut self, options: &Options) -> Result<(), Failure> {
        let Socket::Stream(stream) = &mut self.socket else { return Ok(()) };
        let mut sent = 0;
        // A server that says a little now and then, and reads nothing, makes no progress.
        let mut deadline = Deadline::after_progress(options.poll_timeout);
        loop {
            let written = match self.output.get(sent..) {
                Some(rest) if !rest.is_empty() => stream.write(rest),
                _ if stream.has_unsent() => stream.flush().map(|()| 0),
                _ => return Ok(()),
            };
            match written {
                Ok(bytes) => {
                    sent += bytes;
                    deadline.renew();
                }
                Err(error) if is_retryable(&error) => {
                    let has_room = self.input.len() < INPUT_BYTES_MAX;
                    let read = if has_room { self.input.read(stream, 0) } else { Ok(0) };
                    match read {
                        Ok(0) if has_room => return Err(Failure::disconnected()),
                        Err(error) if !is_retryable(&error) => return Err(Failure::of_io(&error)),
                        Ok(bytes) if bytes > 0 => {
                            deadline.received(bytes);
                            if deadline.has_passed() && options.poll_timeout != 0 {
                                return Err(Failure::timeout());
                            }
                        }
                        _ => {
                            let readable = if has_room { PollFlags::IN } else { PollFlags::empty() };
                            wait(stream.as_fd(), PollFlags::OUT | readable, deadline.left())?;
                        }
                    }
                }
                Err(error) => return Err(Failure::of_io(&error)),
            }
        }
    }

    /// Takes the next event, waiting for it as [`Link::await_reply`] does.
    pub(super) fn next<R>(
        &mut self,
        options: &Options,
        take: impl FnOnce(Event<'_, Tag>) -> R,
    ) -> Result<R, Failure> {
        self.next_within(options, &mut Deadline::after_progress(options.poll_timeout), take)
    }

    fn next_within<R>(
        &mut self,
        options: &Options,
        deadline: &mut Deadline,
        take: impl FnOnce(Event<'_, Tag>) -> R,
    ) -> Result<R, Failure> {
        loop {
            let unread = self.input.unread();
            let mut rest = unread;
            match self.pipeline.receive(&mut rest) {
                // The replies after it may be to what the server took for requests.
                Ok(Some(Event::Done(Tag::Ignored, Outcome::Error(reply)))) if is_doubtful(reply.kind) => {
                    return Err(refusal(options, &reply));
                }
                Ok(Some(event)) => {
                    let result = take(event);
                    let taken = unread.len() - rest.len();
                    self.input.take(taken);
                    return Ok(result);
                }
                Ok(None) => {
                    // A reply of which all is known may have been passed over.
                    let taken = unread.len() - rest.len();
                    self.input.take(taken);
                }
                Err(violation) => return Err(Failure::violation(&violation)),
            }
            let has_value = deadline.renews() && self.pipeline.front() != Some(&Tag::Ignored);
            if !has_value && self.pipeline.needed_bytes() > REPLY_BYTES_MAX {
                return Err(Failure::new(Return::UNKNOWN_READ_FAILURE, "the reply is too long"));
            }
            self.fill(options, deadline)?;
        }
    }

    /// Takes events until the reply to the awaited request is complete; its events go to `take`. For values, which may
    /// be large: it ends when the server makes no progress for the time that one wait may take.
    pub(super) fn await_reply<R>(
        &mut self,
        options: &Options,
        mut take: impl FnMut(Event<'_, Tag>) -> R,
    ) -> Result<R, Failure> {
        let deadline = || Deadline::after_progress(options.poll_timeout);
        self.await_reply_within(options, deadline, |event| Ok(take(event)))
    }

    /// The same, for a reply without a value, of which the server says how long it is: all of it has to come in the
    /// time that one wait may take, from when it is its turn. An error of `take` ends it.
    pub(super) fn await_reply_in_time<R>(
        &mut self,
        options: &Options,
        take: impl FnMut(Event<'_, Tag>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.await_reply_within(options, || Deadline::after(options.poll_timeout), take)
    }

    fn await_reply_within<R>(
        &mut self,
        options: &Options,
        deadline: impl FnOnce() -> Deadline + Copy,
        mut take: impl FnMut(Event<'_, Tag>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        // All replies before it have the time of one wait together.
        let mut before = Deadline::after_progress(options.poll_timeout);
        let mut own = None;
        loop {
            let is_awaited = self.pipeline.front() == Some(&Tag::Awaited);
            let deadline = if is_awaited { own.get_or_insert_with(deadline) } else { &mut before };
            let step = self.next_within(options, deadline, |event| {
                let is_done = matches!(event, Event::Done(Tag::Awaited, _));
                let result = if is_awaited || is_done { Some(take(event)?) } else { None };
                Ok(result.filter(|_| is_done))
            })??;
            if let Some(result) = step {
                return Ok(result);
            }
        }
    }

    /// Takes and drops the replies to all requests. It ends when the server makes no progress for the time that one
    /// wait may take: all small replies have that time together.
    pub(super) fn drain(&mut self, options: &Options) -> Result<(), Failure> {
        let mut deadline = Deadline::after_progress(options.poll_timeout);
        while self.due() > 0 {
            self.next_within(options, &mut deadline, |_| ())?;
        }
        Ok(())
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

    /// Reads until there is more, as much as the next event needs if the rest of it is on its way.
    fn fill(&mut self, options: &Options, deadline: &mut Deadline) -> Result<(), Failure> {
        if let Socket::Datagram(_) = self.socket {
            return Err(Failure::new(Return::NOT_SUPPORTED, ""));
        }
        if options.poll_timeout == 0 {
            return Err(Failure::new(Return::TIMEOUT, "timeout was set to zero"));
        }
        self.limit_waits(options)?;
        let Socket::Stream(stream) = &mut self.socket else { return Ok(()) };
        loop {
            // The socket itself waits all of the time. Only a part of it is left after the first read.
            if !deadline.begin() && !wait(stream.as_fd(), PollFlags::IN, deadline.left())? {
                continue;
            }
            match self.input.read(stream, self.pipeline.needed_bytes()) {
                Ok(0) => return Err(Failure::disconnected()),
                Ok(bytes) => {
                    self.unanswered_bytes = 0;
                    deadline.received(bytes);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::of_io(&error)),
            }
        }
    }
}

/// May a write or a read that has failed succeed later?
fn is_retryable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Requests are buffered up to this size (`MEMCACHED_MAX_BUFFER`).
const OUTPUT_BYTES_MAX: usize = 8196;
/// What a request has besides its value, at most.
const REQUEST_BYTES: usize = 512;
/// Any system takes so much of a connection without an answer.
const SAFE_BYTES: usize = 16 << 10;
/// What a reply without a value may announce: `stats detail dump` is one text.
const REPLY_BYTES_MAX: usize = 64 << 20;
/// So much is read before requests are sent that the server does not take.
const INPUT_BYTES_MAX: usize = 256 << 20;
