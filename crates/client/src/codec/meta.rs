//! The meta protocol. Source: memcached, doc/protocol.txt, "Meta Commands".
//!
//! An error line does not identify its request. A quiet request has an opaque, [`QUIET`], so that its other failures
//! can be distinguished from expected replies.

use larder_protocol::key::{KEY_BYTES_MAX, Key};
use larder_protocol::number::parse_u64;

use super::due::{Due, Kind, Queue};
use super::text::{self, Line, number, parse_value_bytes, split_word, word};
use super::{
    Arith, Delete, ErrorKind, ErrorReply, Event, Get, Mode, Outcome, Store, Touch, Value, Violation,
    ViolationKind,
};

/// `mg <key> v f [c] [T<exptime>] <flags>*`; quiet: with `k q`.
#[inline]
pub(super) fn get(output: &mut Vec<u8>, get: &Get<'_>, key: &[u8], is_quiet: bool) {
    let mut flags = Flags::begin(output, b"mg", key, get.meta_flags);
    flags.set(b'v');
    flags.set(b'f');
    if get.with_cas {
        flags.set(b'c');
    }
    if let Some(exptime) = get.exptime {
        flags.set_number(b'T', exptime);
    }
    if is_quiet {
        flags.set(b'k');
        flags.set(b'q');
    }
    flags.end();
}

/// `ms <key> <bytes> [F<client flags>] [T<exptime>] [M<mode>] [C<cas>] <flags>*`, and the value.
#[inline]
pub(super) fn store(output: &mut Vec<u8>, store: &Store<'_>, is_quiet: bool) {
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
        flags.set_number(b'T', store.exptime);
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
    flags.set_quiet(is_quiet);
    flags.end();
    text::block(output, store.value);
}

/// `md <key> [C<cas>] <flags>*`
pub(super) fn delete(output: &mut Vec<u8>, delete: &Delete<'_>, is_quiet: bool) {
    let mut flags = Flags::begin(output, b"md", delete.key, delete.meta_flags);
    if let Some(cas) = delete.compare {
        flags.set_number(b'C', cas);
    }
    flags.set_quiet(is_quiet);
    flags.end();
}

/// `ma <key> v D<delta> [MD] [N<exptime> J<initial>] <flags>*`
pub(super) fn arith(output: &mut Vec<u8>, arith: &Arith<'_>, is_quiet: bool) {
    let mut flags = Flags::begin(output, b"ma", arith.key, arith.meta_flags);
    flags.set(b'v');
    flags.set_number(b'D', arith.delta);
    if arith.decrement {
        flags.set_word(b'M', b"D");
    }
    if let Some((initial, exptime)) = arith.initial {
        flags.set_number(b'N', exptime);
        flags.set_number(b'J', initial);
    }
    flags.set_quiet(is_quiet);
    flags.end();
}

/// `mg <key> T<exptime> <flags>*`
pub(super) fn touch(output: &mut Vec<u8>, touch: &Touch<'_>) {
    let mut flags = Flags::begin(output, b"mg", touch.key, touch.meta_flags);
    flags.set_number(b'T', touch.exptime);
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
    fn set_quiet(&mut self, is_quiet: bool) {
        if is_quiet {
            self.set(b'q');
            self.set_word(b'O', QUIET);
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
    if *due.quiets() > 0
        && let Some(outcome) = outcome_of_quiet(due, line.text)?
    {
        *due.quiets() -= 1;
        line.take(input);
        return Ok(Some(Event::QuietFailed(outcome)));
    }
    let Some(&mut Due { kind, keys_left, .. }) = due.front() else { return wrong(ViolationKind::Unasked) };
    let (code, rest) = split_word(line.text);
    let outcome = match (kind, code) {
        (Kind::Get | Kind::MultiGet, b"VA") if keys_left > 0 => return value(due, input, &line, rest),
        (Kind::Get, b"EN") | (Kind::MultiGet, b"MN") => due.found(),
        (Kind::Arith, b"VA") => {
            let Some(value_bytes) = parse_value_bytes(split_word(rest).0) else {
                return wrong(ViolationKind::Malformed);
            };
            let Some(number) = line.block(due, input, value_bytes)? else { return Ok(None) };
            let Some(number) = parse_u64(number) else { return wrong(ViolationKind::Malformed) };
            return Ok(due.done(Outcome::Number(number)));
        }
        (Kind::Store { .. }, b"HD") => {
            Some(Outcome::Stored { cas: argument_of(rest, b'c').and_then(parse_u64) })
        }
        (Kind::Delete, b"HD") => Some(Outcome::Deleted),
        (Kind::Touch, b"HD") => Some(Outcome::Touched),
        (Kind::Touch, b"EN") => Some(Outcome::NotFound),
        (Kind::Noop, b"MN") => Some(Outcome::Ok),
        (Kind::Version | Kind::Flush | Kind::Stats | Kind::Login, _) => return text::receive(due, input),
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
        Kind::MultiGet => Some(Event::KeyFailed(error)),
        _ => due.done(Outcome::Error(error)),
    })
}

/// `VA <size> <flags>*`, where `rest` is the line after the first word, and the value.
#[inline]
fn value<'i, T>(
    due: &mut Queue<T>,
    input: &mut &'i [u8],
    line: &Line<'i>,
    rest: &'i [u8],
) -> Result<Option<Event<'i, T>>, Violation> {
    let wrong = |kind| Err(Violation::new(kind, line.text));
    let (size, meta_flags) = split_word(rest);
    let Some(value_bytes) = parse_value_bytes(size) else { return wrong(ViolationKind::Malformed) };
    let Some(bytes) = line.block(due, input, value_bytes)? else { return Ok(None) };
    let Some(&mut Due { kind, .. }) = due.front() else { return wrong(ViolationKind::Unasked) };
    if !find_key(due, kind, meta_flags) {
        return wrong(ViolationKind::WrongKey);
    }
    due.is_answered = kind == Kind::Get;
    Ok(Some(Event::Value(Value {
        index: due.key_index(),
        bytes,
        client_flags: argument_of(meta_flags, b'f').and_then(parse_u64).unwrap_or(0) as u32,
        cas: argument_of(meta_flags, b'c').and_then(parse_u64),
        meta_flags,
    })))
}

/// Finds the key of a reply: the one in the reply, or, for a single get, the requested one.
#[inline]
fn find_key<T>(due: &mut Queue<T>, kind: Kind, flags: &[u8]) -> bool {
    match argument_of(flags, b'k') {
        None if kind == Kind::Get => {
            due.pass_key();
            true
        }
        None => false,
        // Stored with a base64 key, and returned so to every client.
        Some(key) if argument_of(flags, b'b').is_some() => {
            let mut buffer = [0; KEY_BYTES_MAX];
            Key::base64(key).is_some_and(|key| due.find_key(key.bytes(&mut buffer)))
        }
        Some(key) => due.find_key(key),
    }
}

/// The meaning of a line for a quiet request before the reply at the front. `None`: none.
#[cold]
fn outcome_of_quiet<'i, T>(due: &mut Queue<T>, line: &'i [u8]) -> Result<Option<Outcome<'i>>, Violation> {
    let (code, flags) = split_word(line);
    if let Some(outcome) = failure(code) {
        return Ok(Some(outcome).filter(|_| argument_of(flags, b'O') == Some(QUIET)));
    }
    let Some(error) = ErrorReply::of_line(line) else { return Ok(None) };
    match due.front().map(|front| front.kind) {
        None | Some(Kind::Noop | Kind::Version | Kind::Flush | Kind::Stats) => {
            Ok(Some(Outcome::Error(error)))
        }
        Some(Kind::Get | Kind::MultiGet | Kind::Touch) if error.kind == ErrorKind::TooLarge => {
            Ok(Some(Outcome::Error(error)))
        }
        Some(_) => Err(Violation::new(ViolationKind::Ambiguous, line)),
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

/// The opaque of quiet requests.
const QUIET: &[u8] = b"q";
