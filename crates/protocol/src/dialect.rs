//! The dialects a connection may speak. The text dialects are one: a line says by its first word which it is.

use std::ops::Range;

use crate::{Parsed, binary, text};

/// What a connection speaks, from its first byte on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Lines, meta commands included.
    Text,
    /// Packets.
    Binary,
}

impl Dialect {
    /// The dialect of a client whose first byte is this one.
    pub fn of_first_byte(byte: u8) -> Self {
        if byte == binary::REQUEST_MAGIC { Self::Binary } else { Self::Text }
    }

    /// Parses the request at the head of `input`, whose first `scanned` bytes are known to hold no line feed.
    pub fn parse(self, input: &[u8], scanned: usize) -> Parsed<'_> {
        match self {
            Self::Text => text::parse(input, scanned),
            Self::Binary => binary::parse(input),
        }
    }

    /// Where in `input` the key of the request at its head lies, if that is plain to see. A hint, for fetching memory ahead: the
    /// request may turn out to be malformed, or to have no key.
    pub fn first_key(self, input: &[u8]) -> Option<Range<usize>> {
        match self {
            Self::Text => text::first_key(input),
            Self::Binary => binary::first_key(input),
        }
    }
}
