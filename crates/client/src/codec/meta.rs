//! The meta protocol. Source: memcached, doc/protocol.txt, "Meta Commands".
//!
//! An error line does not identify its request. A quiet request has an opaque, [`quiet::CHANGE`] or [`quiet::DELETE`],
//! so that its other failures can be distinguished from expected replies. With opaques
//! ([`super::Pipeline::with_opaques`]) every other request has its number, and its reply must repeat it; memcached does
//! so for a miss, too.

mod many;
mod quiet;

use larder_protocol::key::{KEY_BYTES_MAX, Key};
use larder_protocol::number::parse_u64;
pub(super) use many::get as get_many;

use super::due::{Due, Kind, Queue};
use super::text::{self, Line, expiry, number, parse_value_bytes, split_short, split_word, word};
use super::{
    Arith, Delete, ErrorKind, ErrorReply, Event, Get, Mode, Outcome, Store, Touch, Value, Violation,
    ViolationKind,
};

/// How a request is answered.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    /// Always.
    Plain,
    /// Always, with this number.
    Numbered(u32),
    /// If it fails.
    Quiet,
    /// The same, and if there is nothing to delete.
    QuietDelete,
}

/// `mg <key> v f [c] [T<exptime>] [O<number>] <flags>*`
#[inline]
pub(super) fn get(output: &mut Vec<u8>, get: &Get<'_>, key: &[u8], answer: Answer) {
    if let (Answer::Numbered(number), None, b"") = (answer, get.exptime, get.meta_flags) {
        get_many(output, get.with_cas, [key], || number);
        return;
    }
    let mut flags = begin_get(output, get, key);
    flags.set_answer(answer);
    flags.end();
}

/// The same with `k q`: a key of many.
#[inline]
pub(super) fn get_quietly(output: &mut Vec<u8>, get: &Get<'_>, key: &[u8]) {
    let mut flags = begin_get(output, get, key);
    flags.set(b'k');
    flags.set(b'q');
    flags.end();
}

#[inline]
fn begin_get<'a>(output: &'a mut Vec<u8>, get: &Get<'a>, key: &[u8]) -> Flags<'a> {
    let mut flags = Flags::begin(output, b"mg", key, get.meta_flags);
    flags.set(b'v');
    flags.set(b'f');
    if get.with_cas {
        flags.set(b'c');
    }
    if let Some(exptime) = get.exptime {
        flags.set_number(b'T', expiry(exptime));
    }
    flags
}

/// `ms <key> <bytes> [F<client flags>] [T<exptime>] [M<mode>] [C<cas>] <flags>*`, and the value.
#[inline]
pub(super) fn store(output: &mut Vec<u8>, store: &Store<'_>, answer: Answer) {
    let value_bytes = store.value_bytes();
    output.reserve(text::LINE_BYTES_USUAL + store.key.len() + value_bytes);
    output.extend_from_slice(b"ms");
    word(output, store.key);
    output.push(b' ');
    number(output, value_bytes);
    let mut flags = Flags { output, extra: store.meta_flags };
    if store.client_flags != 0 {
        flags.set_number(b'F', store.client_flags);
    }
    if store.exptime != 0 {
        flags.set_number(b'T', expiry(store.exptime));
    }
    match store.mode {
        Mode::Set => {}
        Mode::Add => flags.set_word(b'M', b"E"),
        Mode::Replace => flags.set_word(b'M', b"R"),
        Mode::Append => flags.set_word(b'M', b"A"),
        Mode::Prepend => flags.set_word(b'M', b"P"),
    }
    if let Some(cas) = store.compare {
        flags.set_number(b'C', cas);
    }
    flags.set_answer(answer);
    flags.end();
    text::block(output, store.value);
}

/// `md <key> [C<cas>] <flags>*`
pub(super) fn delete(output: &mut Vec<u8>, delete: &Delete<'_>, answer: Answer) {
    let mut flags = Flags::begin(output, b"md", delete.key, delete.meta_flags);
    if let Some(cas) = delete.compare {
        flags.set_number(b'C', cas);
    }
    flags.set_answer(if let Answer::Quiet = answer { Answer::QuietDelete } else { answer });
    flags.end();
}

/// `ma <key> v D<delta> [MD] [N<exptime> J<initial>] <flags>*`
pub(super) fn arith(output: &mut Vec<u8>, arith: &Arith<'_>, answer: Answer) {
    let mut flags = Flags::begin(output, b"ma", arith.key, arith.meta_flags);
    flags.set(b'v');
    flags.set_number(b'D', arith.delta);
    if arith.decrement {
        flags.set_word(b'M', b"D");
    }
    if let Some((initial, exptime)) = arith.initial {
        flags.set_number(b'N', expiry(exptime));
        flags.set_number(b'J', initial);
    }
    flags.set_answer(answer);
    flags.end();
}

/// `mg <key> T<exptime> <flags>*`
pub(super) fn touch(output: &mut Vec<u8>, touch: &Touch<'_>, answer: Answer) {
    let mut flags = Flags::begin(output, b"mg", touch.key, touch.meta_flags);
    flags.set_number(b'T', expiry(touch.exptime));
    flags.set_answer(answer);
    flags.end();
}

/// Writes flags. A flag that the caller has set is left out: no flag may come twice.
struct Flags<'a> {
    output: &'a mut Vec<u8>,
    /// The caller's flags.
    extra: &'a [u8],
}

impl<'a> Flags<'a> {
    #[inline]
    fn begin(output: &'a mut Vec<u8>, command: &[u8], key: &[u8], extra: &'a [u8]) -> Self {
        output.extend_from_slice(command);
        word(output, key);
        Self { output, extra }
    }

    #[inline]
    fn set_word(&mut self, letter: u8, argument: &[u8]) {
        if self.extra.is_empty() || argument_of(self.extra, letter).is_none() {
            self.output.extend_from_slice(&[b' ', letter]);
            self.output.extend_from_slice(argument);
        }
    }

    #[inline]
    fn set(&mut self, letter: u8) {
        self.set_word(letter, b"");
    }

    #[inline]
    fn set_number(&mut self, letter: u8, number: impl itoa::Integer) {
        self.set_word(letter, itoa::Buffer::new().format(number).as_bytes());
    }

    #[inline]
    fn set_answer(&mut self, answer: Answer) {
        match answer {
            Answer::Plain => {}
            Answer::Numbered(number) => self.set_number(b'O', number),
            Answer::Quiet => {
                self.set(b'q');
                self.set_word(b'O', quiet::CHANGE);
            }
            Answer::QuietDelete => {
                self.set(b'q');
                self.set_word(b'O', quiet::DELETE);
            }
        }
    }

    #[inline]
    fn end(self) {
        if !self.extra.is_empty() {
            word(self.output, self.extra);
        }
        self.output.extend_from_slice(b"\r\n");
    }
}

/// See [`super::Pipeline::receive`].
#[inline]
pub(super) fn receive<'i, T>(
    due: &mut Queue<T>,
    input: &mut &'i [u8],
) -> Result<Option<Event<'i, T>>, Violation> {
    let Some(line) = Line::at_head(due, input)? else { return Ok(None) };
    let wrong = |kind| Err(Violation::new(kind, line.text));
    if due.quiets().all > 0
        && let Some(answer) = quiet::answer(due, line.text)?
    {
        line.take(input);
        return Ok(answer.map(Event::QuietFailed));
    }
    let Some(&mut Due { kind, keys, keys_left, .. }) = due.front() else {
        return wrong(ViolationKind::Unasked);
    };
    let (code, rest) = split_short(line.text);
    let (size, flags) = if code == b"VA" { split_short(rest) } else { (&rest[..0], rest) };
    let flags = ReplyFlags::of(code, flags);
    if due.has_opaques && !has_awaited_opaque(due, code, &flags) {
        return wrong(ViolationKind::WrongOpaque);
    }
    let outcome = match (kind, code) {
        (Kind::Get | Kind::MultiGet, b"VA") if keys_left > 0 => {
            return value(due, input, &line, size, &flags);
        }
        (Kind::Get, b"EN") => due.found(),
        (Kind::MultiGet, b"MN") if !due.has_opaques || keys == 0 => due.found(),
        (Kind::MultiGet, b"EN") if due.has_opaques && keys_left > 0 => {
            line.take(input);
            due.miss_key();
            return Ok(due.end_multi_get());
        }
        (Kind::Arith, b"VA") => {
            let Some(value_bytes) = parse_value_bytes(size) else {
                return wrong(ViolationKind::Malformed);
            };
            let Some(number) = line.block(due, input, value_bytes)? else { return Ok(None) };
            let Some(number) = parse_u64(number) else { return wrong(ViolationKind::Malformed) };
            return Ok(due.done(Outcome::Number(number)));
        }
        (Kind::Store { .. }, b"HD") => Some(Outcome::Stored { cas: flags.cas.and_then(parse_u64) }),
        (Kind::Delete, b"HD") => Some(Outcome::Deleted),
        (Kind::Touch, b"HD") => Some(Outcome::Touched),
        (Kind::Touch, b"EN") => Some(Outcome::NotFound),
        (Kind::Noop, b"MN") => Some(Outcome::Ok),
        (Kind::Version | Kind::Flush | Kind::FlushPrefix | Kind::Stats | Kind::Login, _) => {
            return text::receive(due, input);
        }
        (Kind::Store { .. } | Kind::Delete | Kind::Arith, code) => failure(code),
        _ => None,
    };
    if let Some(outcome) = outcome {
        line.take(input);
        return Ok(due.done(outcome));
    }
    let Some(error) = ErrorReply::of_line(line.text) else { return wrong(ViolationKind::WrongForm) };
    line.take(input);
    Ok(match kind {
        Kind::MultiGet => {
            if due.has_opaques {
                due.miss_key();
                due.is_answered = keys_left <= 1;
            }
            Some(Event::KeyFailed(error))
        }
        _ => due.done(Outcome::Error(error)),
    })
}

/// `VA <size> <flags>*`, and the value.
#[inline]
fn value<'i, T>(
    due: &mut Queue<T>,
    input: &mut &'i [u8],
    line: &Line<'i>,
    size: &[u8],
    flags: &ReplyFlags<'i>,
) -> Result<Option<Event<'i, T>>, Violation> {
    let wrong = |kind| Err(Violation::new(kind, line.text));
    let Some(value_bytes) = parse_value_bytes(size) else { return wrong(ViolationKind::Malformed) };
    let client_flags = flags.client_flags.map_or(Some(0), |word| u32::try_from(parse_u64(word)?).ok());
    let cas = flags.cas.map(parse_u64);
    let (Some(client_flags), None | Some(Some(_))) = (client_flags, cas) else {
        return wrong(ViolationKind::Malformed);
    };
    let Some(bytes) = line.block(due, input, value_bytes)? else { return Ok(None) };
    let Some(&mut Due { kind, .. }) = due.front() else { return wrong(ViolationKind::Unasked) };
    if due.has_opaques {
        due.pass_key();
        due.is_answered = due.front().is_some_and(|front| front.keys_left == 0);
    } else if find_key(due, kind, flags) {
        due.is_answered = kind == Kind::Get;
    } else {
        return wrong(ViolationKind::WrongKey);
    }
    Ok(Some(Event::Value(Value {
        index: due.key_index(),
        bytes,
        client_flags,
        cas: cas.flatten(),
        meta_flags: flags.all,
    })))
}

/// With opaques: whether this line has the number of the request at the front, or may be without one.
#[inline]
fn has_awaited_opaque<T>(due: &mut Queue<T>, code: &[u8], flags: &ReplyFlags<'_>) -> bool {
    match (due.front().map(|front| front.kind), code) {
        (
            Some(Kind::Version | Kind::Flush | Kind::FlushPrefix | Kind::Stats | Kind::Login | Kind::Noop),
            _,
        ) => return true,
        (_, code) if is_numbered(code) => {}
        _ => return true,
    }
    let opaque = flags.opaque.and_then(parse_u64);
    opaque.is_some() && opaque == due.awaited_opaque().map(u64::from)
}

/// The flags of a reply that matter, from one pass over them. Of a flag that comes twice the first counts.
#[derive(Default)]
struct ReplyFlags<'i> {
    all: &'i [u8],
    client_flags: Option<&'i [u8]>,
    cas: Option<&'i [u8]>,
    opaque: Option<&'i [u8]>,
    key: Option<&'i [u8]>,
    is_base64: bool,
}

impl<'i> ReplyFlags<'i> {
    /// `flags` are what follows the code of the reply, and its size. None are in lines without a number.
    #[inline]
    fn of(code: &[u8], flags: &'i [u8]) -> Self {
        let mut this = Self { all: flags, ..Self::default() };
        if !is_numbered(code) {
            return this;
        }
        let mut rest = flags;
        while let Some(letter) = rest.first() {
            let (flag, after) = split_short(rest);
            let argument = flag.get(1..).unwrap_or_default();
            match letter {
                b'f' => drop(this.client_flags.get_or_insert(argument)),
                b'c' => drop(this.cas.get_or_insert(argument)),
                b'O' => drop(this.opaque.get_or_insert(argument)),
                b'k' => drop(this.key.get_or_insert(argument)),
                b'b' => this.is_base64 = true,
                _ => {}
            }
            rest = after;
        }
        this
    }
}

/// True of codes whose lines have flags, and so the number of their request.
#[inline]
fn is_numbered(code: &[u8]) -> bool {
    matches!(code, b"VA" | b"HD" | b"EN" | b"NS" | b"EX" | b"NF")
}

/// Finds the key of a reply: the one in the reply, or, for a single get, the requested one.
#[inline]
fn find_key<T>(due: &mut Queue<T>, kind: Kind, flags: &ReplyFlags<'_>) -> bool {
    match flags.key {
        None if kind == Kind::Get => {
            due.pass_key();
            true
        }
        None => false,
        // Stored with a base64 key, and returned so to every client.
        Some(key) if flags.is_base64 => {
            let mut buffer = [0; KEY_BYTES_MAX];
            Key::base64(key).is_some_and(|key| due.find_key(key.bytes(&mut buffer)))
        }
        Some(key) => due.find_key(key),
    }
}

/// The meaning of the code of a change that was not made.
fn failure(code: &[u8]) -> Option<Outcome<'static>> {
    match code {
        b"NS" => Some(Outcome::NotStored),
        b"EX" => Some(Outcome::Exists),
        b"NF" => Some(Outcome::NotFound),
        _ => None,
    }
}

/// The argument of a flag. `None`: the flag is missing.
#[inline]
fn argument_of(flags: &[u8], letter: u8) -> Option<&[u8]> {
    flags.split(|byte| *byte == b' ').find_map(|flag| flag.strip_prefix(&[letter]))
}
