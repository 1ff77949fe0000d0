//! The classic text dialect, and the lines that the meta commands share with it. Source of the grammar: memcached,
//! doc/protocol.txt; in the grammars, `<key>*` stands for one or more keys.

use std::iter::once;
use std::ops::Range;

use arrayvec::ArrayVec;

use crate::command::{
    Arith, Delete, FlushPrefix, Get, Malformed, Mode, Parsed, Shutdown, Store, Touch, VALUE_BYTES_MAX, Words,
};
use crate::key::split_word;
use crate::reply::Hit;
use crate::{Command, Error, Form, Key, Keys, Reply, Request, Sink, admin, meta, number};

/// How a classic command wants to be answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextForm {
    /// Not at all.
    pub noreply: bool,
    /// Hits show their CAS value (gets, gats).
    pub with_cas: bool,
}

/// Parses the command line at the head of `input`, whose first `scanned` bytes are known to hold no line feed.
pub fn parse(input: &[u8], scanned: usize) -> Parsed<'_> {
    let Some((line, line_bytes)) = split_line(input, scanned) else {
        return if may_grow(input) { Parsed::NeedInput } else { Parsed::Close };
    };
    if line_bytes < LINE_BYTES_MIN {
        return Parsed::Request { request: malformed(Error::BadFormat), head_bytes: line_bytes };
    }
    match parse_line(line) {
        Some(request) => Parsed::Request { request, head_bytes: line_bytes },
        None => Parsed::Close,
    }
}

/// The key of the line at the head of `input`, and the line's length, if that line is `get <key>` with one space and no
/// more: most of what caches are asked. All else is for [`parse`], which understands this as well.
#[inline]
pub fn parse_plain_get(input: &[u8]) -> Option<(Key<'_>, usize)> {
    let rest = input.strip_prefix(b"get ")?;
    let end = memchr::memchr2(b' ', b'\n', rest)?;
    if rest[end] == b' ' {
        return None;
    }
    let key = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
    Some((Key::new(key)?, input.len() - rest.len() + end + 1))
}

/// The store of the line at the head of `input`, and the line's length, if that line is
/// `set <key> <flags> <exptime> <bytes>` with one space between, short numbers of digits alone, and no more: as most
/// clients write it. All else is for [`parse`], which understands this as well.
#[inline]
pub fn parse_plain_set(input: &[u8]) -> Option<(Store<'_>, usize)> {
    let rest = input.strip_prefix(b"set ")?;
    let end = memchr::memchr2(b' ', b'\n', rest)?;
    let (key, rest) = (Key::new(&rest[..end])?, rest[end..].strip_prefix(b" ")?);
    let (client_flags, rest) = number::split_short(rest, b' ')?;
    let (exptime, rest) = number::split_short(rest, b' ')?;
    let (value_bytes, rest) = number::split_short(rest, b'\r')?;
    let rest = rest.strip_prefix(b"\n")?;
    Some((Store::set(key, client_flags, exptime.into(), value_bytes), input.len() - rest.len()))
}

/// See [`crate::Dialect::first_key`]: but for gat and gats, the second word.
pub(crate) fn first_key(input: &[u8]) -> Option<Range<usize>> {
    let words = &input[..input.len().min(FIRST_WORDS_BYTES)];
    let (name, rest) = split_word(words);
    let start = words.len() - rest.len();
    let bytes = memchr::memchr3(b' ', b'\r', b'\n', rest)?;
    (bytes > 0 && !name.contains(&b'\n')).then_some(start..start + bytes)
}

/// The first line of `input` without its end (LF or CRLF), and its length with it.
pub fn split_line(input: &[u8], scanned: usize) -> Option<(&[u8], usize)> {
    let end = scanned + memchr::memchr(b'\n', input.get(scanned..)?)?;
    let line = &input[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1))
}

/// Whether a line that has not ended yet may go on: get and gets have as many keys as they like.
fn may_grow(input: &[u8]) -> bool {
    if input.len() <= LINE_BYTES_MAX {
        return true;
    }
    let spaces = input.iter().take(LEADING_SPACES_MAX + 1).take_while(|byte| **byte == b' ').count();
    let text = &input[spaces..];
    input.len() <= GET_LINE_BYTES_MAX
        && spaces <= LEADING_SPACES_MAX
        && (text.starts_with(b"get ") || text.starts_with(b"gets "))
}

/// `None`: close the connection.
fn parse_line(line: &[u8]) -> Option<Request<'_>> {
    let (name, rest) = split_word(line);
    let request = match name {
        // get <key>*
        b"get" => get(rest, TextForm::default()),
        // gets <key>*
        b"gets" => get(rest, TextForm { with_cas: true, ..TextForm::default() }),
        // mg <key> <flags>* ; ms <key> <datalen> <flags>* ; md, ma <key> <flags>* ; me <key> ; mn ;
        // mf <prefix> <flags>*, which memcached does not have
        b"mg" => meta::get(rest),
        b"ms" => meta::store(rest),
        b"md" => meta::delete(rest),
        b"ma" => meta::arith(rest),
        b"me" => meta::peek(rest),
        b"mn" => meta::noop(),
        b"mf" => meta::flush(rest),
        // <command name> <key> <flags> <exptime> <bytes> [noreply]
        b"set" => store(line, Mode::Set, false),
        b"add" => store(line, Mode::Add, false),
        b"replace" => store(line, Mode::Replace, false),
        b"append" => store(line, Mode::Append, false),
        b"prepend" => store(line, Mode::Prepend, false),
        // cas <key> <flags> <exptime> <bytes> <cas unique> [noreply]
        b"cas" => store(line, Mode::Set, true),
        // gat <exptime> <key>*
        b"gat" => get_and_touch(rest, TextForm::default()),
        // gats <exptime> <key>*
        b"gats" => get_and_touch(rest, TextForm { with_cas: true, ..TextForm::default() }),
        // delete <key> [noreply]
        b"delete" => delete(line),
        // incr <key> <value> [noreply]
        b"incr" => arith(line, false),
        // decr <key> <value> [noreply]
        b"decr" => arith(line, true),
        // touch <key> <exptime> [noreply]
        b"touch" => touch(line),
        // version
        b"version" => text(Command::Version, false),
        // quit
        b"quit" => text(Command::Quit, false),
        // stats [<args>]
        b"stats" => text(Command::Stats(Words(rest)), false),
        _ => return control(line),
    };
    Some(request)
}

fn get(rest: &[u8], form: TextForm) -> Request<'_> {
    match Keys::new(rest) {
        Some(keys) => Request { command: Command::Get(Get { keys, exptime: None }), form: Form::Text(form) },
        None => malformed(Error::BadFormat),
    }
}

fn get_and_touch(rest: &[u8], form: TextForm) -> Request<'_> {
    let (exptime, keys) = split_word(rest);
    if keys.is_empty() {
        return malformed(Error::BadFormat);
    }
    let Some(exptime) = number::parse_i32(exptime) else { return malformed(Error::InvalidExptime) };
    let Some(keys) = Keys::new(keys) else { return malformed(Error::BadFormat) };
    Request { command: Command::Get(Get { keys, exptime: Some(exptime.into()) }), form: Form::Text(form) }
}

/// Once the length is understood every error swallows the value: its bytes must never run as commands. Before that,
/// nobody knows how long it is.
fn store(line: &[u8], mode: Mode, is_cas: bool) -> Request<'_> {
    let words = words(line);
    let [_, key, client_flags, exptime, value_bytes, ..] = words[..] else {
        return malformed(Error::BadFormat);
    };
    let Some(value_bytes) = parse_value_bytes(value_bytes) else { return malformed(Error::BadFormat) };
    let noreply = is_noreply(&words);
    let command = (|| {
        let (key, client_flags) = (Key::new(key)?, number::parse_flags(client_flags)?);
        Some(Store {
            mode,
            compare: if is_cas { Some(number::parse_u64(words.get(5)?)?) } else { None },
            removes_on_refusal: mode == Mode::Set && !is_cas,
            ..Store::set(key, client_flags, number::parse_exptime(exptime)?.into(), value_bytes)
        })
    })();
    match command {
        Some(store) => text(Command::Store(store), noreply),
        None => text(refused(Error::BadFormat, value_bytes), noreply),
    }
}

fn delete(line: &[u8]) -> Request<'_> {
    let words = words(line);
    let [_, key, ..] = words[..] else { return malformed(Error::BadFormat) };
    let command = match Key::new(key) {
        Some(key) => Command::Delete(Delete { key, compare: None }),
        None => refusal(Error::BadFormat),
    };
    text(command, is_noreply(&words))
}

fn arith(line: &[u8], decrement: bool) -> Request<'_> {
    let words = words(line);
    let [_, key, delta, ..] = words[..] else { return malformed(Error::BadFormat) };
    let command = match (Key::new(key), number::parse_u64(delta)) {
        (Some(key), Some(delta)) => Command::Arith(Arith {
            key,
            delta,
            decrement,
            compare: None,
            initial: None,
            exptime: None,
            cas: None,
        }),
        (None, _) => refusal(Error::BadFormat),
        (_, None) => refusal(Error::InvalidDelta),
    };
    text(command, is_noreply(&words))
}

fn touch(line: &[u8]) -> Request<'_> {
    let words = words(line);
    let [_, key, exptime, ..] = words[..] else { return malformed(Error::BadFormat) };
    let command = match (Key::new(key), number::parse_i32(exptime)) {
        (Some(key), Some(exptime)) => Command::Touch(Touch { key, exptime: exptime.into() }),
        (None, _) => refusal(Error::BadFormat),
        (_, None) => refusal(Error::InvalidExptime),
    };
    text(command, is_noreply(&words))
}

/// Commands that change the server, and what is no command. All of them know noreply.
fn control(line: &[u8]) -> Option<Request<'_>> {
    let words = words(line);
    let noreply = is_noreply(&words);
    let arguments = match &words[..] {
        [_, arguments @ .., _] if noreply => arguments,
        [_, arguments @ ..] => arguments,
        [] => &[],
    };
    let command = match words.first().copied().filter(|_| !line.starts_with(b" ")) {
        // flush_all [<exptime>] [noreply]
        Some(b"flush_all") => Command::Flush(match arguments {
            [] => Ok(0),
            [exptime, ..] => number::parse_i32(exptime).map(i64::from).ok_or(Error::InvalidExptime),
        }),
        // flush_prefix <prefix> [<exptime>] [noreply]: Arcus' command
        Some(b"flush_prefix") => flush_prefix(arguments),
        // verbosity <level> [noreply]
        Some(b"verbosity") => match arguments.first().and_then(|level| number::parse_u32(level)) {
            Some(level) => Command::Verbosity(level),
            None => refusal(Error::BadFormat),
        },
        // shutdown [graceful]
        Some(b"shutdown") => Command::Shutdown(match arguments {
            [] => Shutdown::Plain,
            [b"graceful"] => Shutdown::Graceful,
            _ => Shutdown::Unknown,
        }),
        // refresh_certs
        Some(b"refresh_certs") => Command::RefreshCerts,
        // cache_memlimit <megabytes> [noreply]
        Some(b"cache_memlimit") => admin::memory_limit(arguments),
        // lru <tune|mode|temp_ttl> <option list> [noreply]
        Some(b"lru") => admin::lru(arguments),
        // slabs <reassign|automove> <args> [noreply]
        Some(b"slabs") => admin::slabs(arguments),
        // lru_crawler <enable|disable|sleep|tocrawl|crawl|metadump|mgdump> <args> ; it knows no noreply, nor do the
        // next ones
        Some(b"lru_crawler") => return Some(text(admin::crawler(&words[1..]), false)),
        // watch <fetchers|mutations|evictions|...>*
        Some(b"watch") => return Some(text(admin::watch(&words[1..]), false)),
        // debugtime <seconds|p|r>
        Some(b"debugtime") => return Some(text(admin::clock(&words[1..]), false)),
        _ if words.len() >= 2 && words.last().is_some_and(|word| word.starts_with(b"HTTP/")) => return None,
        _ => refusal(Error::UnknownCommand),
    };
    Some(text(command, noreply))
}

fn flush_prefix<'a>(arguments: &[&'a [u8]]) -> Command<'a> {
    let (prefix, exptime) = match arguments {
        [prefix] => (*prefix, Some(0)),
        [prefix, exptime] => (*prefix, number::parse_i32(exptime)),
        _ => return refusal(Error::BadFormat),
    };
    match (Key::new(prefix), exptime) {
        (Some(prefix), Some(exptime)) => {
            Command::FlushPrefix(FlushPrefix { prefix, exptime: exptime.into() })
        }
        _ => refusal(Error::BadFormat),
    }
}

type LineWords<'a> = ArrayVec<&'a [u8], WORDS_MAX>;

fn words(line: &[u8]) -> LineWords<'_> {
    let mut words = LineWords::new();
    let mut from = 0;
    for end in memchr::memchr_iter(b' ', line).chain(once(line.len())) {
        if end > from && words.try_push(&line[from..end]).is_err() {
            break;
        }
        from = end + 1;
    }
    words
}

fn is_noreply(words: &LineWords<'_>) -> bool {
    words.len() >= 2 && words.last().is_some_and(|word| *word == b"noreply")
}

/// The size of a value, as a command line announces it.
pub(crate) fn parse_value_bytes(word: &[u8]) -> Option<u32> {
    number::parse_u32(word).filter(|bytes| *bytes <= VALUE_BYTES_MAX)
}

fn text(command: Command<'_>, noreply: bool) -> Request<'_> {
    Request { command, form: Form::Text(TextForm { noreply, with_cas: false }) }
}

/// An error that is always told.
pub(crate) fn malformed(error: Error) -> Request<'static> {
    text(refusal(error), false)
}

fn refusal(error: Error) -> Command<'static> {
    Command::Malformed(Malformed { error, swallow_bytes: 0 })
}

/// An error in a command that a value of `value_bytes` follows.
pub(crate) fn refused(error: Error, value_bytes: u32) -> Command<'static> {
    Command::Malformed(Malformed { error, swallow_bytes: value_bytes + 2 })
}

/// Writes a reply to a classic command.
#[inline(always)]
pub(crate) fn encode<S: Sink>(form: TextForm, reply: &Reply<'_, S::Value>, sink: &mut S) {
    match reply {
        _ if form.noreply => {}
        // What is answered most of the time. No more than this goes into the caller.
        Reply::Hit(hit) | Reply::Fetched(hit, _) => encode_hit(form, hit, sink),
        Reply::Miss => {}
        Reply::End => sink.bytes(b"END\r\n"),
        Reply::Stored { .. } => sink.bytes(b"STORED\r\n"),
        _ => encode_other(reply, sink),
    }
}

fn encode_other<S: Sink>(reply: &Reply<'_, S::Value>, sink: &mut S) {
    match reply {
        // In `encode`.
        Reply::Hit(_) | Reply::Fetched(..) | Reply::Miss | Reply::End | Reply::Stored { .. } => {}
        Reply::NotStored => sink.bytes(b"NOT_STORED\r\n"),
        Reply::Exists => sink.bytes(b"EXISTS\r\n"),
        Reply::NotFound => sink.bytes(b"NOT_FOUND\r\n"),
        Reply::Deleted => sink.bytes(b"DELETED\r\n"),
        Reply::Touched { .. } => sink.bytes(b"TOUCHED\r\n"),
        Reply::Number { number, .. } => {
            number::write(*number, sink);
            sink.bytes(b"\r\n");
        }
        Reply::Ok => sink.bytes(b"OK\r\n"),
        Reply::Noop => sink.bytes(b"MN\r\n"),
        Reply::Version(version) => line(&[b"VERSION ", version.as_bytes()], sink),
        Reply::Stat(name, value) => line(&[b"STAT ", name.as_bytes(), b" ", value.as_bytes()], sink),
        Reply::Reset => sink.bytes(b"RESET\r\n"),
        Reply::Error(error) => line(&[error.line().as_bytes()], sink),
        Reply::Bye => {}
        // Only `me` asks for it, and that is a meta command; nothing here logs in by SASL.
        Reply::Peeked(_) | Reply::Mechanisms(_) | Reply::Challenge(_) | Reply::LoggedIn(_) => {}
    }
}

/// `VALUE <key> <flags> <bytes> [<cas unique>]\r\n<data block>\r\n`
#[inline(always)]
fn encode_hit<S: Sink>(form: TextForm, hit: &Hit<'_, S::Value>, sink: &mut S) {
    sink.bytes(b"VALUE ");
    sink.bytes(hit.key);
    match number::plain_tail(hit.value_bytes) {
        Some((tail, len_bytes)) if hit.client_flags == 0 && !form.with_cas => sink.short(tail, len_bytes),
        _ => encode_tail(hit.client_flags, hit.value_bytes, form.with_cas.then_some(hit.cas), sink),
    }
    sink.value(&hit.value);
    sink.bytes(b"\r\n");
}

fn encode_tail<S: Sink>(client_flags: u32, value_bytes: usize, cas: Option<u64>, sink: &mut S) {
    let mut tail = number::Tail::default();
    if let Some(cas) = cas {
        tail.prepend(cas);
    }
    tail.prepend(value_bytes as u64);
    tail.prepend(client_flags.into());
    sink.bytes(tail.bytes());
}

/// Writes a line.
pub(crate) fn line<S: Sink>(parts: &[&[u8]], sink: &mut S) {
    for part in parts {
        sink.bytes(part);
    }
    sink.bytes(b"\r\n");
}

/// The shortest command line, its end included.
const LINE_BYTES_MIN: usize = 4;
/// A line that has not ended after this many bytes is not waited for ...
const LINE_BYTES_MAX: usize = 2048;
/// ... unless it lists keys to get, which may be many; but not without any limit.
const GET_LINE_BYTES_MAX: usize = 16 << 20;
/// Spaces before such a list.
const LEADING_SPACES_MAX: usize = 100;
/// More than the name of a command and a key.
const FIRST_WORDS_BYTES: usize = 260;
/// Words of a line that are looked at, the command included. Lists of keys are longer.
const WORDS_MAX: usize = 23;
