//! Requests that arrived together. They are framed one after the other, their keys are hashed and their memory is
//! prefetched; then one loop, [`Batch::execute`], executes them in order.
//!
//! There are four kinds of batch: lines `get <key>`; lines `set <key> <flags> <exptime> <bytes>` with their values;
//! whole requests of any kind; and the keys of one get of many keys. The first two are most of the load, and are framed
//! in one pass.

use std::ops::Range;

use arrayvec::ArrayVec;
use larder_engine::{Guard, Hash};
use larder_protocol::command::{Command, Get, Malformed, Sasl, Store};
use larder_protocol::http::{self, HttpForm};
use larder_protocol::{Dialect, Error, Form, Key, Keys, Parsed, Reply, Request, text};

use crate::conn::session::{Next, Progress};
use crate::conn::waiter::Waiting;
use crate::exec::{Context, Done, Executor, Value};
use crate::namespaces::{Guards, Prepared};
use crate::observe::measure::Class;
use crate::observe::trace;

/// A key of the input whose memory is being fetched already.
#[derive(Clone, Copy)]
pub struct Prefetched<'i> {
    /// The key.
    pub(crate) key: &'i [u8],
    pub(crate) hash: Hash,
}

/// Requests that are executed together, and the hashes of those that have a single plain key.
pub(crate) struct Batch<R> {
    requests: ArrayVec<R, BATCH_REQUESTS_MAX>,
    hashes: ArrayVec<Hash, BATCH_REQUESTS_MAX>,
    /// The numbers of the namespaces of these keys; empty while there are no namespaces.
    numbers: ArrayVec<u8, BATCH_REQUESTS_MAX>,
    /// All of the requests change the items of their keys.
    are_changes: bool,
    /// The requests are keys of one request.
    is_list: bool,
}

/// A request of a batch, or a key of a list.
pub(crate) trait Framed {
    /// Where the next request begins, counted from the start of the batch.
    fn end(&self) -> usize;

    /// Does the batch hold a hash for it?
    fn is_hashed(&self) -> bool;

    /// The key of a request that needs its item, if it is cheap to find.
    fn plain_key(&self) -> Option<&[u8]>;

    /// The form of its reply.
    fn form(&self) -> &Form<'_> {
        &PLAIN
    }

    /// True if it only removes items.
    fn only_removes(&self) -> bool {
        false
    }
}

/// A line `get <key>`, or a key of a list.
pub(crate) struct FramedKey<'i> {
    key: Key<'i>,
    end: usize,
}

/// A line `set <key> <flags> <exptime> <bytes>` and its value.
pub(crate) struct FramedSet<'i> {
    key: Key<'i>,
    client_flags: u32,
    exptime: i64,
    value: &'i [u8],
    end: usize,
}

/// A whole request of any kind.
pub(crate) struct FramedRequest<'i> {
    pub(crate) request: Request<'i>,
    /// Its value with the terminator after it, if it has one.
    pub(crate) value: &'i [u8],
    end: usize,
    is_hashed: bool,
}

/// What follows a batch. Positions are counted from the start of the batch.
pub(crate) enum Tail<'i> {
    /// Nothing, or more than fits into a batch.
    None,
    /// A get of many keys, which begin at byte `keys_at` of its line.
    List { range: Range<usize>, get: Get<'i>, form: text::TextForm, keys_at: usize },
    /// A get of the keys of a query, over HTTP.
    Query { range: Range<usize>, keys: Keys<'i>, form: HttpForm<'i> },
    /// A message of a login.
    Login,
    /// A request that has not arrived whole, or cannot be served.
    Partial { at: usize, frame: Frame<'i> },
}

impl<R: Framed> Batch<R> {
    fn new(are_changes: bool) -> Self {
        Self {
            requests: ArrayVec::new(),
            hashes: ArrayVec::new(),
            numbers: ArrayVec::new(),
            are_changes,
            is_list: false,
        }
    }

    /// Hashes a key, unless that was done already, and keeps its hash. `only` is [`Guards::only`], which does not
    /// change meanwhile.
    #[inline(always)]
    fn push_key(
        &mut self,
        guards: &Guards<'_>,
        only: Option<&Guard<'_>>,
        key: &[u8],
        prefetched: &mut Option<Prefetched<'_>>,
    ) {
        let is_first = prefetched.is_some();
        match only {
            Some(guard) if !is_first => self.hashes.push(guard.prepare(key)),
            _ => self.push_first_key(guards, key, prefetched),
        }
    }

    /// The same for the key that was hashed ahead, and for keys of namespaces.
    #[inline(never)]
    fn push_first_key(&mut self, guards: &Guards<'_>, key: &[u8], prefetched: &mut Option<Prefetched<'_>>) {
        let (hash, number) = match prefetched.take() {
            Some(prefetched) if prefetched.key == key => (prefetched.hash, guards.number(key)),
            _ => guards.prepare(key),
        };
        self.hashes.push(hash);
        if guards.are_named() {
            self.numbers.push(number);
        }
    }

    /// Has the items of the requests from number `from` on looked up in the store together with the one before: those
    /// that have a key, and that memory has not got.
    #[cold]
    fn read_ahead(&self, executor: &mut Executor<'_, '_, '_, '_>, from: usize) {
        for key in self.requests[from..].iter().filter_map(Framed::plain_key) {
            let place = executor.guards.place(key, None);
            executor.store.read_ahead(key, &place);
        }
    }

    /// Executes the requests in order, until one of them wants something else of the connection. Adds what it consumed
    /// to `progress`.
    #[inline(always)]
    fn execute<'t>(
        &self,
        executor: &mut Executor<'_, '_, '_, 't>,
        progress: &mut Progress,
        mut execute: impl FnMut(&mut Executor<'_, '_, '_, 't>, &R, Option<Prepared<'t>>) -> Done,
    ) -> Option<Next> {
        let guards = executor.guards;
        // Borrowed, not moved: the hints take a kilobyte.
        let hinted;
        let hints = if self.hashes.len() > 1 {
            hinted = if self.are_changes {
                guards.hints(&self.hashes, &self.numbers, |guard, hashes| guard.hint_changes(hashes))
            } else {
                guards.hints(&self.hashes, &self.numbers, |guard, hashes| guard.hint_gets(hashes))
            };
            &hinted[..]
        } else {
            &[]
        };
        let mut hashed = 0;
        let mut executed = 0;
        let may_await = guards.may_await();
        let next = loop {
            let Some(request) = self.requests.get(executed) else { break None };
            let prepared = request.is_hashed().then(|| {
                let hint = hints.get(hashed).copied().unwrap_or_default();
                hashed += 1;
                (self.hashes[hashed - 1], hint)
            });
            let begin = executor.out.len_bytes();
            let done = execute(executor, request, prepared);
            if let Done::Wait(waiting) = done {
                if waiting == Waiting::Signal {
                    self.read_ahead(executor, executed + 1);
                }
                break Some(Next::Wait(waiting));
            }
            if may_await {
                executor.depend(begin, request.form(), request.only_removes());
                if !self.is_list {
                    executor.end_request();
                }
            }
            executed += 1;
            executor.deadline_passed = false;
            match done {
                Done::Answered if !executor.has_used_its_share() => {}
                Done::Answered => break Some(Next::Wait(Waiting::Yield)),
                Done::Close(reason) => break Some(Next::Close(reason)),
                Done::Watch(streams) => break Some(Next::Watch(streams)),
                Done::Wait(_) | Done::Begun | Done::Failed => break None,
            }
        };
        if let Some(last) = self.requests[..executed].last() {
            progress.consumed += last.end();
            // At most one batch.
            progress.requests += executed as u32;
        }
        next
    }
}

/// Answers the lines `get <key>` at the head of `input`, if there are any: at most `requests_max`.
#[inline]
pub(crate) fn serve_plain_gets(
    executor: &mut Executor<'_, '_, '_, '_>,
    input: &[u8],
    requests_max: usize,
    prefetched: &mut Option<Prefetched<'_>>,
    progress: &mut Progress,
) -> Option<Option<Next>> {
    let mut batch = Batch::<FramedKey<'_>>::new(false);
    let (guards, only) = (executor.guards, executor.guards.only());
    let mut end = 0;
    while batch.requests.len() < requests_max
        && let Some((key, line_bytes)) = text::parse_plain_get(&input[end..])
    {
        end += line_bytes;
        batch.requests.push(FramedKey { key, end });
        batch.push_key(guards, only, key.written(), prefetched);
    }
    if batch.requests.is_empty() {
        return None;
    }
    let before = progress.requests;
    let next = batch.execute(executor, progress, |executor, request, prepared| {
        executor.cx.recorder.key(request.key.written());
        let prepared = executor.prepared(request.key.written(), prepared);
        // A refusal is all of a reply.
        match executor.get(request.key, prepared, &PLAIN) {
            wait @ Done::Wait(_) => return wait,
            Done::Answered => PLAIN.encode(&Reply::End, executor.out),
            _ => {}
        }
        Done::Answered
    });
    executor.cx.recorder.count(Class::Get, progress.requests - before);
    Some(next)
}

/// Executes the plain sets at the head of `input`, at most `requests_max`, if there are enough of them for a batch of
/// their own.
#[inline]
pub(crate) fn serve_plain_sets(
    executor: &mut Executor<'_, '_, '_, '_>,
    input: &[u8],
    requests_max: usize,
    prefetched: &mut Option<Prefetched<'_>>,
    progress: &mut Progress,
) -> Option<Option<Next>> {
    let mut batch = Batch::<FramedSet<'_>>::new(true);
    frame_plain_sets(&mut batch, input, requests_max);
    let is_worth_it =
        batch.requests.len() >= SETS_MIN || batch.requests.last().is_some_and(|last| last.end == input.len());
    if !is_worth_it {
        return None;
    }
    let (guards, only) = (executor.guards, executor.guards.only());
    for at in 0..batch.requests.len() {
        let key = batch.requests[at].key;
        batch.push_key(guards, only, key.written(), prefetched);
    }
    let before = progress.requests;
    let next = batch.execute(executor, progress, |executor, set, prepared| {
        let prepared = executor.prepared(set.key.written(), prepared);
        let store = Store::set(set.key, set.client_flags, set.exptime, set.value.len() as u32);
        let done = executor.set(store, prepared, set.value, &PLAIN);
        if !matches!(done, Done::Wait(_)) {
            executor.cx.recorder.key(set.key.written());
        }
        done
    });
    executor.cx.recorder.count(Class::Store, progress.requests - before);
    Some(next)
}

/// Adds the plain sets at the head of `input` that have arrived whole.
fn frame_plain_sets<'i>(batch: &mut Batch<FramedSet<'i>>, input: &'i [u8], requests_max: usize) {
    let mut end = 0;
    while batch.requests.len() < requests_max
        && let Some((store, head_bytes)) = text::parse_plain_set(&input[end..])
        && let Some(block) = input[end + head_bytes..].get(..PLAIN.block_bytes(store.value_bytes))
        && let Some(value) = PLAIN.split_value(block)
    {
        end += head_bytes + block.len();
        let Store { key, client_flags, exptime, .. } = store;
        batch.requests.push(FramedSet { key, client_flags, exptime, value, end });
    }
}

/// Looks up keys of a list until their replies fill the connection's share of a round. `None`: all keys are done; else
/// how many bytes of the list are left, and what the connection wants before.
pub(crate) fn look_up(
    executor: &mut Executor<'_, '_, '_, '_>,
    get: Get<'_>,
    form: &Form<'_>,
    prefetched: &mut Option<Prefetched<'_>>,
) -> Option<(usize, Next)> {
    let Get { mut keys, exptime } = get;
    let (guards, only) = (executor.guards, executor.guards.only());
    for _ in 0..KEY_BATCHES_MAX {
        let list_bytes = keys.rest().len();
        let mut batch = Batch::<FramedKey<'_>> { is_list: true, ..Batch::new(false) };
        while !batch.requests.is_full()
            && let Some(key) = keys.next()
        {
            batch.requests.push(FramedKey { key, end: list_bytes - keys.rest().len() });
            batch.push_key(guards, only, key.written(), prefetched);
        }
        let mut progress = Progress::default();
        let mut is_failed = false;
        let next = batch.execute(executor, &mut progress, |executor, FramedKey { key, .. }, prepared| {
            let prepared = executor.prepared(key.written(), prepared);
            let done = executor.get_or_touch(*key, prepared, exptime, form);
            match done {
                Done::Answered => executor.cx.recorder.key(key.written()),
                Done::Failed => is_failed = true,
                _ => {}
            }
            done
        });
        if is_failed {
            executor.end_request();
            return None;
        }
        if let Some(next) = next
            && progress.consumed < list_bytes
        {
            return Some((list_bytes - progress.consumed, next));
        }
        if keys.rest().is_empty() {
            if executor.cx.shared.observers.is_verbose() {
                trace::reply(executor.cx.client.fd, form, &Reply::End);
            }
            form.encode(&Reply::End, executor.out);
            executor.end_request();
            return None;
        }
    }
    Some((keys.rest().len(), Next::Wait(Waiting::Yield)))
}

impl<'i> Batch<FramedRequest<'i>> {
    /// A batch without requests.
    pub(crate) fn empty() -> Self {
        Self::new(true)
    }

    /// Adds the whole requests of any kind at the head of `input`, at most `requests_max`. The first
    /// `scanned_bytes` of the first were framed before, and are no request. Returns what follows them.
    #[inline]
    pub(crate) fn frame(
        &mut self,
        executor: &Executor<'_, '_, '_, '_>,
        dialect: Dialect,
        input: &'i [u8],
        requests_max: usize,
        mut scanned_bytes: usize,
        prefetched: &mut Option<Prefetched<'_>>,
    ) -> Tail<'i> {
        let (guards, only) = (executor.guards, executor.guards.only());
        let mut start = 0;
        while self.requests.len() < requests_max && start < input.len() {
            let mut frame = Frame::of(dialect, &input[start..], std::mem::take(&mut scanned_bytes));
            if dialect == Dialect::Http {
                frame = frame.admitted(executor.cx);
            }
            let Frame::Whole { request, value, bytes } = frame else {
                return Tail::Partial { at: start, frame };
            };
            if let (Command::Get(get), Form::Http(form)) = (&request.command, &request.form) {
                return Tail::Query { range: start..start + bytes, keys: get.keys, form: *form };
            }
            let key = single_key(&request.command);
            if let Some(key) = key {
                self.push_key(guards, only, key, prefetched);
            } else {
                match (&request.command, &request.form) {
                    (Command::Get(get), Form::Text(form)) => {
                        let range = start..start + bytes;
                        let line = &input[range.clone()];
                        let keys_at = line.len() - line_end_bytes(line) - get.keys.rest().len();
                        return Tail::List { range, get: *get, form: *form, keys_at };
                    }
                    (Command::Sasl(Sasl::Start { .. } | Sasl::Step { .. }), _)
                        if executor.cx.shared.authenticator.is_some() =>
                    {
                        return Tail::Login;
                    }
                    _ => {}
                }
            }
            self.are_changes &= matches!(request.command, Command::Store(_));
            start += bytes;
            self.requests.push(FramedRequest { request, value, end: start, is_hashed: key.is_some() });
        }
        Tail::None
    }

    /// Executes the requests. Those of a datagram may not be administrative.
    pub(crate) fn serve(
        &self,
        executor: &mut Executor<'_, '_, '_, '_>,
        input: &[u8],
        is_datagram: bool,
        progress: &mut Progress,
    ) -> Option<Next> {
        let is_verbose = executor.cx.shared.observers.is_verbose();
        let mut start = 0;
        self.execute(executor, progress, |executor, framed, prepared| {
            let FramedRequest { request, value, end, .. } = framed;
            if request.command.is_administrative() && !is_datagram && !executor.take_turn() {
                return Done::Wait(Waiting::Turn);
            }
            if is_verbose {
                let is_binary = matches!(request.form, Form::Binary(_));
                trace::request(executor.cx.client.fd, &input[start..*end], is_binary);
                start = *end;
            }
            let done = match (&request.command, &request.form) {
                (command, form) if is_datagram && command.is_administrative() => {
                    executor.answer(form, &Reply::Error(Error::NotOverUdp))
                }
                (Command::Store(_), form) => match form.split_value(value) {
                    Some(value) => executor.execute(request, prepared, Value::Whole(value)),
                    None => executor.answer(form, &Reply::Error(Error::BadChunk)),
                },
                _ => executor.execute(request, prepared, Value::Whole(&[])),
            };
            if !matches!(done, Done::Wait(_)) {
                executor.cx.recorder.answered(&request.command);
            }
            done
        })
    }
}

impl Framed for FramedKey<'_> {
    fn end(&self) -> usize {
        self.end
    }

    fn is_hashed(&self) -> bool {
        true
    }

    fn plain_key(&self) -> Option<&[u8]> {
        Some(self.key.written())
    }
}

impl Framed for FramedSet<'_> {
    fn end(&self) -> usize {
        self.end
    }

    fn is_hashed(&self) -> bool {
        true
    }

    fn plain_key(&self) -> Option<&[u8]> {
        // It replaces whatever is there.
        None
    }
}

impl Framed for FramedRequest<'_> {
    fn end(&self) -> usize {
        self.end
    }

    fn is_hashed(&self) -> bool {
        self.is_hashed
    }

    fn plain_key(&self) -> Option<&[u8]> {
        if matches!(self.request.command, Command::Store(_)) {
            None
        } else {
            single_key(&self.request.command)
        }
    }

    fn form(&self) -> &Form<'_> {
        &self.request.form
    }

    fn only_removes(&self) -> bool {
        matches!(self.request.command, Command::Delete(_) | Command::Flush(_) | Command::FlushPrefix(_))
    }
}

/// What the head of the input holds.
pub(crate) enum Frame<'a> {
    /// A request and the value that belongs to it.
    Whole { request: Request<'a>, value: &'a [u8], bytes: usize },
    /// A request whose value has not arrived whole, and the bytes before that value.
    Head { request: Request<'a>, head_bytes: usize },
    /// Less than a request.
    NoHead,
    /// Not servable: the connection is to be closed.
    Close,
}

impl<'a> Frame<'a> {
    pub(crate) fn of(dialect: Dialect, input: &'a [u8], scanned_bytes: usize) -> Self {
        let (request, head_bytes) = match dialect.parse(input, scanned_bytes) {
            Parsed::Request { request, head_bytes } => (request, head_bytes),
            Parsed::NeedInput => return Frame::NoHead,
            Parsed::Close => return Frame::Close,
        };
        let block_bytes = match request.command {
            Command::Store(store) => request.form.block_bytes(store.value_bytes),
            Command::Malformed(malformed) => malformed.swallow_bytes as usize,
            _ => 0,
        };
        match input[head_bytes..].get(..block_bytes) {
            Some(value) => Frame::Whole { request, value, bytes: head_bytes + block_bytes },
            None => Frame::Head { request, head_bytes },
        }
    }

    /// The same, with the request refused if its client may not ask: it shows no token where one is required, or names
    /// another host.
    fn admitted(self, cx: &Context<'_>) -> Self {
        let admitted = |request: Request<'a>| {
            let Form::Http(form) = request.form else { return request };
            let is_broken =
                matches!(request.command, Command::Malformed(Malformed { error, .. }) if error.is_fatal());
            let token = cx.shared.http_token.as_ref();
            if is_broken {
                request
            } else if !cx.client.hosts.admit(std::str::from_utf8(form.host()).ok()) {
                form.refuse(http::HttpRefusal::Misdirected)
            } else if token.is_some_and(|token| !token.is_named_in(form.authorization())) {
                form.refuse(http::HttpRefusal::Unauthorized)
            } else {
                request
            }
        };
        match self {
            Self::Whole { request, value, bytes } => Self::Whole { request: admitted(request), value, bytes },
            Self::Head { request, head_bytes } => Self::Head { request: admitted(request), head_bytes },
            other => other,
        }
    }
}

/// The key to prefetch and to count, of commands with a single plain key.
pub(crate) fn single_key<'a>(command: &Command<'a>) -> Option<&'a [u8]> {
    let key = match command {
        Command::Get(get) => {
            let mut keys = get.keys;
            keys.next().filter(|_| keys.rest().is_empty())?
        }
        Command::Fetch(fetch) => fetch.key,
        Command::Store(store) => store.key,
        Command::Delete(delete) => delete.key,
        Command::Touch(touch) => touch.key,
        Command::Arith(arith) => arith.key,
        _ => return None,
    };
    key.is_plain().then(|| key.written())
}

/// Size of the LF or CRLF that a line ends in.
pub(crate) fn line_end_bytes(line: &[u8]) -> usize {
    if line.ends_with(b"\r\n") { 2 } else { 1 }
}

/// The form of plain gets and sets.
const PLAIN: Form<'_> = Form::Text(text::TextForm { noreply: false, with_cas: false });
/// Requests that are framed and prefetched together.
pub(crate) const BATCH_REQUESTS_MAX: usize = larder_engine::BATCH_MAX;
/// Fewer plain sets are left to a batch of any kind if something follows that can be prefetched with them.
const SETS_MIN: usize = 8;
/// Batches of keys of one list before the connection yields.
const KEY_BATCHES_MAX: usize = 64;
