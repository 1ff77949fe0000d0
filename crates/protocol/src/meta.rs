//! The meta commands. Source of the grammar: memcached, doc/protocol.txt, "Meta Commands".
//!
//! A flag is one word: a letter, and the rest of the word its argument. The reply repeats or answers flags in the order
//! of the request, so the request's flags are kept as they came and walked again when the reply is written.

use crate::command::{Arith, Delete, Fetch, FlushPrefix, Invalidate, Mode, Store};
use crate::key::{self, split_word};
use crate::reply::{Detail, Hit, Peeked, Token};
use crate::text::{line, malformed, parse_value_bytes, refused};
use crate::{Command, Error, Form, Key, Reply, Request, Sink, number};

/// How a meta command wants to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaForm<'a> {
    verb: Verb,
    /// `None`: mn, which has none.
    key: Option<Key<'a>>,
    /// The flags, as they came.
    flags: &'a [u8],
    /// Keep quiet about what the client expects (q).
    quiet: bool,
    /// Show the value (v).
    value: bool,
    /// ... unless the item has this CAS value (mg C): the client has the value already.
    known_cas: Option<u64>,
    /// Size of the value in the request (ms).
    value_bytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Get,
    Store,
    Delete,
    Arith,
    Peek,
    Noop,
    Flush,
}

// mg <key> <flags>*
pub(crate) fn get(rest: &[u8]) -> Request<'_> {
    let (key, flags) = split_word(rest);
    let (key, flags) = match parse_key_and_flags(key, flags, FLAGS_MAX) {
        Ok(parsed) => parsed,
        Err(error) => return malformed(error),
    };
    let command = Command::Fetch(Fetch {
        key,
        touch: flags.touch,
        vivify: flags.vivify,
        vivify_cas: flags.cas,
        recache: flags.recache,
        recache_after_touch: flags.recache_after_touch,
        unnoticed: flags.unnoticed,
        leaves_token: false,
    });
    Request {
        command,
        form: Form::Meta(MetaForm { known_cas: flags.compare, ..form(Verb::Get, key, &flags) }),
    }
}

// ms <key> <datalen> <flags>*
// The value swallowed when a flag is wrong: its length is known.
pub(crate) fn store(rest: &[u8]) -> Request<'_> {
    let (key, rest) = split_word(rest);
    let (value_bytes, flags) = split_word(rest);
    let Some(value_bytes) = parse_value_bytes(value_bytes) else { return malformed(Error::BadFormat) };
    let parsed = parse_key_and_flags(key, flags, FLAGS_MAX - 1).and_then(|(key, flags)| {
        let mode = match flags.mode {
            None | Some(Some(b'S')) => Mode::Set,
            Some(Some(b'E')) => Mode::Add,
            Some(Some(b'R')) => Mode::Replace,
            Some(Some(b'A')) => Mode::Append,
            Some(Some(b'P')) => Mode::Prepend,
            Some(_) => return Err(Error::InvalidStoreMode),
        };
        Ok((key, flags, mode))
    });
    let (key, flags, mode) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return Request { command: refused(error, value_bytes), ..malformed(error) },
    };
    let command = Command::Store(Store {
        key,
        value_bytes,
        client_flags: flags.client_flags,
        exptime: flags.touch.unwrap_or(0),
        mode,
        compare: match mode {
            Mode::Set | Mode::Replace => flags.compare,
            Mode::Append | Mode::Prepend => flags.compare.filter(|cas| *cas != 0),
            Mode::Add => None,
        },
        or_stale: flags.stale && matches!(mode, Mode::Set | Mode::Replace),
        cas: flags.cas,
        vivify: flags.vivify.filter(|_| matches!(mode, Mode::Append | Mode::Prepend)),
        removes_on_refusal: true,
        explains_refusal: false,
    });
    Request { command, form: Form::Meta(MetaForm { value_bytes, ..form(Verb::Store, key, &flags) }) }
}

// md <key> <flags>*
pub(crate) fn delete(rest: &[u8]) -> Request<'_> {
    let (key, flags) = split_word(rest);
    let (key, flags) = match parse_key_and_flags(key, flags, FLAGS_MAX) {
        Ok(parsed) => parsed,
        Err(error) => return malformed(error),
    };
    let command = if flags.stale || flags.blank {
        Command::Invalidate(Invalidate {
            key,
            compare: flags.compare,
            stale: flags.stale,
            blank: flags.blank.then_some(flags.client_flags),
            exptime: flags.touch,
            cas: flags.cas,
        })
    } else {
        Command::Delete(Delete { key, compare: flags.compare })
    };
    Request { command, form: Form::Meta(form(Verb::Delete, key, &flags)) }
}

// ma <key> <flags>*
pub(crate) fn arith(rest: &[u8]) -> Request<'_> {
    let (key, flags) = split_word(rest);
    if key.is_empty() {
        return malformed(Error::BadFormat);
    }
    let (key, flags) = match parse_key_and_flags(key, flags, FLAGS_MAX) {
        Ok(parsed) => parsed,
        Err(error @ (Error::TooManyFlags | Error::OpaqueTooLong)) => return malformed(error),
        // This command alone does not say which.
        Err(_) => return malformed(Error::InvalidOrDuplicateFlag),
    };
    let decrement = match flags.mode {
        None | Some(Some(b'I' | b'+')) => false,
        Some(Some(b'D' | b'-')) => true,
        Some(_) => return malformed(Error::InvalidArithMode),
    };
    let command = Command::Arith(Arith {
        key,
        delta: flags.delta,
        decrement,
        compare: flags.compare.filter(|cas| *cas != 0),
        initial: flags.vivify.map(|exptime| (flags.initial, exptime)),
        exptime: flags.touch,
        cas: flags.cas,
    });
    Request { command, form: Form::Meta(form(Verb::Arith, key, &flags)) }
}

// me <key> [b]
// Other words are ignored, flags or not.
pub(crate) fn peek(rest: &[u8]) -> Request<'_> {
    let (word, words) = split_word(rest);
    let is_base64 = split_flags(words).any(|flag| flag == (b'b', b""));
    let parsed = match Key::new(word) {
        Some(_) if is_base64 => Key::base64(word),
        plain => plain,
    };
    match parsed {
        Some(key) => Request {
            command: Command::Peek(key),
            form: Form::Meta(form(Verb::Peek, key, &Flags::default())),
        },
        // This command alone does not say that it is the base64.
        None => malformed(Error::BadFormat),
    }
}

// mf <prefix> <flags>*
// larder's own: flush_prefix for prefixes in base64, with an opaque.
pub(crate) fn flush(rest: &[u8]) -> Request<'_> {
    let (prefix, flags) = split_word(rest);
    let (prefix, flags) = match parse_key_and_flags(prefix, flags, FLAGS_MAX) {
        Ok(parsed) => parsed,
        Err(error) => return malformed(error),
    };
    let command = Command::FlushPrefix(FlushPrefix { prefix, exptime: flags.touch.unwrap_or(0) });
    Request { command, form: Form::Meta(form(Verb::Flush, prefix, &flags)) }
}

// mn
pub(crate) fn noop() -> Request<'static> {
    let form = MetaForm {
        verb: Verb::Noop,
        key: None,
        flags: &[],
        quiet: false,
        value: false,
        known_cas: None,
        value_bytes: 0,
    };
    Request { command: Command::Noop, form: Form::Meta(form) }
}

fn form<'a>(verb: Verb, key: Key<'a>, flags: &Flags<'a>) -> MetaForm<'a> {
    MetaForm {
        verb,
        key: Some(key),
        flags: flags.written,
        quiet: flags.quiet,
        value: flags.value,
        known_cas: None,
        value_bytes: 0,
    }
}

/// The flags of a request, understood. All commands share them; one that a command has no use for is ignored.
#[derive(Default)]
struct Flags<'a> {
    written: &'a [u8],
    base64: bool,              // b
    compare: Option<u64>,      // C
    delta: u64,                // D
    cas: Option<u64>,          // E
    client_flags: u32,         // F
    stale: bool,               // I
    initial: u64,              // J
    mode: Option<Option<u8>>,  // M, and the first letter of its argument
    vivify: Option<i64>,       // N
    quiet: bool,               // q
    recache: Option<i64>,      // R
    recache_after_touch: bool, // R, after T
    touch: Option<i64>,        // T
    unnoticed: bool,           // u
    value: bool,               // v
    blank: bool,               // x
}

fn parse_key_and_flags<'a>(
    key: &'a [u8],
    written: &'a [u8],
    flags_max: usize,
) -> Result<(Key<'a>, Flags<'a>), Error> {
    let plain = Key::new(key).ok_or(Error::BadFormat)?;
    let flags = Flags::parse(written, flags_max)?;
    let key = if flags.base64 { Key::base64(key).ok_or(Error::BadBase64)? } else { plain };
    Ok((key, flags))
}

impl<'a> Flags<'a> {
    fn parse(written: &'a [u8], flags_max: usize) -> Result<Self, Error> {
        let mut flags = Flags { written, delta: 1, ..Flags::default() };
        if split_flags(written).count() > flags_max {
            return Err(Error::TooManyFlags);
        }
        if !split_flags(written).all(|(letter, _)| matches!(letter, b'A'..=b'z' | b'0'..=b'9')) {
            return Err(Error::BadFormat);
        }
        let mut seen = 0u128;
        for (letter, argument) in split_flags(written) {
            if seen & (1 << letter) != 0 {
                return Err(Error::DuplicateFlag);
            }
            seen |= 1 << letter;
            flags.set(letter, argument)?;
        }
        Ok(flags)
    }

    fn set(&mut self, letter: u8, argument: &[u8]) -> Result<(), Error> {
        let exptime = || number::parse_i32(argument).map(i64::from).ok_or(Error::BadToken);
        let unique = || number::parse_u64(argument).ok_or(Error::BadToken);
        match letter {
            b'b' => self.base64 = true,
            b'C' => self.compare = Some(unique()?),
            b'D' => self.delta = number::parse_u64(argument).ok_or(Error::InvalidMetaDelta)?,
            b'E' => self.cas = Some(unique()?).filter(|cas| *cas != 0),
            b'F' => self.client_flags = number::parse_u32(argument).ok_or(Error::BadFormat)?,
            b'I' => self.stale = true,
            b'J' => self.initial = number::parse_u64(argument).ok_or(Error::InvalidInitial)?,
            b'M' => self.mode = Some(argument.first().copied()),
            b'N' => self.vivify = Some(exptime()?),
            b'O' if argument.len() > OPAQUE_BYTES_MAX => return Err(Error::OpaqueTooLong),
            b'q' => self.quiet = true,
            b'R' => {
                self.recache = Some(exptime()?);
                self.recache_after_touch = self.touch.is_some();
            }
            b'T' => self.touch = Some(exptime()?),
            b'u' => self.unnoticed = true,
            b'v' => self.value = true,
            b'x' => self.blank = true,
            // Answered when the reply is written, or (L, P) meant for somebody on the way.
            b'c' | b'f' | b'h' | b'k' | b'l' | b'L' | b'O' | b'P' | b's' | b't' => {}
            _ => return Err(Error::InvalidFlag),
        }
        Ok(())
    }
}

/// The flags, each as its letter and its argument.
fn split_flags(written: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    written
        .split(|byte| *byte == b' ')
        .filter_map(|word| word.split_first())
        .map(|(letter, argument)| (*letter, argument))
}

/// Writes a reply to a meta command.
pub(crate) fn encode<S: Sink>(form: &MetaForm<'_>, reply: &Reply<'_, S::Value>, sink: &mut S) {
    match reply {
        // HD <flags>* or VA <size> <flags>*\r\n<data block>
        Reply::Fetched(hit, detail) => form.hit(hit, Some(detail), sink),
        Reply::Hit(hit) => form.hit(hit, None, sink),
        // ME <key> <name>=<value>*
        Reply::Peeked(peeked) => form.peeked(peeked, sink),
        // HD c t k O, or VA <size> with the number
        Reply::Number { number, cas, ttl_before_secs, ttl_secs } => {
            form.number(*number, *cas, *ttl_before_secs, *ttl_secs, sink);
        }
        // HD <flags>*
        Reply::Stored { cas, value_bytes, .. } => {
            if !form.quiet {
                form.status(b"HD", *cas, *value_bytes, sink);
            }
        }
        // NS, EX, NF <flags>*
        Reply::NotStored => form.status(b"NS", 0, form.value_bytes, sink),
        Reply::Exists => form.status(b"EX", 0, form.value_bytes, sink),
        Reply::NotFound => form.status(b"NF", 0, form.value_bytes, sink),
        // HD <flags>*
        Reply::Deleted | Reply::Ok => {
            if !form.quiet {
                form.status(b"HD", 0, 0, sink);
            }
        }
        // EN <flags>*; `me` repeats none.
        Reply::Miss if form.verb == Verb::Peek => sink.bytes(b"EN\r\n"),
        Reply::Miss => {
            if !form.quiet {
                form.status(b"EN", 0, 0, sink);
            }
        }
        // MN
        Reply::Noop => sink.bytes(b"MN\r\n"),
        Reply::Error(error) => line(&[error.line().as_bytes()], sink),
        // No meta command gets these replies.
        Reply::End
        | Reply::Touched { .. }
        | Reply::Bye
        | Reply::Version(_)
        | Reply::Stat(..)
        | Reply::Reset
        | Reply::Mechanisms(_)
        | Reply::Challenge(_)
        | Reply::LoggedIn(_) => {}
    }
}

impl MetaForm<'_> {
    fn hit<S: Sink>(&self, hit: &Hit<'_, S::Value>, detail: Option<&Detail>, sink: &mut S) {
        let shows_value = self.value && self.known_cas.is_none_or(|cas| cas != hit.cas);
        if shows_value {
            sink.bytes(b"VA ");
            number::write(hit.value_bytes, sink);
        } else {
            sink.bytes(b"HD");
        }
        let mut ttl_secs = detail.and_then(|detail| detail.ttl_before_secs);
        for (letter, argument) in split_flags(self.flags) {
            match (letter, detail) {
                (b's', _) => flag(b's', hit.value_bytes, sink),
                (b'c', _) => flag(b'c', hit.cas, sink),
                (b'f', _) => flag(b'f', hit.client_flags, sink),
                (b'k', _) => hit_key(hit.key, hit.is_binary_key, sink),
                (b'O', _) => opaque(argument, sink),
                (b't', Some(_)) => ttl(ttl_secs, sink),
                (b'T', Some(detail)) => ttl_secs = detail.ttl_secs,
                (b'l', Some(detail)) => flag(b'l', detail.idle_secs, sink),
                (b'h', Some(detail)) => flag(b'h', u8::from(detail.hit_before), sink),
                _ => {}
            }
        }
        if let Some(detail) = detail {
            sink.bytes(match (detail.token, detail.stale) {
                (Token::None, false) => b"",
                (Token::None, true) => b" X",
                (Token::Won, false) => b" W",
                (Token::Won, true) => b" X W",
                (Token::Held, false) => b" Z",
                (Token::Held, true) => b" Z X",
            });
        }
        sink.bytes(b"\r\n");
        if shows_value {
            sink.value(&hit.value);
            sink.bytes(b"\r\n");
        }
    }

    fn number<S: Sink>(
        &self,
        number: u64,
        cas: u64,
        mut ttl_secs: Option<u32>,
        ttl_after_secs: Option<u32>,
        sink: &mut S,
    ) {
        if self.quiet {
            return;
        }
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(number).as_bytes();
        if self.value {
            sink.bytes(b"VA ");
            number::write(digits.len(), sink);
        } else {
            sink.bytes(b"HD");
        }
        for (letter, argument) in split_flags(self.flags) {
            match letter {
                b'c' => flag(b'c', cas, sink),
                b't' => ttl(ttl_secs, sink),
                b'T' => ttl_secs = ttl_after_secs,
                b'k' => self.own_key(sink),
                b'O' => opaque(argument, sink),
                _ => {}
            }
        }
        sink.bytes(b"\r\n");
        if self.value {
            line(&[digits], sink);
        }
    }

    /// A reply without an item: the status and what flags repeat. ms alone shows CAS value and size.
    fn status<S: Sink>(&self, status: &[u8], cas: u64, value_bytes: u32, sink: &mut S) {
        sink.bytes(status);
        for (letter, argument) in split_flags(self.flags) {
            match letter {
                b'k' => self.own_key(sink),
                b'O' => opaque(argument, sink),
                b'c' if self.verb == Verb::Store => flag(b'c', cas, sink),
                b's' if self.verb == Verb::Store => flag(b's', value_bytes, sink),
                _ => {}
            }
        }
        sink.bytes(b"\r\n");
    }

    fn peeked<S: Sink>(&self, peeked: &Peeked<'_>, sink: &mut S) {
        sink.bytes(b"ME ");
        if peeked.is_binary_key {
            key::encode(peeked.key, sink);
        } else {
            sink.bytes(peeked.key);
        }
        sink.bytes(b" exp=");
        write_ttl(peeked.ttl_secs, sink);
        sink.bytes(b" la=");
        number::write(peeked.idle_secs, sink);
        sink.bytes(b" cas=");
        number::write(peeked.cas, sink);
        sink.bytes(if peeked.hit_before { b" fetch=yes" } else { b" fetch=no" });
        sink.bytes(b" cls=");
        number::write(peeked.class, sink);
        sink.bytes(b" size=");
        number::write(peeked.item_bytes, sink);
        sink.bytes(b"\r\n");
    }

    /// The key as the request wrote it.
    fn own_key<S: Sink>(&self, sink: &mut S) {
        let Some(key) = self.key else { return };
        sink.bytes(b" k");
        sink.bytes(key.written());
        if key.is_base64() {
            sink.bytes(b" b");
        }
    }
}

/// The key of an item: in base64 if it came so when the item was stored.
fn hit_key<S: Sink>(key: &[u8], is_binary_key: bool, sink: &mut S) {
    sink.bytes(b" k");
    if is_binary_key {
        key::encode(key, sink);
        sink.bytes(b" b");
    } else {
        sink.bytes(key);
    }
}

fn opaque<S: Sink>(argument: &[u8], sink: &mut S) {
    sink.bytes(b" O");
    sink.bytes(argument);
}

fn flag<S: Sink>(letter: u8, number: impl itoa::Integer, sink: &mut S) {
    sink.bytes(&[b' ', letter]);
    number::write(number, sink);
}

fn ttl<S: Sink>(secs: Option<u32>, sink: &mut S) {
    sink.bytes(b" t");
    write_ttl(secs, sink);
}

fn write_ttl<S: Sink>(secs: Option<u32>, sink: &mut S) {
    match secs {
        Some(secs) => number::write(secs, sink),
        None => sink.bytes(b"-1"),
    }
}

/// Flags of mg, md and ma; ms has one word more before them and so one flag less.
const FLAGS_MAX: usize = 18;
/// Longest argument of O.
const OPAQUE_BYTES_MAX: usize = 31;
