//! A client's socket, plain or TLS, and the connection that is served on it.
//!
//! Everything that a client is sent leaves by [`Wire::send`]. Large or gathered replies are sent right after they were
//! executed, while the guard keeps them valid. Small ones are sent with those of the other connections of the round
//! ([`ClientSocket::send`]). What the socket does not take is sent when it is writable again.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use larder_engine::UPLOAD_BYTES_MIN;
use larder_protocol::Error;
use larder_protocol::admin::Streams;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::clock::Moment;
use crate::conn::client::{Client, Peer, State};
use crate::conn::connection::{Connection, InputRefused};
use crate::conn::output::{Output, Pieces, Replies};
use crate::conn::session::{CloseReason, Context, Next, Prefetched, Window};
use crate::conn::waiter::{Turns, Waiting};
use crate::namespaces::Handles;
use crate::net::poller::Interest;
use crate::net::tls::{self, Buffers, Channel};
use crate::observe::counters::Counters;
use crate::observe::measure::{Recorder, Transport};
use crate::observe::watch::Watcher;
use crate::shared::Shared;

/// A client: its socket and its connection.
pub(crate) struct ClientSocket {
    wire: Wire,
    client: Arc<Client>,
    connection: Connection,
    /// In the worker's queue, or parked.
    pub(crate) is_queued: bool,
    /// The connection waits for something other than its socket.
    pub(crate) is_parked: bool,
    /// The poller watches the socket.
    pub(crate) is_watched: bool,
    /// Everything is sent, and the client knows that; it may read and send for a little longer.
    is_lingering: bool,
    /// The last that came were bytes of a large value.
    sends_large: bool,
    /// What the poller watches the socket for.
    pub(crate) interest: Interest,
}

/// A socket, with its TLS if it has any.
pub(crate) struct Wire {
    fd: OwnedFd,
    channel: Option<Box<Channel>>,
}

/// What a worker lends to the connection that it is serving.
pub(crate) struct WorkerContext<'w> {
    pub(crate) shared: &'w Shared,
    pub(crate) counters: &'w Counters,
    pub(crate) recorder: &'w Recorder,
    /// When the poller reported the events of this round.
    pub(crate) woken: Moment,
    /// When the requests that are being executed were received.
    pub(crate) received: Moment,
    /// The worker's index.
    pub(crate) worker: usize,
    pub(crate) handles: &'w mut Handles,
    /// Replies that are sent once the whole round is executed.
    pub(crate) output: &'w mut Vec<u8>,
    pub(crate) tls: &'w mut tls::Buffers,
    pub(crate) turns: &'w Turns,
}

impl<'w> WorkerContext<'w> {
    pub(crate) fn context<'c>(&self, client: &'c Client) -> Context<'c>
    where
        'w: 'c,
    {
        Context {
            shared: self.shared,
            counters: self.counters,
            recorder: self.recorder,
            worker: self.worker,
            client,
            turns: self.turns,
        }
    }
}

/// The result of a read.
pub(crate) enum Received {
    /// This many bytes.
    Bytes(usize),
    /// Nothing at the moment.
    Nothing,
    /// The engine is reclaiming memory for the value that is arriving.
    Busy,
    End(CloseReason),
}

impl ClientSocket {
    pub(crate) fn new(wire: Wire, client: Arc<Client>, connection: Connection) -> Self {
        let interest = Interest::Readable;
        Self {
            wire,
            client,
            connection,
            is_queued: false,
            is_parked: false,
            is_watched: true,
            is_lingering: false,
            sends_large: false,
            interest,
        }
    }

    /// The client.
    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// True if it has been waiting for a command, or for the rest of a refused value, for longer than `timeout_secs`.
    /// Unix sockets have no timeout.
    pub(crate) fn is_idle(&self, now_secs: u32, timeout_secs: u32) -> bool {
        matches!(self.client.peer, Peer::Tcp(_))
            && !self.is_queued
            && self.next() == Next::Read
            && self.connection.may_be_idle()
            && now_secs.saturating_sub(self.client.input_secs()) > timeout_secs
    }

    /// Called when the socket is ready, or when the connection's turn in the queue has come. Sends what is left over,
    /// then receives, unless there is something to execute first. Returns how many bytes of `scratch` it received;
    /// `Err`: there is nothing to execute, and this is what the connection wants.
    pub(crate) fn on_readable(
        &mut self,
        cx: &mut WorkerContext<'_>,
        scratch: &mut [u8],
    ) -> Result<usize, Next> {
        let received = self.receive(cx, scratch);
        if received.is_err() {
            self.show_state();
        }
        received
    }

    /// Where in `received` its first key lies: [`Connection::first_key`].
    pub(crate) fn first_key(&self, received: &[u8]) -> Option<Range<usize>> {
        self.connection.first_key(received)
    }

    /// Executes what was received, at most its share of requests (`-R`). Small replies stay in the worker's output, in
    /// the returned range, for [`ClientSocket::send`] once the whole round is executed. `Err`: there is nothing left to
    /// send.
    pub(crate) fn execute(
        &mut self,
        cx: &mut WorkerContext<'_>,
        mut received: &[u8],
        prefetched: Option<Prefetched<'_>>,
    ) -> Result<Range<usize>, Next> {
        self.client.set_state(State::ParseCommand);
        let requests_max = cx.shared.settings.requests_per_event;
        let measures_latency = cx.recorder.measured().latency;
        if measures_latency && !received.is_empty() {
            cx.recorder.waited(cx.received.nanos_since(cx.woken));
        }
        let context = cx.context(&self.client);
        let guards = cx.handles.pin(cx.shared.clock.at(cx.received));
        let now_secs = guards.now().secs;
        self.client.on_input(now_secs);
        let mut output = Output::new(mem::take(cx.output));
        let connection = &mut self.connection;
        let fed =
            connection.on_bytes(&context, &guards, &mut received, prefetched, &mut output, requests_max);
        if measures_latency && fed.requests > 0 {
            let took_nanos = Moment::now().nanos_since(cx.received);
            cx.recorder.finish(self.transport(), took_nanos, now_secs);
        }
        let mut replies = 0..0;
        if self.connection.hold(cx.shared, &output) {
            *cx.output = output.into_buffer();
        } else if let Next::Watch(_) = fed.next {
            // The control thread sends these, with the events that follow.
            let bytes = output.to_bytes();
            *cx.output = output.into_buffer();
            match bytes {
                Some(bytes) => self.connection.on_sent(&cx.shared.buffers, &bytes[..], 0),
                None => self.connection.close(CloseReason::Error),
            }
        } else if output.plain().is_some_and(|bytes| bytes.len() <= SMALL_BYTES_MAX) {
            (*cx.output, replies) = output.into_filled_buffer();
        } else {
            self.send(&output, cx.shared, cx.tls, cx.counters);
            *cx.output = output.into_buffer();
        }
        drop(guards);
        if let Err(InputRefused) = self.connection.keep_input(&cx.shared.buffers, received) {
            replies.start = replies.start.max(cx.output.len() - replies.len());
            cx.output.extend_from_slice(Error::OutOfMemoryReading.line().as_bytes());
            cx.output.extend_from_slice(b"\r\n");
            replies.end = cx.output.len();
        }
        // As memcached counts: only where the connection has more requests, not where one reply is long.
        if fed.next == Next::Wait(Waiting::Yield)
            && self.connection.next() == fed.next
            && self.connection.has_requests()
        {
            cx.counters.conn_yields.add(1);
        }
        if !self.is_blocked() {
            self.connection.on_all_sent();
        }
        self.show_state();
        if replies.is_empty() { Err(self.next()) } else { Ok(replies) }
    }

    /// Sends replies, and keeps what the socket does not take. Returns what the connection wants then.
    pub(crate) fn send(
        &mut self,
        replies: &(impl Replies + ?Sized),
        shared: &Shared,
        tls: &mut Buffers,
        counters: &Counters,
    ) -> Next {
        match self.wire.send(replies, tls) {
            Ok(sent) => {
                counters.bytes_written.add(sent as u64);
                if sent < replies.len_bytes() {
                    self.connection.on_sent(&shared.buffers, replies, sent);
                    self.show_state();
                }
            }
            Err(_) => self.connection.close(CloseReason::Error),
        }
        self.next()
    }

    /// Becomes a watcher.
    pub(crate) fn into_watcher(self, streams: Streams) -> Watcher {
        self.client.set_state(State::Watch);
        let unsent = self.connection.poll_output().map_or_else(Vec::new, |unsent| unsent.to_bytes());
        let user = self.connection.user().map(Into::into);
        Watcher::new(self.wire, self.client, user, streams, unsent)
    }

    /// Call before dropping it.
    pub(crate) fn close_notify(&mut self) {
        if !self.is_lingering {
            self.wire.close_notify();
        }
    }

    /// Tells the client that nothing more will be sent. False: it has been told before.
    pub(crate) fn end_output(&mut self) -> bool {
        self.close_notify();
        // An error means that the client has gone, which is found out when it is closed.
        let _ = rustix::net::shutdown(self.as_fd(), rustix::net::Shutdown::Write);
        !mem::replace(&mut self.is_lingering, true)
    }

    /// What the connection wants.
    fn next(&self) -> Next {
        match self.connection.next() {
            Next::Read | Next::Wait(_) | Next::Close(_) if self.wire.is_holding() => Next::Send,
            // Nobody would wake us: the end was in what has been read already.
            Next::Read if self.wire.is_ended() => Next::Wait(Waiting::Yield),
            next => next,
        }
    }

    /// Publishes its state, for `stats conns`.
    fn show_state(&self) {
        self.client.set_state(if self.is_blocked() {
            State::Write
        } else if self.connection.is_expecting_command() {
            State::Read
        } else {
            State::Value
        });
    }

    fn receive(&mut self, cx: &mut WorkerContext<'_>, scratch: &mut [u8]) -> Result<usize, Next> {
        let was_held = self.connection.is_held();
        if was_held {
            self.connection.release(cx.shared)?;
        }
        if self.is_blocked() {
            self.send_rest(cx)?;
            self.connection.on_all_sent();
        }
        match self.connection.next() {
            // The client has just got the reply it was waiting for. The poller reports what it sends next.
            Next::Read if was_held && self.wire.is_plain() => return Err(Next::Read),
            Next::Read => {}
            Next::Wait(_) => return Ok(0),
            next => return Err(next),
        }
        match self.receive_bytes(cx, scratch) {
            Received::Bytes(n) => Ok(n),
            Received::Nothing => Err(self.next()),
            Received::Busy => Err(Next::Wait(Waiting::Memory)),
            Received::End(reason) => Err(Next::Close(reason)),
        }
    }

    /// Receives once: into the value that is arriving, or else into the scratch buffer.
    fn receive_bytes(&mut self, cx: &mut WorkerContext<'_>, scratch: &mut [u8]) -> Received {
        if self.wire.is_plain() && self.connection.is_receiving_value() {
            match self.receive_value(cx, scratch) {
                Received::Bytes(0) => {}
                other => return other,
            }
        }
        // What comes into the scratch buffer of a large value is copied.
        let length = if mem::take(&mut self.sends_large) { LARGE_HEAD_BYTES } else { scratch.len() };
        let length = length.min(scratch.len());
        let received = self.wire.receive(&mut scratch[..length], cx.tls, cx.counters);
        if let Received::Bytes(n) = received {
            cx.counters.bytes_read.add(n as u64);
        }
        received
    }

    /// Receives into the windows of a large value, as long as there are any and the socket has bytes. `Bytes`: the
    /// value needs no window any more, and so many of what follows are in the scratch buffer.
    fn receive_value(&mut self, cx: &mut WorkerContext<'_>, scratch: &mut [u8]) -> Received {
        for _ in 0..WINDOWS_PER_EVENT {
            let guards = cx.handles.pin(cx.shared.clock.now());
            let missing_bytes = self.connection.missing_value_bytes();
            let received = match self.connection.window(&guards) {
                Window::None => return Received::Bytes(0),
                Window::TryAgain => Received::Busy,
                Window::Fill(window) => {
                    let room = window.len();
                    // With its last bytes the value's end comes along, and perhaps the next request.
                    let is_last = room + 1 >= missing_bytes;
                    let tail = &mut scratch[..if is_last { TAIL_BYTES } else { 0 }];
                    match read_both(self.wire.as_fd(), window, tail) {
                        Received::Bytes(n) => {
                            self.connection.on_window_filled(n.min(room));
                            self.sends_large = true;
                            cx.counters.bytes_read.add(n as u64);
                            self.client.on_input(guards.now().secs);
                            if n != room {
                                return n.checked_sub(room).map_or(Received::Nothing, Received::Bytes);
                            }
                            continue;
                        }
                        other => other,
                    }
                }
            };
            if !matches!(received, Received::Busy) {
                return received;
            }
        }
        Received::Busy
    }

    /// Sends what is left over from earlier. `Err`: the socket did not take all of it.
    fn send_rest(&mut self, cx: &mut WorkerContext<'_>) -> Result<(), Next> {
        let failed = |_| Next::Close(CloseReason::Error);
        while let Some(unsent) = self.connection.poll_output() {
            // New guards for each write, so that a value revoked meanwhile can be freed.
            let guards = cx.handles.pin(cx.shared.clock.now());
            let sent = self.wire.send_once(&unsent.guarded(&guards), cx.tls).map_err(failed)?;
            if sent == 0 {
                break;
            }
            cx.counters.bytes_written.add(sent as u64);
            self.connection.on_output_sent(sent);
        }
        let is_all = self.connection.poll_output().is_none() && self.wire.flush().map_err(failed)?;
        if is_all { Ok(()) } else { Err(Next::Send) }
    }

    /// True if the socket did not take everything.
    #[inline]
    fn is_blocked(&self) -> bool {
        self.connection.poll_output().is_some() && !self.connection.is_held() || self.wire.is_holding()
    }

    fn transport(&self) -> Transport {
        match self.client.peer {
            Peer::Unix => Transport::Unix,
            _ if self.wire.is_plain() => Transport::Tcp,
            _ => Transport::Tls,
        }
    }
}

impl AsFd for ClientSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }
}

impl Wire {
    pub(crate) fn new(fd: OwnedFd, channel: Option<Channel>) -> Self {
        Self { fd, channel: channel.map(Box::new) }
    }

    /// True without TLS: the socket can be read straight into the place where the bytes belong.
    pub(crate) fn is_plain(&self) -> bool {
        self.channel.is_none()
    }

    /// Reads once.
    pub(crate) fn receive(
        &mut self,
        plain: &mut [u8],
        buffers: &mut Buffers,
        counters: &Counters,
    ) -> Received {
        match &mut self.channel {
            None => read(self.fd.as_fd(), plain),
            Some(channel) => channel.receive(self.fd.as_fd(), buffers, plain, counters),
        }
    }

    /// The only way out. Sends until everything is sent or the socket takes no more. Returns how much was taken; TLS
    /// may still hold some of that: [`Wire::flush`].
    #[inline]
    pub(crate) fn send(
        &mut self,
        pieces: &(impl Pieces + ?Sized),
        buffers: &mut Buffers,
    ) -> io::Result<usize> {
        let len_bytes = pieces.len_bytes();
        let mut sent = 0;
        while sent < len_bytes {
            match self.send_from(pieces, sent, buffers)? {
                0 => break,
                n => sent += n,
            }
        }
        Ok(sent)
    }

    /// The same with one write.
    fn send_once(&mut self, pieces: &(impl Pieces + ?Sized), buffers: &mut Buffers) -> io::Result<usize> {
        self.send_from(pieces, 0, buffers)
    }

    #[inline]
    fn send_from(
        &mut self,
        pieces: &(impl Pieces + ?Sized),
        sent: usize,
        buffers: &mut Buffers,
    ) -> io::Result<usize> {
        match pieces.plain() {
            Some(bytes) => self.write(&[IoSlice::new(&bytes[sent..])], buffers),
            None => self.write_gathered(pieces, sent, buffers),
        }
    }

    fn write_gathered(
        &mut self,
        pieces: &(impl Pieces + ?Sized),
        sent: usize,
        buffers: &mut Buffers,
    ) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let filled = pieces.slices(sent, &mut slices).ok_or(io::ErrorKind::OutOfMemory)?;
        self.write(&slices[..filled], buffers)
    }

    /// Sends from the head of `slices`. Returns how many bytes were taken; 0 if the socket takes nothing at the moment.
    /// TLS may still hold some of that: [`Wire::flush`].
    pub(crate) fn write(&mut self, slices: &[IoSlice<'_>], buffers: &mut Buffers) -> io::Result<usize> {
        match &mut self.channel {
            None => write(self.fd.as_fd(), slices),
            Some(channel) => channel.write(self.fd.as_fd(), buffers, slices),
        }
    }

    /// Sends what TLS still holds. True once it holds nothing.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        self.channel.as_mut().map_or(Ok(true), |channel| channel.flush(self.fd.as_fd()))
    }

    /// True if TLS holds records that the socket did not take.
    pub(crate) fn is_holding(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.is_holding())
    }

    /// The client will send no more, although its socket may stay open: do not wait for it.
    pub(crate) fn is_ended(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.is_ended())
    }

    /// Call before closing the socket.
    pub(crate) fn close_notify(&mut self) {
        if let Some(channel) = &mut self.channel {
            channel.close_notify(self.fd.as_fd());
        }
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

pub(crate) fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Received {
    loop {
        return match rustix::net::recv(fd, &mut *buffer, RecvFlags::empty()) {
            Ok((0, _)) => Received::End(CloseReason::Normal),
            Ok((n, _)) => Received::Bytes(n),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Received::Nothing,
            Err(_) => Received::End(CloseReason::Error),
        };
    }
}

/// Reads once into two buffers, the second of which may be empty.
fn read_both(fd: BorrowedFd<'_>, first: &mut [u8], second: &mut [u8]) -> Received {
    if second.is_empty() {
        return read(fd, first);
    }
    loop {
        return match rustix::io::readv(fd, &mut [IoSliceMut::new(first), IoSliceMut::new(second)]) {
            Ok(0) => Received::End(CloseReason::Normal),
            Ok(n) => Received::Bytes(n),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Received::Nothing,
            Err(_) => Received::End(CloseReason::Error),
        };
    }
}

/// One gathered write; 0 if the socket takes nothing at the moment.
pub(crate) fn write(fd: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    loop {
        let written = match slices {
            [slice] => rustix::net::send(fd, slice, SendFlags::NOSIGNAL),
            _ => rustix::io::writev(fd, slices),
        };
        return match written {
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Ok(0),
            written => Ok(written?),
        };
    }
}

/// What a worker receives in one read, and the most pipelined input that a connection keeps.
pub(crate) const SCRATCH_BYTES: usize = 64 << 10;
/// The same where the client has just sent a large value, and may send another: little more than what has to arrive
/// before the rest is received where it will lie.
const LARGE_HEAD_BYTES: usize = UPLOAD_BYTES_MIN + (1 << 10);
/// Bytes that are received behind the end of a large value.
const TAIL_BYTES: usize = 4 << 10;
/// Free space in the scratch buffer for the last connection of a round.
pub(crate) const ROOM_BYTES_MIN: usize = SCRATCH_BYTES / 2;
/// Replies up to this size are sent at the end of the round. Sending a larger one costs so much that cache misses
/// matter little.
const SMALL_BYTES_MAX: usize = 8 << 10;
/// Parts of one gathered write. The rest goes with the next.
const SLICES_MAX: usize = 64;
/// How many windows of a large value are received before the connection yields.
const WINDOWS_PER_EVENT: u32 = 16;
