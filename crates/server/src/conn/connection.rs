//! A client's socket: brings what it receives to the session, and what the session answers to the socket.
//!
//! Owns no buffer while idle. What was received and is not a whole request yet is kept here, and so is what could not
//! be sent; while there is any of that, nothing more is read, so what a client can make the server keep is bounded by
//! one read and one turn's output.

use std::io::{self, IoSlice};
use std::mem;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use larder_engine::Handle;
use larder_protocol::Error;
use larder_protocol::admin::Streams;

use crate::clock::Moment;
use crate::conn::buffer_budget::{BufferCharge, FREE_BYTES};
use crate::conn::frame::Prefetched;
use crate::conn::output::{Output, Unsent};
use crate::conn::session::{CloseReason, Context, FeedStatus, Session, Window};
use crate::heap;
use crate::net::connection_table::{Client, Peer, State};
use crate::net::round::Ahead;
use crate::net::socket::{self, Received, Wire};
use crate::net::tls;
use crate::observe::counters::Counters;
use crate::observe::measure::{Recorder, Transport};
use crate::observe::watch::Watcher;
use crate::shared::Shared;

/// A connection.
pub(crate) struct Connection {
    wire: Wire,
    client: Arc<Client>,
    session: Session,
    input: Input,
    unsent: Option<Box<Unsent>>,
    /// Close as soon as all is sent.
    closing: Option<CloseReason>,
    /// In the worker's queue of those that have more to do.
    pub(crate) is_queued: bool,
    /// What the worker's epoll watches it for.
    pub(crate) interest: Interest,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    Readable,
    Writable,
}

/// What is to become of a connection that was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing to do until the socket is ready.
    Wait(Interest),
    /// It could go on, but it is the others' turn.
    Queue,
    /// It waits for something that no socket tells of: in a few milliseconds.
    Park,
    Close(CloseReason),
    /// It is the control thread's from now on.
    Watch(Streams),
}

/// What a worker lends to the connection that it serves.
pub(crate) struct WorkerContext<'w> {
    pub(crate) shared: &'w Shared,
    pub(crate) counters: &'w Counters,
    pub(crate) recorder: &'w Recorder,
    /// When epoll reported what is being served.
    pub(crate) woken: Moment,
    /// When what is being answered had been received.
    pub(crate) heard: Moment,
    /// The worker's number.
    pub(crate) worker: usize,
    pub(crate) handle: &'w mut Handle,
    /// What is received lands here first.
    pub(crate) scratch: &'w mut [u8],
    /// Answers that are to be sent when all of the round are answered.
    pub(crate) output: &'w mut Vec<u8>,
    pub(crate) tls: &'w mut tls::Buffers,
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
        }
    }
}

/// Bytes received and not consumed yet.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
    /// Those before this are consumed.
    from: usize,
    /// There may be whole requests among them: feed them before reading on.
    is_unfed: bool,
    held: BufferCharge,
}

impl Connection {
    pub(crate) fn new(wire: Wire, client: Arc<Client>, session: Session) -> Self {
        Self {
            wire,
            client,
            session,
            input: Input::default(),
            unsent: None,
            closing: None,
            is_queued: false,
            interest: Interest::Readable,
        }
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.wire.as_fd().as_raw_fd()
    }

    /// Has it waited between commands for longer than `timeout_secs`? Unix sockets have no timeout.
    pub(crate) fn is_idle(&self, now_secs: u32, timeout_secs: u32) -> bool {
        matches!(self.client.peer, Peer::Tcp(_))
            && !self.is_blocked()
            && !self.is_queued
            && self.session.is_waiting()
            && now_secs.saturating_sub(self.client.heard_secs()) > timeout_secs
    }

    /// Goes on with it, up to where it has something to answer: sends what is left over; then reads, unless what is left over
    /// has to be fed first. Says where in the scratch buffer, from `from` on, what it read lies; or what becomes of it instead.
    pub(crate) fn hear(&mut self, worker: &mut WorkerContext<'_>, from: usize) -> Result<Range<usize>, Next> {
        let heard = self.listen(worker, from);
        if heard.is_err() {
            self.show_state();
        }
        heard
    }

    /// Answers what it heard, up to its share of requests (`-R`). Says where in the bench's output its answer lies,
    /// to be sent with those of the others; or what becomes of it, if there is nothing that can wait to be sent.
    pub(crate) fn answer(
        &mut self,
        worker: &mut WorkerContext<'_>,
        heard: Range<usize>,
        ahead: Option<&Ahead>,
    ) -> Result<Range<usize>, Next> {
        self.client.set_state(State::ParseCommand);
        let answered = self.feed(worker, heard, ahead);
        self.show_state();
        answered
    }

    /// Takes note of what became of its answer, which lies in the bench's output, when it was sent.
    pub(crate) fn settle(
        &mut self,
        worker: &WorkerContext<'_>,
        answer: Range<usize>,
        sent: io::Result<usize>,
    ) -> Next {
        let Ok(written) = sent else { return Next::Close(CloseReason::Error) };
        worker.counters.bytes_written.add(written as u64);
        let rest = &worker.output[answer][written..];
        if !rest.is_empty() {
            let Some(unsent) = Unsent::of(rest) else { return Next::Close(CloseReason::Error) };
            self.unsent = Some(Box::new(unsent));
            self.show_state();
        }
        Next::Wait(self.awaited())
    }

    /// Where in `heard` the first key lies that it asks for, if that is plain to see: to be fetched ahead.
    pub(crate) fn first_key(&self, heard: &[u8]) -> Option<Range<usize>> {
        if self.input.bytes.is_empty() { self.session.first_key(heard) } else { None }
    }

    fn listen(&mut self, worker: &mut WorkerContext<'_>, from: usize) -> Result<Range<usize>, Next> {
        match self.send_unsent(worker) {
            Ok(true) => {}
            Ok(false) => return Err(Next::Wait(Interest::Writable)),
            Err(_) => return Err(Next::Close(CloseReason::Error)),
        }
        if let Some(reason) = self.closing {
            return Err(Next::Close(reason));
        }
        if self.input.is_unfed {
            return Ok(from..from);
        }
        match self.receive(worker, from) {
            Received::Bytes(n) => Ok(from..from + n),
            Received::Nothing => Err(Next::Wait(self.awaited())),
            Received::Busy => {
                yield_core();
                Err(Next::Queue)
            }
            Received::End(reason) => Err(Next::Close(reason)),
        }
    }

    /// For whoever asks what connections do.
    fn show_state(&self) {
        self.client.set_state(if self.is_blocked() {
            State::Write
        } else if !self.session.is_waiting() {
            State::Value
        } else {
            State::Read
        });
    }

    /// Who it is.
    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Becomes one that watches.
    pub(crate) fn into_watcher(self, streams: Streams) -> Watcher {
        self.client.set_state(State::Watch);
        let unsent = self.unsent.map_or_else(Vec::new, |unsent| unsent.rest().to_vec());
        Watcher::new(self.wire, self.client, streams, unsent)
    }

    /// To be called before it is dropped.
    pub(crate) fn say_goodbye(&mut self) {
        self.wire.say_goodbye();
    }

    /// Reads once: into the value whose bytes are arriving, or else into the scratch buffer, from `from` on.
    fn receive(&mut self, worker: &mut WorkerContext<'_>, from: usize) -> Received {
        if self.wire.is_plain() && !self.session.is_waiting() && self.input.bytes.is_empty() {
            match self.receive_value(worker) {
                Received::Bytes(_) => {}
                other => return other,
            }
        }
        let received = self.wire.receive(&mut worker.scratch[from..], worker.tls, worker.counters);
        if let Received::Bytes(n) = received {
            worker.counters.bytes_read.add(n as u64);
        }
        received
    }

    /// Reads into the windows of a large value, as far as there are any and the socket has bytes: `Bytes` if the value
    /// is complete and what comes next belongs into the scratch buffer.
    fn receive_value(&mut self, worker: &mut WorkerContext<'_>) -> Received {
        for _ in 0..WINDOWS_PER_EVENT {
            let guard = worker.handle.pin(worker.shared.clock.now());
            let received = match self.session.window(&guard) {
                Window::None => return Received::Bytes(0),
                Window::TryAgain => Received::Busy,
                Window::Fill(window) => {
                    let room = window.len();
                    match socket::read(self.wire.as_fd(), window) {
                        Received::Bytes(n) => {
                            self.session.filled(n);
                            worker.counters.bytes_read.add(n as u64);
                            self.client.hear(guard.now().secs);
                            if n < room {
                                return Received::Nothing;
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

    /// Feeds the session: what was kept, and then what was heard. Sends its answers after each turn, but for a small one after
    /// which it waits to read: that is left in the bench's output.
    fn feed(
        &mut self,
        worker: &mut WorkerContext<'_>,
        heard: Range<usize>,
        ahead: Option<&Ahead>,
    ) -> Result<Range<usize>, Next> {
        let Input { bytes: mut kept, mut from, held, .. } = mem::take(&mut self.input);
        let is_kept = !kept.is_empty();
        if is_kept {
            if !heap::reserve(&mut kept, heard.len()) {
                return Err(Next::Close(CloseReason::Error));
            }
            kept.extend_from_slice(&worker.scratch[heard.clone()]);
        }
        let input = if is_kept { &kept[..] } else { &worker.scratch[heard.clone()] };
        let mut prefetched =
            ahead.map(|Ahead { key, hash }| Prefetched { key: &input[key.clone()], hash: *hash });

        let context = worker.context(&self.client);
        let mut answer = None;
        let (next, is_unfed) = 'share: {
            let begun = worker.heard;
            if !heard.is_empty() && worker.recorder.measured().latency {
                worker.recorder.waited(begun.nanos_since(worker.woken));
            }
            let guard = worker.handle.pin(worker.shared.clock.at(begun));
            self.client.hear(guard.now().secs);
            let mut output = Output::new(mem::take(worker.output));
            let requests_max = worker.shared.settings.requests_per_event;
            let prefetched = prefetched.take();
            let fed =
                self.session.feed(&context, &guard, &input[from..], prefetched, &mut output, requests_max);
            from += fed.consumed;
            if fed.requests > 0 && worker.recorder.measured().latency {
                let took_nanos = Moment::now().nanos_since(begun);
                worker.recorder.finish(self.transport(), took_nanos, guard.now().secs);
            }
            if let FeedStatus::Watch(streams) = fed.status {
                // Sent by the control thread, once it tells what happens.
                let unsent = output.unsent(0).and_then(|unsent| Unsent::of(&unsent.to_bytes(&guard)?));
                *worker.output = output.into_buffer();
                let Some(unsent) = unsent else { break 'share (Next::Close(CloseReason::Error), false) };
                self.unsent = Some(Box::new(unsent));
                break 'share (Next::Watch(streams), false);
            }
            let is_last = matches!(fed.status, FeedStatus::NeedInput) && self.wire.is_plain();
            if is_last && output.plain().is_some_and(|bytes| (1..=WAITING_BYTES_MAX).contains(&bytes.len())) {
                let (buffer, range) = output.into_filled_buffer();
                *worker.output = buffer;
                answer = Some(range);
                break 'share (Next::Wait(Interest::Readable), false);
            }
            let sent = send(&mut self.wire, &output, worker.tls, worker.counters);
            let mut is_lost = sent.is_err();
            if let Ok(written) = sent
                && written < output.len_bytes()
            {
                let unsent = output.unsent(written);
                is_lost = unsent.is_none();
                self.unsent = unsent.map(Box::new);
            }
            *worker.output = output.into_buffer();
            let fits = |unsent: &mut Box<Unsent>| unsent.charge(&worker.shared.buffers);
            if is_lost || !self.unsent.as_mut().is_none_or(fits) {
                break 'share (Next::Close(CloseReason::Error), false);
            }
            drop(guard);
            let is_unfed = !matches!(fed.status, FeedStatus::NeedInput);
            if let FeedStatus::Close(reason) = fed.status {
                if !self.is_blocked() {
                    break 'share (Next::Close(reason), false);
                }
                self.closing = Some(reason);
            }
            if self.is_blocked() {
                break 'share (Next::Wait(Interest::Writable), is_unfed);
            }
            match fed.status {
                // Nobody would wake us: the end was in what has been read.
                FeedStatus::NeedInput if self.wire.is_ended() => (Next::Queue, false),
                FeedStatus::NeedInput => (Next::Wait(Interest::Readable), false),
                FeedStatus::TryAgain => {
                    yield_core();
                    (Next::Queue, true)
                }
                FeedStatus::Later => (Next::Park, true),
                status => {
                    if matches!(status, FeedStatus::Yield) {
                        worker.counters.conn_yields.add(1);
                    }
                    (Next::Queue, true)
                }
            }
        };

        let is_unfed_or_blocked = is_unfed || self.is_blocked();
        if is_kept && from < kept.len() {
            // Moved to the front only when more is to be appended: a queue of requests is walked, not moved.
            if !is_unfed {
                kept.drain(..mem::take(&mut from));
            }
            self.input = Input { bytes: kept, from, is_unfed, held };
        } else {
            match heap::copy(&input[from..]) {
                Some(bytes) => self.input = Input { bytes, from: 0, is_unfed, held },
                // What it asked for is still answered.
                None if answer.is_some() => self.closing = Some(CloseReason::Error),
                None => return Err(Next::Close(CloseReason::Error)),
            }
        }
        let Input { bytes, held, .. } = &mut self.input;
        if bytes.len() <= FREE_BYTES {
            bytes.shrink_to(FREE_BYTES);
        }
        if is_unfed_or_blocked {
            // One read, or what was charged before.
            held.force(&worker.shared.buffers, bytes.capacity());
        } else if !held.resize(&worker.shared.buffers, bytes.capacity()) {
            self.refuse_line(&worker.output[answer.unwrap_or_default()]);
            return Err(Next::Close(CloseReason::Error));
        }
        answer.ok_or(next)
    }

    /// Tells the client, after what it was answered, that its line is too long to be kept. Where its socket does not take that at once it
    /// learns of it by the end of the connection.
    fn refuse_line(&mut self, answered: &[u8]) {
        let line = [Error::OutOfMemoryReading.line().as_bytes(), b"\r\n"];
        let slices = [answered, line[0], line[1]].map(IoSlice::new);
        if self.wire.is_plain() {
            let _ = socket::write(self.wire.as_fd(), &slices);
        }
    }

    fn transport(&self) -> Transport {
        match self.client.peer {
            Peer::Unix => Transport::Unix,
            _ if self.wire.is_plain() => Transport::Tcp,
            _ => Transport::Tls,
        }
    }

    /// Sends what is left over from earlier; true when nothing is.
    fn send_unsent(&mut self, worker: &mut WorkerContext<'_>) -> io::Result<bool> {
        let Some(unsent) = &mut self.unsent else { return self.wire.flush() };
        while !unsent.is_empty() {
            let guard = worker.handle.pin(worker.shared.clock.now());
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let filled = unsent.slices(&guard, &mut slices).ok_or(io::ErrorKind::OutOfMemory)?;
            match self.wire.write(&slices[..filled], worker.tls)? {
                0 => return Ok(false),
                n => {
                    worker.counters.bytes_written.add(n as u64);
                    unsent.advance(n);
                }
            }
        }
        self.unsent = None;
        self.wire.flush()
    }

    /// Is there anything that the socket did not take?
    fn is_blocked(&self) -> bool {
        self.unsent.is_some() || self.wire.is_holding()
    }

    /// What the socket has to be for this to go on.
    fn awaited(&self) -> Interest {
        if self.is_blocked() { Interest::Writable } else { Interest::Readable }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }
}

/// Memory is held back by a turn of another worker, which may have lost its core: give it ours.
pub(crate) fn yield_core() {
    std::thread::yield_now();
}

/// Sends as much of the output as the socket takes, and says how much.
fn send(
    wire: &mut Wire,
    output: &Output<'_>,
    buffers: &mut tls::Buffers,
    counters: &Counters,
) -> io::Result<usize> {
    let written = match output.plain() {
        Some(bytes) => send_plain(wire, bytes, buffers)?,
        None => send_gathered(wire, output, buffers)?,
    };
    counters.bytes_written.add(written as u64);
    Ok(written)
}

fn send_plain(wire: &mut Wire, bytes: &[u8], buffers: &mut tls::Buffers) -> io::Result<usize> {
    let mut written = 0;
    while written < bytes.len() {
        match wire.write(&[IoSlice::new(&bytes[written..])], buffers)? {
            0 => break,
            n => written += n,
        }
    }
    Ok(written)
}

fn send_gathered(wire: &mut Wire, output: &Output<'_>, buffers: &mut tls::Buffers) -> io::Result<usize> {
    let mut written = 0;
    while written < output.len_bytes() {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let filled = output.slices(written, &mut slices);
        match wire.write(&slices[..filled], buffers)? {
            0 => break,
            n => written += n,
        }
    }
    Ok(written)
}

/// What a worker reads at once, and the most of pipelined requests that a connection keeps.
pub(crate) const SCRATCH_BYTES: usize = 64 << 10;
/// Answers up to this size wait for those of the whole round; a larger one costs so much to send that what it finds in the caches
/// matters little.
const WAITING_BYTES_MAX: usize = 8 << 10;
/// Parts of one gathered write. What does not fit goes with the next.
const SLICES_MAX: usize = 64;
/// How many pieces of a large value are read before others have their turn.
const WINDOWS_PER_EVENT: u32 = 16;
