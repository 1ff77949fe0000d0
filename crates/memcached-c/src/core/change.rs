//! Requests that change an item, and its server's connection.

use larder_client::codec::{
    Arith, Delete, ErrorKind, ErrorReply, Event, Mode, Outcome, Pipeline, Protocol, Store, Touch,
};
use larder_protocol::udp::DATAGRAM_BYTES_MAX;

use super::failure::Failure;
use super::link::{Allocation, Link, Tag};
use super::place::unix_secs;
use super::{Core, Options};
use crate::abi::Return;

/// A change. Keys are without the namespace.
#[derive(Clone, Copy)]
pub(crate) enum Operation<'a> {
    Store { mode: Mode, value: &'a [u8], exptime: i64, client_flags: u32, compare: Option<u64> },
    Delete,
    Arith { delta: u64, decrement: bool, initial: Option<(u64, i64)> },
    Touch { exptime: i64 },
    Exist,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    pub(crate) code: Return,
    /// The number after adding or subtracting.
    pub(crate) number: Option<u64>,
}

impl Operation<'_> {
    /// May it wait in a buffer?
    fn is_bufferable(&self) -> bool {
        matches!(self, Self::Store { mode: Mode::Set, compare: None, .. } | Self::Delete)
    }

    /// What it stores.
    fn value_bytes(&self) -> usize {
        match self {
            Self::Store { value, .. } => value.len(),
            _ => 0,
        }
    }

    /// Can the server be told not to answer?
    fn can_be_quiet(&self) -> bool {
        !matches!(self, Self::Touch { .. } | Self::Exist)
    }

    /// Is it sent to replicas too?
    fn is_replicated(&self) -> bool {
        matches!(self, Self::Store { mode: Mode::Set, compare: None, .. } | Self::Delete)
    }

    fn request(&self, key: &[u8], pipeline: &mut Pipeline<Tag>, output: &mut Vec<u8>, tag: Option<Tag>) {
        match *self {
            Self::Store { mode, value, exptime, client_flags, compare } => {
                let (value, exptime) = (&[value], kept_expiry(exptime, pipeline.protocol()));
                let store = Store { mode, key, value, exptime, client_flags, compare, ..Store::default() };
                pipeline.store(output, &store, tag);
            }
            Self::Delete => pipeline.delete(output, &Delete { key, ..Delete::default() }, tag),
            Self::Arith { delta, decrement, initial } => {
                let arith = Arith { key, delta, decrement, initial, ..Arith::default() };
                pipeline.arith(output, &arith, tag);
            }
            Self::Touch { exptime } => {
                let exptime = kept_expiry(exptime, pipeline.protocol());
                pipeline.touch(output, &Touch { key, exptime, ..Touch::default() }, tag);
            }
            // An item that is expired when it comes: it is stored if there is none, and then is none.
            Self::Exist => {
                let store = Store { mode: Mode::Add, key, exptime: LONG_PAST, ..Store::default() };
                pipeline.store(output, &store, tag);
            }
        }
    }

    /// The code of an outcome.
    fn code(&self, options: &Options, outcome: &Outcome<'_>) -> Result<Return, Failure> {
        Ok(match (outcome, self) {
            (Outcome::Error(reply), _) => return Err(refusal(options, reply)),
            (Outcome::Stored { .. }, Self::Exist) => Return::NOTFOUND,
            (Outcome::NotStored, Self::Exist) => Return::SUCCESS,
            // The binary protocol says why.
            (Outcome::NotStored, Self::Store { mode: Mode::Add, .. }) if options.binary => {
                Return::DATA_EXISTS
            }
            (Outcome::NotStored, Self::Store { mode: Mode::Replace, .. }) if options.binary => {
                Return::NOTFOUND
            }
            (Outcome::NotStored, _) => Return::NOTSTORED,
            (Outcome::Exists, _) => Return::DATA_EXISTS,
            (Outcome::NotFound, _) => Return::NOTFOUND,
            _ => Return::SUCCESS,
        })
    }
}

/// An expiry as servers keep it: in the text protocol its lower 32 bits, so that 4294967295, which C programs make of
/// -1, is past. Of one that has more bits the nearest is sent.
fn kept_expiry(exptime: i64, protocol: Protocol) -> i64 {
    match (protocol, u32::try_from(exptime)) {
        (Protocol::Text, Ok(exptime)) => exptime.cast_signed().into(),
        _ => exptime,
    }
}

/// The failure that an error reply is.
pub(super) fn refusal(options: &Options, reply: &ErrorReply<'_>) -> Failure {
    let words = reply.to_string();
    let words = |prefix: &str| words.strip_prefix(prefix).map(str::trim_start).unwrap_or(&words).to_owned();
    if options.binary {
        return match reply.kind {
            ErrorKind::OutOfMemory => Failure::new(Return::MEMORY_ALLOCATION_FAILURE, ""),
            ErrorKind::TooLarge => Failure::new(Return::E2BIG, ""),
            ErrorKind::Unauthenticated => Failure::new(Return::AUTH_FAILURE, ""),
            _ => Failure::new(Return::UNKNOWN_READ_FAILURE, ""),
        };
    }
    match reply.kind {
        ErrorKind::TooLarge => Failure::new(Return::E2BIG, ""),
        ErrorKind::OutOfMemory => Failure::new(Return::SERVER_MEMORY_ALLOCATION_FAILURE, ""),
        ErrorKind::UnknownCommand => Failure::new(Return::ERROR, ""),
        ErrorKind::Server => Failure::new(Return::SERVER_ERROR, &words("SERVER_ERROR")),
        ErrorKind::Client | ErrorKind::NonNumeric | ErrorKind::Unauthenticated => {
            Failure::new(Return::CLIENT_ERROR, &words("CLIENT_ERROR"))
        }
    }
}

impl Core {
    /// Changes an item: of `group`'s server, if it is given.
    pub(crate) fn change(
        &mut self,
        options: &Options,
        group: &[u8],
        key: &[u8],
        operation: &Operation<'_>,
    ) -> Changed {
        let changed = self.begin(options).and_then(|()| self.check_keys(options, &[key]));
        match changed.and_then(|()| self.change_checked(options, group, key, operation)) {
            Ok(changed) => changed,
            Err(code) => Changed { code, number: None },
        }
    }

    fn change_checked(
        &mut self,
        options: &Options,
        group: &[u8],
        key: &[u8],
        operation: &Operation<'_>,
    ) -> Result<Changed, Return> {
        let at = self.place_now(options, group);
        if options.udp && !operation.can_be_quiet() {
            return Err(self.fail(options, Return::NOT_SUPPORTED, ""));
        }
        // Before a byte of it is read.
        if options.udp && operation.value_bytes() > DATAGRAM_BYTES_MAX {
            return Err(self.fail_at(options, at, Failure::new(Return::WRITE_FAILURE, "")));
        }
        let key = self.prefixed(key);
        let is_buffered = options.buffering && !options.udp && operation.is_bufferable();
        let is_quiet = (options.udp || !options.replying) && operation.can_be_quiet();
        let tag = match (is_quiet, is_buffered) {
            (true, _) => None,
            (false, true) => Some(Tag::Ignored),
            (false, false) => Some(Tag::Awaited),
        };
        let sent = self.send(options, at, Allocation::of(operation.value_bytes()), |link| {
            link.is_quiet |= tag.is_none() && !options.binary;
            link.request(|pipeline, output| operation.request(&key, pipeline, output, tag))?;
            if is_buffered { link.flush_if_full(options) } else { link.flush(options) }
        });
        // Copies are deleted even if the first server is down, but stored only if the first server has stored the
        // value.
        if operation.is_replicated() && (sent.is_ok() || matches!(operation, Operation::Delete)) {
            self.replicate(options, at, &key, operation, is_buffered);
        }
        sent.map_err(|code| match operation {
            Operation::Touch { .. } => {
                let text = "Error occcured while writing touch command to server";
                self.fail_at(options, at, Failure::new(Return::WRITE_FAILURE, text))
            }
            _ => code,
        })?;
        if is_quiet || is_buffered {
            let is_queued = is_buffered && (options.binary || !is_quiet);
            let code = if is_queued { Return::BUFFERED } else { Return::SUCCESS };
            return Ok(Changed { code, number: None });
        }
        // Items that were not fetched are passed over.
        self.instances[at].wanted.clear();
        let mut number = None;
        let mut refused = None;
        let told = self.with_link(options, at, |link| {
            link.await_reply_in_time(options, |event| {
                let Event::Done(_, outcome) = event else { return Ok(Ok(Return::SUCCESS)) };
                if let Outcome::Number(sum) = outcome {
                    number = Some(sum);
                }
                if let Outcome::Error(reply) = outcome {
                    refused = Some(reply.kind);
                }
                Ok(operation.code(options, &outcome))
            })
        });
        let told = told.map_err(|code| match operation {
            Operation::Touch { .. } => {
                let text = "Error occcured while reading response";
                self.fail_at(options, at, Failure::new(code, text))
            }
            _ => code,
        })?;
        match told {
            Ok(code) => Ok(Changed { code, number }),
            Err(failure) => Err(self.refuse(options, at, failure, refused)),
        }
    }

    /// Sends it to the servers after the first, and does not wait for what they say.
    fn replicate(
        &mut self,
        options: &Options,
        first: usize,
        key: &[u8],
        operation: &Operation<'_>,
        is_buffered: bool,
    ) {
        let count = self.instances.len();
        for step in 1..=self.replicas(options) {
            let at = (first + step) % count;
            // A replica that is away misses the change, as in libmemcached.
            let _ = self.send(options, at, Allocation::of(operation.value_bytes()), |link| {
                link.request(|pipeline, output| operation.request(key, pipeline, output, None))?;
                if is_buffered { link.flush_if_full(options) } else { link.flush(options) }
            });
        }
    }

    /// Uses a server's connection to send, and makes one if there is none. If there is no memory for the request, the
    /// connection stays, with what is buffered: nothing was written.
    pub(super) fn send(
        &mut self,
        options: &Options,
        at: usize,
        allocation: Allocation,
        send: impl FnOnce(&mut Link) -> Result<(), Failure>,
    ) -> Result<(), Return> {
        self.connect(options, at)?;
        let link = self.instances.get_mut(at).and_then(|instance| instance.link.as_mut());
        if let Some(Err(failure)) = link.map(|link| link.reserve(allocation)) {
            return Err(self.fail_at(options, at, failure));
        }
        self.with_link(options, at, send)
    }

    /// Uses a server's connection. A failure closes it.
    pub(super) fn with_link<R>(
        &mut self,
        options: &Options,
        at: usize,
        talk: impl FnOnce(&mut Link) -> Result<R, Failure>,
    ) -> Result<R, Return> {
        let Some(link) = self.instances.get_mut(at).and_then(|instance| instance.link.as_mut()) else {
            return Err(self.fail_at(options, at, Failure::new(Return::CONNECTION_FAILURE, "")));
        };
        talk(link).map_err(|failure| {
            let keeps = options.udp && failure.code == Return::WRITE_FAILURE;
            if let Some(instance) = self.instances.get_mut(at)
                && !keeps
            {
                instance.close();
                // UDP has no connection that could fail later.
                if options.udp {
                    instance.mark_failed(options, unix_secs());
                }
            }
            self.fail_at(options, at, failure)
        })
    }

    /// The server refused. A connection is closed if the server may have read only a part of the request, or if the
    /// error may be that of another request.
    pub(super) fn refuse(
        &mut self,
        options: &Options,
        at: usize,
        failure: Failure,
        kind: Option<ErrorKind>,
    ) -> Return {
        let is_quiet = self.instances.get(at).and_then(|instance| instance.link.as_ref());
        let is_doubtful =
            is_quiet.is_some_and(|link| link.is_quiet) || kind.is_some_and(ErrorKind::is_doubtful);
        if let Some(instance) = self.instances.get_mut(at)
            && (is_doubtful || (failure.code.is_fatal() && kind != Some(ErrorKind::NonNumeric)))
        {
            instance.close();
        }
        self.fail_at(options, at, failure)
    }

    /// Connects to a server, unless it is left alone for a while.
    pub(super) fn connect(&mut self, options: &Options, at: usize) -> Result<(), Return> {
        if let Some(instance) = self.instances.get_mut(at)
            && let Some(link) = &instance.link
        {
            if link.due() > 0 || !link.has_input() {
                return Ok(());
            }
            // What nobody has asked for would pass for the next reply.
            instance.close();
        }
        let was_in_timeout = self.back_off(options, at)?;
        let Some(instance) = self.instances.get(at) else { return Err(Return::FAILURE) };
        match connect(instance, options, self.tls.as_ref()) {
            Ok(link) => {
                let instance = &mut self.instances[at];
                instance.link = Some(link);
                instance.mark_sound();
                Ok(())
            }
            Err(failure) => {
                self.note_disconnect(at);
                let code = self.fail_at(options, at, failure);
                self.instances[at].mark_failed(options, unix_secs());
                if was_in_timeout {
                    let disabled = Failure::new(Return::SERVER_TEMPORARILY_DISABLED, "");
                    return Err(self.fail_at(options, at, disabled));
                }
                Err(code)
            }
        }
    }

    /// True: the server was left alone, and its time is up.
    fn back_off(&mut self, options: &Options, at: usize) -> Result<bool, Return> {
        let now = unix_secs();
        let Some(instance) = self.instances.get_mut(at) else { return Err(Return::FAILURE) };
        if instance.failures.count >= options.failure_limit {
            if options.auto_eject {
                if options.dead_timeout_secs > 0 {
                    instance.next_retry.set(now.saturating_add(options.dead_timeout_secs.into()));
                    // One more failure, and it is dead again.
                    instance.failures.count = options.failure_limit.saturating_sub(1);
                }
                self.note_disconnect(at);
                // Without memory for it the server stays on the ring, and is tried again.
                let _ = self.distribute(options);
                return Err(self.fail_at(options, at, Failure::new(Return::SERVER_MARKED_DEAD, "")));
            }
            instance.is_in_timeout = true;
            if instance.next_retry.get() == 0 {
                instance.next_retry.set(1);
            }
        }
        if !instance.is_in_timeout {
            return Ok(false);
        }
        if instance.next_retry.get() < now {
            instance.is_in_timeout = false;
            instance.timed_out.count = 0;
            return Ok(true);
        }
        self.note_disconnect(at);
        Err(self.fail_at(options, at, Failure::new(Return::SERVER_TEMPORARILY_DISABLED, "")))
    }
}

fn connect(
    instance: &super::Instance,
    options: &Options,
    tls: Option<&larder_client::Tls>,
) -> Result<Link, Failure> {
    if options.udp && tls.is_some() {
        let text = "TLS is not supported for UDP connections";
        return Err(Failure::new(Return::INVALID_HOST_PROTOCOL, text));
    }
    let login = match options.login.exist() && !instance.is_socket() {
        true if options.udp => {
            let text = "SASL is not supported for UDP connections";
            return Err(Failure::new(Return::INVALID_HOST_PROTOCOL, text));
        }
        true if !options.binary => {
            let text = "memcached_sasl_authenticate_connection() is not supported via the ASCII protocol";
            return Err(Failure::new(Return::INVALID_ARGUMENTS, text));
        }
        true => Some(options.login.credentials().ok_or_else(|| Failure::new(Return::AUTH_PROBLEM, ""))?),
        false => None,
    };
    Link::connect(&instance.address(), options, tls, login.as_ref())
}

/// 1 February 1970: an expiry that is over.
const LONG_PAST: i64 = 2_678_400;
