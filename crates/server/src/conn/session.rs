//! One client's conversation: bytes in, replies out, no socket.
//!
//! The walk of a GET: the worker receives from all ready sockets and starts fetching the memory of each one's first
//! key. Then `Connection::on_bytes` calls [`Session::feed`]. Lines `get <key>` go through [`batch::serve_plain_gets`].
//! All other input becomes a `Batch` of the whole requests that have arrived (`Frame::of`, `Dialect::parse`: they
//! borrow). `Guard::prepare` and `Guard::hint_gets` prefetch their memory. `Batch::execute` passes them in order to
//! [`Executor::execute`], and that to `Executor::get`; plain gets go straight to `Executor::get`. It calls
//! `Guard::get_hinted` and writes the item with [`Form::encode`] into the [`Output`]. The worker sends the output once
//! it has executed everything that it received (`ClientSocket::send`).
//!
//! The walk of a SET: the same, through [`batch::serve_plain_sets`] or [`Executor::execute`], with the value where it
//! lies in the input, then `Executor::store` and `Guard::store_hinted`. A value that has not arrived whole becomes an
//! `Arrival`, and the worker receives into [`Session::window`]. A small value waits beside its command line and is
//! executed as if it had arrived at once. A large one (`BUFFERED_BYTES_MAX`) goes straight to its place in the cache
//! once its first bytes have arrived (`Executor::reserve`, `Guard::window`), and `Guard::commit` links it there.

use std::ops::Range;
use std::sync::Arc;

use larder_engine::WriteError;
use larder_protocol::admin::Streams;
use larder_protocol::command::{Command, Get};
use larder_protocol::{Dialect, Form, KEY_BYTES_MAX, Keys, http, text};

pub use crate::conn::batch::Prefetched;
use crate::conn::batch::{self, BATCH_REQUESTS_MAX, Batch, Frame, Tail};
use crate::conn::login::Login;
pub use crate::conn::output::OUTPUT_BYTES_MAX;
use crate::conn::output::Output;
use crate::conn::query::Query;
use crate::conn::upload::{Arrival, Arrived, Begun};
use crate::conn::waiter::{RetryDeadline, Waiting};
use crate::exec::dump::{Dump, Piece};
use crate::exec::store_access::StoreAccess;
pub use crate::exec::{CloseReason, Context};
use crate::exec::{Done, Executor};
use crate::namespaces::{Guards, Rights};
use crate::observe::measure::Class;
use crate::observe::trace;
use crate::persistence::fetch::{Fetching, Finding};
use crate::replication::home::Asked;

/// The state of a conversation between two reads. Owns memory only while a value is arriving.
#[derive(Default)]
pub struct Session {
    state: State,
    /// Unknown before the first byte has arrived, unless the listener sets it.
    dialect: Option<Dialect>,
    login: Login,
    /// Bytes at the head of the input that were passed to [`Dialect::parse`] before, and are no request.
    scanned_bytes: usize,
    retry_deadline: RetryDeadline,
    /// What the client may do, and the version of the policies that say so.
    rights: Option<(u32, Rights)>,
    /// Look-ups in the store that the request at the head of the input waits for.
    fetching: Option<Arc<Fetching>>,
    /// Result of the look-ups for a request whose reply has not been sent yet.
    fetched: Option<Arc<Fetching>>,
    /// What the home of its key was asked for the request at the head of the input.
    asked: Option<Arc<Asked>>,
    /// The session serves one datagram: all its input comes at once, and its source may be forged.
    is_datagram: bool,
}

#[derive(Default)]
enum State {
    /// A command is next.
    #[default]
    Command,
    /// More keys of a [`Command::Get`] are next, up to the end of the line.
    Keys { form: text::TextForm, exptime: Option<i64> },
    /// The rest of a refused list of keys comes next, up to the end of the line.
    RefusedKeys,
    /// More keys of a query are next. Its request has been read.
    Query(Box<Query>),
    /// More of a value is next.
    Value(Box<Arrival>),
    /// A long reply is in progress; nothing is read before it is complete.
    Dump(Box<Dump>),
    /// This many bytes of a refused value are to be skipped.
    Refused { bytes: usize },
}

/// What a connection wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// More bytes: every whole request is answered.
    Read,
    /// To send its output before it does anything else.
    Send,
    /// To be executed again later, without new bytes: see [`crate::conn::waiter`].
    Wait(Waiting),
    /// To be sent watch events from now on, and nothing else.
    Watch(Streams),
    /// To be closed once its output is sent.
    Close(CloseReason),
}

/// What [`Session::feed`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fed {
    /// Bytes of input that were consumed. Keep the rest and pass it again, followed by new input.
    pub consumed: usize,
    /// Requests answered.
    pub requests: u32,
    /// What to do next.
    pub next: Next,
}

/// How much of its input a session has consumed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Bytes consumed.
    pub(crate) consumed: usize,
    /// Requests answered.
    pub(crate) requests: u32,
}

/// Where to receive the next bytes from the socket.
pub enum Window<'u> {
    /// Into any buffer; then call [`Session::feed`].
    None,
    /// Into this; then call [`Session::filled`] and [`Session::window`] again.
    Fill(&'u mut [u8]),
    /// Call [`Session::window`] again under a new guard.
    TryAgain,
}

impl Session {
    /// A new conversation, in a given dialect or in the one that its first byte tells.
    pub fn new(dialect: Option<Dialect>) -> Self {
        Self { dialect, ..Self::default() }
    }

    /// A conversation of one datagram. It waits for no further bytes and refuses administrative commands.
    pub(crate) fn of_datagram(dialect: Option<Dialect>) -> Self {
        Self { is_datagram: true, ..Self::new(dialect) }
    }

    /// Where in `input` its first key lies, if it begins with a request and finding the key is cheap. A hint only.
    pub(crate) fn first_key(&self, input: &[u8]) -> Option<Range<usize>> {
        match (&self.state, self.dialect) {
            (State::Command, Some(dialect)) => dialect.first_key(input),
            _ => None,
        }
    }

    /// Answers the requests in `input`: what the last call left over, followed by new bytes. Executes at most
    /// `requests_max` requests and writes about [`OUTPUT_BYTES_MAX`] bytes of replies. `prefetched`: the first key of
    /// this input, if its memory is being fetched already.
    pub fn feed<'t>(
        &mut self,
        cx: &Context<'_>,
        guards: &'t Guards<'_>,
        input: &[u8],
        mut prefetched: Option<Prefetched<'_>>,
        out: &mut Output<'t>,
        requests_max: u32,
    ) -> Fed {
        let findings = match self.fetching {
            None => Vec::new(),
            Some(_) => match self.take_findings() {
                Some(findings) => findings,
                None => return Fed { consumed: 0, requests: 0, next: Next::Wait(Waiting::Signal) },
            },
        };
        let answered = match &self.asked {
            // It was woken too early.
            Some(asked) if !asked.is_answered() => {
                return Fed { consumed: 0, requests: 0, next: Next::Wait(Waiting::Signal) };
            }
            _ => self.asked.take(),
        };
        let deadline_passed = self.retry_deadline.is_over(guards);
        let rights = self.rights(guards);
        let mut executor = Executor {
            cx,
            guards,
            rights,
            out,
            key_buffer: [0; KEY_BYTES_MAX],
            deadline_passed,
            store: StoreAccess::new(cx, findings, answered),
            dump: None,
            has_had_its_turn: false,
        };
        let mut progress = Progress::default();
        loop {
            let requests = progress.requests;
            let requests_max = requests_max.saturating_sub(requests);
            let next = self.step(&mut executor, input, &mut prefetched, requests_max, &mut progress);
            if progress.requests > requests {
                self.retry_deadline = RetryDeadline::default();
                executor.deadline_passed = false;
            }
            if let Some(mut next) = next {
                let is_done = matches!(self.state, State::Command) && progress.consumed == input.len();
                if is_done && next == Next::Wait(Waiting::Yield) {
                    // Nothing is left to yield for: wait for the socket, not for a round.
                    next = Next::Read;
                }
                if !is_done && next == Next::Close(CloseReason::Normal) && self.dialect == Some(Dialect::Http)
                {
                    // RFC 9112, section 9.6: a client sends nothing after its last request.
                    next = Next::Close(CloseReason::Refused);
                }
                if next == Next::Wait(Waiting::Memory) {
                    self.retry_deadline.begin(guards);
                }
                if next == Next::Wait(Waiting::Signal) {
                    self.fetching = executor.store.begin_fetching();
                    self.asked = executor.store.take_asked();
                }
                let Progress { consumed, requests } = progress;
                return Fed { consumed, requests, next };
            }
        }
    }

    /// What was found in the store for the request that waits. `None`: it was woken too early.
    #[inline(never)]
    fn take_findings(&mut self) -> Option<Vec<Finding>> {
        let findings = self.fetching.as_ref()?.take_findings()?;
        self.fetched = self.fetching.take();
        Some(findings)
    }

    /// All replies have been sent: the values that were read for them give up their turn in memory.
    pub(super) fn end_turns(&mut self) {
        self.fetched = None;
    }

    /// The place for the next bytes of a value, if reading straight into it pays. The end of a value always comes
    /// through [`Session::feed`].
    pub fn window<'u>(&'u mut self, guards: &'u Guards<'_>) -> Window<'u> {
        let State::Value(arrival) = &mut self.state else { return Window::None };
        match arrival.window(guards) {
            Ok(window) => window.map_or(Window::None, Window::Fill),
            Err(WriteError::TryAgain) if !self.retry_deadline.is_over(guards) => {
                self.retry_deadline.begin(guards);
                Window::TryAgain
            }
            // Feeding the bytes fails in the same way, and answers the error.
            Err(_) => Window::None,
        }
    }

    /// Bytes of a large value that are still to come, without what ends it.
    pub(super) fn missing_value_bytes(&self) -> usize {
        if let State::Value(arrival) = &self.state { arrival.missing_bytes() } else { 0 }
    }

    /// The first `n` bytes of the window were filled.
    pub fn filled(&mut self, n: usize) {
        if let State::Value(arrival) = &mut self.state {
            arrival.filled(n);
            self.retry_deadline = RetryDeadline::default();
        }
    }

    /// The user that has logged in.
    pub(super) fn user(&self) -> Option<&[u8]> {
        self.login.user()
    }

    /// What the client may do, under the policies of these guards.
    #[inline(always)]
    fn rights(&mut self, guards: &Guards<'_>) -> Rights {
        if guards.are_named() { self.rights_in_namespaces(guards) } else { Rights::ALL }
    }

    #[inline(never)]
    fn rights_in_namespaces(&mut self, guards: &Guards<'_>) -> Rights {
        match self.rights {
            Some((version, rights)) if version == guards.version() => rights,
            _ => {
                let rights = guards.rights(self.login.user());
                self.rights = Some((guards.version(), rights));
                rights
            }
        }
    }

    /// The client got an error in the middle of a list of keys, so the rest of the list gets no reply.
    pub(crate) fn refuse_rest(&mut self) {
        if let State::Keys { .. } = self.state {
            self.state = State::RefusedKeys;
        }
    }

    /// True between commands.
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, State::Command)
    }

    /// True between commands, and while a refused value is skipped: the client may be idle.
    pub fn may_be_idle(&self) -> bool {
        matches!(self.state, State::Command | State::Refused { .. })
    }

    /// Continues with `input` behind what was consumed. `None`: call it again.
    fn step(
        &mut self,
        executor: &mut Executor<'_, '_, '_, '_>,
        input: &[u8],
        prefetched: &mut Option<Prefetched<'_>>,
        requests_max: u32,
        progress: &mut Progress,
    ) -> Option<Next> {
        let input = &input[progress.consumed..];
        match &mut self.state {
            State::Command if input.is_empty() => Some(Next::Read),
            State::Command | State::Value(_) if requests_max == 0 => Some(Next::Wait(Waiting::Yield)),
            State::Command | State::Value(_) if executor.has_used_its_share() => {
                Some(Next::Wait(Waiting::Yield))
            }
            State::Command => match &executor.cx.shared.authenticator {
                Some(authenticator) if !self.login.is_done() && self.dialect != Some(Dialect::Http) => {
                    self.dialect = Some(authenticator.scheme().dialect());
                    let next = self.login.serve(executor, authenticator, input, progress);
                    self.rights = None;
                    executor.rights = self.rights(executor.guards);
                    next
                }
                _ => self.serve(executor, input, prefetched, requests_max, progress),
            },
            State::Keys { form, exptime } => {
                let (form, exptime) = (*form, *exptime);
                self.resume_keys(executor, input, form, exptime, progress)
            }
            State::RefusedKeys => {
                let Some((_, line_bytes)) = text::split_line(input, 0) else { return Some(Next::Read) };
                self.state = State::Command;
                progress.consumed += line_bytes;
                progress.requests += 1;
                None
            }
            State::Query(query) => {
                if executor.out.len_bytes() >= OUTPUT_BYTES_MAX {
                    return Some(Next::Wait(Waiting::Yield));
                }
                let done = query.look_up(executor);
                match done {
                    Done::Begun => return Some(Next::Wait(Waiting::Yield)),
                    Done::Wait(waiting) => return Some(Next::Wait(waiting)),
                    _ => {}
                }
                self.state = State::Command;
                progress.requests += 1;
                executor.cx.recorder.count(Class::Get, 1);
                close_if(done)
            }
            State::Value(_) => self.receive(executor, input, progress),
            State::Dump(dump) => {
                if executor.out.len_bytes() >= OUTPUT_BYTES_MAX {
                    return Some(Next::Wait(Waiting::Yield));
                }
                // The command that began the dump in this round had its turn.
                if !executor.has_had_its_turn && !executor.take_turn() {
                    return Some(Next::Wait(Waiting::Turn));
                }
                match dump.write_piece(executor) {
                    Piece::Last => {
                        self.state = State::Command;
                        None
                    }
                    Piece::More => Some(Next::Wait(Waiting::Yield)),
                    Piece::Wait(waiting) => Some(Next::Wait(waiting)),
                }
            }
            State::Refused { bytes } => {
                let consumed = input.len().min(*bytes);
                *bytes -= consumed;
                progress.consumed += consumed;
                if *bytes > 0 {
                    return Some(Next::Read);
                }
                self.state = State::Command;
                None
            }
        }
    }

    /// Frames whole requests, prefetches what they need, and executes them in order. The input is not empty.
    fn serve(
        &mut self,
        executor: &mut Executor<'_, '_, '_, '_>,
        input: &[u8],
        prefetched: &mut Option<Prefetched<'_>>,
        requests_max: u32,
        progress: &mut Progress,
    ) -> Option<Next> {
        let dialect = *self.dialect.get_or_insert_with(|| {
            let dialect = Dialect::of_first_byte(input[0]);
            if executor.cx.shared.observers.is_verbose() {
                trace::dialect(executor.cx.client.fd, dialect == Dialect::Binary);
            }
            dialect
        });
        let batch_max = BATCH_REQUESTS_MAX.min(usize::try_from(requests_max).unwrap_or(usize::MAX));
        let is_plain =
            dialect == Dialect::Text && self.scanned_bytes == 0 && !executor.cx.shared.observers.any();
        if is_plain
            && let Some(next) = batch::serve_plain_gets(executor, input, batch_max, prefetched, progress)
                .or_else(|| batch::serve_plain_sets(executor, input, batch_max, prefetched, progress))
        {
            return next;
        }
        let scanned_bytes = std::mem::take(&mut self.scanned_bytes);
        let mut batch = Batch::empty();
        let tail = batch.frame(executor, dialect, input, batch_max, scanned_bytes, prefetched);
        let next = batch.serve(executor, input, self.is_datagram, progress);
        if let Some(dump) = executor.dump.take() {
            self.state = State::Dump(dump);
            return None;
        }
        if next.is_some() {
            return next;
        }
        match tail {
            Tail::None => None,
            Tail::Query { range, keys, form } => {
                if executor.cx.shared.observers.is_verbose() {
                    trace::request(executor.cx.client.fd, &input[range.clone()], false);
                }
                progress.consumed += range.len();
                match Query::begin(executor, keys, &form) {
                    Ok(query) => self.state = State::Query(Box::new(query)),
                    Err(done) => {
                        progress.requests += 1;
                        return close_if(done);
                    }
                }
                None
            }
            Tail::Login => {
                self.login.begin_again();
                None
            }
            Tail::List { range, get, form, keys_at } => {
                let line = &input[range];
                if executor.cx.shared.observers.is_verbose() {
                    trace::request(executor.cx.client.fd, line, false);
                }
                progress.consumed += keys_at;
                self.look_up(executor, get, form, prefetched, line.len() - keys_at, progress)
            }
            Tail::Partial { at, frame } => self.finish(executor, dialect, &input[at..], frame, progress),
        }
    }

    /// Handles what follows the whole requests.
    fn finish(
        &mut self,
        executor: &mut Executor<'_, '_, '_, '_>,
        dialect: Dialect,
        input: &[u8],
        frame: Frame<'_>,
        progress: &mut Progress,
    ) -> Option<Next> {
        match frame {
            Frame::Whole { .. } => None,
            Frame::NoHead => {
                self.scanned_bytes = input.len();
                Some(Next::Read)
            }
            Frame::Close => Some(Next::Close(CloseReason::Error)),
            Frame::Head { request, .. }
                if self.is_datagram && matches!(request.command, Command::Store(_)) =>
            {
                Some(Next::Read)
            }
            // The value has not arrived whole.
            Frame::Head { request, head_bytes } => {
                let head = &input[..head_bytes];
                if executor.cx.shared.observers.is_verbose() {
                    trace::request(executor.cx.client.fd, head, dialect == Dialect::Binary);
                }
                let mut next = None;
                match Arrival::begin(executor, dialect, head, &request) {
                    Begun::Arriving(arrival) => {
                        self.state = State::Value(Box::new(arrival));
                        if matches!(request.form, Form::Http(form) if form.expects_continue()) {
                            http::write_continue(executor.out);
                        }
                    }
                    Begun::Wait(waiting) => return Some(Next::Wait(waiting)),
                    Begun::Refused { reply, bytes } => {
                        self.state = State::Refused { bytes };
                        progress.requests += 1;
                        executor.cx.recorder.answered(&request.command);
                        if executor.cx.shared.observers.any() {
                            executor.observe(&request.command, &request.form, None, &reply);
                        }
                        let begin = executor.out.len_bytes();
                        next = close_if(executor.answer(&request.form, &reply));
                        executor.depend(begin, &request.form, true);
                        executor.end_request();
                    }
                }
                progress.consumed += head_bytes;
                next
            }
        }
    }

    /// Receives more of a value, and executes its command once the value is whole.
    fn receive(
        &mut self,
        executor: &mut Executor<'_, '_, '_, '_>,
        input: &[u8],
        progress: &mut Progress,
    ) -> Option<Next> {
        let State::Value(arrival) = &mut self.state else { return None };
        let (consumed, arrived) = arrival.receive(executor, input);
        if consumed > 0 {
            self.retry_deadline = RetryDeadline::default();
        }
        progress.consumed += consumed;
        let (done, state) = match arrived {
            Arrived::NotYet => return Some(Next::Read),
            Arrived::TryAgain => return Some(Next::Wait(Waiting::Memory)),
            Arrived::OutOfMemory { missing_bytes } => {
                (arrival.refuse(executor), State::Refused { bytes: missing_bytes })
            }
            Arrived::Whole => (arrival.execute(executor), State::Command),
        };
        if let Done::Wait(waiting) = done {
            return Some(Next::Wait(waiting));
        }
        self.state = state;
        progress.requests += 1;
        close_if(done)
    }

    /// Continues a list of keys, whose rest is whole at the head of the input.
    fn resume_keys(
        &mut self,
        executor: &mut Executor<'_, '_, '_, '_>,
        input: &[u8],
        form: text::TextForm,
        exptime: Option<i64>,
        progress: &mut Progress,
    ) -> Option<Next> {
        if executor.out.len_bytes() >= OUTPUT_BYTES_MAX {
            return Some(Next::Wait(Waiting::Yield));
        }
        let Some((line, line_bytes)) = text::split_line(input, 0) else { return Some(Next::Read) };
        let get = Get { keys: Keys::resume(line), exptime };
        let spaces = line.len() - get.keys.rest().len();
        progress.consumed += spaces;
        self.look_up(executor, get, form, &mut None, line_bytes - spaces, progress)
    }

    /// Looks up a list of keys that takes `line_bytes` including the line's end. If it has to stop, it stores that more
    /// keys follow.
    fn look_up(
        &mut self,
        executor: &mut Executor<'_, '_, '_, '_>,
        get: Get<'_>,
        form: text::TextForm,
        prefetched: &mut Option<Prefetched<'_>>,
        line_bytes: usize,
        progress: &mut Progress,
    ) -> Option<Next> {
        let list_bytes = get.keys.rest().len();
        match batch::look_up(executor, get, &Form::Text(form), prefetched) {
            None => {
                self.state = State::Command;
                progress.consumed += line_bytes;
                progress.requests += 1;
                executor.cx.recorder.count(Class::Get, 1);
                None
            }
            Some((rest_bytes, next)) => {
                self.state = State::Keys { form, exptime: get.exptime };
                if rest_bytes < list_bytes {
                    self.retry_deadline = RetryDeadline::default();
                }
                progress.consumed += list_bytes - rest_bytes;
                Some(next)
            }
        }
    }
}

/// For replies that need no more than to be sent.
fn close_if(done: Done) -> Option<Next> {
    match done {
        Done::Close(reason) => Some(Next::Close(reason)),
        _ => None,
    }
}
