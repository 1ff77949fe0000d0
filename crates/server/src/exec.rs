//! Executes commands: one `match` over [`Command`], from the client's terms to the engine's and back. The commands
//! themselves are in `read`, `write`, `server`, `admin` and `dump`.
//!
//! Counters: memcached, doc/protocol.txt, "General-purpose statistics".

mod admin;
pub mod crawler;
pub mod dump;
mod read;
mod server;
pub(crate) mod store_access;
mod tell;
mod write;

use larder_engine::{Expiry, Item, LookupHint, Now, Upload};
use larder_protocol::admin::Streams;
use larder_protocol::command::{Command, Fetch, Sasl};
use larder_protocol::{Error, Form, KeyBuffer, Reply, Request};
use larder_store::commit::Outcome;

use crate::MEMCACHED_VERSION;
use crate::clock::Clock;
use crate::conn::client::Client;
use crate::conn::output::{COPIED_BYTES_MAX, OUTPUT_BYTES_MAX, Output};
use crate::conn::waiter::{Turns, Waiting};
use crate::exec::dump::Dump;
use crate::exec::store_access::StoreAccess;
use crate::namespaces::{Guards, Prepared, Right, Rights};
use crate::observe::counters::Counters;
use crate::observe::measure::Recorder;
use crate::observe::watch::Event;
use crate::persistence::Persistence;
use crate::shared::Shared;

/// What a command is executed with: the server, and the worker's own counters.
#[derive(Clone, Copy)]
pub struct Context<'c> {
    /// The server.
    pub shared: &'c Shared,
    /// Counters of the executing worker.
    pub counters: &'c Counters,
    /// Latency and key samples of that worker.
    pub recorder: &'c Recorder,
    /// The index of that worker.
    pub worker: usize,
    /// The client that sent the command.
    pub client: &'c Client,
    /// What is left of the round for administrative commands.
    pub turns: &'c Turns,
}

impl Context<'_> {
    /// Sends an event to the watchers, if there are any.
    pub(crate) fn tell(&self, event: &Event<'_>) {
        self.shared.tell(self.worker, event);
    }
}

/// Executes commands under one guard.
pub struct Executor<'e, 'c, 'h, 't> {
    /// The server and the worker.
    pub cx: &'e Context<'c>,
    /// The engines, the policies, and the time.
    pub guards: &'t Guards<'h>,
    /// What the client may do with items.
    pub(crate) rights: Rights,
    /// Receives the replies.
    pub out: &'e mut Output<'t>,
    /// Room for a key that is decoded from base64 or percent-encoding.
    pub key_buffer: KeyBuffer,
    /// The request has waited for memory long enough: the engine's `TryAgain` now means out of memory.
    pub deadline_passed: bool,
    /// The way to items that are in the store, not in memory.
    pub(crate) store: StoreAccess<'e, 'c>,
    /// A long reply that was begun: see [`Done::Begun`].
    pub dump: Option<Box<Dump>>,
    /// It has had a turn of the round ([`Executor::take_turn`]).
    pub has_had_its_turn: bool,
}

/// The value of a store.
pub enum Value<'v> {
    /// The whole value. Empty for commands that have none.
    Whole(&'v [u8]),
    /// In the cache already, but not linked yet. Taken unless the result is [`Done::Wait`].
    Uploaded(&'v mut Option<Upload>),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Done {
    /// The reply, if the command wants one, is in the output.
    Answered,
    /// The reply is long, and is given piece by piece from now on: [`Executor::dump`].
    Begun,
    /// As Answered; from now on the client is sent watch events, and nothing else.
    Watch(Streams),
    /// As Answered, with an error that ends a list of keys.
    Failed,
    /// Nothing happened: execute it again after this wait, under a new guard.
    Wait(Waiting),
    /// As Answered, and the connection is to be closed once the output is sent.
    Close(CloseReason),
}

/// Why the server closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The client said `quit`.
    Normal,
    /// The client broke the protocol, or missed an error (`--noreply-close-on-error`).
    Error,
    /// The client broke the rules of HTTP, and may still be sending: it gets time to read why.
    Refused,
    /// The server is shutting down.
    Shutdown,
    /// The client was idle for too long.
    Idle,
}

impl CloseReason {
    /// memcached's name of it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Error | Self::Refused => "error",
            Self::Shutdown => "shutdown",
            Self::Idle => "idle_timeout",
        }
    }
}

/// A reply to be written; `Err`: the command ends without one.
pub(crate) type Answered<'t> = Result<Reply<'t, Item<'t>>, Done>;

/// The reply to a store whose value is not taken; `Err`: nothing has changed, try again after this wait.
pub type Refused<'t> = Result<Reply<'t, Item<'t>>, Waiting>;

impl<'t> Executor<'_, '_, '_, 't> {
    /// Executes one request. `prepared` belongs to its key, if it has one. A [`Command::Get`] must have one key: lists
    /// go through `conn/batch.rs`.
    pub fn execute(
        &mut self,
        request: &Request<'_>,
        prepared: Option<Prepared<'t>>,
        value: Value<'_>,
    ) -> Done {
        if let Command::Get(get) = request.command {
            return self.get_one(get, prepared, &request.form);
        }
        let is_observed = self.cx.shared.observers.any();
        if is_observed && self.cx.shared.observers.is_read_only() {
            return self.execute_read_only(request, prepared, value);
        }
        self.execute_observed(request, prepared, value, is_observed)
    }

    /// Refuses changes, for maintenance. A look-up leaves the right to recompute an item to later ones: the new value
    /// would be refused.
    #[cold]
    fn execute_read_only(
        &mut self,
        request: &Request<'_>,
        prepared: Option<Prepared<'t>>,
        value: Value<'_>,
    ) -> Done {
        // What the home of its key has run already is answered.
        if request.command.is_change()
            && self.store.answered.is_none()
            && let Err(error) = self.admit_change()
        {
            let reply = Reply::Error(error);
            self.observe(&request.command, &request.form, None, &reply);
            return self.answer(&request.form, &reply);
        }
        let command = match request.command {
            Command::Fetch(fetch) => Command::Fetch(Fetch { leaves_token: true, ..fetch }),
            other => other,
        };
        self.execute_observed(&Request { command, form: request.form }, prepared, value, true)
    }

    /// Whether the server takes changes of clients. Errors: what to answer while it is read-only for maintenance; it is
    /// counted.
    #[inline]
    fn admit_change(&self) -> Result<(), Error> {
        if !self.cx.shared.observers.is_read_only() {
            return Ok(());
        }
        self.cx.counters.refused_maintenance.add(1);
        Err(Error::Maintenance)
    }

    #[inline]
    fn execute_observed(
        &mut self,
        request: &Request<'_>,
        prepared: Option<Prepared<'t>>,
        value: Value<'_>,
        is_observed: bool,
    ) -> Done {
        let before = if is_observed { self.look_before(&request.command, prepared) } else { None };
        let answered = match request.command {
            Command::Get(_) => return Done::Answered,
            Command::Fetch(fetch) => self.fetch(fetch, prepared),
            Command::Peek(key) => self.peek(key, prepared),
            Command::Store(store) => self.store(store, prepared, value),
            Command::Delete(delete) => self.delete(delete, prepared),
            Command::Invalidate(invalidate) => self.invalidate(invalidate, prepared),
            Command::Touch(touch) => self.touch(touch, prepared),
            Command::Arith(arith) => self.arith(arith, prepared),
            Command::Flush(exptime) => self.flush(exptime),
            Command::FlushPrefix(flush) => self.flush_prefix(flush),
            Command::Noop => Ok(Reply::Noop),
            Command::Version => Ok(Reply::Version(MEMCACHED_VERSION)),
            Command::Verbosity(level) => {
                // At most 2, so it fits.
                self.cx.shared.set_verbosity(level.min(VERBOSITY_MAX) as u8);
                Ok(Reply::Ok)
            }
            Command::Stats(words) => self.stats(words, &request.form),
            Command::Shutdown(how) => self.shutdown(how),
            Command::RefreshCerts => self.refresh_certificates(),
            Command::Admin(admin) => self.administer(admin),
            Command::Sasl(Sasl::Mechanisms) if self.cx.shared.authenticator.is_some() => {
                Ok(Reply::Mechanisms(larder_auth::MECHANISMS))
            }
            // There are no logins on this server. With logins, `conn/login.rs` serves them before they come here.
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
            Err(done) => {
                if let Done::Watch(_) = done {
                    request.form.encode(&Reply::Ok, self.out);
                }
                done
            }
        }
    }

    /// Executes a command of another site's client, as the home of its key.
    pub(crate) fn execute_as_home(&mut self, command: Command<'_>, value: &[u8]) -> Answered<'t> {
        if let Err(error) = self.admit_change() {
            return Ok(Reply::Error(error));
        }
        match command {
            Command::Store(store) => self.store(store, None, Value::Whole(value)),
            Command::Arith(arith) => self.arith(arith, None),
            _ => Ok(Reply::Error(Error::UnknownCommand)),
        }
    }

    /// Writes a reply. Closes the connection if the client would never learn of an error.
    pub fn answer(&mut self, form: &Form<'_>, reply: &Reply<'_, Item<'t>>) -> Done {
        form.encode(reply, self.out);
        match reply {
            Reply::Error(_) if form.ends_with(reply) => Done::Close(CloseReason::Refused),
            Reply::Error(error) if error.is_fatal() => Done::Close(CloseReason::Error),
            Reply::Error(error)
                if error.is_server_side()
                    && form.is_noreply()
                    && self.cx.shared.settings.noreply_close_on_error =>
            {
                Done::Close(CloseReason::Error)
            }
            _ if form.ends_with(reply) => Done::Close(CloseReason::Normal),
            _ => Done::Answered,
        }
    }

    /// Notes that the reply beginning at byte `begin` of the output depends on everything done since the last call.
    pub(crate) fn depend(&mut self, begin: usize, form: &Form<'_>, only_removes: bool) {
        let position = self.guards.take_awaited();
        if position == 0 {
            return;
        }
        let is_durable = |persistence: &Persistence| persistence.outcome(position) == Outcome::Done;
        if self.cx.shared.persistence.as_ref().is_none_or(is_durable) {
            return;
        }
        let learns = !form.is_noreply() || self.cx.shared.settings.noreply_close_on_error;
        self.out.dependents.push(begin, position, only_removes, form, learns);
    }

    /// Ends the reply to a request: later output belongs to other requests.
    #[inline]
    pub(crate) fn end_request(&mut self) {
        let end = self.out.len_bytes();
        self.out.dependents.end_request(end);
    }

    /// Takes one of the round's turns. False: none is left.
    pub(crate) fn take_turn(&mut self) -> bool {
        self.has_had_its_turn = self.cx.turns.take();
        self.has_had_its_turn
    }

    /// True if the connection has used its share of the round: its replies are large enough to be sent, it has written
    /// many bytes of values, or it has executed an administrative command.
    #[inline]
    pub(crate) fn has_used_its_share(&self) -> bool {
        self.has_had_its_turn
            || self.out.len_bytes() >= OUTPUT_BYTES_MAX
            || self.guards.copied_bytes() >= COPIED_BYTES_MAX
    }

    fn cas(&self, item: Item<'t>) -> u64 {
        if self.cx.shared.settings.cas { item.cas() } else { 0 }
    }

    /// The CAS value to compare with. With CAS off (`-C`) it is one that no item has.
    fn comparable(&self, cas: u64) -> u64 {
        if self.cx.shared.settings.cas { cas } else { u64::MAX }
    }

    #[inline]
    pub(crate) fn prepared(&self, key: &[u8], prepared: Option<Prepared<'t>>) -> Prepared<'t> {
        prepared.unwrap_or_else(|| (self.guards.prepare(key).0, LookupHint::default()))
    }
}

/// Apart from a command that does it.
impl Executor<'_, '_, '_, '_> {
    /// Whether the client may do that with the item of this key. Errors: what to answer; it is counted.
    pub(crate) fn admit(&self, key: &[u8], right: Right) -> Result<(), Error> {
        self.guards.place(key, None).admit(self.rights, right)
    }
}

fn ttl_secs(clock: &Clock, expiry: Expiry, now: Now) -> Option<u32> {
    clock.secs_of(expiry).map(|secs| secs.saturating_sub(now.secs))
}

/// The highest verbosity.
const VERBOSITY_MAX: u32 = 2;
/// Each request returns one, in two registers.
const _: () = assert!(size_of::<Done>() <= 16);
