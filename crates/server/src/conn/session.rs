//! One client's conversation: bytes in, replies out, no socket.
//!
//! The walk of a GET: the worker reads and calls [`Session::feed`]. A run of `get <key>` lines is taken in by [`gets`]; all else
//! becomes a `Batch` of the whole requests that arrived (`Frame::of`, `Dialect::parse`: they borrow). `Guard::prepare` and
//! `Guard::hint_gets` fetch their memory ahead, then in order [`Executor::execute`] calls `Executor::get` (a run calls it at
//! once), which asks `Guard::get_hinted` and writes the item with [`Form::encode`] into the [`Output`]; the worker sends that with one
//! write, when all that it had read are answered.
//!
//! The walk of a SET: the same way to [`Executor::execute`], with the value where it lies in the input, and on to
//! `Executor::store` and `Guard::store`; a run of plain ones is taken in by [`sets`]. A value that has not arrived whole becomes
//! an `Arrival`: from then on the worker reads into [`Session::window`]. A small one waits beside its command line and is served
//! as if it had come at once; a large one (`UPLOAD_BYTES_MIN`), once its first bytes have come, goes straight to its place in the cache
//! (`Executor::reserve`, `Guard::window`) and is linked there by `Guard::commit`.

use std::ops::Range;

use larder_engine::{Guard, WriteError};
use larder_protocol::command::{Command, Get, Sasl};
use larder_protocol::{Dialect, Error, Form, KEY_BYTES_MAX, Keys, Reply, text};

use crate::conn::batch::{Batch, Framed};
pub(crate) use crate::conn::feed_status::Step;
pub use crate::conn::feed_status::{Fed, FeedStatus, Window};
pub use crate::conn::frame::Prefetched;
use crate::conn::frame::{Frame, line_end_bytes};
use crate::conn::gets;
use crate::conn::login::Login;
use crate::conn::multiget::{self, LookedUp};
use crate::conn::output::Output;
use crate::conn::retry_deadline::RetryDeadline;
use crate::conn::sets;
use crate::conn::upload::{Arrival, Arrived, Begun};
use crate::exec::dump::Dump;
pub use crate::exec::{CloseReason, Context};
use crate::exec::{Done, Executor, Value};
use crate::observe::measure::Class;
use crate::observe::trace;

/// The state of a conversation between two readings. Owns memory only while a value is arriving.
#[derive(Default)]
pub struct Session {
    state: State,
    /// Not known before the first byte has come, unless the listener knows.
    dialect: Option<Dialect>,
    login: Login,
    /// Bytes at the head of the input that are known to hold no line feed.
    scanned_bytes: usize,
    retry_deadline: RetryDeadline,
    /// Of one datagram: all its input comes at once, and its source may be forged.
    is_datagram: bool,
}

#[derive(Default)]
enum State {
    /// A command is next.
    #[default]
    Command,
    /// More keys of a [`Command::Get`] are next, up to the end of the line.
    Keys { form: text::TextForm, exptime: Option<i64> },
    /// More of a value is next.
    Value(Box<Arrival>),
    /// More of a long answer is to be given before anything is read.
    Dump(Box<Dump>),
    /// This many bytes of a refused value are next.
    Refused { bytes: usize },
}

impl Session {
    /// A conversation that begins, in a given dialect or in the one that its first byte tells.
    pub fn new(dialect: Option<Dialect>) -> Self {
        Self { dialect, ..Self::default() }
    }

    /// A conversation of one datagram: what is not whole is not waited for, and commands that are not about items are
    /// refused.
    pub(crate) fn of_datagram(dialect: Option<Dialect>) -> Self {
        Self { is_datagram: true, ..Self::new(dialect) }
    }

    /// Where in `input` its first key lies, if it begins with a request and that is plain to see: a hint.
    pub(crate) fn first_key(&self, input: &[u8]) -> Option<Range<usize>> {
        match (&self.state, self.dialect) {
            (State::Command, Some(dialect)) => dialect.first_key(input),
            _ => None,
        }
    }

    /// Answers what `input` asks: what the last call left over and what came since. At most `requests_max` requests and
    /// about [`OUTPUT_BYTES_MAX`] bytes of replies. `foreseen`: what came of [`Session::foresee`] for this input.
    pub fn feed<'t>(
        &mut self,
        cx: &Context<'_>,
        guard: &'t Guard<'_>,
        input: &[u8],
        prefetched: Option<Prefetched<'_>>,
        out: &mut Output<'t>,
        requests_max: u32,
    ) -> Fed {
        let mut executor = Executor {
            cx,
            guard,
            out,
            prefetched,
            key_buffer: [0; KEY_BYTES_MAX],
            gives_up: self.retry_deadline.is_over(guard),
            dump: None,
        };
        let mut fed = Fed { consumed: 0, requests: 0, status: FeedStatus::NeedInput };
        loop {
            let step =
                self.step(&mut executor, &input[fed.consumed..], requests_max.saturating_sub(fed.requests));
            fed.consumed += step.consumed;
            fed.requests += step.requests;
            if step.requests > 0 {
                self.retry_deadline = RetryDeadline::default();
                executor.gives_up = false;
            }
            if let Some(status) = step.status {
                if status == FeedStatus::TryAgain {
                    self.retry_deadline.begin(guard);
                }
                fed.status = status;
                return fed;
            }
        }
    }

    /// The place for the next bytes of a value, if it pays to read them there. The end of a value always comes through
    /// [`Session::feed`].
    pub fn window<'u>(&'u mut self, guard: &'u Guard<'_>) -> Window<'u> {
        let State::Value(arrival) = &mut self.state else { return Window::None };
        match arrival.window(guard) {
            Ok(window) => window.map_or(Window::None, Window::Fill),
            Err(WriteError::TryAgain) if !self.retry_deadline.is_over(guard) => {
                self.retry_deadline.begin(guard);
                Window::TryAgain
            }
            // Found again, and answered, when the bytes are fed.
            Err(_) => Window::None,
        }
    }

    /// The first `n` bytes of the window were filled.
    pub fn filled(&mut self, n: usize) {
        if let State::Value(arrival) = &mut self.state {
            arrival.filled(n);
            self.retry_deadline = RetryDeadline::default();
        }
    }

    /// Between commands, so that a client may be idle.
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, State::Command)
    }

    fn step(&mut self, executor: &mut Executor<'_, '_, '_, '_>, input: &[u8], requests_max: u32) -> Step {
        match &mut self.state {
            State::Command => match &executor.cx.shared.authenticator {
                Some(authenticator) if !self.login.is_done() => {
                    if input.is_empty() {
                        Step::stop(0, FeedStatus::NeedInput)
                    } else if requests_max == 0 || executor.is_sated() {
                        Step::stop(0, FeedStatus::Yield)
                    } else {
                        self.dialect = Some(authenticator.scheme().dialect());
                        self.login.serve(executor, authenticator, input)
                    }
                }
                _ => self.serve(executor, input, requests_max),
            },
            State::Keys { form, exptime } => {
                let (form, exptime) = (*form, *exptime);
                self.resume_keys(executor, input, form, exptime)
            }
            State::Value(_) if requests_max == 0 || executor.is_sated() => Step::stop(0, FeedStatus::Yield),
            State::Value(_) => self.receive(executor, input),
            State::Dump(dump) => {
                if executor.out.len_bytes() >= OUTPUT_BYTES_MAX || !dump.go_on(executor) {
                    return Step::stop(0, FeedStatus::Yield);
                }
                self.state = State::Command;
                Step::go_on(0)
            }
            State::Refused { bytes } => {
                let consumed = input.len().min(*bytes);
                *bytes -= consumed;
                if *bytes > 0 {
                    return Step::stop(consumed, FeedStatus::NeedInput);
                }
                self.state = State::Command;
                Step::go_on(consumed)
            }
        }
    }

    /// Frames whole requests, fetches what they need ahead, and executes them in order.
    fn serve(&mut self, executor: &mut Executor<'_, '_, '_, '_>, input: &[u8], requests_max: u32) -> Step {
        if input.is_empty() {
            return Step::stop(0, FeedStatus::NeedInput);
        }
        if requests_max == 0 || executor.is_sated() {
            return Step::stop(0, FeedStatus::Yield);
        }
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
            && let Some(step) =
                gets::serve(executor, input, batch_max).or_else(|| sets::serve(executor, input, batch_max))
        {
            return step;
        }
        let scanned_bytes = std::mem::take(&mut self.scanned_bytes);
        let batch = Batch::of(executor, dialect, input, batch_max, scanned_bytes);
        let mut step = Step::go_on(0);
        let is_verbose = executor.cx.shared.observers.is_verbose();
        for Framed { request, value, prepared, end } in &batch.requests {
            if is_verbose {
                trace::request(
                    executor.cx.client.fd,
                    &input[step.consumed..*end],
                    dialect == Dialect::Binary,
                );
            }
            let done = match (&request.command, &request.form) {
                (command, form) if self.is_datagram && command.is_administrative() => {
                    executor.answer(form, &Reply::Error(Error::NotOverUdp))
                }
                (Command::Get(get), Form::Text(form)) if prepared.is_none() => {
                    match self.look_up(executor, *get, *form) {
                        LookedUp::All => Done::Answered,
                        LookedUp::Stopped { rest_bytes, status } => {
                            step.consumed = end - line_end_bytes(&input[..*end]) - rest_bytes;
                            step.status = Some(status);
                            return step;
                        }
                    }
                }
                (Command::Sasl(Sasl::Start { .. } | Sasl::Step { .. }), _)
                    if executor.cx.shared.authenticator.is_some() =>
                {
                    self.login.begin_again();
                    return step;
                }
                (Command::Store(_), form) => match form.split_value(value) {
                    Some(value) => executor.execute(request, *prepared, Value::Whole(value)),
                    None => executor.answer(form, &Reply::Error(Error::BadChunk)),
                },
                _ => executor.execute(request, *prepared, Value::Whole(&[])),
            };
            if done == Done::TryAgain {
                step.status = Some(FeedStatus::TryAgain);
                return step;
            }
            step.consumed = *end;
            step.requests += 1;
            executor.cx.recorder.answered(&request.command);
            executor.gives_up = false;
            if let Done::Close(reason) = done {
                step.status = Some(FeedStatus::Close(reason));
                return step;
            }
            if let Done::Watch(streams) = done {
                step.status = Some(FeedStatus::Watch(streams));
                return step;
            }
            if let Some(dump) = executor.dump.take() {
                self.state = State::Dump(dump);
                return step;
            }
            if executor.is_sated() {
                step.status = Some(FeedStatus::Yield);
                return step;
            }
        }
        match batch.tail {
            Some(frame) => self.finish(executor, dialect, &input[batch.bytes..], frame, step),
            None => step,
        }
    }

    /// Deals with what stands after the whole requests.
    fn finish(
        &mut self,
        executor: &mut Executor<'_, '_, '_, '_>,
        dialect: Dialect,
        input: &[u8],
        frame: Frame<'_>,
        mut step: Step,
    ) -> Step {
        match frame {
            Frame::Whole { .. } => {}
            Frame::NoHead => {
                self.scanned_bytes = input.len();
                step.status = Some(FeedStatus::NeedInput);
            }
            Frame::Close => step.status = Some(FeedStatus::Close(CloseReason::Error)),
            Frame::Head { request, .. }
                if self.is_datagram && matches!(request.command, Command::Store(_)) =>
            {
                step.status = Some(FeedStatus::NeedInput);
            }
            // The value has not arrived whole.
            Frame::Head { request, head_bytes } => {
                let head = &input[..head_bytes];
                if executor.cx.shared.observers.is_verbose() {
                    trace::request(executor.cx.client.fd, head, dialect == Dialect::Binary);
                }
                match Arrival::begin(executor, dialect, head, &request) {
                    Begun::Arriving(arrival) => self.state = State::Value(Box::new(arrival)),
                    Begun::TryAgain => {
                        step.status = Some(FeedStatus::TryAgain);
                        return step;
                    }
                    Begun::Refused { reply, bytes } => {
                        self.state = State::Refused { bytes };
                        step.requests += 1;
                        executor.cx.recorder.answered(&request.command);
                        if executor.cx.shared.observers.any() {
                            executor.observe(&request.command, &request.form, None, &reply);
                        }
                        step.close_if(executor.answer(&request.form, &reply));
                    }
                }
                step.consumed += head_bytes;
            }
        }
        step
    }

    /// Takes in more of a value, and executes its command when it is whole.
    fn receive(&mut self, executor: &mut Executor<'_, '_, '_, '_>, input: &[u8]) -> Step {
        let State::Value(arrival) = &mut self.state else { return Step::go_on(0) };
        let (consumed, arrived) = arrival.receive(executor, input);
        if consumed > 0 {
            self.retry_deadline = RetryDeadline::default();
        }
        let mut step = Step::go_on(consumed);
        let done = match arrived {
            Arrived::NotYet => {
                step.status = Some(FeedStatus::NeedInput);
                return step;
            }
            Arrived::TryAgain => Done::TryAgain,
            Arrived::OutOfMemory { missing_bytes } => {
                let done = arrival.refuse(executor);
                self.state = State::Refused { bytes: missing_bytes };
                step.requests = 1;
                step.close_if(done);
                return step;
            }
            Arrived::Whole => arrival.execute(executor),
        };
        if done == Done::TryAgain {
            step.status = Some(FeedStatus::TryAgain);
            return step;
        }
        self.state = State::Command;
        step.requests = 1;
        step.close_if(done);
        step
    }

    /// Goes on with a list of keys: its rest is at the head of the input, whole.
    fn resume_keys(
        &mut self,
        executor: &mut Executor<'_, '_, '_, '_>,
        input: &[u8],
        form: text::TextForm,
        exptime: Option<i64>,
    ) -> Step {
        if executor.out.len_bytes() >= OUTPUT_BYTES_MAX {
            return Step::stop(0, FeedStatus::Yield);
        }
        let Some((line, line_bytes)) = text::split_line(input, 0) else {
            return Step::stop(0, FeedStatus::NeedInput);
        };
        match self.look_up(executor, Get { keys: Keys::resume(line), exptime }, form) {
            LookedUp::All => {
                self.state = State::Command;
                executor.cx.recorder.count(Class::Get, 1);
                Step { consumed: line_bytes, requests: 1, status: None }
            }
            LookedUp::Stopped { rest_bytes, status } => Step::stop(line.len() - rest_bytes, status),
        }
    }

    /// Looks up a list of keys, and remembers that there are more if it has to stop.
    fn look_up(
        &mut self,
        executor: &mut Executor<'_, '_, '_, '_>,
        get: Get<'_>,
        form: text::TextForm,
    ) -> LookedUp {
        let looked_up = multiget::look_up(executor, get, &Form::Text(form));
        if let LookedUp::Stopped { rest_bytes, .. } = looked_up {
            self.state = State::Keys { form, exptime: get.exptime };
            if rest_bytes < get.keys.rest().len() {
                self.retry_deadline = RetryDeadline::default();
            }
        }
        looked_up
    }
}

/// How requests of a run want to be answered.
pub(crate) const PLAIN: Form<'_> = Form::Text(text::TextForm { noreply: false, with_cas: false });
/// Requests that are framed and fetched ahead together.
pub(crate) const BATCH_REQUESTS_MAX: usize = larder_engine::BATCH_MAX;
/// Once so many bytes of values were written others have their turn; one value may go beyond.
pub(crate) const COPIED_BYTES_MAX: usize = 256 << 10;
/// Replies are sent once there are so many bytes of them; one reply may go beyond.
pub const OUTPUT_BYTES_MAX: usize = 256 << 10;
