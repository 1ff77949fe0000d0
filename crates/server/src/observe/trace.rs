//! The verbose log (`-vv`): connections, commands and replies, in memcached's words.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::marker::PhantomData;
use std::os::fd::RawFd;

use larder_engine::Item;
use larder_protocol::{Dialect, Form, Reply, Sink};

use crate::observe::journal;

/// A socket listens.
pub(crate) fn listening(fd: RawFd, dialect: Option<Dialect>) {
    write(&[format!("<{fd} server listening ({})", protocol(dialect, "auto-negotiate")).as_bytes()]);
}

/// A UDP socket receives.
pub(crate) fn listening_for_datagrams(fd: RawFd) {
    write(&[format!("<{fd} server listening (udp)").as_bytes()]);
}

/// A client has connected.
pub(crate) fn arrival(fd: RawFd, dialect: Option<Dialect>) {
    let protocol = protocol(dialect, "auto-negotiating");
    write(&[format!("<{fd} new {protocol} client connection").as_bytes()]);
}

/// A client has disconnected.
pub(crate) fn departure(fd: RawFd) {
    write(&[format!("<{fd} connection closed.").as_bytes()]);
}

fn protocol(dialect: Option<Dialect>, negotiated: &'static str) -> &'static str {
    match dialect {
        None => negotiated,
        Some(Dialect::Text) => "ascii",
        Some(Dialect::Binary) => "binary",
        Some(Dialect::Http) => "http",
    }
}

/// A client's first bytes have selected the dialect.
pub(crate) fn dialect(fd: RawFd, is_binary: bool) {
    let name = if is_binary { "binary" } else { "ascii" };
    journal::wire(format!("{fd}: Client using the {name} protocol").as_bytes());
}

/// A command line, the first line of a request over HTTP, or the header of a binary request.
pub(crate) fn request(fd: RawFd, head: &[u8], is_binary: bool) {
    if is_binary {
        return packet(&format!("<{fd} Read binary protocol data:"), &format!("<{fd}   "), head);
    }
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or(head);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    write(&[format!("<{fd} ").as_bytes(), &printable(&without_token(line))]);
}

/// A command without the token of `--backup-token-file`, which `stats store backup` may have.
fn without_token(line: &[u8]) -> Cow<'_, [u8]> {
    let is_stats = line.starts_with(b"stats ");
    match memchr::memmem::find(line, TOKEN).filter(|_| is_stats) {
        Some(at) => [&line[..at], TOKEN, b"..."].concat().into(),
        None => line.into(),
    }
}

const TOKEN: &[u8] = b" token=";

/// A key was found and its value is sent.
pub(crate) fn hit(fd: RawFd, key: &[u8]) {
    write(&[format!(">{fd} sending key ").as_bytes(), &printable(key)]);
}

/// A reply of one line. Statistics and the output of meta commands are left out, as in memcached.
pub(crate) fn reply(fd: RawFd, form: &Form<'_>, reply: &Reply<'_, Item<'_>>) {
    let mut line = Line { bytes: Vec::new(), values: PhantomData };
    match form {
        Form::Text(text) if text.noreply => {
            let told = Form::Text(larder_protocol::text::TextForm { noreply: false, ..*text });
            told.encode(reply, &mut line);
            line.bytes.splice(..0, *b"NOREPLY ");
        }
        Form::Text(_) => form.encode(reply, &mut line),
        Form::Meta(_) if matches!(reply, Reply::Error(_) | Reply::Noop) => form.encode(reply, &mut line),
        Form::Meta(_) => return,
        // Its first line.
        Form::Http(_) => {
            form.encode(reply, &mut line);
            let end = line.bytes.iter().position(|byte| *byte == b'\r');
            line.bytes.truncate(end.unwrap_or(0));
        }
        Form::Binary(_) => {
            form.encode(reply, &mut line);
            return packet(&format!(">{fd} Writing bin response:"), &format!(">{fd}  "), &line.bytes);
        }
    }
    if !line.bytes.is_empty() {
        write(&[format!(">{fd} ").as_bytes(), &printable(line.bytes.trim_ascii_end())]);
    }
}

/// The header of a binary request or reply, four bytes a line.
fn packet(title: &str, margin: &str, bytes: &[u8]) {
    let mut text = title.to_owned();
    for (at, byte) in bytes.iter().take(larder_protocol::binary::HEADER_BYTES).enumerate() {
        if at % 4 == 0 {
            let _ = write!(text, "\n{margin}");
        }
        let _ = write!(text, " 0x{byte:02x}");
    }
    write(&[text.as_bytes()]);
}

/// With control characters as `\xNN`: a client must not write lines of its own into the log, nor steer a terminal.
fn printable(bytes: &[u8]) -> Cow<'_, [u8]> {
    if !bytes.iter().any(u8::is_ascii_control) {
        return bytes.into();
    }
    let escaped = bytes.iter().flat_map(|&byte| match byte {
        _ if byte.is_ascii_control() => format!("\\x{byte:02x}").into_bytes(),
        _ => vec![byte],
    });
    escaped.collect::<Vec<u8>>().into()
}

fn write(parts: &[&[u8]]) {
    journal::wire(&parts.concat());
}

/// A reply without values.
struct Line<'t> {
    bytes: Vec<u8>,
    values: PhantomData<Item<'t>>,
}

impl<'t> Sink for Line<'t> {
    type Value = Item<'t>;

    fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn value(&mut self, _: &Item<'t>) {}
}

#[cfg(test)]
mod tests {
    use super::{printable, without_token};

    #[test]
    fn a_token_is_not_shown() {
        let shown = |line: &'static str| without_token(line.as_bytes());
        assert_eq!(*shown("stats store backup a token=secret token=x"), *b"stats store backup a token=...");
        assert_eq!(*shown("stats  store  backup  a  token=secret"), *b"stats  store  backup  a  token=...");
        assert_eq!(*shown("get a token=b"), *b"get a token=b");
    }

    #[test]
    fn a_client_writes_no_line_of_its_own_into_the_log() {
        assert_eq!(*printable("get ä".as_bytes()), *"get ä".as_bytes());
        assert_eq!(*printable(b"a\r\nVALUE x\x1b[2J\x7f"), *b"a\\x0d\\x0aVALUE x\\x1b[2J\\x7f");
    }
}
