//! What each command does: one `match` over [`Command`], from the client's words to the engine's and back.
//!
//! Counters: memcached, doc/protocol.txt, "General-purpose statistics".

use arrayvec::ArrayVec;
use larder_engine::{
    Compare, Counted, Deleted, Expiry, Fail, Hash, Item, Miss, Mode, NoRoom, Store, Stored, Turn, Upload,
};
use larder_measure::{Access, Footprint};
use larder_protocol::admin::Streams;
use larder_protocol::command::{self, Command, Sasl, Shutdown};
use larder_protocol::reply::{Detail, Hit, Peeked, Token};
use larder_protocol::{Error, Form, Key, KeyBuffer, Reply, Request, Sink as _};

use crate::VERSION;
use crate::control::Stop;
use crate::counters::Counters;
use crate::dump::Dump;
use crate::frame::Foreseen;
use crate::log::Event;
use crate::measure::Recorder;
use crate::output::Output;
use crate::roster::Client;
use crate::shared::Shared;
use crate::stats::{self, Answer};
use crate::tls::Tls;
use crate::trace;

/// Where a command is executed: the server, and the worker's own counters.
#[derive(Clone, Copy)]
pub struct Context<'c> {
    /// The server.
    pub shared: &'c Shared,
    /// Counters of the worker that executes.
    pub counters: &'c Counters,
    /// What it measures with.
    pub recorder: &'c Recorder,
    /// That worker's number.
    pub worker: usize,
    /// Whose command it is.
    pub client: &'c Client,
}

impl Context<'_> {
    /// Tells those who watch, if any do, what happened.
    pub(crate) fn tell(&self, event: &Event<'_>) {
        self.shared.tell(self.worker, event);
    }
}

/// One turn's means of executing commands.
pub struct Executor<'e, 'c, 'h, 't> {
    /// Where.
    pub cx: &'e Context<'c>,
    /// When, and on what.
    pub turn: &'t Turn<'h>,
    /// Where replies go.
    pub out: &'e mut Output<'t>,
    /// The key of the first request, if its memory is being fetched already.
    pub foreseen: Option<Foreseen<'e>>,
    /// Room for a key that comes in base64.
    pub key_buffer: KeyBuffer,
    /// Memory that could not be had yet will not be waited for any longer.
    pub gives_up: bool,
    /// A long answer that was begun: see [`Done::Begun`].
    pub dump: Option<Box<Dump>>,
}

/// The value of a store.
pub enum Value<'v> {
    /// All there. Empty for commands that have none.
    Whole(&'v [u8]),
    /// In the cache already, not yet linked. Taken unless the answer is [`Done::TryAgain`].
    Uploaded(&'v mut Option<Upload>),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Done {
    /// Its reply, if it wants one, is in the output.
    Answered,
    /// Its answer is long, and given piece by piece from now on: [`Executor::dump`].
    Begun,
    /// As Answered, and from now on the client is told what happens, and nothing else.
    Watch(Streams),
    /// Nothing happened: to be executed again in a new turn.
    TryAgain,
    /// As Answered, and the connection is to be closed once the output is written.
    Close(CloseReason),
}

/// Why the server closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The client said `quit`.
    Normal,
    /// The client speaks another language, or missed an error (`--noreply-close-on-error`).
    Error,
    /// The server stops.
    Shutdown,
    /// The client was silent for too long.
    Idle,
}

impl CloseReason {
    /// memcached's word for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Error => "error",
            Self::Shutdown => "shutdown",
            Self::Idle => "idle_timeout",
        }
    }
}

/// To be tried again in a new turn.
struct TryAgain;

type Answered<'t> = Result<Reply<'t, Item<'t>>, TryAgain>;

impl<'t> Executor<'_, '_, '_, 't> {
    /// Executes one request. `hash` is of its key, if it has one; a [`Command::Get`] is taken to have one key.
    pub fn execute(&mut self, request: &Request<'_>, hash: Option<Hash>, value: Value<'_>) -> Done {
        if let Command::Get(get) = request.command {
            return self.get_one(get, hash, &request.form);
        }
        let is_observed = self.cx.shared.attention.is_paid();
        let before = if is_observed { self.look_before(&request.command, hash) } else { None };
        let answered = match request.command {
            Command::Get(_) => return Done::Answered,
            Command::Fetch(fetch) => self.fetch(fetch, hash),
            Command::Peek(key) => Ok(self.peek(key, hash)),
            Command::Store(store) => self.store(store, hash, value),
            Command::Delete(delete) => Ok(self.delete(delete, hash)),
            Command::Invalidate(invalidate) => self.invalidate(invalidate, hash),
            Command::Touch(touch) => self.touch(touch, hash),
            Command::Arith(arith) => self.arith(arith, hash),
            Command::Flush(exptime) => Ok(self.flush(exptime)),
            Command::Noop => Ok(Reply::Noop),
            Command::Version => Ok(Reply::Version(VERSION)),
            Command::Verbosity(level) => {
                // At most 2, so it fits.
                self.cx.shared.set_verbosity(level.min(VERBOSITY_MAX) as u8);
                Ok(Reply::Ok)
            }
            Command::Stats(words) => match self.stats(words, &request.form) {
                Ok(reply) => Ok(reply),
                Err(done) => return done,
            },
            Command::Shutdown(how) => match self.shutdown(how) {
                Ok(()) => return Done::Close(CloseReason::Shutdown),
                Err(error) => Ok(Reply::Error(error)),
            },
            Command::RefreshCerts => Ok(self.refresh_certificates()),
            Command::Admin(admin) => match self.administer(admin) {
                Ok(reply) => Ok(reply),
                Err(done) => {
                    if let Done::Watch(_) = done {
                        request.form.encode(&Reply::Ok, self.out);
                    }
                    return done;
                }
            },
            Command::Sasl(Sasl::Mechanisms) if self.cx.shared.guard.is_some() => {
                Ok(Reply::Mechanisms(larder_auth::MECHANISMS))
            }
            // Nothing to log in to: a guard takes logins before they come here.
            Command::Sasl(_) => Ok(Reply::Error(Error::UnknownCommand)),
            Command::Quit => {
                request.form.encode(&Reply::Bye, self.out);
                return Done::Close(CloseReason::Normal);
            }
            Command::Malformed(malformed) => Ok(Reply::Error(malformed.error)),
        };
        match answered {
            Ok(reply) => {
                if is_observed {
                    self.observe(&request.command, &request.form, before, &reply);
                }
                self.answer(&request.form, &reply)
            }
            Err(TryAgain) => Done::TryAgain,
        }
    }

    /// Writes a reply, or closes the connection where a client would never learn of an error.
    pub fn answer(&mut self, form: &Form<'_>, reply: &Reply<'_, Item<'t>>) -> Done {
        form.encode(reply, self.out);
        match reply {
            Reply::Error(error) if error.is_fatal() => Done::Close(CloseReason::Error),
            Reply::Error(error)
                if error.is_server_side()
                    && form.is_noreply()
                    && self.cx.shared.settings.noreply_close_on_error =>
            {
                Done::Close(CloseReason::Error)
            }
            _ => Done::Answered,
        }
    }

    // get <key>, with all that belongs to it
    fn get_one(&mut self, get: command::Get<'_>, hash: Option<Hash>, form: &Form<'_>) -> Done {
        for key in get.keys {
            match self.get_or_touch(key, self.hash(key.written(), hash), get.exptime, form) {
                Ok(()) => {}
                Err(GetFailed::TryAgain) => return Done::TryAgain,
                Err(GetFailed::OutOfMemory) => return Done::Answered,
            }
        }
        if self.cx.shared.attention.is_verbose() {
            trace::reply(self.cx.client.fd, form, &Reply::End);
        }
        self.answer(form, &Reply::End)
    }

    /// Looks up one of the keys of a [`Command::Get`] and writes it if it is there.
    pub fn get_or_touch(
        &mut self,
        key: Key<'_>,
        hash: Hash,
        exptime: Option<i64>,
        form: &Form<'_>,
    ) -> Result<(), GetFailed> {
        match exptime {
            None => {
                self.get(key, hash, form);
                Ok(())
            }
            Some(exptime) => self.get_and_touch(key, hash, exptime, form),
        }
    }

    /// get
    #[inline]
    pub fn get(&mut self, key: Key<'_>, hash: Hash, form: &Form<'_>) {
        let counters = self.cx.counters;
        counters.cmd_get.add(1);
        let found = self.turn.get(key.written(), hash);
        self.follow_read(hash, found.ok());
        if self.cx.shared.attention.is_paid() {
            self.observe_get(key.written(), found);
        }
        match found {
            Ok(item) => {
                counters.get_hits.add(1);
                form.encode(&Reply::Hit(self.hit(item)), self.out);
            }
            Err(miss) => {
                counters.get_misses.add(1);
                self.count_miss(miss);
                form.encode(&Reply::Miss, self.out);
            }
        }
    }

    // gat
    fn get_and_touch(
        &mut self,
        key: Key<'_>,
        hash: Hash,
        exptime: i64,
        form: &Form<'_>,
    ) -> Result<(), GetFailed> {
        let counters = self.cx.counters;
        let touched = self.turn.touch(key.written(), hash, self.expiry(exptime));
        self.follow_read(hash, touched.as_ref().ok().copied());
        if self.cx.shared.attention.is_paid()
            && let Some(found) = looked_up(touched)
        {
            self.observe_get(key.written(), found);
        }
        match touched {
            Ok(item) => {
                counters.cmd_touch.add(1);
                counters.touch_hits.add(1);
                form.encode(&Reply::Hit(self.hit(item)), self.out);
            }
            Err(Fail::Miss(miss)) => {
                counters.cmd_touch.add(1);
                counters.touch_misses.add(1);
                self.count_miss(miss);
                form.encode(&Reply::Miss, self.out);
            }
            Err(Fail::TryAgain) if !self.gives_up => return Err(GetFailed::TryAgain),
            Err(Fail::TryAgain | Fail::OutOfMemory) => {
                form.encode(&Reply::Error(Error::OutOfMemory), self.out);
                return Err(GetFailed::OutOfMemory);
            }
        }
        Ok(())
    }

    // mg
    fn fetch(&mut self, fetch: command::Fetch<'_>, hash: Option<Hash>) -> Answered<'t> {
        let (turn, counters, now) = (self.turn, self.cx.counters, self.turn.now());
        let touch = fetch.touch.map(|exptime| self.expiry(exptime));
        let how = larder_engine::Fetch {
            touch,
            vivify: fetch.vivify.map(|exptime| self.expiry(exptime)),
            vivify_cas: fetch.vivify_cas,
            recache_below_secs: fetch
                .recache
                .map(|exptime| ttl_secs(self.expiry(exptime), now.secs).unwrap_or(0)),
            recache_after_touch: fetch.recache_after_touch,
            unnoticed: fetch.unnoticed,
            binary_key: fetch.key.is_base64(),
        };
        let key = fetch.key.bytes(&mut self.key_buffer);
        let hash = hash.unwrap_or_else(|| turn.prepare(key));
        let fetched = turn.fetch(key, hash, &how);
        self.follow_read(hash, fetched.as_ref().ok().map(|fetched| fetched.item));
        match fetched {
            Ok(fetched) => {
                if touch.is_some() {
                    counters.cmd_touch.add(1);
                    counters.touch_hits.add(1);
                } else {
                    counters.cmd_get.add(1);
                    counters.get_hits.add(1);
                }
                let detail = Detail {
                    ttl_before_secs: ttl_secs(fetched.expiry_before, now.secs),
                    ttl_secs: ttl_secs(fetched.item.expiry(), now.secs),
                    hit_before: fetched.hit_before,
                    idle_secs: fetched.idle_secs,
                    stale: fetched.stale,
                    token: match fetched.token {
                        larder_engine::Token::None => Token::None,
                        larder_engine::Token::Won => Token::Won,
                        larder_engine::Token::Held => Token::Held,
                    },
                };
                Ok(Reply::Fetched(self.hit(fetched.item), detail))
            }
            Err(Fail::Miss(miss)) => {
                counters.cmd_get.add(1);
                counters.get_misses.add(1);
                self.count_miss(miss);
                Ok(Reply::Miss)
            }
            Err(Fail::TryAgain) if !self.gives_up => Err(TryAgain),
            Err(Fail::TryAgain | Fail::OutOfMemory) => Ok(Reply::Error(Error::OutOfMemory)),
        }
    }

    // me
    fn peek(&mut self, key: Key<'_>, hash: Option<Hash>) -> Reply<'t, Item<'t>> {
        let turn = self.turn;
        self.cx.counters.cmd_meta.add(1);
        let key = key.bytes(&mut self.key_buffer);
        match turn.peek(key, hash.unwrap_or_else(|| turn.prepare(key))) {
            Ok(fetched) => Reply::Peeked(Peeked {
                key: fetched.item.key(),
                is_binary_key: fetched.item.is_binary_key(),
                ttl_secs: ttl_secs(fetched.item.expiry(), turn.now().secs),
                idle_secs: fetched.idle_secs,
                cas: self.cas(fetched.item),
                hit_before: fetched.hit_before,
                class: fetched.item.queue() + 1,
                item_bytes: fetched.item.accounted_bytes(),
            }),
            Err(_) => Reply::Miss,
        }
    }

    // set, add, replace, append, prepend, cas, ms
    fn store(&mut self, store: command::Store<'_>, hash: Option<Hash>, value: Value<'_>) -> Answered<'t> {
        let (turn, counters) = (self.turn, self.cx.counters);
        let expiry = Expiries::of(&store, self);
        let key = store.key.bytes(&mut self.key_buffer);
        let hash = hash.unwrap_or_else(|| turn.prepare(key));
        let follows = self.cx.recorder.follows(hash);
        let was_there = follows && turn.peek(key, hash).is_ok();
        let stored = match value {
            Value::Whole(value) => {
                turn.store(hash, &terms(&store, key, value, expiry, self.cx.shared.settings.cas))
            }
            Value::Uploaded(upload) => {
                turn.commit(hash, &terms(&store, key, &[], expiry, self.cx.shared.settings.cas), upload)
            }
        };
        let reply = match stored {
            Stored::Stored { cas, value_bytes } => {
                let cas = if self.cx.shared.settings.cas { cas } else { 0 };
                Reply::Stored { cas, value_bytes }
            }
            Stored::NotStored => Reply::NotStored,
            Stored::Exists => Reply::Exists,
            Stored::NotFound => Reply::NotFound,
            Stored::TooLarge => return Ok(self.refuse(&store, hash, Error::TooLarge)),
            Stored::TryAgain if !self.gives_up => return Err(TryAgain),
            Stored::TryAgain | Stored::OutOfMemory => {
                return Ok(self.refuse(&store, hash, Error::OutOfMemoryStoring));
            }
        };
        counters.cmd_set.add(1);
        if follows && let Ok(now) = turn.peek(key, hash) {
            let item = footprint(now.item);
            self.cx.recorder.access(Access::Write { key: hash.bits(), item, is_new: !was_there });
        }
        if store.compare.is_some() {
            match reply {
                Reply::Stored { .. } => counters.cas_hits.add(1),
                Reply::Exists => counters.cas_badval.add(1),
                Reply::NotFound => counters.cas_misses.add(1),
                _ => {}
            }
        }
        Ok(reply)
    }

    /// Makes room for a value that is still arriving. `Err`: the reply to a store that was refused; `Ok(None)`: to be
    /// tried again in a new turn.
    pub fn reserve(&mut self, store: &command::Store<'_>) -> Result<Option<Upload>, Reply<'t, Item<'t>>> {
        let turn = self.turn;
        let expiry = Expiries::of(store, self);
        let key = store.key.bytes(&mut self.key_buffer);
        let hash = turn.prepare(key);
        let terms = terms(store, key, &[], expiry, self.cx.shared.settings.cas);
        match turn.reserve(&terms, store.value_bytes) {
            Ok(upload) => Ok(Some(upload)),
            Err(NoRoom::TooLarge) => Err(self.refuse(store, hash, Error::TooLarge)),
            Err(NoRoom::TryAgain) if !self.gives_up => Ok(None),
            Err(NoRoom::TryAgain | NoRoom::OutOfMemory) => {
                Err(self.refuse(store, hash, Error::OutOfMemoryStoring))
            }
        }
    }

    /// Answers a store whose value found no memory while it was arriving.
    pub fn refuse_for_memory(&mut self, request: &Request<'_>) -> Done {
        let Command::Store(store) = request.command else { return Done::Answered };
        let hash = self.turn.prepare(store.key.bytes(&mut self.key_buffer));
        let reply = self.refuse(&store, hash, Error::OutOfMemoryStoring);
        if self.cx.shared.attention.is_paid() {
            self.observe(&request.command, &request.form, None, &reply);
        }
        self.answer(&request.form, &reply)
    }

    /// A store without room. The old value goes too, where the command says so: its owner meant it to be gone.
    fn refuse(&mut self, store: &command::Store<'_>, hash: Hash, error: Error) -> Reply<'t, Item<'t>> {
        let counters = self.cx.counters;
        match error {
            Error::TooLarge => counters.store_too_large.add(1),
            _ => counters.store_no_memory.add(1),
        }
        if store.removes_on_refusal {
            let _ = self.turn.delete(store.key.bytes(&mut self.key_buffer), hash, None);
        }
        Reply::Error(error)
    }

    // delete, md
    fn delete(&mut self, delete: command::Delete<'_>, hash: Option<Hash>) -> Reply<'t, Item<'t>> {
        let turn = self.turn;
        let compare = delete.compare.map(|cas| self.comparable(cas));
        let key = delete.key.bytes(&mut self.key_buffer);
        let hash = hash.unwrap_or_else(|| turn.prepare(key));
        let deleted = turn.delete(key, hash, compare);
        if deleted == Deleted::Deleted {
            self.cx.counters.delete_hits.add(1);
        }
        // A larger cache might have had what this one has not.
        if deleted != Deleted::Exists && self.cx.recorder.follows(hash) {
            self.cx.recorder.access(Access::Delete { key: hash.bits() });
        }
        self.deleted(deleted)
    }

    // md with I or x
    fn invalidate(&mut self, invalidate: command::Invalidate<'_>, hash: Option<Hash>) -> Answered<'t> {
        let turn = self.turn;
        let how = larder_engine::Invalidate {
            compare: invalidate.compare.map(|cas| self.comparable(cas)),
            stale: invalidate.stale,
            blank: invalidate.blank,
            expiry: invalidate.exptime.map(|exptime| self.expiry(exptime)),
            cas: invalidate.cas,
        };
        let key = invalidate.key.bytes(&mut self.key_buffer);
        let hash = hash.unwrap_or_else(|| turn.prepare(key));
        match turn.invalidate(key, hash, &how) {
            Ok(deleted) => {
                if deleted == Deleted::Deleted && !invalidate.stale {
                    self.cx.counters.delete_hits.add(1);
                }
                Ok(self.deleted(deleted))
            }
            Err(NoRoom::TryAgain) if !self.gives_up => Err(TryAgain),
            Err(_) => Ok(Reply::Error(Error::OutOfMemory)),
        }
    }

    fn deleted(&self, deleted: Deleted) -> Reply<'t, Item<'t>> {
        let counters = self.cx.counters;
        match deleted {
            Deleted::Deleted => Reply::Deleted,
            Deleted::NotFound(miss) => {
                counters.delete_misses.add(1);
                self.count_miss(miss);
                Reply::NotFound
            }
            Deleted::Exists => {
                counters.delete_misses.add(1);
                Reply::Exists
            }
        }
    }

    // touch
    fn touch(&mut self, touch: command::Touch<'_>, hash: Option<Hash>) -> Answered<'t> {
        let counters = self.cx.counters;
        let key = touch.key.written();
        match self.turn.touch(key, self.hash(key, hash), self.expiry(touch.exptime)) {
            Ok(item) => {
                counters.cmd_touch.add(1);
                counters.touch_hits.add(1);
                Ok(Reply::Touched { client_flags: item.client_flags(), cas: self.cas(item) })
            }
            Err(Fail::Miss(miss)) => {
                counters.cmd_touch.add(1);
                counters.touch_misses.add(1);
                self.count_miss(miss);
                Ok(Reply::NotFound)
            }
            Err(Fail::TryAgain) if !self.gives_up => Err(TryAgain),
            Err(Fail::TryAgain | Fail::OutOfMemory) => Ok(Reply::Error(Error::OutOfMemory)),
        }
    }

    // incr, decr, ma
    fn arith(&mut self, arith: command::Arith<'_>, hash: Option<Hash>) -> Answered<'t> {
        let (turn, counters, now) = (self.turn, self.cx.counters, self.turn.now());
        let touch = arith.exptime.map(|exptime| self.expiry(exptime));
        let how = larder_engine::Arith {
            delta: arith.delta,
            decrement: arith.decrement,
            compare: arith.compare.map(|cas| self.comparable(cas)),
            initial: arith
                .initial
                .map(|(number, exptime)| (number, touch.unwrap_or_else(|| self.expiry(exptime)))),
            expiry: touch,
            cas: arith.cas,
            binary_key: arith.key.is_base64(),
        };
        let (hits, misses) = if arith.decrement {
            (&counters.decr_hits, &counters.decr_misses)
        } else {
            (&counters.incr_hits, &counters.incr_misses)
        };
        let key = arith.key.bytes(&mut self.key_buffer);
        let hash = hash.unwrap_or_else(|| turn.prepare(key));
        match turn.arith(key, hash, &how) {
            Counted::Number { number, cas, expiry_before, expiry, created } => {
                if !created {
                    hits.add(1);
                }
                let before = if created { expiry } else { expiry_before };
                Ok(Reply::Number {
                    number,
                    cas: if self.cx.shared.settings.cas { cas } else { 0 },
                    ttl_before_secs: ttl_secs(before, now.secs),
                    ttl_secs: ttl_secs(expiry, now.secs),
                })
            }
            Counted::NotFound(miss) => {
                misses.add(1);
                self.count_miss(miss);
                Ok(Reply::NotFound)
            }
            Counted::Exists => Ok(Reply::Exists),
            Counted::NonNumeric => Ok(Reply::Error(Error::NonNumeric)),
            Counted::TryAgain if !self.gives_up => Err(TryAgain),
            Counted::TryAgain | Counted::OutOfMemory => Ok(Reply::Error(Error::OutOfMemory)),
        }
    }

    // flush_all
    fn flush(&self, exptime: Result<i64, Error>) -> Reply<'t, Item<'t>> {
        let now = self.turn.now();
        self.cx.counters.cmd_flush.add(1);
        if !self.cx.shared.settings.flush_all {
            return Reply::Error(Error::FlushNotAllowed);
        }
        match exptime {
            Ok(exptime) => {
                let at = self.expiry(exptime);
                let at = if at.is_past(now) { None } else { at.secs() };
                self.cx.shared.engine.flush(now, at);
                Reply::Ok
            }
            Err(error) => Reply::Error(error),
        }
    }

    // stats
    fn stats(&mut self, words: command::Words<'_>, form: &Form<'_>) -> Result<Reply<'t, Item<'t>>, Done> {
        let words: ArrayVec<&[u8], STATS_WORDS_MAX> = words.iter().take(STATS_WORDS_MAX).collect();
        Ok(match stats::answer(self.cx.shared, &words, form) {
            Answer::Lines(lines) => {
                for (name, value) in &lines {
                    form.encode(&Reply::Stat(name, value), self.out);
                }
                Reply::End
            }
            Answer::Reset => Reply::Reset,
            Answer::Dump(dump) => {
                self.dump = Some(dump);
                return Err(Done::Begun);
            }
            Answer::Ok => Reply::Ok,
            Answer::Detail(dump) if matches!(form, Form::Binary(_)) => {
                let dump = format!("{}END\r\n", String::from_utf8_lossy(&dump));
                form.encode(&Reply::Stat("detailed", &dump), self.out);
                Reply::End
            }
            Answer::Detail(dump) => {
                self.out.bytes(&dump);
                Reply::End
            }
            Answer::Error(error) => Reply::Error(error),
        })
    }

    // refresh_certs
    fn refresh_certificates(&self) -> Reply<'t, Item<'t>> {
        match self.cx.shared.tls.as_ref().map(Tls::reload) {
            None => Reply::Error(Error::NoTls),
            Some(Ok(())) => Reply::Ok,
            Some(Err(_)) => Reply::Error(Error::NoCertificates),
        }
    }

    // shutdown
    fn shutdown(&self, how: Shutdown) -> Result<(), Error> {
        if !self.cx.shared.settings.shutdown_command {
            return Err(Error::ShutdownNotEnabled);
        }
        match how {
            Shutdown::Plain => self.cx.shared.request_shutdown(Stop::Now),
            Shutdown::Graceful => self.cx.shared.request_shutdown(Stop::Gracefully),
            Shutdown::Unknown => return Err(Error::InvalidShutdownMode),
        }
        Ok(())
    }

    /// Tells the curve that a key was read, if it follows that key.
    #[inline]
    fn follow_read(&self, hash: Hash, found: Option<Item<'t>>) {
        if self.cx.recorder.follows(hash) {
            self.cx.recorder.access(Access::Read { key: hash.bits(), found: found.map(footprint) });
        }
    }

    #[inline]
    fn hit(&self, item: Item<'t>) -> Hit<'t, Item<'t>> {
        Hit {
            key: item.key(),
            is_binary_key: item.is_binary_key(),
            client_flags: item.client_flags(),
            cas: self.cas(item),
            value: item,
            value_bytes: item.value().len(),
        }
    }

    fn cas(&self, item: Item<'t>) -> u64 {
        if self.cx.shared.settings.cas { item.cas() } else { 0 }
    }

    /// The CAS value to compare with: with CAS off (`-C`) one that no item has.
    fn comparable(&self, cas: u64) -> u64 {
        if self.cx.shared.settings.cas { cas } else { u64::MAX }
    }

    fn expiry(&self, exptime: i64) -> Expiry {
        self.cx.shared.clock.expiry(exptime, self.turn.now())
    }

    /// Hashes a key and starts fetching its memory, unless that was done already.
    #[inline]
    pub(crate) fn prepare(&mut self, key: &[u8]) -> Hash {
        match self.foreseen.take() {
            Some(foreseen) if std::ptr::eq(foreseen.key, key) => foreseen.hash,
            _ => self.turn.prepare(key),
        }
    }

    fn hash(&self, key: &[u8], hash: Option<Hash>) -> Hash {
        hash.unwrap_or_else(|| self.turn.prepare(key))
    }

    pub(crate) fn count_miss(&self, miss: Miss) {
        match miss {
            Miss::Absent => {}
            Miss::Expired => self.cx.counters.get_expired.add(1),
            Miss::Flushed => self.cx.counters.get_flushed.add(1),
        }
    }
}

/// What a touch found, unless it is to be tried again.
fn looked_up<'t>(touched: Result<Item<'t>, Fail>) -> Option<Result<Item<'t>, Miss>> {
    match touched {
        Ok(item) => Some(Ok(item)),
        Err(Fail::Miss(miss)) => Some(Err(miss)),
        Err(Fail::TryAgain | Fail::OutOfMemory) => None,
    }
}

/// Why the keys of a [`Command::Get`] are not looked up further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetFailed {
    /// As [`Done::TryAgain`].
    TryAgain,
    /// An error was written; the other keys are not answered.
    OutOfMemory,
}

/// The moments that a store names.
#[derive(Clone, Copy)]
struct Expiries {
    item: Expiry,
    vivify: Option<Expiry>,
}

impl Expiries {
    fn of(store: &command::Store<'_>, executor: &Executor<'_, '_, '_, '_>) -> Self {
        Self {
            item: executor.expiry(store.exptime),
            vivify: store.vivify.map(|exptime| executor.expiry(exptime)),
        }
    }
}

/// A store in the engine's terms.
fn terms<'a>(
    store: &command::Store<'_>,
    key: &'a [u8],
    value: &'a [u8],
    expiry: Expiries,
    cas_is_on: bool,
) -> Store<'a> {
    Store {
        key,
        value,
        client_flags: store.client_flags,
        expiry: expiry.item,
        mode: match store.mode {
            command::Mode::Set => Mode::Set,
            command::Mode::Add => Mode::Add,
            command::Mode::Replace => Mode::Replace,
            command::Mode::Append => Mode::Append,
            command::Mode::Prepend => Mode::Prepend,
        },
        compare: store.compare.map(|cas| match cas {
            0 => Compare::Equal(0),
            _ if !cas_is_on => Compare::Equal(0),
            _ if store.or_stale => Compare::EqualOrStale(cas),
            _ => Compare::Equal(cas),
        }),
        cas: store.cas,
        vivify: expiry.vivify,
        binary_key: store.key.is_base64(),
    }
}

/// What the curve has to know of an item.
fn footprint(item: Item<'_>) -> Footprint {
    let accounted = item.key().len() + item.value().len() + OVERHEAD_BYTES;
    Footprint {
        bytes: u32::try_from(accounted).unwrap_or(u32::MAX),
        expires_secs: item.expiry().secs().unwrap_or(0),
    }
}

/// What an item takes beside its key and value, its share of the index and of what lies fallow included (docs/benchmarks.md).
const OVERHEAD_BYTES: usize = 32;

fn ttl_secs(expiry: Expiry, now_secs: u32) -> Option<u32> {
    expiry.secs().map(|secs| secs.saturating_sub(now_secs))
}

/// The highest verbosity.
const VERBOSITY_MAX: u32 = 2;
/// More words than any of the statistics commands has.
const STATS_WORDS_MAX: usize = 22;
