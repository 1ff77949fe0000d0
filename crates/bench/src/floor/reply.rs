//! What the floor server answers to text and meta requests. See memcached, doc/protocol.txt.

use std::sync::atomic::{AtomicU64, Ordering};

use larder_protocol::binary::REQUEST_MAGIC;

use super::binary;

/// The value of every key, ready to be sent.
#[derive(Debug)]
pub(super) struct Values {
    /// What follows the key in a text reply: ` 0 <bytes>\r\n<value>\r\n`.
    text: Vec<u8>,
    /// The same with a CAS value.
    text_with_cas: Vec<u8>,
    /// `VA <bytes>`.
    meta_header: Vec<u8>,
    pub(super) value: Vec<u8>,
    /// Requests until now, for those who want to know how many a load has sent. Counted by one thread.
    requests: AtomicU64,
}

impl Values {
    pub(super) fn new(value_bytes: usize) -> Self {
        let value = "x".repeat(value_bytes);
        Self {
            text: format!(" 0 {value_bytes}\r\n{value}\r\n").into_bytes(),
            text_with_cas: format!(" 0 {value_bytes} 1\r\n{value}\r\n").into_bytes(),
            meta_header: format!("VA {value_bytes}").into_bytes(),
            value: value.into_bytes(),
            requests: AtomicU64::new(0),
        }
    }
}

/// A request that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    /// Its length, without its data block.
    pub bytes: usize,
    /// Length of the data block that follows.
    pub block_bytes: usize,
}

/// Appends the reply to the request at the head of `input`, of any dialect. `None`: there is no whole one.
pub(super) fn take(input: &[u8], values: &Values, output: &mut Vec<u8>) -> Option<Taken> {
    let taken = if *input.first()? == REQUEST_MAGIC {
        binary::take(input, values, output)?
    } else {
        let bytes = memchr::memchr(b'\n', input)? + 1;
        let line = input[..bytes].trim_ascii_end();
        Taken { bytes, block_bytes: answer(line, values, output) }
    };
    values.requests.store(values.requests.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    Some(taken)
}

/// Appends the reply to one line; returns how many bytes of data block follow the line.
fn answer(line: &[u8], values: &Values, output: &mut Vec<u8>) -> usize {
    let (command, rest) = split_word(line);
    match command {
        b"get" => found(rest, &values.text, output),
        b"gets" => found(rest, &values.text_with_cas, output),
        b"gat" => found(split_word(rest).1, &values.text, output),
        b"gats" => found(split_word(rest).1, &values.text_with_cas, output),
        b"mg" => meta(rest, Some(values), output),
        b"ms" => {
            let (key, after) = split_word(rest);
            let (length, flags) = split_word(after);
            meta_flags(key, flags, b"HD", 0, output);
            return block_bytes(length);
        }
        b"md" => meta(rest, None, output),
        b"ma" => arith(rest, output),
        b"mn" => output.extend_from_slice(b"MN\r\n"),
        b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" => {
            say(rest, b"STORED\r\n", output);
            // <key> <flags> <exptime> <bytes>
            return block_bytes(rest.split(|&byte| byte == b' ').nth(3).unwrap_or_default());
        }
        b"delete" => say(rest, b"DELETED\r\n", output),
        b"incr" | b"decr" => say(rest, b"1\r\n", output),
        b"touch" => say(rest, b"TOUCHED\r\n", output),
        b"flush_all" => say(rest, b"OK\r\n", output),
        b"version" => output.extend_from_slice(b"VERSION floor\r\n"),
        b"stats" => {
            let (pid, requests) = (std::process::id(), values.requests.load(Ordering::Relaxed));
            output.extend_from_slice(
                format!("STAT pid {pid}\r\nSTAT requests {requests}\r\nEND\r\n").as_bytes(),
            );
        }
        _ => output.extend_from_slice(b"ERROR\r\n"),
    }
    0
}

/// A text reply with every key.
fn found(keys: &[u8], value: &[u8], output: &mut Vec<u8>) {
    let mut rest = keys;
    while !rest.is_empty() {
        let (key, after) = split_word(rest);
        output.extend_from_slice(b"VALUE ");
        output.extend_from_slice(key);
        output.extend_from_slice(value);
        rest = after;
    }
    output.extend_from_slice(b"END\r\n");
}

/// A one-line text reply, unless none is wanted.
fn say(rest: &[u8], reply: &[u8], output: &mut Vec<u8>) {
    if !rest.ends_with(b" noreply") {
        output.extend_from_slice(reply);
    }
}

/// `mg` with values, `md` without.
fn meta(rest: &[u8], values: Option<&Values>, output: &mut Vec<u8>) {
    let (key, flags) = split_word(rest);
    match values {
        Some(values) if has_flag(flags, b'v') => {
            meta_reply(key, flags, &values.meta_header, values.value.len(), output);
            output.extend_from_slice(&values.value);
            output.extend_from_slice(b"\r\n");
        }
        Some(values) => meta_reply(key, flags, b"HD", values.value.len(), output),
        None => meta_flags(key, flags, b"HD", 0, output),
    }
}

fn arith(rest: &[u8], output: &mut Vec<u8>) {
    let (key, flags) = split_word(rest);
    if !has_flag(flags, b'v') {
        meta_flags(key, flags, b"HD", 1, output);
    } else if !has_flag(flags, b'q') {
        meta_reply(key, flags, b"VA 1", 1, output);
        output.extend_from_slice(b"1\r\n");
    }
}

/// A success that carries no value: not sent if the request is quiet.
fn meta_flags(key: &[u8], flags: &[u8], code: &[u8], value_bytes: usize, output: &mut Vec<u8>) {
    if !has_flag(flags, b'q') {
        meta_reply(key, flags, code, value_bytes, output);
    }
}

/// The code and the flags that are answered, in the order in which they were asked.
fn meta_reply(key: &[u8], flags: &[u8], code: &[u8], value_bytes: usize, output: &mut Vec<u8>) {
    output.extend_from_slice(code);
    for flag in flags.split(|&byte| byte == b' ') {
        match flag.first() {
            Some(b'k') => {
                output.extend_from_slice(b" k");
                output.extend_from_slice(key);
            }
            Some(b'O' | b'b') => {
                output.push(b' ');
                output.extend_from_slice(flag);
            }
            Some(b'f') => output.extend_from_slice(b" f0"),
            Some(b'c') => output.extend_from_slice(b" c1"),
            Some(b't') => output.extend_from_slice(b" t-1"),
            Some(b'h') => output.extend_from_slice(b" h1"),
            Some(b'l') => output.extend_from_slice(b" l0"),
            Some(b's') => output.extend_from_slice(format!(" s{value_bytes}").as_bytes()),
            _ => {}
        }
    }
    output.extend_from_slice(b"\r\n");
}

fn has_flag(flags: &[u8], letter: u8) -> bool {
    flags.split(|&byte| byte == b' ').any(|flag| flag.first() == Some(&letter))
}

/// The data block and its CRLF.
fn block_bytes(length: &[u8]) -> usize {
    let length = std::str::from_utf8(length).ok().and_then(|text| text.parse::<usize>().ok());
    length.map_or(0, |bytes| bytes.saturating_add(2))
}

fn split_word(text: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b' ', text) {
        Some(end) => (&text[..end], &text[end + 1..]),
        None => (text, &[]),
    }
}
