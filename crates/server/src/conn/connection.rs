//! A connection without its socket. It takes the bytes that were received, executes the requests in them, offers their
//! replies, and is told how much of those was sent.
//!
//! Its owner calls, in this order:
//! - [`Connection::next`] says what the connection wants. While that is [`Next::Read`], call [`Connection::window`] to
//!   receive a large value straight into its place, or else [`Connection::on_bytes`] with what was received. After
//!   [`Next::Wait`] call [`Connection::on_bytes`] without bytes.
//! - The replies of that call are in the [`Output`] given to it, and valid as long as the guard: send them, and call
//!   [`Connection::on_sent`], before dropping it.
//! - Call [`Connection::keep_input`] with the bytes that are left.
//! - While it wants [`Next::Send`], call [`Connection::poll_output`] and [`Connection::on_output_sent`].
//!
//! An idle connection owns no buffer. It keeps received bytes that are not a whole request yet, and replies that could
//! not be sent. While it has unsent replies it reads nothing more, so what a client can make the server keep is bounded
//! by one read and the output of one call.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use larder_engine::Position;
use larder_store::commit::Outcome;

use crate::conn::buffer_budget::{BufferBudget, BufferCharge, FREE_BYTES};
use crate::conn::dependents::{Dependent, Dependents};
use crate::conn::output::{Output, Replies, Unsent};
use crate::conn::session::{CloseReason, Context, Fed, Next, Prefetched, Session, Window};
use crate::conn::waiter::Waiting;
use crate::heap;
use crate::namespaces::Guards;
use crate::persistence::Persistence;
use crate::shared::Shared;

/// A connection.
pub struct Connection {
    session: Session,
    input: Input,
    unsent: Option<Box<Unsent>>,
    /// The unsent replies depend on a change at this position, and are sent once it is durable; 0: on none.
    held: Position,
    /// Changes that the unsent replies depend on. Without an unsent reply, these are the changes of requests executed
    /// without one (a quiet get, a key of a list, `noreply`), since the next reply shows their outcome.
    dependents: Dependents,
    /// What the connection wants once everything is sent.
    next: Next,
}

/// Bytes received and not consumed yet.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
    /// Bytes before this are consumed.
    from: usize,
    charge: BufferCharge,
}

/// The client keeps a larger part of a request here than the buffer budget allows.
pub struct InputRefused;

impl Connection {
    /// A new connection.
    pub fn new(session: Session) -> Self {
        let dependents = Dependents::default();
        Self { session, input: Input::default(), unsent: None, held: 0, dependents, next: Next::Read }
    }

    /// What the connection wants.
    #[inline]
    pub fn next(&self) -> Next {
        if self.unsent.is_none() && self.held == 0 { self.next } else { self.next_with_unsent() }
    }

    #[inline(never)]
    fn next_with_unsent(&self) -> Next {
        match self.next {
            _ if self.held != 0 => Next::Wait(Waiting::Durable(self.held)),
            // The unsent replies go to the watcher with the connection.
            Next::Watch(streams) => Next::Watch(streams),
            _ => Next::Send,
        }
    }

    /// Where in `received` the first key lies, if finding it is cheap: to be prefetched.
    pub fn first_key(&self, received: &[u8]) -> Option<Range<usize>> {
        if self.input.bytes.is_empty() { self.session.first_key(received) } else { None }
    }

    /// True while a value is arriving that may be received into [`Connection::window`].
    pub fn is_receiving_value(&self) -> bool {
        !self.session.is_waiting() && self.input.bytes.is_empty()
    }

    /// Does it keep requests that are not executed yet?
    pub fn has_requests(&self) -> bool {
        self.session.is_waiting() && self.input.from < self.input.bytes.len()
    }

    /// True if a command is next, not more of a value.
    pub fn is_expecting_command(&self) -> bool {
        self.session.is_waiting()
    }

    /// The user that has logged in.
    pub(crate) fn user(&self) -> Option<&[u8]> {
        self.session.user()
    }

    /// [`Session::may_be_idle`].
    pub fn may_be_idle(&self) -> bool {
        self.session.may_be_idle()
    }

    /// The place for the next bytes of a value: [`Session::window`]. Only while [`Connection::is_receiving_value`].
    pub fn window<'u>(&'u mut self, guards: &'u Guards<'_>) -> Window<'u> {
        self.session.window(guards)
    }

    /// Bytes of a large value that are still to come, without what ends it.
    pub(crate) fn missing_value_bytes(&self) -> usize {
        self.session.missing_value_bytes()
    }

    /// The first `n` bytes of the window were filled.
    pub fn on_window_filled(&mut self, n: usize) {
        self.session.filled(n);
    }

    /// Executes at most `requests_max` requests from the kept input and from `received`, which becomes what is left of
    /// it. Replies go to `out`. [`Fed::next`] says what the connection wants next, unless `out` has to be sent first.
    pub fn on_bytes<'t>(
        &mut self,
        cx: &Context<'_>,
        guards: &'t Guards<'_>,
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
        out.dependents = mem::take(&mut self.dependents);
        let fed = self.session.feed(cx, guards, input, prefetched, out, requests_max);
        self.dependents = mem::take(&mut out.dependents);
        if let Next::Close(_) = fed.next {
            // Its client may have a second to read the last reply: nothing is kept for that long.
            *received = &[];
            self.input = Input::default();
        } else if !is_kept {
            *received = &received[fed.consumed..];
        } else if *from + fed.consumed == bytes.len() {
            (*bytes, *from) = (Vec::new(), 0);
            charge.resize(&cx.shared.buffers, 0);
        } else {
            *from += fed.consumed;
            // Moved to the front only when more is to be appended: a queue of requests is walked, not moved.
            if fed.next == Next::Read {
                bytes.drain(..mem::take(from));
            }
        }
        self.next = fed.next;
        fed
    }

    /// Keeps what is left of the bytes that were received. Errors: the rest is part of a request, and too large; the
    /// connection is then to be closed once everything is sent.
    pub fn keep_input(&mut self, buffers: &Arc<BufferBudget>, rest: &[u8]) -> Result<(), InputRefused> {
        if rest.is_empty() && self.input.bytes.capacity() == 0 {
            return Ok(());
        }
        // One read, or what was charged before, is always kept.
        let is_partial = self.next() == Next::Read;
        let Input { bytes, charge, .. } = &mut self.input;
        if !rest.is_empty() {
            match heap::copy(rest) {
                Some(copy) => *bytes = copy,
                // The requests before it are still answered.
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

    /// `sent_bytes` of these replies were sent; the rest is kept. The connection is closed if there is no memory for
    /// that.
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

    /// Holds the replies that were just made if they depend on a change that is not durable yet. False: they may be
    /// sent. Closes the connection if there is no memory to hold them.
    #[inline]
    pub fn hold(&mut self, shared: &Shared, replies: &Output<'_>) -> bool {
        self.dependents.position() != 0 && self.hold_dependents(shared, replies)
    }

    #[inline(never)]
    fn hold_dependents(&mut self, shared: &Shared, replies: &Output<'_>) -> bool {
        // A client that wants no reply is not held up while there is more to execute, unless it is to learn of a loss.
        let is_quiet = match self.dependents.len() {
            0 => true,
            count => count < QUIET_MAX && self.next == Next::Wait(Waiting::Yield),
        };
        if replies.is_empty() && is_quiet {
            return false;
        }
        let Some(persistence) = &shared.persistence else { return false };
        if self.dependents.are_durable(persistence) {
            self.dependents = Dependents::default();
            return false;
        }
        self.held = self.dependents.position();
        self.on_sent(&shared.buffers, replies, 0);
        true
    }

    /// True while its replies wait for a change to be durable.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.held != 0
    }

    /// Checks whether the changes that its replies wait for are durable. A client whose change is lost gets an error in
    /// place of the reply. `Err`: the outcome is not known yet.
    #[inline(never)]
    pub fn release(&mut self, shared: &Shared) -> Result<(), Next> {
        let (true, Some(persistence)) = (self.is_held(), &shared.persistence) else { return Ok(()) };
        if persistence.outcome(self.held) == Outcome::Pending {
            return Err(Next::Wait(Waiting::Durable(self.held)));
        }
        self.held = 0;
        let lost = mem::take(&mut self.dependents).into_lost(persistence);
        // The last one goes first, so that the places of the others do not change.
        for part in lost.iter().rev() {
            self.refuse(part, persistence);
        }
        Ok(())
    }

    #[cold]
    fn refuse(&mut self, part: &Dependent, persistence: &Persistence) {
        let unsent = self.unsent.get_or_insert_default();
        let (refusal, is_last) = part.refusal(persistence);
        let end = part.end().filter(|_| !is_last).unwrap_or(usize::MAX);
        unsent.replace(part.begin()..end, &refusal);
        if is_last {
            self.next = Next::Close(CloseReason::Error);
        }
        if part.end().is_none() {
            self.session.refuse_rest();
        }
        if unsent.is_empty() {
            self.unsent = None;
        }
    }

    /// Drops its unsent replies; the connection is to be closed.
    pub fn close(&mut self, reason: CloseReason) {
        self.unsent = None;
        self.held = 0;
        self.dependents = Dependents::default();
        self.next = Next::Close(reason);
    }

    /// Replies that were not sent yet.
    pub fn poll_output(&self) -> Option<&Unsent> {
        self.unsent.as_deref()
    }

    /// Call once all replies have been sent.
    #[inline]
    pub fn on_all_sent(&mut self) {
        self.session.end_turns();
    }

    /// Another `sent_bytes` of them were sent.
    pub fn on_output_sent(&mut self, sent_bytes: usize) {
        if let Some(unsent) = &mut self.unsent {
            unsent.advance(sent_bytes);
            if unsent.is_empty() {
                self.unsent = None;
            }
        }
    }
}

/// Maximum number of requests without a reply whose loss the client would still learn of.
const QUIET_MAX: usize = 1024;
