//! The parsers of all dialects: each gets the same bytes, whole and split at every position.

use larder_protocol::command::Parsed;
use larder_protocol::{Command, Dialect, Error, KEY_BYTES_MAX, Key, Reply, Request, Sink};

use crate::conversation;

/// Any bytes, as requests of the text dialect and of the binary one.
pub fn text(input: &[u8]) {
    at_every_cut(Dialect::Text, input);
    at_every_cut(Dialect::Binary, input);
}

/// The words of a meta command; the first byte selects the command.
pub fn meta(input: &[u8]) {
    let Some((verb, words)) = input.split_first() else { return };
    let verb = [&b"mg "[..], b"ms ", b"md ", b"ma ", b"me "][usize::from(*verb) % 5];
    at_every_cut(Dialect::Text, &[verb, words, b"\r\n"].concat());
}

/// A binary packet; its first byte is corrected.
pub fn binary(input: &[u8]) {
    let Some((_, rest)) = input.split_first() else { return };
    at_every_cut(Dialect::Binary, &[&[0x80], rest].concat());
}

/// Any bytes, as requests over HTTP; and as a conversation.
pub fn http(input: &[u8]) {
    at_every_cut(Dialect::Http, input);
    conversation::http(input);
}

/// A request that is found in a part of the input is also found in the whole input.
fn at_every_cut(dialect: Dialect, input: &[u8]) {
    let whole = dialect.parse(input, 0);
    if let Parsed::Request { request, head_bytes } = &whole {
        assert!(*head_bytes <= input.len());
        answer(request, input.len());
    }
    for cut in 0..input.len().min(CUTS_MAX) {
        let part = &input[..cut];
        if let Parsed::Request { head_bytes, .. } = dialect.parse(part, 0) {
            assert!(head_bytes <= cut);
            assert_eq!(dialect.parse(part, 0), whole, "cut at {cut}");
        }
        let is_scanned = match dialect {
            Dialect::Http => dialect.parse(part, 0) == Parsed::NeedInput,
            _ => !part.contains(&b'\n'),
        };
        if is_scanned {
            assert_eq!(dialect.parse(input, cut), whole, "{cut} bytes that were looked at before");
        }
    }
}

/// Writes every kind of reply: none is much longer than what it repeats of the request.
fn answer(request: &Request<'_>, request_bytes: usize) {
    if let Command::Get(get) = request.command {
        get.keys.for_each(look_at);
    }
    let number = Reply::Number { number: u64::MAX, cas: 1, ttl_before_secs: None, ttl_secs: Some(1) };
    for reply in [
        Reply::Stored { cas: u64::MAX, value_bytes: u32::MAX, is_new: true },
        Reply::Miss,
        Reply::End,
        Reply::NotStored,
        Reply::Exists,
        Reply::NotFound,
        Reply::Deleted,
        Reply::Touched { client_flags: u32::MAX, cas: u64::MAX },
        Reply::Ok,
        Reply::Noop,
        Reply::Error(Error::OutOfMemoryStoring),
        number,
    ] {
        let mut written = Written(0);
        request.form.encode(&reply, &mut written);
        assert!(written.0 <= 2 * request_bytes + REPLY_BYTES_MAX, "{} bytes of reply", written.0);
    }
}

fn look_at(key: Key<'_>) {
    assert!((1..=KEY_BYTES_MAX).contains(&key.bytes(&mut [0; KEY_BYTES_MAX]).len()));
}

/// Counts written bytes.
struct Written(usize);

impl Sink for Written {
    type Value = ();

    fn bytes(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }

    fn value(&mut self, (): &()) {}
}

const CUTS_MAX: usize = 300;
/// Of a reply, apart from what it repeats of the request.
const REPLY_BYTES_MAX: usize = 400;
