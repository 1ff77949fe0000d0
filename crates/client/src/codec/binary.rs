//! The binary protocol. Source: memcached, doc/protocol-binary.txt; [`larder_protocol::binary`] shows the header.
//!
//! Every request has its own number (its opaque), counted up, which identifies the reply.

use larder_protocol::binary::{HEADER_BYTES, REPLY_MAGIC, REQUEST_MAGIC, Status, opcode};

use super::due::{Due, Kind, Queue};
use super::{
    Arith, Delete, ErrorKind, ErrorReply, Event, Get, Mode, Outcome, Store, Touch, Value, Violation,
    ViolationKind,
};

/// A request's header, extras and key; a value of `value_bytes` follows.
#[derive(Clone, Copy, Default)]
struct Packet<'a> {
    opcode: u8,
    opaque: u32,
    cas: u64,
    extras: &'a [u8],
    key: &'a [u8],
    value_bytes: usize,
}

/// The fields that its reply has to repeat.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub opcode: u8,
    pub opaque: u32,
}

impl Packet<'_> {
    #[inline]
    fn write(&self, output: &mut Vec<u8>) -> Sent {
        let key_bytes = self.key.len() as u16;
        let body_bytes = (self.extras.len() + self.key.len() + self.value_bytes) as u32;
        let mut header = [0; HEADER_BYTES];
        header[0] = REQUEST_MAGIC;
        header[1] = self.opcode;
        header[2..4].copy_from_slice(&key_bytes.to_be_bytes());
        header[4] = self.extras.len() as u8;
        header[8..12].copy_from_slice(&body_bytes.to_be_bytes());
        header[12..16].copy_from_slice(&self.opaque.to_be_bytes());
        header[16..24].copy_from_slice(&self.cas.to_be_bytes());
        output.reserve(HEADER_BYTES + body_bytes as usize);
        output.extend_from_slice(&header);
        output.extend_from_slice(self.extras);
        output.extend_from_slice(self.key);
        Sent { opcode: self.opcode, opaque: self.opaque }
    }
}

/// A look-up; a quiet one requests its key as well.
#[inline]
pub(super) fn get(output: &mut Vec<u8>, get: &Get<'_>, key: &[u8], opaque: u32, is_quiet: bool) -> Sent {
    let touch = get.exptime.map(|exptime| expiry(exptime).to_be_bytes());
    let opcode = match (touch, is_quiet) {
        (None, false) => opcode::GET,
        (None, true) => opcode::GETKQ,
        (Some(_), false) => opcode::GAT,
        (Some(_), true) => opcode::GATKQ,
    };
    let extras = touch.as_ref().map_or(&[][..], |touch| touch);
    Packet { opcode, opaque, extras, key, ..Packet::default() }.write(output)
}

/// Any store, and the value.
#[inline]
pub(super) fn store(output: &mut Vec<u8>, store: &Store<'_>, opaque: u32, is_quiet: bool) -> Sent {
    let mode = match store.mode {
        // As libmemcached does: a server that refuses the value of a set deletes the item before it compares.
        Mode::Set if store.compare.is_some() => Mode::Replace,
        mode => mode,
    };
    let opcode = match (mode, is_quiet) {
        (Mode::Set, false) => opcode::SET,
        (Mode::Set, true) => opcode::SETQ,
        (Mode::Add, false) => opcode::ADD,
        (Mode::Add, true) => opcode::ADDQ,
        (Mode::Replace, false) => opcode::REPLACE,
        (Mode::Replace, true) => opcode::REPLACEQ,
        (Mode::Append, false) => opcode::APPEND,
        (Mode::Append, true) => opcode::APPENDQ,
        (Mode::Prepend, false) => opcode::PREPEND,
        (Mode::Prepend, true) => opcode::PREPENDQ,
    };
    let mut extras = [0; 8];
    extras[..4].copy_from_slice(&store.client_flags.to_be_bytes());
    extras[4..].copy_from_slice(&expiry(store.exptime).to_be_bytes());
    let takes_extras = !matches!(store.mode, Mode::Append | Mode::Prepend);
    let extras = if takes_extras { &extras[..] } else { &[] };
    let (cas, value_bytes) = (store.compare.unwrap_or(0), store.value_bytes());
    let sent = Packet { opcode, opaque, cas, extras, key: store.key, value_bytes }.write(output);
    for part in store.value {
        output.extend_from_slice(part);
    }
    sent
}

pub(super) fn delete(output: &mut Vec<u8>, delete: &Delete<'_>, opaque: u32, is_quiet: bool) -> Sent {
    let opcode = if is_quiet { opcode::DELETEQ } else { opcode::DELETE };
    let cas = delete.compare.unwrap_or(0);
    Packet { opcode, opaque, cas, key: delete.key, ..Packet::default() }.write(output)
}

pub(super) fn arith(output: &mut Vec<u8>, arith: &Arith<'_>, opaque: u32, is_quiet: bool) -> Sent {
    let opcode = match (arith.decrement, is_quiet) {
        (false, false) => opcode::INCR,
        (false, true) => opcode::INCRQ,
        (true, false) => opcode::DECR,
        (true, true) => opcode::DECRQ,
    };
    let (initial, exptime) =
        arith.initial.map_or((0, NEVER_CREATE), |(initial, exptime)| (initial, expiry(exptime)));
    let mut extras = [0; 20];
    extras[..8].copy_from_slice(&arith.delta.to_be_bytes());
    extras[8..16].copy_from_slice(&initial.to_be_bytes());
    extras[16..].copy_from_slice(&exptime.to_be_bytes());
    Packet { opcode, opaque, extras: &extras, key: arith.key, ..Packet::default() }.write(output)
}

pub(super) fn touch(output: &mut Vec<u8>, touch: &Touch<'_>, opaque: u32) -> Sent {
    let extras = expiry(touch.exptime).to_be_bytes();
    Packet { opcode: opcode::TOUCH, opaque, extras: &extras, key: touch.key, ..Packet::default() }
        .write(output)
}

pub(super) fn flush_all(output: &mut Vec<u8>, delay_secs: u32, opaque: u32, is_quiet: bool) -> Sent {
    let opcode = if is_quiet { opcode::FLUSHQ } else { opcode::FLUSH };
    let delay = delay_secs.to_be_bytes();
    let extras = if delay_secs > 0 { &delay[..] } else { &[] };
    Packet { opcode, opaque, extras, ..Packet::default() }.write(output)
}

/// A request with an opcode and perhaps a key.
pub(super) fn plain(output: &mut Vec<u8>, opcode: u8, key: &[u8], opaque: u32) -> Sent {
    Packet { opcode, opaque, key, ..Packet::default() }.write(output)
}

/// SASL's mechanism PLAIN (RFC 4616): `NUL user NUL password`.
pub(super) fn login(output: &mut Vec<u8>, user: &[u8], password: &[u8], opaque: u32) -> Sent {
    let value_bytes = user.len() + password.len() + 2;
    let sent = Packet { opcode: opcode::SASL_AUTH, opaque, key: b"PLAIN", value_bytes, ..Packet::default() }
        .write(output);
    for part in [b"\0", user, b"\0", password] {
        output.extend_from_slice(part);
    }
    sent
}

/// The expiry in this protocol. It has no negative times, so a time long past replaces them; all ones are
/// [`NEVER_CREATE`].
fn expiry(exptime: i64) -> u32 {
    if exptime < 0 { LONG_PAST } else { exptime.min((NEVER_CREATE - 1).into()) as u32 }
}

/// See [`super::Pipeline::receive`].
#[inline]
pub(super) fn receive<'i, T>(
    due: &mut Queue<T>,
    input: &mut &'i [u8],
) -> Result<Option<Event<'i, T>>, Violation> {
    let Some(reply) = Reply::at_head(due, input)? else { return Ok(None) };
    let wrong = |kind| Err(Violation::new(kind, reply.packet));
    if is_quiet_change(reply.opcode) {
        return match reply.outcome_of_quiet() {
            Some(outcome) if due.skip_to_quiet(reply.opaque) => {
                reply.take(input);
                let is_failure = (reply.opcode, outcome) != (opcode::DELETEQ, Outcome::NotFound);
                Ok(is_failure.then_some(Event::QuietFailed(outcome)))
            }
            Some(_) => wrong(ViolationKind::WrongOpaque),
            None => wrong(ViolationKind::WrongForm),
        };
    }
    let is_loud = due.has_opaques;
    let Some(front) = due.front() else { return wrong(ViolationKind::Unasked) };
    let is_loud_key = front.kind == Kind::MultiGet && front.keys > 0 && is_loud;
    if is_loud_key {
        return receive_key(due, input, &reply);
    }
    let behind = front.sent.opaque.wrapping_sub(reply.opaque);
    if behind > front.keys_left || (behind > 0 && front.kind != Kind::MultiGet) {
        return wrong(ViolationKind::WrongOpaque);
    }
    if !reply.fits(front, behind > 0) {
        return wrong(ViolationKind::WrongForm);
    }
    match front.kind {
        Kind::MultiGet if behind > 0 => {
            if !due.find_key_from_end(behind, reply.is_success().then_some(reply.key)) {
                return wrong(ViolationKind::WrongKey);
            }
            reply.take(input);
            Ok(Some(match reply.value(due.key_index()) {
                Some(value) => Event::Value(value),
                None => Event::KeyFailed(reply.error()),
            }))
        }
        Kind::Get if reply.is_success() => {
            due.pass_key();
            due.is_answered = true;
            reply.take(input);
            Ok(reply.value(0).map(Event::Value))
        }
        Kind::Stats if reply.is_success() && !(reply.key.is_empty() && reply.body.is_empty()) => {
            reply.take(input);
            Ok(Some(Event::Stat(reply.key, reply.body)))
        }
        kind => {
            let is_miss = reply.status == Some(Status::NotFound);
            let outcome = match kind {
                Kind::Get if is_miss => due.found(),
                Kind::MultiGet => due.found(),
                kind => Some(reply.outcome(kind)),
            };
            reply.take(input);
            Ok(outcome.and_then(|outcome| due.done(outcome)))
        }
    }
}

/// The reply to the next key of a multi-get whose keys are all answered.
fn receive_key<'i, T>(
    due: &mut Queue<T>,
    input: &mut &'i [u8],
    reply: &Reply<'i>,
) -> Result<Option<Event<'i, T>>, Violation> {
    let wrong = |kind| Err(Violation::new(kind, reply.packet));
    if due.awaited_opaque() != Some(reply.opaque) {
        return wrong(ViolationKind::WrongOpaque);
    }
    let has_form = !reply.is_success() || (reply.extras.len() == 4 && reply.key.is_empty());
    if due.front().is_none_or(|front| front.sent.opcode != reply.opcode) || !has_form {
        return wrong(ViolationKind::WrongForm);
    }
    reply.take(input);
    if reply.is_success() {
        due.pass_key();
    } else {
        due.miss_key();
        if reply.status == Some(Status::NotFound) {
            return Ok(due.end_multi_get());
        }
    }
    due.is_answered = due.front().is_some_and(|front| front.keys_left == 0);
    Ok(Some(match reply.value(due.key_index()) {
        Some(value) => Event::Value(value),
        None => Event::KeyFailed(reply.error()),
    }))
}

/// A reply.
struct Reply<'i> {
    /// All its bytes.
    packet: &'i [u8],
    opcode: u8,
    /// `None`: unknown to this client.
    status: Option<Status>,
    opaque: u32,
    cas: u64,
    extras: &'i [u8],
    key: &'i [u8],
    body: &'i [u8],
}

impl<'i> Reply<'i> {
    /// `None`: it has not arrived completely.
    #[inline]
    fn at_head<T>(due: &mut Queue<T>, input: &&'i [u8]) -> Result<Option<Self>, Violation> {
        let Some((header, rest)) = input.split_first_chunk::<HEADER_BYTES>() else {
            if input.first().is_some_and(|magic| *magic != REPLY_MAGIC) {
                return Err(Violation::new(ViolationKind::Malformed, input));
            }
            due.needed_bytes = HEADER_BYTES;
            return Ok(None);
        };
        let [magic, opcode, k0, k1, extras, _, s0, s1, b0, b1, b2, b3, o0, o1, o2, o3, cas @ ..] = *header;
        let key_bytes = usize::from(u16::from_be_bytes([k0, k1]));
        let body_bytes = u32::from_be_bytes([b0, b1, b2, b3]) as usize;
        let head_bytes = usize::from(extras) + key_bytes;
        if magic != REPLY_MAGIC || head_bytes > body_bytes || body_bytes > BODY_BYTES_MAX {
            return Err(Violation::new(ViolationKind::Malformed, input));
        }
        let Some(body) = rest.get(..body_bytes) else {
            due.needed_bytes = HEADER_BYTES + body_bytes;
            return Ok(None);
        };
        let (extras, body) = body.split_at(extras.into());
        let (key, body) = body.split_at(key_bytes);
        Ok(Some(Self {
            packet: &input[..HEADER_BYTES + body_bytes],
            opcode,
            status: Status::from_code(u16::from_be_bytes([s0, s1])),
            opaque: u32::from_be_bytes([o0, o1, o2, o3]),
            cas: u64::from_be_bytes(cas),
            extras,
            key,
            body,
        }))
    }

    /// Moves the input past it.
    #[inline]
    fn take(&self, input: &mut &'i [u8]) {
        *input = &input[self.packet.len()..];
    }

    fn is_success(&self) -> bool {
        self.status == Some(Status::Success)
    }

    /// True if it has the form of the expected reply, or (`is_inner`) of a reply to one of its keys.
    fn fits<T>(&self, due: &Due<T>, is_inner: bool) -> bool {
        let opcode = match due.kind {
            Kind::MultiGet if !is_inner => opcode::NOOP,
            _ => due.sent.opcode,
        };
        let (extras_bytes, has_key) = (self.extras.len(), !self.key.is_empty());
        self.opcode == opcode
            && (!self.is_success()
                || match due.kind {
                    Kind::MultiGet if is_inner => extras_bytes == 4 && has_key,
                    Kind::Get => extras_bytes == 4 && !has_key,
                    Kind::Arith => extras_bytes == 0 && self.body.len() == 8,
                    Kind::Touch => !has_key,
                    Kind::Stats => extras_bytes == 0,
                    _ => extras_bytes == 0 && !has_key,
                })
    }

    fn value(&self, index: u32) -> Option<Value<'i>> {
        let flags = self.extras.first_chunk().filter(|_| self.is_success())?;
        let client_flags = u32::from_be_bytes(*flags);
        Some(Value { index, bytes: self.body, client_flags, cas: Some(self.cas), meta_flags: b"" })
    }

    fn outcome(&self, kind: Kind) -> Outcome<'i> {
        match (self.status, kind) {
            (Some(Status::Success), kind) => match kind {
                Kind::Store { .. } => Outcome::Stored { cas: Some(self.cas) },
                Kind::Delete => Outcome::Deleted,
                Kind::Touch => Outcome::Touched,
                Kind::Arith => {
                    Outcome::Number(self.body.first_chunk().map_or(0, |number| u64::from_be_bytes(*number)))
                }
                Kind::Version => Outcome::Version(self.body),
                Kind::Login => Outcome::LoggedIn,
                Kind::Flush | Kind::FlushPrefix | Kind::Noop | Kind::Stats | Kind::Get | Kind::MultiGet => {
                    Outcome::Ok
                }
            },
            // The same outcome as in the text protocol.
            (Some(Status::NotStored), Kind::Store { .. })
            | (Some(Status::Exists), Kind::Store { mode: Mode::Add, compares: false })
            | (Some(Status::NotFound), Kind::Store { compares: false, .. }) => Outcome::NotStored,
            (Some(Status::Exists), Kind::Store { .. } | Kind::Delete | Kind::Arith) => Outcome::Exists,
            (Some(Status::NotFound), Kind::Store { .. } | Kind::Delete | Kind::Arith | Kind::Touch) => {
                Outcome::NotFound
            }
            _ => Outcome::Error(self.error()),
        }
    }

    /// Why a quiet request failed. It is no longer known whether it compared. `None`: it did not fail.
    fn outcome_of_quiet(&self) -> Option<Outcome<'i>> {
        let compares = false;
        let kind = match self.opcode {
            opcode::ADDQ => Kind::Store { mode: Mode::Add, compares },
            opcode::SETQ => Kind::Store { mode: Mode::Set, compares },
            opcode::REPLACEQ => Kind::Store { mode: Mode::Replace, compares },
            opcode::APPENDQ | opcode::PREPENDQ => Kind::Store { mode: Mode::Append, compares },
            opcode::DELETEQ => Kind::Delete,
            opcode::FLUSHQ => Kind::Flush,
            _ => Kind::Arith,
        };
        (!self.is_success()).then(|| self.outcome(kind))
    }

    fn error(&self) -> ErrorReply<'i> {
        let kind = match self.status {
            Some(Status::OutOfMemory) => ErrorKind::OutOfMemory,
            Some(Status::TooLarge) => ErrorKind::TooLarge,
            Some(Status::NonNumeric) => ErrorKind::NonNumeric,
            Some(Status::AuthError | Status::AuthContinues) => ErrorKind::Unauthenticated,
            Some(Status::Unknown | Status::NotSupported) => ErrorKind::UnknownCommand,
            Some(Status::Invalid | Status::NotFound | Status::Exists | Status::NotStored) => {
                ErrorKind::Client
            }
            Some(Status::Success | Status::Internal) | None => ErrorKind::Server,
        };
        ErrorReply { kind, text: self.body }
    }
}

/// A change that is answered only if it fails.
fn is_quiet_change(opcode: u8) -> bool {
    matches!(opcode, opcode::SETQ..=opcode::DECRQ | opcode::FLUSHQ..=opcode::PREPENDQ)
}

/// No reply is larger: values have at most 1 GiB.
const BODY_BYTES_MAX: usize = (1 << 30) + (1 << 16);
/// The exptime of incr and decr that creates no item.
const NEVER_CREATE: u32 = u32::MAX;
/// 31 January 1970.
const LONG_PAST: u32 = 60 * 60 * 24 * 30 + 1;
