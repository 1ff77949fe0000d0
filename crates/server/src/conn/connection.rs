//! A connection without its socket: takes the bytes that were received, executes what they ask for, offers its replies,
//! and is told how much of them was sent.
//!
//! Whoever owns it calls, in this order:
//! - [`Connection::next`] says what it wants. While that is [`Next::Read`]: [`Connection::window`], to receive a large
//!   value straight into its place, or else [`Connection::on_bytes`] with what was received; [`Connection::on_bytes`]
//!   without bytes after [`Next::Wait`].
//! - the replies of that call are in the [`Output`] given to it: valid as long as the guard, so to be sent, and
//!   [`Connection::on_sent`] to be called, before that is dropped.
//! - [`Connection::keep_input`] with the bytes that are left.
//! - while it wants [`Next::Send`]: [`Connection::poll_output`], and [`Connection::on_output_sent`].
//!
//! It owns no buffer while idle. What was received and is not a whole request yet is kept here, and so is what could
//! not be sent; while there is any of that, nothing more is read, so what a client can make the server keep is bounded
//! by one read and the output of one call.

use std::ops::Range;
use std::sync::Arc;

use larder_engine::Guard;

use crate::conn::buffer_budget::{BufferBudget, BufferCharge, FREE_BYTES};
use crate::conn::output::{Output, Replies, Unsent};
use crate::conn::session::{CloseReason, Context, Fed, Next, Prefetched, Session, Window};
use crate::heap;

/// A connection.
pub struct Connection {
    session: Session,
    input: Input,
    unsent: Option<Box<Unsent>>,
    /// What it wants when everything is sent.
    next: Next,
}

/// Bytes received and not consumed yet.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
    /// Those before this are consumed.
    from: usize,
    charge: BufferCharge,
}

/// The client holds more of a line than it leaves to all others.
pub struct InputRefused;

impl Connection {
    /// One that begins.
    pub fn new(session: Session) -> Self {
        Self { session, input: Input::default(), unsent: None, next: Next::Read }
    }

    /// What it wants.
    pub fn next(&self) -> Next {
        match self.next {
            // What is unsent goes with it to whoever tells it what happens.
            Next::Watch(streams) => Next::Watch(streams),
            _ if self.unsent.is_some() => Next::Send,
            next => next,
        }
    }

    /// Where in `received` the first key lies that it asks for, if that is plain to see: to be fetched ahead.
    pub fn first_key(&self, received: &[u8]) -> Option<Range<usize>> {
        if self.input.bytes.is_empty() { self.session.first_key(received) } else { None }
    }

    /// Is a value arriving that may be received into [`Connection::window`]?
    pub fn is_receiving_value(&self) -> bool {
        !self.session.is_waiting() && self.input.bytes.is_empty()
    }

    /// Does it keep requests that are not executed yet?
    pub fn has_requests(&self) -> bool {
        self.session.is_waiting() && self.input.from < self.input.bytes.len()
    }

    /// Is a command next, not more of a value?
    pub fn is_expecting_command(&self) -> bool {
        self.session.is_waiting()
    }

    /// The place for the next bytes of a value: [`Session::window`]. Only while [`Connection::is_receiving_value`].
    pub fn window<'u>(&'u mut self, guard: &'u Guard<'_>) -> Window<'u> {
        self.session.window(guard)
    }

    /// The first `n` bytes of the window were filled.
    pub fn on_window_filled(&mut self, n: usize) {
        self.session.filled(n);
    }

    /// Executes what is asked, in what was kept and in `received`, which becomes what is left of it: at most
    /// `requests_max` requests. Replies go to `out`. What it wants next is in [`Fed::next`], unless `out` has to be
    /// sent first.
    pub fn on_bytes<'t>(
        &mut self,
        cx: &Context<'_>,
        guard: &'t Guard<'_>,
        received: &mut &[u8],
        prefetched: Option<Prefetched<'_>>,
        out: &mut Output<'t>,
        requests_max: u32,
    ) -> Fed {
        let Input { bytes, from, charge } = &mut self.input;
        let is_kept = !bytes.is_empty();
        if is_kept {
            if !heap::reserve(bytes, received.len()) {
                self.close(CloseReason::Error);
                return Fed { consumed: 0, requests: 0, next: self.next };
            }
            bytes.extend_from_slice(received);
            *received = &[];
        }
        let input = if is_kept { &bytes[*from..] } else { *received };
        let fed = self.session.feed(cx, guard, input, prefetched, out, requests_max);
        if !is_kept {
            *received = &received[fed.consumed..];
        } else if *from + fed.consumed == bytes.len() {
            (*bytes, *from) = (Vec::new(), 0);
            charge.resize(&cx.shared.buffers, 0);
        } else {
            *from += fed.consumed;
            // Moved to the front only when more is to be appended: a queue of requests is walked, not moved.
            if fed.next == Next::Read {
                bytes.drain(..std::mem::take(from));
            }
        }
        self.next = fed.next;
        fed
    }

    /// Keeps what is left of the bytes that were received. Errors: it is part of a request, and too much of one; then
    /// the connection is to be closed when all is sent.
    pub fn keep_input(&mut self, buffers: &Arc<BufferBudget>, rest: &[u8]) -> Result<(), InputRefused> {
        if rest.is_empty() && self.input.bytes.capacity() == 0 {
            return Ok(());
        }
        // One read, or what was charged before, is kept in any case.
        let is_partial = self.next() == Next::Read;
        let Input { bytes, charge, .. } = &mut self.input;
        if !rest.is_empty() {
            match heap::copy(rest) {
                Some(copy) => *bytes = copy,
                // What it asked for is still answered.
                None => self.next = Next::Close(CloseReason::Error),
            }
        }
        if bytes.len() <= FREE_BYTES {
            bytes.shrink_to(FREE_BYTES);
        }
        if !is_partial {
            charge.force(buffers, bytes.capacity());
        } else if !charge.resize(buffers, bytes.capacity()) {
            self.input = Input::default();
            self.next = Next::Close(CloseReason::Error);
            return Err(InputRefused);
        }
        Ok(())
    }

    /// Of these replies so many bytes were sent; the rest is kept. It is closed if there is no memory for that.
    pub fn on_sent(
        &mut self,
        buffers: &Arc<BufferBudget>,
        replies: &(impl Replies + ?Sized),
        sent_bytes: usize,
    ) {
        if sent_bytes < replies.len_bytes() {
            let unsent = replies.unsent(sent_bytes).map(Box::new);
            match unsent.and_then(|mut unsent| unsent.charge(buffers).then_some(unsent)) {
                Some(unsent) => self.unsent = Some(unsent),
                None => self.close(CloseReason::Error),
            }
        }
    }

    /// Its socket is of no use any more.
    pub fn close(&mut self, reason: CloseReason) {
        self.unsent = None;
        self.next = Next::Close(reason);
    }

    /// Replies that were not sent yet, if there are any.
    pub fn poll_output(&self) -> Option<&Unsent> {
        self.unsent.as_deref()
    }

    /// So many more bytes of them were sent.
    pub fn on_output_sent(&mut self, sent_bytes: usize) {
        if let Some(unsent) = &mut self.unsent {
            unsent.advance(sent_bytes);
            if unsent.is_empty() {
                self.unsent = None;
            }
        }
    }
}
