//! The text protocol, and the lines that the meta protocol shares with it. Source: memcached, doc/protocol.txt. In the
//! comments `<key>*` is one or more keys.

use larder_protocol::command::VALUE_BYTES_MAX;
use larder_protocol::number::parse_u64;

use super::due::{Due, Kind, Queue};
use super::{
    Arith, Delete, ErrorReply, Event, Get, Mode, Outcome, Store, Touch, Value, Violation, ViolationKind,
};

/// Up to the keys: `get`, `gets`, `gat <exptime>`, `gats <exptime>`.
#[inline]
pub(super) fn begin_get(output: &mut Vec<u8>, get: &Get<'_>) {
    let (word, touching) = if get.with_cas { ("gets", "gats ") } else { ("get", "gat ") };
    match get.exptime {
        None => output.extend_from_slice(word.as_bytes()),
        Some(exptime) => {
            output.extend_from_slice(touching.as_bytes());
            number(output, expiry(exptime));
        }
    }
}

/// `get <key>*`, or another of [`begin_get`].
#[inline]
pub(super) fn get(output: &mut Vec<u8>, get: &Get<'_>, key: &[u8]) {
    begin_get(output, get);
    word(output, key);
    end(output, false);
}

/// `<command> <key> <flags> <exptime> <bytes> [<cas unique>] [noreply]`, and the value.
#[inline]
pub(super) fn store(output: &mut Vec<u8>, store: &Store<'_>, noreply: bool) {
    let command = match (store.mode, store.compare) {
        (Mode::Set, None) => "set",
        (Mode::Set, Some(_)) => "cas",
        (Mode::Add, _) => "add",
        (Mode::Replace, _) => "replace",
        (Mode::Append, _) => "append",
        (Mode::Prepend, _) => "prepend",
    };
    let value_bytes = store.value_bytes();
    output.reserve(LINE_BYTES_USUAL + store.key.len() + value_bytes);
    output.extend_from_slice(command.as_bytes());
    word(output, store.key);
    output.push(b' ');
    number(output, store.client_flags);
    output.push(b' ');
    number(output, expiry(store.exptime));
    output.push(b' ');
    number(output, value_bytes);
    if let (Mode::Set, Some(cas)) = (store.mode, store.compare) {
        output.push(b' ');
        number(output, cas);
    }
    end(output, noreply);
    block(output, store.value);
}

/// `delete <key> [noreply]`
pub(super) fn delete(output: &mut Vec<u8>, delete: &Delete<'_>, noreply: bool) {
    output.extend_from_slice(b"delete");
    word(output, delete.key);
    end(output, noreply);
}

/// `incr <key> <value> [noreply]`, `decr <key> <value> [noreply]`
pub(super) fn arith(output: &mut Vec<u8>, arith: &Arith<'_>, noreply: bool) {
    output.extend_from_slice(if arith.decrement { b"decr" } else { b"incr" });
    word(output, arith.key);
    output.push(b' ');
    number(output, arith.delta);
    end(output, noreply);
}

/// `touch <key> <exptime> [noreply]`
pub(super) fn touch(output: &mut Vec<u8>, touch: &Touch<'_>, noreply: bool) {
    output.extend_from_slice(b"touch");
    word(output, touch.key);
    output.push(b' ');
    number(output, expiry(touch.exptime));
    end(output, noreply);
}

/// The expiry in this protocol: the nearest that servers read. Of a later one they keep the lower 32 bits, so that it
/// is past, or they refuse it, and take the value for commands.
pub(super) fn expiry(exptime: i64) -> i32 {
    exptime.clamp(i32::MIN.into(), i32::MAX.into()) as i32
}

/// `flush_all [<delay>] [noreply]`. Of a longer delay than is sent, servers would keep the lower 32 bits.
pub(super) fn flush_all(output: &mut Vec<u8>, delay_secs: u32, noreply: bool) {
    output.extend_from_slice(b"flush_all");
    if delay_secs > 0 {
        output.push(b' ');
        number(output, delay_secs.min(i32::MAX as u32));
    }
    end(output, noreply);
}

/// `flush_prefix <prefix> [<delay>] [noreply]`
pub(super) fn flush_prefix(output: &mut Vec<u8>, prefix: &[u8], delay_secs: u32, noreply: bool) {
    output.extend_from_slice(b"flush_prefix");
    word(output, prefix);
    if delay_secs > 0 {
        output.push(b' ');
        number(output, delay_secs.min(i32::MAX as u32));
    }
    end(output, noreply);
}

/// `verbosity <level>`
pub(super) fn verbosity(output: &mut Vec<u8>, level: u32) {
    output.extend_from_slice(b"verbosity ");
    number(output, level);
    end(output, false);
}

/// A command of one word.
pub(super) fn plain(output: &mut Vec<u8>, command: &[u8]) {
    output.extend_from_slice(command);
    end(output, false);
}

/// `stats [<group>]`
pub(super) fn stats(output: &mut Vec<u8>, group: &[u8]) {
    output.extend_from_slice(b"stats");
    if !group.is_empty() {
        word(output, group);
    }
    end(output, false);
}

/// `set <any> <any> <any> <bytes>`, and `user password`: the login of a server with a password file.
pub(super) fn login(output: &mut Vec<u8>, user: &[u8], password: &[u8]) {
    let value = [user, b" ", password];
    store(output, &Store { key: b"login", value: &value, ..Store::default() }, false);
}

/// Writes a space and a word.
#[inline]
pub(super) fn word(output: &mut Vec<u8>, word: &[u8]) {
    output.push(b' ');
    output.extend_from_slice(word);
}

/// Writes a number.
#[inline]
pub(super) fn number(output: &mut Vec<u8>, number: impl itoa::Integer) {
    output.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Writes the end of a value.
#[inline]
pub(super) fn block(output: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        output.extend_from_slice(part);
    }
    output.extend_from_slice(b"\r\n");
}

#[inline]
fn end(output: &mut Vec<u8>, noreply: bool) {
    output.extend_from_slice(if noreply { b" noreply\r\n" } else { b"\r\n" });
}

/// See [`super::Pipeline::receive`].
#[inline]
pub(super) fn receive<'i, T>(
    due: &mut Queue<T>,
    input: &mut &'i [u8],
) -> Result<Option<Event<'i, T>>, Violation> {
    let Some(line) = Line::at_head(due, input)? else { return Ok(None) };
    let Some(&mut Due { kind, .. }) = due.front() else {
        return Err(Violation::new(ViolationKind::Unasked, line.text));
    };
    if let Kind::Get | Kind::MultiGet = kind
        && let Some(rest) = line.text.strip_prefix(b"VALUE ")
    {
        return value(due, input, &line, rest);
    }
    let outcome = match kind {
        Kind::Stats => match stat(line.text) {
            Some((name, value)) => {
                line.take(input);
                return Ok(Some(Event::Stat(name, value)));
            }
            None => outcome(kind, line.text),
        },
        Kind::Get | Kind::MultiGet if line.text == b"END" => due.found(),
        _ => outcome(kind, line.text),
    };
    let Some(outcome) = outcome.or_else(|| ErrorReply::of_line(line.text).map(Outcome::Error)) else {
        return Err(Violation::new(ViolationKind::WrongForm, line.text));
    };
    line.take(input);
    Ok(due.done(outcome))
}

/// `VALUE <key> <flags> <bytes> [<cas unique>]`, where `rest` is the line after the first word, and the value.
#[inline]
fn value<'i, T>(
    due: &mut Queue<T>,
    input: &mut &'i [u8],
    line: &Line<'i>,
    rest: &'i [u8],
) -> Result<Option<Event<'i, T>>, Violation> {
    let malformed = || Violation::new(ViolationKind::Malformed, line.text);
    let (key, numbers) = split_word(rest);
    let (client_flags, numbers) = split_short(numbers);
    let (value_bytes, cas) = split_short(numbers);
    let client_flags = parse_u64(client_flags).and_then(|flags| u32::try_from(flags).ok());
    let cas = if cas.is_empty() { None } else { Some(parse_u64(cas).ok_or_else(malformed)?) };
    let (Some(client_flags), Some(value_bytes)) = (client_flags, parse_value_bytes(value_bytes)) else {
        return Err(malformed());
    };
    let Some(bytes) = line.block(due, input, value_bytes)? else { return Ok(None) };
    if !due.find_key(key) {
        return Err(Violation::new(ViolationKind::WrongKey, line.text));
    }
    Ok(Some(Event::Value(Value { index: due.key_index(), bytes, client_flags, cas, meta_flags: b"" })))
}

/// A line of statistics: `STAT <name> <value>`, where the value may be empty. Of `stats cachedump` it is an item, of
/// `stats detail dump` a prefix.
fn stat(line: &[u8]) -> Option<(&[u8], &[u8])> {
    [&b"STAT "[..], b"ITEM ", b"PREFIX "].iter().find_map(|head| line.strip_prefix(*head)).map(split_word)
}

/// The meaning of a line that ends a reply of this kind. `None`: none.
#[inline]
fn outcome(kind: Kind, line: &[u8]) -> Option<Outcome<'_>> {
    match (kind, line) {
        (Kind::Store { .. }, b"STORED") => Some(Outcome::Stored { cas: None }),
        (Kind::Store { .. }, b"NOT_STORED") => Some(Outcome::NotStored),
        (Kind::Store { compares: true, .. }, b"EXISTS") => Some(Outcome::Exists),
        (Kind::Store { compares: true, .. }, b"NOT_FOUND") => Some(Outcome::NotFound),
        (Kind::Delete, b"DELETED") => Some(Outcome::Deleted),
        (Kind::Touch, b"TOUCHED") => Some(Outcome::Touched),
        (Kind::Delete | Kind::Touch | Kind::Arith, b"NOT_FOUND") => Some(Outcome::NotFound),
        (Kind::Arith, number) => parse_u64(number).map(Outcome::Number),
        (Kind::FlushPrefix, b"NOT_FOUND") => Some(Outcome::NotFound),
        (Kind::Flush | Kind::FlushPrefix, b"OK") | (Kind::Stats, b"END" | b"RESET" | b"OK") => {
            Some(Outcome::Ok)
        }
        (Kind::Version, line) => line.strip_prefix(b"VERSION ").map(Outcome::Version),
        (Kind::Login, b"STORED") => Some(Outcome::LoggedIn),
        (Kind::Noop, line) => line.starts_with(b"VERSION ").then_some(Outcome::Ok),
        _ => None,
    }
}

/// A line at the head of the input.
pub(super) struct Line<'i> {
    /// Without its end.
    pub text: &'i [u8],
    /// With its end.
    bytes: usize,
}

impl<'i> Line<'i> {
    /// `None`: it has not arrived completely.
    #[inline]
    pub(super) fn at_head<T>(due: &mut Queue<T>, input: &&'i [u8]) -> Result<Option<Self>, Violation> {
        let Some(end) = memchr::memchr(b'\n', input) else {
            if input.len() > LINE_BYTES_MAX {
                return Err(Violation::new(ViolationKind::Malformed, input));
            }
            due.needed_bytes = input.len() + 1;
            return Ok(None);
        };
        match input[..end].strip_suffix(b"\r") {
            Some(text) => Ok(Some(Self { text, bytes: end + 1 })),
            None => Err(Violation::new(ViolationKind::Malformed, input)),
        }
    }

    /// Moves the input past it.
    #[inline]
    pub(super) fn take(&self, input: &mut &'i [u8]) {
        *input = &input[self.bytes..];
    }

    /// The value after the line, once it is complete; moves the input past it.
    #[inline]
    pub(super) fn block<T>(
        &self,
        due: &mut Queue<T>,
        input: &mut &'i [u8],
        value_bytes: usize,
    ) -> Result<Option<&'i [u8]>, Violation> {
        let end = self.bytes + value_bytes;
        let Some((block, rest)) = input.split_at_checked(end + 2) else {
            due.needed_bytes = end + 2;
            return Ok(None);
        };
        if &block[end..] != b"\r\n" {
            return Err(Violation::new(ViolationKind::Malformed, &block[end..]));
        }
        *input = rest;
        Ok(Some(&block[self.bytes..end]))
    }
}

/// The length of a value, from its line.
#[inline]
pub(super) fn parse_value_bytes(word: &[u8]) -> Option<usize> {
    parse_u64(word).filter(|bytes| *bytes <= VALUE_BYTES_MAX.into()).map(|bytes| bytes as usize)
}

/// The text before the first space, and after it.
#[inline]
pub(super) fn split_word(line: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b' ', line) {
        Some(at) => (&line[..at], &line[at + 1..]),
        None => (line, b""),
    }
}

/// [`split_word`] of a word of a few bytes, where a search by vectors costs more than it saves.
#[inline]
pub(super) fn split_short(line: &[u8]) -> (&[u8], &[u8]) {
    match line.iter().position(|byte| *byte == b' ') {
        Some(at) => (&line[..at], &line[at + 1..]),
        None => (line, b""),
    }
}

/// No line of a reply is longer: `stats settings` may name a path, `VALUE` a key of 250 bytes.
const LINE_BYTES_MAX: usize = 16 << 10;
/// Space for a command line without its key.
pub(super) const LINE_BYTES_USUAL: usize = 80;
