//! The dialects a connection may speak. The text dialects are one: a line says by its first word which it is.

use std::ops::Range;

use crate::{Parsed, binary, http, text};

/// What a connection speaks, from its first byte on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Lines, meta commands included.
    Text,
    /// Packets.
    Binary,
    /// HTTP/1.1. No first byte tells: it has listeners of its own.
    Http,
}

impl Dialect {
    /// The dialect of a client whose first byte is this one.
    pub fn of_first_byte(byte: u8) -> Self {
        if byte == binary::REQUEST_MAGIC { Self::Binary } else { Self::Text }
    }

    /// Parses the request at the head of `input`, whose first `scanned` bytes were passed before and are no request; in
    /// the text dialect they hold no line feed.
    pub fn parse(self, input: &[u8], scanned: usize) -> Parsed<'_> {
        match self {
            Self::Text => text::parse(input, scanned),
            Self::Binary => binary::parse(input),
            Self::Http => http::parse(input, scanned),
        }
    }

    /// Where in `input` the key of the request at its head lies, if that is plain to see. A hint, for fetching memory
    /// ahead: the request may turn out to be malformed, or to have no key.
    pub fn first_key(self, input: &[u8]) -> Option<Range<usize>> {
        match self {
            Self::Text => text::first_key(input),
            Self::Binary => binary::first_key(input),
            Self::Http => http::first_key(input),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_key_is_where_the_request_has_it() {
        let of = |input: &'static [u8]| Dialect::Text.first_key(input).map(|key| &input[key]);
        assert_eq!(of(b"get key\r\nget other\r\n"), Some(&b"key"[..]));
        assert_eq!(of(b"set key 0 0 1\r\n1\r\n"), Some(&b"key"[..]));
        assert_eq!(of(b"mg key v\n"), Some(&b"key"[..]));
        for none in [&b""[..], b"get", b"get ", b"get key", b"mn\r\nget key\r\n", b"version\r\n"] {
            assert_eq!(of(none), None, "{}", none.escape_ascii());
        }
        // doc/protocol-binary.txt: key length at 2, extras length at 4, body from 24 on.
        let mut get = vec![0; 24];
        (get[0], get[3], get[4]) = (binary::REQUEST_MAGIC, 3, 4);
        get.extend_from_slice(b"....key");
        assert_eq!(Dialect::Binary.first_key(&get), Some(28..31));
        for shorter in 0..get.len() {
            assert_eq!(Dialect::Binary.first_key(&get[..shorter]), None);
        }
    }
}
