//! The binary dialect. Source: memcached, doc/protocol-binary.txt; what that leaves open is as memcached does it.
//!
//! ```text
//!      0      1          2..4        4             5          6..8             8..12       12..16  16..24
//! magic opcode  key length  extras length  data type  vbucket, status  body length  opaque     cas
//! ```
//!
//! All numbers are big-endian. The body is extras, key and value, in this order. Every length is checked before it is
//! used; a request whose lengths are wrong is answered, and the connection closed, for nobody knows where the next one
//! begins. Data type and vbucket mean nothing.

pub mod opcode;

use std::ops::Range;

use crate::command::{Arith, Delete, Get, Malformed, Mode, Parsed, Sasl, Store, Touch, Words};
use crate::{Command, Error, Form, KEY_BYTES_MAX, Key, Keys, Reply, Request, Sink};

/// Size of the header.
pub const HEADER_BYTES: usize = 24;
/// The first byte of every request.
pub const REQUEST_MAGIC: u8 = 0x80;
/// The first byte of every reply.
pub const REPLY_MAGIC: u8 = 0x81;

/// How a binary request wants to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinaryForm<'a> {
    opcode: u8,
    /// Sent back untouched.
    opaque: [u8; 4],
    operation: Option<Operation>,
    /// The key, if the reply is to show it.
    key: Option<&'a [u8]>,
}

/// Parses the header at the head of `input`, with extras and key. The value of a store is not looked at.
pub fn parse(input: &[u8]) -> Parsed<'_> {
    match input.split_first_chunk::<HEADER_BYTES>() {
        Some((header, body)) => Header::of(header).parse(body),
        None => Parsed::NeedInput,
    }
}

/// See [`crate::Dialect::first_key`].
pub(crate) fn first_key(input: &[u8]) -> Option<Range<usize>> {
    let header = Header::of(input.first_chunk::<HEADER_BYTES>()?);
    let start = HEADER_BYTES + header.extras_bytes;
    let key = start..start + header.key_bytes;
    (!key.is_empty() && key.end <= input.len()).then_some(key)
}

/// A request's header.
struct Header {
    magic: u8,
    opcode: u8,
    key_bytes: usize,
    extras_bytes: usize,
    body_bytes: u32,
    opaque: [u8; 4],
    cas: u64,
}

/// What an opcode asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operation {
    verb: Verb,
    /// Success, or for a look-up failure, is not answered.
    is_quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Get { touches: bool, shows_key: bool },
    Store(Mode),
    Delete,
    Arith { decrement: bool },
    Touch,
    Flush,
    Noop,
    Version,
    Stat,
    Quit,
    SaslMechanisms,
    SaslStart,
    SaslStep,
}

impl Header {
    fn of(header: &[u8; HEADER_BYTES]) -> Self {
        let [magic, opcode, k0, k1, extras, _, _, _, b0, b1, b2, b3, o0, o1, o2, o3, cas @ ..] = *header;
        Self {
            magic,
            opcode,
            key_bytes: u16::from_be_bytes([k0, k1]).into(),
            extras_bytes: extras.into(),
            body_bytes: u32::from_be_bytes([b0, b1, b2, b3]),
            opaque: [o0, o1, o2, o3],
            cas: u64::from_be_bytes(cas),
        }
    }

    fn parse<'a>(&self, body: &'a [u8]) -> Parsed<'a> {
        if self.magic != REQUEST_MAGIC {
            return Parsed::Close;
        }
        let head_bytes = self.extras_bytes + self.key_bytes;
        let Some(value_bytes) = (self.body_bytes as usize).checked_sub(head_bytes) else {
            return self.refuse(Error::BadLengths, 0);
        };
        if self.key_bytes > KEY_BYTES_MAX || self.body_bytes > BODY_BYTES_MAX {
            return self.refuse(Error::BadShape, 0);
        }
        let Some(Operation { verb, .. }) = Operation::of(self.opcode) else {
            return self.refuse(Error::UnknownCommand, self.body_bytes);
        };
        if !verb.fits(self.extras_bytes, self.key_bytes, value_bytes) {
            return self.refuse(Error::BadShape, 0);
        }
        let is_login = matches!(verb, Verb::SaslStart | Verb::SaslStep);
        if is_login && value_bytes > SASL_BYTES_MAX {
            return self.refuse(Error::AuthTokenTooLong, self.body_bytes);
        }
        // Of a login the value belongs to the command.
        let head_bytes = head_bytes + if is_login { value_bytes } else { 0 };
        let Some(head) = body.get(..head_bytes) else { return Parsed::NeedInput };
        let (extras, rest) = head.split_at(self.extras_bytes);
        let (key, value) = rest.split_at(self.key_bytes);
        // At most 1 GiB.
        let command = self.command(verb, extras, key, value, value_bytes as u32);
        let shows_key = matches!(verb, Verb::Get { shows_key: true, .. });
        let form = Form::Binary(BinaryForm { key: shows_key.then_some(key), ..self.form() });
        Parsed::Request { request: Request { command, form }, head_bytes: HEADER_BYTES + head_bytes }
    }

    fn command<'a>(
        &self,
        verb: Verb,
        extras: &[u8],
        key_bytes: &'a [u8],
        value: &'a [u8],
        value_bytes: u32,
    ) -> Command<'a> {
        let extras = Extras(extras);
        let compare = (self.cas != 0).then_some(self.cas);
        match (verb, Key::new(key_bytes), Keys::one(key_bytes)) {
            (Verb::Get { touches, .. }, _, Some(keys)) => {
                Command::Get(Get { keys, exptime: touches.then(|| extras.u32_at(0).into()) })
            }
            (Verb::Store(mode), Some(key), _) => Command::Store(Store {
                key,
                value_bytes,
                client_flags: extras.u32_at(0),
                exptime: extras.u32_at(4).into(),
                // memcached: an add or replace with a CAS value compares, whatever it would do without.
                mode: match mode {
                    Mode::Add | Mode::Replace if compare.is_some() => Mode::Set,
                    mode => mode,
                },
                compare,
                or_stale: false,
                cas: None,
                vivify: None,
                removes_on_refusal: mode == Mode::Set,
                explains_refusal: false,
            }),
            (Verb::Delete, Some(key), _) => Command::Delete(Delete { key, compare }),
            (Verb::Arith { decrement }, Some(key), _) => Command::Arith(Arith {
                key,
                delta: extras.u64_at(0),
                decrement,
                compare,
                initial: Some((extras.u64_at(8), extras.u32_at(16).into()))
                    .filter(|_| extras.u32_at(16) != NEVER_CREATE),
                exptime: None,
                cas: None,
            }),
            (Verb::Touch, Some(key), _) => Command::Touch(Touch { key, exptime: extras.u32_at(0).into() }),
            (Verb::Flush, ..) => Command::Flush(Ok(extras.u32_at(0).into())),
            (Verb::Noop, ..) => Command::Noop,
            (Verb::Version, ..) => Command::Version,
            (Verb::Stat, ..) => Command::Stats(Words(key_bytes)),
            (Verb::Quit, ..) => Command::Quit,
            (Verb::SaslMechanisms, ..) => Command::Sasl(Sasl::Mechanisms),
            (Verb::SaslStart, ..) => Command::Sasl(Sasl::Start { mechanism: key_bytes, data: value }),
            (Verb::SaslStep, ..) => Command::Sasl(Sasl::Step { mechanism: key_bytes, data: value }),
            // The shape says that there is a key.
            _ => Command::Malformed(Malformed { error: Error::BadShape, swallow_bytes: 0 }),
        }
    }

    fn refuse(&self, error: Error, swallow_bytes: u32) -> Parsed<'static> {
        let command = Command::Malformed(Malformed { error, swallow_bytes });
        let form = Form::Binary(self.form());
        Parsed::Request { request: Request { command, form }, head_bytes: HEADER_BYTES }
    }

    fn form(&self) -> BinaryForm<'static> {
        BinaryForm {
            opcode: self.opcode,
            opaque: self.opaque,
            operation: Operation::of(self.opcode),
            key: None,
        }
    }
}

impl Operation {
    fn of(opcode: u8) -> Option<Self> {
        const GET: Verb = Verb::Get { touches: false, shows_key: false };
        const GETK: Verb = Verb::Get { touches: false, shows_key: true };
        const GAT: Verb = Verb::Get { touches: true, shows_key: false };
        const GATK: Verb = Verb::Get { touches: true, shows_key: true };
        let (verb, is_quiet) = match opcode {
            opcode::GET => (GET, false),
            opcode::SET => (Verb::Store(Mode::Set), false),
            opcode::ADD => (Verb::Store(Mode::Add), false),
            opcode::REPLACE => (Verb::Store(Mode::Replace), false),
            opcode::DELETE => (Verb::Delete, false),
            opcode::INCR => (Verb::Arith { decrement: false }, false),
            opcode::DECR => (Verb::Arith { decrement: true }, false),
            opcode::QUIT => (Verb::Quit, false),
            opcode::FLUSH => (Verb::Flush, false),
            opcode::GETQ => (GET, true),
            opcode::NOOP => (Verb::Noop, false),
            opcode::VERSION => (Verb::Version, false),
            opcode::GETK => (GETK, false),
            opcode::GETKQ => (GETK, true),
            opcode::APPEND => (Verb::Store(Mode::Append), false),
            opcode::PREPEND => (Verb::Store(Mode::Prepend), false),
            opcode::STAT => (Verb::Stat, false),
            opcode::SETQ => (Verb::Store(Mode::Set), true),
            opcode::ADDQ => (Verb::Store(Mode::Add), true),
            opcode::REPLACEQ => (Verb::Store(Mode::Replace), true),
            opcode::DELETEQ => (Verb::Delete, true),
            opcode::INCRQ => (Verb::Arith { decrement: false }, true),
            opcode::DECRQ => (Verb::Arith { decrement: true }, true),
            opcode::QUITQ => (Verb::Quit, true),
            opcode::FLUSHQ => (Verb::Flush, true),
            opcode::APPENDQ => (Verb::Store(Mode::Append), true),
            opcode::PREPENDQ => (Verb::Store(Mode::Prepend), true),
            opcode::TOUCH => (Verb::Touch, false),
            opcode::GAT => (GAT, false),
            opcode::GATQ => (GAT, true),
            opcode::SASL_LIST => (Verb::SaslMechanisms, false),
            opcode::SASL_AUTH => (Verb::SaslStart, false),
            opcode::SASL_STEP => (Verb::SaslStep, false),
            opcode::GATK => (GATK, false),
            opcode::GATKQ => (GATK, true),
            _ => return None,
        };
        Some(Self { verb, is_quiet })
    }
}

impl Verb {
    /// Whether a request's extras, key and value have the sizes that this verb wants.
    fn fits(self, extras_bytes: usize, key_bytes: usize, value_bytes: usize) -> bool {
        let (has_key, has_value) = (key_bytes > 0, value_bytes > 0);
        match self {
            Self::Get { touches: false, .. } | Self::Delete => extras_bytes == 0 && has_key && !has_value,
            Self::Get { touches: true, .. } | Self::Touch => extras_bytes == 4 && has_key && !has_value,
            Self::Store(Mode::Append | Mode::Prepend) => extras_bytes == 0 && has_key,
            Self::Store(_) => extras_bytes == 8 && has_key,
            Self::Arith { .. } => extras_bytes == 20 && has_key && !has_value,
            Self::Flush => [0, 4].contains(&extras_bytes) && !has_key && !has_value,
            Self::Noop | Self::Version | Self::Quit | Self::SaslMechanisms => {
                extras_bytes == 0 && !has_key && !has_value
            }
            Self::Stat => extras_bytes == 0 && !has_value,
            Self::SaslStart | Self::SaslStep => extras_bytes == 0 && has_key,
        }
    }
}

/// The numbers before the key. One that is not there is 0.
struct Extras<'a>(&'a [u8]);

impl Extras<'_> {
    fn u32_at(&self, at: usize) -> u32 {
        self.0.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }

    fn u64_at(&self, at: usize) -> u64 {
        self.0.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }
}

/// Writes a reply to a binary request.
#[inline]
pub(crate) fn encode<S: Sink>(form: &BinaryForm<'_>, reply: &Reply<'_, S::Value>, sink: &mut S) {
    match reply {
        Reply::Hit(hit) | Reply::Fetched(hit, _) => {
            let key = if form.key.is_some() { hit.key } else { &[] };
            let flags = hit.client_flags.to_be_bytes();
            Packet { cas: hit.cas, key, extras: Some(flags), ..Packet::EMPTY }.write(
                form,
                hit.value_bytes,
                sink,
            );
            sink.value(&hit.value);
        }
        _ if form.is_silent_on(reply) => {}
        // memcached sends the key in place of the text.
        Reply::Miss => match form.key {
            Some(key) => Packet { status: Status::NotFound, key, ..Packet::EMPTY }.write(form, 0, sink),
            None => fail(form, Status::NotFound, sink),
        },
        Reply::Stored { cas, .. } => Packet { cas: *cas, ..Packet::EMPTY }.write(form, 0, sink),
        Reply::Touched { client_flags, cas } => {
            let extras = Some(client_flags.to_be_bytes());
            Packet { cas: *cas, extras, ..Packet::EMPTY }.write(form, 0, sink);
        }
        Reply::Number { number, cas, .. } => {
            let packet = Packet { cas: *cas, ..Packet::EMPTY };
            packet.write_with(form, &number.to_be_bytes(), sink);
        }
        Reply::Deleted | Reply::Ok | Reply::Noop | Reply::Bye | Reply::Reset | Reply::End => {
            Packet::EMPTY.write(form, 0, sink);
        }
        Reply::NotStored => fail(form, form.status_of_not_stored(), sink),
        Reply::Exists => fail(form, Status::Exists, sink),
        Reply::NotFound => fail(form, Status::NotFound, sink),
        Reply::Version(text) | Reply::Mechanisms(text) => {
            Packet::EMPTY.write_with(form, text.as_bytes(), sink);
        }
        Reply::Stat(name, value) => {
            Packet { key: name.as_bytes(), ..Packet::EMPTY }.write_with(form, value.as_bytes(), sink);
        }
        Reply::Challenge(data) => {
            Packet { status: Status::AuthContinues, ..Packet::EMPTY }.write_with(form, data, sink);
        }
        Reply::LoggedIn(data) => Packet::EMPTY.write_with(form, data, sink),
        Reply::Error(error) => fail(form, Status::of(*error), sink),
        // Only `me` asks for it, and that is a meta command.
        Reply::Peeked(_) => {}
    }
}

fn fail<S: Sink>(form: &BinaryForm<'_>, status: Status, sink: &mut S) {
    Packet { status, ..Packet::EMPTY }.write_with(form, status.text().as_bytes(), sink);
}

impl BinaryForm<'_> {
    /// The same, for an answer that outlasts its request.
    pub(crate) fn without_request(&self) -> BinaryForm<'static> {
        BinaryForm { key: None, ..*self }
    }

    /// A quiet look-up tells no miss, and any other quiet request no success. The end of a look-up is never told.
    fn is_silent_on<V>(&self, reply: &Reply<'_, V>) -> bool {
        let Some(Operation { verb, is_quiet }) = self.operation else { return false };
        match reply {
            Reply::End => verb != Verb::Stat,
            Reply::Miss => is_quiet,
            Reply::NotStored | Reply::Exists | Reply::NotFound | Reply::Error(_) => false,
            _ => is_quiet,
        }
    }

    fn status_of_not_stored(&self) -> Status {
        match self.operation.map(|operation| operation.verb) {
            Some(Verb::Store(Mode::Add)) => Status::Exists,
            Some(Verb::Store(Mode::Replace)) => Status::NotFound,
            _ => Status::NotStored,
        }
    }
}

/// A reply without its value.
struct Packet<'p> {
    status: Status,
    cas: u64,
    extras: Option<[u8; 4]>,
    key: &'p [u8],
}

impl Packet<'_> {
    const EMPTY: Self = Self { status: Status::Success, cas: 0, extras: None, key: &[] };

    /// Writes header, extras and key; a value of `value_bytes` is to follow.
    #[inline]
    fn write<S: Sink>(&self, form: &BinaryForm<'_>, value_bytes: usize, sink: &mut S) {
        let extras = self.extras.unwrap_or_default();
        let extras_bytes = if self.extras.is_some() { extras.len() } else { 0 };
        // Keys of items are at most 250 bytes long, names of statistics shorter than 64 KiB.
        let key_bytes = self.key.len() as u16;
        // Values are smaller than 2 GiB.
        let body_bytes = (extras_bytes + self.key.len() + value_bytes) as u32;
        let mut head = [0; HEADER_BYTES + 4];
        head[0] = REPLY_MAGIC;
        head[1] = form.opcode;
        head[2..4].copy_from_slice(&key_bytes.to_be_bytes());
        head[4] = extras_bytes as u8;
        head[6..8].copy_from_slice(&(self.status as u16).to_be_bytes());
        head[8..12].copy_from_slice(&body_bytes.to_be_bytes());
        head[12..16].copy_from_slice(&form.opaque);
        head[16..24].copy_from_slice(&self.cas.to_be_bytes());
        head[24..].copy_from_slice(&extras);
        sink.bytes(&head[..HEADER_BYTES + extras_bytes]);
        if !self.key.is_empty() {
            sink.bytes(self.key);
        }
    }

    fn write_with<S: Sink>(&self, form: &BinaryForm<'_>, value: &[u8], sink: &mut S) {
        self.write(form, value.len(), sink);
        sink.bytes(value);
    }
}

/// A reply's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Status {
    /// Done.
    Success = 0x00,
    /// No such key.
    NotFound = 0x01,
    /// `add`: there is such a key. Others: another CAS value.
    Exists = 0x02,
    /// The value is too large.
    TooLarge = 0x03,
    /// The request's extras, key and value do not fit its opcode.
    Invalid = 0x04,
    /// `append`, `prepend`: no such key.
    NotStored = 0x05,
    /// `incr`, `decr`: the value is no number.
    NonNumeric = 0x06,
    /// Not logged in, or the login failed.
    AuthError = 0x20,
    /// The login has a further step.
    AuthContinues = 0x21,
    /// No such opcode.
    Unknown = 0x81,
    /// No memory.
    OutOfMemory = 0x82,
    /// Not here.
    NotSupported = 0x83,
    /// The server failed.
    Internal = 0x84,
}

impl Status {
    /// The status with this number.
    pub fn from_code(code: u16) -> Option<Self> {
        Some(match code {
            0x00 => Self::Success,
            0x01 => Self::NotFound,
            0x02 => Self::Exists,
            0x03 => Self::TooLarge,
            0x04 => Self::Invalid,
            0x05 => Self::NotStored,
            0x06 => Self::NonNumeric,
            0x20 => Self::AuthError,
            0x21 => Self::AuthContinues,
            0x81 => Self::Unknown,
            0x82 => Self::OutOfMemory,
            0x83 => Self::NotSupported,
            0x84 => Self::Internal,
            _ => return None,
        })
    }

    fn of(error: Error) -> Self {
        match error {
            Error::UnknownCommand | Error::BadLengths => Self::Unknown,
            Error::UnknownStatistics => Self::NotFound,
            Error::NonNumeric => Self::NonNumeric,
            Error::TooLarge | Error::TooLargeForUdp | Error::HomeTooLarge => Self::TooLarge,
            Error::OutOfMemoryStoring | Error::OutOfMemory | Error::StoreFull | Error::OverDiskQuota => {
                Self::OutOfMemory
            }
            Error::StoreReadOnly
            | Error::StoreFailed
            | Error::StoreUnreadable
            | Error::NewSite
            | Error::OutdatedSite
            | Error::SameSite
            | Error::HomeAway
            | Error::HomeBusy
            | Error::HomeSilent => Self::Internal,
            Error::FlushNotAllowed
            | Error::Unauthenticated
            | Error::NotForUser
            | Error::AuthFailure
            | Error::BadAuthToken
            | Error::BadAuthTermination
            | Error::AuthTokenTooLong => Self::AuthError,
            Error::NotOverUdp | Error::ReadOnly | Error::Maintenance => Self::NotSupported,
            _ => Self::Invalid,
        }
    }

    /// The body of a reply with this status.
    fn text(self) -> &'static str {
        match self {
            Self::Success | Self::AuthContinues => "",
            Self::NotFound => "Not found",
            Self::Exists => "Data exists for key.",
            Self::TooLarge => "Too large.",
            Self::Invalid => "Invalid arguments",
            Self::NotStored => "Not stored.",
            Self::NonNumeric => "Non-numeric server-side value for incr or decr",
            Self::AuthError => "Auth failure.",
            Self::Unknown => "Unknown command",
            Self::OutOfMemory => "Out of memory",
            Self::NotSupported => "Not supported.",
            Self::Internal => "Internal error.",
        }
    }
}

/// The largest body of a request: 1 GiB.
const BODY_BYTES_MAX: u32 = 1 << 30;
/// The largest value of a login.
const SASL_BYTES_MAX: usize = 16 << 10;
/// The exptime of incr and decr that creates no item.
const NEVER_CREATE: u32 = u32::MAX;
