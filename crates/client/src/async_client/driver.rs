//! The task of a connection: sends its requests, and answers them.
//!
//! Replies come in the order of the requests, so one doubtful reply makes all later ones doubtful. Whatever is wrong
//! ends the connection, and each of its requests is told.

mod replies;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::batch::Batch;
use super::builder::Settings;
use super::connection::{Call, Connection, Permits};
use super::end::End;
use super::reply::{Answer, Failure, FoundItem, Reply, Sink};
use super::socket::Socket;
use crate::check::check_announced;
use crate::client::Statistics;
use crate::codec::{Pipeline, Violation, ViolationKind};
use crate::error::Interruption;
use crate::{Address, Error};

/// Connects, and serves the connection until it ends.
pub(super) async fn drive(connection: Arc<Connection>, address: Address, settings: Arc<Settings>) {
    // However this ends, nobody waits for ever.
    let guard = Guard(&connection);
    match Socket::open(&address, &settings).await {
        Ok(socket) => {
            let mut driver = Driver::new(&connection, socket, &settings);
            let end = poll_fn(|cx| driver.poll(cx)).await;
            guard.0.end(end);
        }
        Err(end) => {
            guard.0.end(end);
        }
    }
}

/// Ends the connection if its task is dropped, with the runtime for instance.
struct Guard<'a>(&'a Connection);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.end(End::Interrupted(Interruption::RuntimeEnded));
    }
}

struct Driver<'a> {
    connection: &'a Arc<Connection>,
    socket: Socket,
    value_bytes_max: usize,
    /// With a tag for each request that is answered.
    pipeline: Pipeline<Sent>,
    /// Requests that nothing has been written of.
    calls: VecDeque<Call>,
    output: Vec<u8>,
    /// How much of the output is sent.
    sent: usize,
    /// How much was sent before this output.
    earlier_bytes: u64,
    needs_flush: bool,
    /// Requests wait, and the tasks that are ready have had their turn to add theirs.
    has_yielded: bool,
    /// Requests without a reply, until they are sent.
    quiet: VecDeque<Sent>,
    /// The next request comes after one without a reply, whose error could be taken for its own.
    follows_quiet: bool,
    /// Received bytes, up to `filled`.
    input: Vec<u8>,
    filled: usize,
    /// Of the reply at the front, as far as it has come.
    found: Option<FoundItem>,
    /// The same of a get of many keys: values that have not been delivered.
    values: Batch,
    statistics: Statistics,
    key_failure: Option<Answer>,
}

/// A request that has been written to the output.
struct Sent {
    sink: Sink,
    /// Its bytes begin and end at these places of all that is sent.
    begin: u64,
    end: u64,
    /// It comes right after a request without a reply.
    follows_quiet: bool,
    needs_flags: bool,
    /// See [`Request::wanted_stats`](super::request::Request::wanted_stats).
    wanted_stats: &'static [&'static str],
    _permits: Permits,
}

impl<'a> Driver<'a> {
    fn new(connection: &'a Arc<Connection>, socket: Socket, settings: &Settings) -> Self {
        Self {
            connection,
            socket,
            value_bytes_max: settings.value_bytes_max,
            pipeline: Pipeline::with_opaques(settings.protocol),
            calls: VecDeque::new(),
            output: Vec::new(),
            sent: 0,
            earlier_bytes: 0,
            needs_flush: false,
            has_yielded: false,
            quiet: VecDeque::new(),
            follows_quiet: false,
            input: Vec::new(),
            filled: 0,
            found: None,
            values: Batch::default(),
            statistics: Statistics::default(),
            key_failure: None,
        }
    }

    /// Sends and receives as long as something moves.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            // First of all: what has arrived unasked is no reply to the next request.
            let has_read = match self.poll_read(cx) {
                Poll::Ready(Ok(())) => true,
                Poll::Ready(Err(end)) => return Poll::Ready(end),
                Poll::Pending => false,
            };
            if let Err(end) = self.fill_output(cx) {
                return Poll::Ready(end);
            }
            let has_written = match self.poll_write(cx) {
                Poll::Ready(Ok(())) => true,
                Poll::Ready(Err(end)) => return Poll::Ready(end),
                Poll::Pending => false,
            };
            if !has_read && !has_written {
                return Poll::Pending;
            }
        }
    }

    /// Writes the next requests to the output, once all earlier ones are sent: till then they can be withdrawn.
    ///
    /// The first of them wakes the driver, which lets all tasks that are ready go first: a reply readies many at once,
    /// and their next requests are sent by one system call.
    fn fill_output(&mut self, cx: &Context<'_>) -> Result<(), End> {
        let may_take = self.sent == self.output.len();
        let room = if may_take && self.has_yielded { OUTPUT_BYTES } else { 0 };
        let have_more = self.connection.take(room, cx.waker(), &mut self.calls)?;
        if self.calls.is_empty() {
            if may_take && have_more {
                self.has_yielded = true;
                cx.waker().wake_by_ref();
            }
            return Ok(());
        }
        // What is left is written right after this.
        self.has_yielded = have_more;
        self.earlier_bytes += self.sent as u64;
        self.output.clear();
        self.output.shrink_to(KEPT_BYTES_MAX);
        self.sent = 0;
        while let Some(call) = self.calls.pop_front() {
            self.write(call);
        }
        Ok(())
    }

    fn write(&mut self, call: Call) {
        let Call { request, sink, is_quiet, permits, .. } = call;
        let begin = self.earlier_bytes + self.output.len() as u64;
        // The codec wants the tag before it writes. The end of an answered request is not asked for.
        let sent = Sent {
            sink,
            begin,
            end: begin,
            follows_quiet: self.follows_quiet,
            needs_flags: request.needs_flags(),
            wanted_stats: request.wanted_stats(),
            _permits: permits,
        };
        if is_quiet {
            request.write(&mut self.pipeline, &mut self.output, None);
            let end = self.earlier_bytes + self.output.len() as u64;
            self.quiet.push_back(Sent { end, ..sent });
        } else {
            request.write(&mut self.pipeline, &mut self.output, Some(sent));
        }
        self.follows_quiet = is_quiet;
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        if self.sent < self.output.len() {
            let written = ready!(Pin::new(&mut self.socket).poll_write(cx, &self.output[self.sent..]));
            match written {
                Ok(bytes) if bytes > 0 => self.sent += bytes,
                failed => {
                    // TLS may have taken any part of it.
                    self.sent = self.output.len();
                    return Poll::Ready(Err(failed.map_or_else(End::of_io, |_| End::Closed)));
                }
            }
            self.needs_flush = true;
            return Poll::Ready(Ok(()));
        }
        if self.needs_flush {
            ready!(Pin::new(&mut self.socket).poll_flush(cx)).map_err(End::of_io)?;
            self.needs_flush = false;
            let sent_bytes = self.sent_bytes();
            while self.quiet.front().is_some_and(|sent| sent.end <= sent_bytes)
                && let Some(sent) = self.quiet.pop_front()
            {
                sent.answer(Reply::of(Answer::Sent));
            }
        }
        Poll::Pending
    }

    /// All that was sent.
    fn sent_bytes(&self) -> u64 {
        self.earlier_bytes + self.sent as u64
    }

    /// Reads once, and answers what it can.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        if self.connection.is_full() {
            // Its driver is woken when values are taken. It must have been registered before the look.
            self.connection.take(0, cx.waker(), &mut self.calls)?;
            if self.connection.is_full() {
                return Poll::Pending;
            }
        }
        // The rest of a large value, but at most as much as has come: the server has only announced it.
        let needed = self.pipeline.needed_bytes().saturating_sub(self.filled);
        let room = needed.clamp(READ_BYTES, self.filled.clamp(READ_BYTES, READ_BYTES_MAX));
        if self.input.len() < self.filled + room {
            self.input.resize(self.filled + room, 0);
        }
        let mut buffer = ReadBuf::new(&mut self.input[self.filled..]);
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buffer)).map_err(End::of_io)?;
        let bytes = buffer.filled().len();
        if bytes == 0 {
            return Poll::Ready(Err(End::Closed));
        }
        self.filled += bytes;
        if self.filled == self.input.len() && self.filled < READ_BYTES_USUAL_MAX {
            // There may be more: fewer reads take it.
            self.input.resize((self.filled * 2).min(READ_BYTES_USUAL_MAX), 0);
        }
        Poll::Ready(self.answer())
    }

    /// Answers the requests whose replies have come.
    fn answer(&mut self) -> Result<(), End> {
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..self.filled];
        let mut result = Ok(());
        while result.is_ok() {
            // Most of what comes, without the large type of what else may.
            if let Some(value) = self.pipeline.receive_usual_value(&mut rest) {
                result = self.take_value(&value);
                continue;
            }
            match self.pipeline.receive(&mut rest) {
                Ok(Some(event)) => result = self.take_event(event),
                Ok(None) => break,
                Err(violation) => result = Err(End::Violation(violation)),
            }
        }
        self.deliver_values();
        if result.is_ok() && self.pipeline.is_empty() && !rest.is_empty() {
            // It would be taken for the beginning of the next reply.
            result = Err(End::Violation(Violation::new(ViolationKind::Unasked, rest)));
        }
        let left = rest.len();
        let taken = self.filled - left;
        self.input = input;
        self.input.copy_within(taken..self.filled, 0);
        self.filled = left;
        if left <= READ_BYTES && self.input.len() > KEPT_BYTES_MAX {
            self.input.truncate(READ_BYTES);
            self.input.shrink_to(KEPT_BYTES_MAX);
        }
        result?;
        let needed = self.pipeline.needed_bytes();
        let has_few = self.pipeline.front().is_some_and(|sent| !sent.wanted_stats.is_empty());
        let value_bytes_max = if has_few { 0 } else { self.value_bytes_max };
        check_announced(needed, value_bytes_max).map_err(|_| self.refuse_value(needed))
    }
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        let end = self.connection.end(End::Interrupted(Interruption::RuntimeEnded));
        let sent_bytes = self.sent_bytes();
        for sent in self.pipeline.reset().chain(self.quiet.drain(..)) {
            sent.fail(end.error(), sent_bytes);
        }
        for call in self.calls.drain(..) {
            let _ = call.sink.done.send(Err(Failure::new(end.error(), false)));
        }
    }
}

impl Sent {
    /// Whoever waited for it may be gone.
    fn answer(self, reply: Reply) {
        let _ = self.sink.done.send(Ok(reply));
    }

    fn fail(self, error: Error, sent_bytes: u64) {
        let _ = self.sink.done.send(Err(Failure::new(error, self.begin < sent_bytes)));
    }
}

/// Requests that are written at once: larger ones can be withdrawn less often, smaller ones cost more system calls.
const OUTPUT_BYTES: usize = 64 << 10;
/// Buffer space for a read.
const READ_BYTES: usize = 16 << 10;
/// Buffer space for a read where the one before has filled it.
const READ_BYTES_USUAL_MAX: usize = 64 << 10;
/// Buffer space for a read of a large value.
const READ_BYTES_MAX: usize = 1 << 20;
/// A buffer that has become larger than this is freed.
const KEPT_BYTES_MAX: usize = 256 << 10;
